"""A database on the command line: what names none is a usage error, and no message has its password."""

from __future__ import annotations

import click
from click.core import ParameterSource

from hubbub.defaults import DATABASE_FILE


class DatabaseName(click.ParamType[str]):
    """Option type: a SQLite path or a PostgreSQL URL."""

    name = "database"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value; fail with a usage error if it is neither."""
        from hubbub.wire.urls import mask_url
        from hubbub_aggregator.database.location import postgres_url
        from hubbub_aggregator.errors import StoreError

        try:
            postgres_url(value)
        except StoreError as problem:
            shown = mask_url(value)
            self.fail(f"{shown}: {problem}" if shown else str(problem), param, ctx)
        return value


def is_named(context: click.Context) -> bool:
    """Return whether the user names the database by option, variable or file; a named database must exist."""
    return context.get_parameter_source("database") is not ParameterSource.DEFAULT


database_option = click.option(
    "--database",
    type=DatabaseName(),
    default=DATABASE_FILE,
    show_default=True,
    envvar="HUBBUB_DATABASE",
    show_envvar=True,
    help="SQLite file or postgresql://user@host/database. The service may run.",
)
