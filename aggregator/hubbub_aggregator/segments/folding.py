"""Fold segments of an object store into summaries: each batch counts once, in whatever segments and however often it stands.

A fold reads the newest manifest, counts the batches of the segments that it does not name, except for those with a known id, and creates
the ids, the summary and manifest N + 1. It counts for all when the manifest exists, and for nobody before. Only then are its segments and
the older summary deleted, except for segments that a run was told to keep. Manifests stay: a slow fold could otherwise create a number again that was created and deleted.

Once a period is closed and all its segments are folded, a last manifest without ids is created, and then all ids are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import add
from uuid import uuid4

from hubbub.metrics.metric import Metric
from hubbub.summary import Summary, summary_from_bytes, summary_to_bytes
from hubbub.wire.urls import mask_url
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.segments.engines import Engine, NewSegments
from hubbub_aggregator.segments.manifest import Manifest, closed_name, manifest_name, newest_manifest
from hubbub_aggregator.segments.object_store import MissingObjectError, ObjectStore
from hubbub_aggregator.segments.segment_file import SegmentFolder

_MAX_TRIES = 10
_MAX_SEGMENTS_PER_FOLD = 10_000


@dataclass(frozen=True, slots=True)
class Folded:
    """Result of folding one folder.

    summary      : of all segments so far, closed as below; None: there is none
    closed       : whether the period is closed, and no segment is left
    num_segments : segments folded by this call
    num_batches  : batches counted by this call
    num_repeated : rows of these segments that were not counted, since their batch was counted before
    num_kept     : folded segments that still exist, because a run was told to keep them
    """

    folder: SegmentFolder
    summary: Summary | None
    closed: bool
    num_segments: int
    num_batches: int
    num_repeated: int
    num_kept: int


class _OvertakenError(Exception):
    """Another fold of the same folder was faster."""


def folders(objects: ObjectStore) -> list[SegmentFolder]:
    """Return the folders with objects, in the order of metric, digest and period."""
    return sorted({folder for name in objects.names() if (folder := SegmentFolder.of(name)) is not None})


def fold_folder(
    objects: ObjectStore, folder: SegmentFolder, metric: Metric, engine: Engine, *, keep: bool | None = None
) -> Folded:
    """Fold the segments of a metric version and period that were not folded yet, and delete them.

    keep : True keeps them; False also deletes those that an earlier call kept; None leaves those

    May be interrupted at any point, and run by several processes at once. Raises StoreError for a damaged object, and after ten folds
    by others in the meantime.
    """
    fold = _Fold(objects, folder, metric, engine, keep)
    total = Folded(folder, None, False, 0, 0, 0, 0)
    while True:
        done = fold.retry()
        total = Folded(
            folder,
            done.summary,
            done.closed,
            total.num_segments + done.num_segments,
            total.num_batches + done.num_batches,
            total.num_repeated + done.num_repeated,
            done.num_kept,
        )
        if done.num_segments < _MAX_SEGMENTS_PER_FOLD:
            return total


@dataclass(frozen=True)
class _Fold:
    """Folds of the segments of one folder, at most 10,000 at once."""

    objects: ObjectStore
    folder: SegmentFolder
    metric: Metric
    engine: Engine
    keep: bool | None

    def retry(self) -> Folded:
        """Fold once, again if another process was faster."""
        for _ in range(_MAX_TRIES):
            try:
                return self._run()
            except (_OvertakenError, MissingObjectError):
                continue
        raise StoreError(
            f"{mask_url(self.objects.place)}: {self.folder.path} was folded by others {_MAX_TRIES} times: fold it with one process"
        )

    def _run(self) -> Folded:
        objects, folder = self.objects, self.folder
        names = sorted(objects.names(folder.path))
        is_closed = closed_name(folder.path) in names
        if is_closed:
            names = sorted(objects.names(folder.path))  # the first may lack segments that were created before the mark
        newest = newest_manifest(names)
        before = Manifest() if newest is None else Manifest.from_bytes(newest, objects.read(newest))
        stored = [name for name in names if name.startswith(f"{folder.path}/segments/")]
        new = sorted(set(stored) - set(before.segments))[:_MAX_SEGMENTS_PER_FOLD]
        summary = summary_from_bytes(objects.read(before.summary)) if before.summary else None
        if before.closed:
            self._delete_unnamed(names, before)
            if new:
                raise StoreError(
                    f"{mask_url(objects.place)}: {folder.path} has {len(new)} segments that came after the ids of this closed period were "
                    "deleted. They are not counted, because they may repeat counted batches: move them out of the folder"
                )
        if not new:
            if is_closed and not before.closed:
                self._close(names, before)
            kept = self._kept(stored, before)
            if not self.keep:
                objects.delete((set(stored) & set(before.segments)) - set(kept))  # left by a fold that was interrupted
            return Folded(folder, _marked(summary, is_closed=is_closed), is_closed, 0, 0, 0, len(kept))
        counted = self.engine.count(
            NewSegments(objects, folder, self.metric, new, before.ids, f"{folder.path}/ids/{uuid4()}")
        )
        total = counted.summary if summary is None else add(summary, counted.summary)
        kept = (*self._kept(stored, before), *(new if self.keep else ()))
        after = Manifest(
            number=before.number + 1,
            segments=tuple(name for name in stored if name in {*new, *before.segments}),
            ids=(*before.ids, *counted.ids),
            summary=f"{folder.path}/summaries/{uuid4()}.parquet",
            kept=kept,
        )
        objects.create(after.summary, summary_to_bytes(total))
        if not self._create(after):
            objects.delete([*counted.ids, after.summary])
            raise _OvertakenError
        done = () if self.keep else set(after.segments) - set(kept)
        objects.delete([*([before.summary] if before.summary else []), *done])
        is_complete = is_closed and len(new) < _MAX_SEGMENTS_PER_FOLD
        if is_complete:
            with suppress(_OvertakenError):
                self._close([*names, *counted.ids], after)
        return Folded(
            folder,
            _marked(total, is_closed=is_complete),
            is_complete,
            len(new),
            counted.num_batches,
            counted.num_repeated,
            len(kept),
        )

    def _kept(self, stored: Iterable[str], before: Manifest) -> tuple[str, ...]:
        """Return the folded segments that exist and stay because an earlier fold was told to keep them."""
        return () if self.keep is False else tuple(name for name in stored if name in before.kept)

    def _create(self, manifest: Manifest) -> bool:
        """Create a manifest; return False if another fold has created one with its number.

        S3 repeats a put whose response was lost, and then finds the object that the first put created: it has the same bytes.
        """
        name, data = manifest_name(self.folder.path, manifest.number), manifest.to_bytes()
        return self.objects.create(name, data) or self.objects.read(name) == data

    def _close(self, names: Iterable[str], before: Manifest) -> None:
        """Create the last manifest of a closed period, all of whose segments are folded, and delete its ids."""
        last = replace(before, number=before.number + 1, ids=(), closed=True)
        if not self._create(last):
            raise _OvertakenError
        self._delete_unnamed(names, last)

    def _delete_unnamed(self, names: Iterable[str], last: Manifest) -> None:
        """Delete ids, and summaries of interrupted folds, that the last manifest of a closed period does not name."""
        unnamed = [name for name in names if ("/ids/" in name or "/summaries/" in name) and name != last.summary]
        if unnamed:
            self.objects.delete(unnamed)


def _marked(summary: Summary | None, *, is_closed: bool) -> Summary | None:
    return None if summary is None else replace(summary, closed=is_closed)
