"""Upgrade the tables of an older schema version in one transaction; Alembic runs the migrations on each engine.

This is a file of its own, because only `hubbub db upgrade` imports Alembic, and before it opens the transaction.
"""

from __future__ import annotations

from pathlib import Path

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.script.revision import RevisionError
from sqlalchemy import Connection

from hubbub_aggregator.database.engine import limit_lock_wait, lock_for_setup
from hubbub_aggregator.database.schema import SCHEMA_VERSION
from hubbub_aggregator.database.schema_version import prepare, version_of
from hubbub_aggregator.errors import SchemaError

MIGRATIONS = Path(__file__).parent / "migrations"


def upgrade(connection: Connection, to: int = SCHEMA_VERSION, migrations: Path = MIGRATIONS) -> tuple[int, int]:
    """Upgrade the tables to a schema version; return the version before and after.

    Runs in the connection's transaction. Concurrent upgrades wait for the first one and then change nothing. The
    tables of an empty database are created; its version before is 0. A database of a newer version is not changed.
    """
    lock_for_setup(connection)
    limit_lock_wait(connection)
    version = version_of(connection)
    if version is None:
        prepare(connection)
        return 0, SCHEMA_VERSION
    if version.number >= to:
        return version.number, version.number
    scripts = ScriptDirectory(str(migrations), version_locations=[str(migrations)])
    context = MigrationContext.configure(connection)
    try:
        missing = list(scripts.iterate_revisions(f"{to:04}", f"{version.number:04}"))
    except RevisionError:
        raise SchemaError(
            f"the database has schema version {version.number}, from which no migration leads to version {to}: "
            "restore a backup that an older hubbub can upgrade, or create a new database"
        ) from None
    for migration in reversed(missing):
        with Operations.context(context):
            migration.module.upgrade()
        context.stamp(scripts, migration.revision)
    return version.number, to
