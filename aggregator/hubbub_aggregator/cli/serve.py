"""`hubbub serve`: collect reports."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from hubbub.cli.output import PATH
from hubbub.errors import ParameterError
from hubbub.text import format_exact_size
from hubbub_aggregator.cli.database_option import DatabaseName, is_named
from hubbub_aggregator.cli.size_option import Size
from hubbub_aggregator.monitoring.log_output import FORMATS, LEVELS, announce, configure
from hubbub_aggregator.settings import Settings, limits, switches

logger = logging.getLogger(__name__)

DEFAULT_LOCAL_PORT = 8100
_SHORT_FORMS = {"local_reads_without_token": ("--open-reads",)}


def _envvar(name: str) -> str:
    return f"HUBBUB_{name.upper()}"


def option(name: str, *short_forms: str, **attributes: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make an option that is also an environment variable: `--max-body` and HUBBUB_MAX_BODY."""
    flags = (f"--{name.replace('_', '-')}", *short_forms)
    return click.option(*flags, name, envvar=_envvar(name), show_envvar=True, **attributes)


def _settings_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for setting in reversed(switches()):
        short_forms = _SHORT_FORMS.get(setting.name, ())
        function = option(setting.name, *short_forms, is_flag=True, help=setting.metadata["about"])(function)
    for setting in reversed(limits()):
        default, shape = setting.default, {}
        if setting.metadata["is_size"]:
            default, shape = format_exact_size(setting.default), {"type": Size()}
        about = setting.metadata["about"]
        function = option(setting.name, default=default, show_default=True, help=about, **shape)(function)
    return function


def _periods(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, int]:
    told = {}
    for text in given:
        name, separator, periods = text.partition("=")
        if not separator or not periods.isdecimal():
            raise click.BadParameter(f"got {text!r}: write NAME=N, such as homepage=30")
        told[name] = int(periods)
    return told


def _from_file(context: click.Context, _option: click.Parameter, path: Path | None) -> None:
    """Let a TOML file give the defaults: flag > environment > file > default."""
    import tomllib

    if path is None:
        return
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise click.BadParameter(f"{path}: cannot be read: {problem.strerror}") from None
    except ValueError as problem:
        raise click.BadParameter(f"{path}: is not TOML: {problem}") from None
    known = {
        option.name: option for option in context.command.get_params(context) if option.envvar and option is not _option
    }
    for name, value in told.items():
        taken = known.get(name.replace("-", "_"))
        if not isinstance(taken, click.Option):
            raise click.BadParameter(f"{path}: there is no option {name!r}; --help lists all")
        try:
            _require_kind(taken, value)
            taken.type_cast_value(context, value)
        except click.BadParameter as problem:
            raise click.BadParameter(f"{path}: {name} = {value!r}: {problem.message}") from None
    context.default_map = {name.replace("-", "_"): value for name, value in told.items()}


def _require_kind(option: click.Option, value: object) -> None:
    """Refuse what click would make something else of: `true` for a port, `1.5` for a number of bytes."""
    whole, number = (
        isinstance(option.type, (click.types.IntParamType, Size)),
        isinstance(option.type, click.types.FloatParamType),
    )
    if option.is_flag != isinstance(value, bool):
        raise click.BadParameter("write true or false" if option.is_flag else "is not true or false")
    if option.multiple != isinstance(value, list):
        raise click.BadParameter('write a list, as ["..."]' if option.multiple else "is no list")
    if isinstance(value, float) and not number and whole:
        raise click.BadParameter("write a whole number")


def _print_config(context: click.Context) -> None:
    """Print every option as the file that `--config` reads, with where its value is from."""
    import json

    from hubbub_aggregator.database.database_url import without_password

    for parameter in context.command.params:
        name = parameter.name
        if name is None or name in ("config", "print_config", "definitions"):
            continue
        value, source = context.params[name], context.get_parameter_source(name)
        shown: object = value if isinstance(value, (bool, int, float, tuple)) else str(value)
        if isinstance(parameter.type, Size):
            shown = format_exact_size(value)
        if name == "database":
            shown = without_password(value)
        if name in ("keep", "retain"):
            shown = [f"{metric}={periods}" for metric, periods in value.items()]
        where = "" if source is None else source.name.lower().replace("_", " ").replace("default map", "file")
        click.echo(f"{name} = {json.dumps(shown)}  # {where}")


