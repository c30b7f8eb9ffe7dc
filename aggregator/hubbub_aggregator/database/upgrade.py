"""Older tables -> this hubbub's, step by step, all or nothing; Alembic knows how a step is done on each engine."""

from __future__ import annotations

from pathlib import Path

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.script.revision import RevisionError
from sqlalchemy import Connection

from hubbub_aggregator.database.backup_digest import break_seal
from hubbub_aggregator.database.engine import limit_lock_wait, lock_for_setup
from hubbub_aggregator.database.schema import SCHEMA_VERSION
from hubbub_aggregator.database.schema_version import version_of
from hubbub_aggregator.errors import SchemaError

STEPS = Path(__file__).parent / "migrations"


def upgrade(connection: Connection, to: int = SCHEMA_VERSION, steps: Path = STEPS) -> tuple[int, int]:
    """Bring the tables to a version within the transaction that is under way; return the version before and after.

    Whoever comes second waits for the first, and then finds nothing to do. An empty database counts as version 0. A
    newer one is left as it is.
    """
    lock_for_setup(connection)
    limit_lock_wait(connection)
    break_seal(connection)
    version = version_of(connection)
    scripts = ScriptDirectory(str(steps), version_locations=[str(steps)])
    context = MigrationContext.configure(connection)
    if version is None:
        before, start = 0, None
    else:
        before, start = version.number, f"{version.number:04}"
        if before >= to:
            return before, before
        if not context.get_current_heads():  # of before Alembic
            context.stamp(scripts, start)
    try:
        missing = list(scripts.iterate_revisions(f"{to:04}", start))
    except RevisionError:
        raise SchemaError(f"the database has schema {before}, from which no step leads to schema {to}") from None
    for step in reversed(missing):
        with Operations.context(context):
            step.module.upgrade()
        context.stamp(scripts, step.revision)
    return before, to
