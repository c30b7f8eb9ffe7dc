"""Changes between two definitions files: what users of a metric were promised, before and after.

A version is identified by its digest. A changed metric is a new version below the old one, which stays in the file, because apps
in use still report it. A file may drop a version that was no longer current.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any

from hubbub.metrics.definitions import Definitions
from hubbub.metrics.metric import Metric


class ChangeKind(StrEnum):
    """Kind of a change of one version; MEANING is a change of the current version without a new version."""

    ADDED = "added"
    REMOVED = "removed"
    UNCHANGED = "unchanged"
    DOCUMENTATION = "documentation"
    NEW_VERSION = "new version"
    CURRENT_AGAIN = "current again"
    MEANING = "meaning changed"


@dataclass(frozen=True, slots=True)
class VersionChange:
    """Change of one version of a metric.

    name          : name of the metric
    before, after : versions that are compared; None if the metric or version is added or removed
    """

    name: str
    kind: ChangeKind
    before: Metric | None
    after: Metric | None

    @property
    def fields(self) -> dict[str, tuple[Any, Any]]:
        """Fields of `Metric.to_dict` that differ, with both values; the value of a missing field is None."""
        if self.before is None or self.after is None:
            return {}
        return _differences(self.before, self.after)

    def problems(self) -> Iterator[str]:
        """Yield the reasons why the change is not acceptable."""
        if self.before is None or self.after is None:
            return
        if self.kind is ChangeKind.MEANING:
            yield (
                f"{self.name}: {', '.join(self.fields)} changed without a new version: the new file lacks the current version "
                f"{self.before.digest[:12]} of the old one, so aggregators refuse the reports of apps that have it. Put its "
                f"[[metric]] table back, above version {self.after.digest[:12]}"
            )
        old, new = (metric.lifetime_epsilon or math.inf for metric in (self.before, self.after))
        if new > old:
            yield (
                f"{self.name}: lifetime_epsilon rises from {old:g} to {'no limit' if new == math.inf else f'{new:g}'}, but clients keep the "
                f"lowest limit that they have seen: set lifetime_epsilon = {old:g}, or give the metric another name"
            )
        promises = _changed_promises(self.before, self.after)
        if promises and self.before.review and self.after.review in ("", self.before.review):
            yield (
                f"{self.name}: {promises} changed, but review is {'the same' if self.after.review else 'missing'}: "
                f"{self.before.review} approved the old definition only. Set review to the address of this change's review"
            )


def compare_definitions(old: Definitions, new: Definitions) -> list[VersionChange]:
    """Return the changes from one definitions file to another, in the order of the old file, then of the new one."""
    return [change for name in dict.fromkeys((*old, *new)) for change in _compare_metric(name, old, new)]


def _compare_metric(name: str, old: Definitions, new: Definitions) -> Iterator[VersionChange]:
    """Yield the changes of the versions of one metric."""
    before, after = _versions(name, old), _versions(name, new)
    if not before or not after:
        yield from (VersionChange(name, ChangeKind.ADDED, None, version) for version in after.values())
        yield from (VersionChange(name, ChangeKind.REMOVED, version, None) for version in before.values())
        return
    previous, current = old[name], new[name]
    is_kept = previous.digest in after
    for digest, version in before.items():
        if digest in after:
            kind = ChangeKind.DOCUMENTATION if _differences(version, after[digest]) else ChangeKind.UNCHANGED
            yield VersionChange(name, kind, version, after[digest])
        elif version is previous:
            yield VersionChange(name, ChangeKind.MEANING, previous, current)
        else:
            yield VersionChange(name, ChangeKind.REMOVED, version, None)
    for digest, version in after.items():
        if digest not in before and (is_kept or version is not current):
            yield VersionChange(name, ChangeKind.NEW_VERSION, previous, version)
    if is_kept and current.digest in before and current.digest != previous.digest:
        yield VersionChange(name, ChangeKind.CURRENT_AGAIN, previous, current)


def _versions(name: str, definitions: Definitions) -> dict[str, Metric]:
    return {metric.digest: metric for metric in definitions.versions() if metric.name == name}


def _changed_promises(before: Metric, after: Metric) -> str:
    """Return the names of the changed promises to users: the meaning of reports, the purpose, and the end of collection."""
    promises = {
        "the digest": before.digest != after.digest,
        "purpose": before.purpose not in ("", after.purpose),
        f"expires (later, {after.expires})": (after.expires or date.max) > (before.expires or date.max),
    }
    return " and ".join(promise for promise, has_changed in promises.items() if has_changed)


def _differences(before: Metric, after: Metric) -> dict[str, tuple[Any, Any]]:
    fields, others = (dict(_flat_fields(metric.to_dict())) for metric in (before, after))
    return {
        field: (fields.get(field), others.get(field))
        for field in dict.fromkeys((*fields, *others))
        if field != "digest" and fields.get(field) != others.get(field)
    }


def _flat_fields(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of nested objects, such as `buckets.edges` and `parts[0].prob_f`."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flat_fields(value, f"{prefix}{name}.")
        elif name == "parts":
            for number, part in enumerate(value):
                yield from _flat_fields(part, f"{prefix}{name}[{number}].")
        else:
            yield prefix + name, value