@click.command()
@click.argument("definitions", type=PATH)
@click.option(
    "--config",
    type=PATH,
    is_eager=True,
    expose_value=False,
    callback=_from_file,
    envvar="HUBBUB_CONFIG",
    show_envvar=True,
    help="TOML file with these options by name; flags and environment variables win over it.",
)
@option("host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@option("port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@option(
    "local_port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_LOCAL_PORT,
    show_default=True,
    help="Port on 127.0.0.1 for --local-reads-without-token; 0 takes a free one.",
)
@option(
    "database",
    type=DatabaseName(),
    default="hubbub.db",
    show_default=True,
    help="SQLite file or postgresql://user@host/database. Must exist if it is named; the default is made.",
)
@option("create", is_flag=True, help="Make the database if it does not exist, as `hubbub db create` does.")
@option(
    "keep",
    multiple=True,
    metavar="NAME=N",
    callback=_periods,
    help="Drop this metric's counts N periods after their period's end; may be repeated. Default: keep all.",
)
@option(
    "retain",
    multiple=True,
    metavar="NAME=N",
    callback=_periods,
    help="Keep this metric's reports, too, until N periods after their period's end; may be repeated. Default: none.",
)
@option(
    "cors_origin",
    multiple=True,
    metavar="URL",
    help="Let pages of this origin, https://host, send batches and read /v1/metrics; may be repeated.",
)
@option(
    "trusted_proxy",
    multiple=True,
    metavar="NETWORK",
    help="Network of proxies beside this machine's, as 10.0.0.0/8, whose X-Forwarded-For is believed; may be repeated.",
)
@option("log_format", type=click.Choice(FORMATS), default="text", show_default=True, help="Of the lines on stderr.")
@option("log_level", type=click.Choice(LEVELS), default="warning", show_default=True, help="The least that is said.")
@_settings_options
@click.option(
    "--print-config",
    is_flag=True,
    help="Check all options and DEFINITIONS, print what each is, and why, and do not serve.",
)
@click.pass_context
def command(
    context: click.Context,
    /,
    definitions: Path,
    host: str,
    port: int,
    local_port: int,
    database: str,
    create: bool,
    log_format: str,
    log_level: str,
    print_config: bool,
    **settings: Any,
) -> None:
    """Collect reports of the metrics in DEFINITIONS, a TOML file.

    Who has a token may read their counts: `hubbub token create`.

    \b
    Example:
      hubbub serve metrics.toml --database reports.db
    """
    from contextlib import ExitStack, closing
    from functools import partial

    from hubbub.metrics.definitions import load_definitions
    from hubbub_aggregator.app import create_app
    from hubbub_aggregator.database.database_url import is_postgres, without_password
    from hubbub_aggregator.monitoring.disk_space import free_bytes_at
    from hubbub_aggregator.pipeline.active_definitions import warn_of_removed_metrics
    from hubbub_aggregator.server.listener import address_of, listen, run, url_of
    from hubbub_aggregator.store.sql_store import SqlStore

    try:
        checked = Settings(**settings)
    except ParameterError as problem:
        raise click.UsageError(str(problem)) from None
    load = partial(load_definitions, definitions)
    metrics = load()
    if print_config:
        _print_config(context)
        return
    configure(log_format, log_level)
    if checked.refuse_odd:
        logger.warning(
            "--refuse-odd: shares are biased, by at most one report in a billion, and the few honest clients whose permanent "
            "noise is that unusual are refused for ever; summaries say so"
        )
    for option_, named in (("keep", checked.keep), ("retain", checked.retain)):
        for name in named.keys() - set(metrics):
            logger.warning(
                "--%s %s: there is no such metric; %s has %s", option_, name, definitions, ", ".join(metrics)
            )
    free = None if is_postgres(database) else free_bytes_at(Path(database))

    with ExitStack() as stack:
        listeners = [stack.enter_context(listen(host, port))]
        local_address = local_url = None
        if checked.local_reads_without_token:
            local = stack.enter_context(listen("127.0.0.1", local_port, "--local-port"))
            listeners.append(local)
            local_address, local_url = address_of(local), url_of(local)
        store = stack.enter_context(closing(SqlStore.open(database, create=create or not is_named(context))))
        if store.created:
            logger.warning("created a new database at %s", without_password(database))
        warn_of_removed_metrics(metrics, store)
        app = create_app(metrics, store, checked, free=free, reload=load, local_address=local_address)
        ready = partial(announce, log_format, url_of(listeners[0]), local_url)
        run(app, listeners, ready, store.stop, checked)
