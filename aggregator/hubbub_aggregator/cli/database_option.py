"""A database on the command line: what names none is a usage error, and no message has its password."""

from __future__ import annotations

import click
from click.core import ParameterSource


class DatabaseName(click.ParamType[str]):
    """A path or a PostgreSQL URL."""

    name = "database"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse what is neither."""
        from hubbub_aggregator.database.database_url import postgres_url, without_password
        from hubbub_aggregator.errors import StoreError

        try:
            postgres_url(value)
        except StoreError as problem:
            shown = without_password(value)
            self.fail(f"{shown}: {problem}" if shown else str(problem), param, ctx)
        return value


def is_named(context: click.Context) -> bool:
    """Return whether an option, a variable or a file names the database: one that is named must exist."""
    return context.get_parameter_source("database") is not ParameterSource.DEFAULT


database_option = click.option(
    "--database",
    type=DatabaseName(),
    default="hubbub.db",
    show_default=True,
    envvar="HUBBUB_DATABASE",
    show_envvar=True,
    help="The aggregator's database; it may be running.",
)
