"""Where the service stores: one SQLite file, segments in a folder or a bucket beside one, or a PostgreSQL database that two replicas share.

Each begins with what the packed release wrote there, and is upgraded first.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

from click.testing import CliRunner

from hubbub.cli import main
from hubbub_aggregator.database.backup import copy_file
from hubbub_aggregator.segments.object_store import ObjectStore
from hubbub_aggregator.segments.segment_store import open_segment_store
from hubbub_aggregator.store.sql_store import SqlStore
from tests.support.databases import contents, new_postgres
from tests.support.postgres import binary, postgres_server
from tests.support.release_artefacts import RELEASES, Release, rows
from tests.support.s3_server import environment, s3_server


class Storage:
    """One SQLite file.

    segments : the place that receives the reports, as `hubbub fold` takes it; None: the database receives them
    """

    num_replicas = 1
    segments: str | None = None

    def __init__(self, release: Release) -> None:
        self.database = str(release.folder / "reports.db")

    def open(self) -> SqlStore:
        """Open the store for one replica."""
        return SqlStore.open(self.database, create=False)

    def back_up(self, file: Path) -> None:
        """Back up while it is served."""
        copy_file(self.database, str(file))

    def restore(self, file: Path) -> None:
        """Restore a backup to a new place."""
        self.database = str(Path(self.database).with_name("restored.db"))
        copy_file(str(file), self.database)

    def content(self) -> Iterator[tuple[str, bytes]]:
        """Yield names and contents of all that is stored."""
        yield "the database", Path(self.database).read_bytes()

    def kept_ids(self) -> int:
        """Return how many ids of batches of closed periods are still stored."""
        query = (
            "SELECT count(*) FROM batch JOIN collection ON collection.id = batch.collection_id WHERE collection.closed"
        )
        ((number,),) = rows(self.database, query)
        return int(number)


class SegmentStorage(Storage):
    """Segments in a folder; tokens, the clock and closed periods are in a SQLite file."""

    segments: str

    def __init__(self, release: Release) -> None:
        self.database, self.segments = str(release.folder / "segments.db"), str(release.folder / "segments")

    def open(self) -> SqlStore:
        return open_segment_store(self.database, ObjectStore.open(self.segments), uuid4, create=False)

    def back_up(self, file: Path) -> None:
        super().back_up(file)
        _copy(self.segments, str(file.with_suffix(".segments")))

    def restore(self, file: Path) -> None:
        super().restore(file)
        self.segments += "-restored"
        _copy(str(file.with_suffix(".segments")), self.segments)

    def content(self) -> Iterator[tuple[str, bytes]]:
        yield from super().content()
        objects = ObjectStore.open(self.segments)
        yield from ((name, objects.read(name)) for name in objects.names())

    def kept_ids(self) -> int:
        names = list(ObjectStore.open(self.segments).names())
        closed = [name.removesuffix("closed/mark") for name in names if name.endswith("/closed/mark")]
        kept = [name for folder in closed for name in names if name.startswith((f"{folder}ids/", f"{folder}segments/"))]
        return super().kept_ids() + len(kept)


class BucketStorage(SegmentStorage):
    """Segments in a bucket of S3."""

    def __init__(self, release: Release) -> None:
        super().__init__(release)
        folder, self.segments = self.segments, "s3://bucket/segments"
        _copy(folder, self.segments)


def _copy(source: str, target: str) -> None:
    """Copy all objects to a place that has none."""
    objects, copies = ObjectStore.open(source), ObjectStore.open(target)
    for name in objects.names():
        assert copies.create(name, objects.read(name))


class PostgresStorage(Storage):
    """A PostgreSQL database."""

    num_replicas = 2

    def __init__(self, release: Release) -> None:
        self.database, self._server = release.postgres, release.server

    def back_up(self, file: Path) -> None:
        command = [binary("pg_dump"), "--format=custom", "--file", str(file), self.database]
        subprocess.run(command, check=True, capture_output=True)

    def restore(self, file: Path) -> None:
        self.database = new_postgres(self._server)
        how = ["--exit-on-error", "--single-transaction", "--no-owner", "--dbname", self.database]
        subprocess.run([binary("pg_restore"), *how, str(file)], check=True, capture_output=True)

    def content(self) -> Iterator[tuple[str, bytes]]:
        yield "the database", repr(contents(self.database)).encode()


STORAGES = (Storage, BucketStorage, PostgresStorage, Storage, SegmentStorage, PostgresStorage)
"""Of one seed after the other."""


@contextmanager
def upgraded(kind: type[Storage], directory: Path) -> Iterator[tuple[Release, Storage]]:
    """Unpack the release candidate's artefacts, and upgrade its database; a server of PostgreSQL or S3 runs for the block."""
    directory.mkdir()
    (archive,) = RELEASES.glob("*.tar.xz")
    with ExitStack() as stack:
        url = ""
        if kind is PostgresStorage:
            server = stack.enter_context(postgres_server())
            # no power fails in the simulation, and syncs take most of the time on some disks
            server.execute("ALTER SYSTEM SET fsync = off")
            server.execute("SELECT pg_reload_conf()")
            url = server.url
        if kind is BucketStorage:
            stack.enter_context(patch.dict(os.environ, environment(stack.enter_context(s3_server()))))
        release = Release.unpack(archive, directory, url)
        storage = kind(release)
        done = CliRunner().invoke(main, ["db", "upgrade", "--database", storage.database])
        assert done.exit_code == 0, done.output
        yield release, storage
