"""`hubbub serve`: run the aggregator.

Each option is also an environment variable, HUBBUB_<NAME>, and a key of the TOML file that `--config` names.
Precedence: flag, environment variable, file, default.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hubbub.cli.help_sections import SectionedCommand, section
from hubbub.cli.output import PATH
from hubbub.defaults import DATABASE_FILE, LOCAL_READS_PORT, LOOPBACK, SERVICE_PORT
from hubbub.metrics.metric import Metric
from hubbub.text import format_exact_size, parse_size
from hubbub_aggregator.cli.database_option import DatabaseName, is_named
from hubbub_aggregator.monitoring.log_output import FORMATS, LEVELS, announce, configure
from hubbub_aggregator.settings import LISTENING, STORAGE, SettingError, Settings

if TYPE_CHECKING:
    from hubbub_aggregator.store.interface import Store

logger = logging.getLogger(__name__)

VARIABLE_PREFIX = "HUBBUB"
_LOG = "Log"
_SEGMENTS_TIMEOUT = timedelta(seconds=20)
"""Of a put, with its repetitions. Uploads then get 503 before a reverse proxy gives up, by default after 60 seconds."""
OTHER_VARIABLES = re.compile(r"HUBBUB_(CONSENT|URL|DEBUG|TOKEN|WEBHOOK|TEST_\w+)")
"""Variables of the client, of `hubbub pull` and `hubbub watch`, of the tests and of the benchmarks."""


class Size(click.ParamType):  # type: ignore[type-arg]
    """A size in bytes: a number, or a number of KiB, MiB or GiB."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of bytes."""
        size = parse_size(str(value))
        if size is None:
            self.fail(f"{value!r} is not a size: write a number of bytes, or 512KiB, 2MiB, 1GiB", param, ctx)
        return size


_option = partial(click.option, show_default=True, show_envvar=True)


def _settings_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each field of `Settings`, in their order."""
    for setting in reversed(fields(Settings)):
        shape: dict[str, Any] = {"default": setting.default, "metavar": setting.metadata["metavar"]}
        if isinstance(setting.default, bool):
            shape = {"is_flag": True}
        elif setting.metadata["is_size"]:
            shape |= {"default": format_exact_size(setting.default), "type": Size()}
        elif not isinstance(setting.default, int | float | str):
            shape = {"multiple": True, "metavar": shape["metavar"]}
            shape |= {"callback": _parse_periods} if shape["metavar"] == "NAME=N" else {}
        flag = f"--{setting.name.replace('_', '-')}"
        function = _option(flag, cls=section(setting.metadata["section"]), help=setting.metadata["help"], **shape)(
            function
        )
    return function


def settings_of(options: Mapping[str, Any]) -> Settings:
    """Return the settings among the values of options; a usage error names the option and the variable."""
    try:
        return Settings(**{setting.name: options[setting.name] for setting in fields(Settings)})
    except SettingError as problem:
        raise click.UsageError(problem.message(_option_and_variable)) from None


def _option_and_variable(setting: str) -> str:
    return f"--{setting.replace('_', '-')} ({VARIABLE_PREFIX}_{setting.upper()})"


def _parse_periods(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> dict[str, int]:
    """Parse NAME=N arguments into a number of periods by metric name."""
    parsed = {}
    for text in texts:
        name, separator, periods = text.partition("=")
        if not separator or not periods.isdecimal():
            raise click.BadParameter(f"got {text!r}: write NAME=N, such as homepage=30")
        parsed[name] = int(periods)
    return parsed


def configurable(context: click.Context) -> dict[str, click.Option]:
    """Return the options of a command that a variable or the configuration file may set, by name."""
    return {
        option.name: option
        for option in context.command.get_params(context)
        if isinstance(option, click.Option) and option.allow_from_autoenv and option.expose_value and option.name
    }


def _load_config(context: click.Context, _option: click.Parameter, path: Path | None) -> None:
    """Read a TOML file into the defaults of the other options; an unknown key or an invalid value is a usage error."""
    import tomllib

    if path is None:
        return
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise click.BadParameter(f"{path}: cannot be read: {problem.strerror}") from None
    except ValueError as problem:
        raise click.BadParameter(f"{path}: is not TOML: {problem}") from None
    options, defaults = configurable(context), {}
    for key, value in values.items():
        name = key.replace("-", "_")
        if name not in options:
            raise click.BadParameter(f"{path}: unknown option {key!r}; --help lists all")
        try:
            defaults[name] = _from_toml(options[name], value)
            options[name].type_cast_value(context, defaults[name])
        except click.BadParameter as problem:
            raise click.BadParameter(f"{path}: {key} = {json.dumps(value, default=str)}: {problem.message}") from None
    context.default_map = defaults


def _from_toml(option: click.Option, value: Any) -> Any:
    """Return a value for click to parse: text, because click would accept `true` as the number 1."""
    if option.is_flag != isinstance(value, bool):
        raise click.BadParameter("write true or false" if option.is_flag else "must not be true or false")
    if option.multiple != isinstance(value, list):
        raise click.BadParameter('write a list, such as ["..."]' if option.multiple else "must not be a list")
    return value if isinstance(value, (bool, list)) else str(value)


def unknown_variables(environ: Iterable[str], options: Iterable[str]) -> list[str]:
    """Return a warning for each HUBBUB_ variable that is no option and belongs to no other part of hubbub.

    >>> unknown_variables(["HUBBUB_PROT", "HUBBUB_PORT", "HUBBUB_TOKEN", "HOME"], ["port"])
    ['HUBBUB_PROT is set, but no option has this name, so it has no effect: see `hubbub serve --help`']
    """
    known = {f"{VARIABLE_PREFIX}_{name.upper()}" for name in (*options, "config")}
    return [
        f"{name} is set, but no option has this name, so it has no effect: see `hubbub serve --help`"
        for name in sorted(environ)
        if name.startswith(f"{VARIABLE_PREFIX}_") and name not in known and not OTHER_VARIABLES.fullmatch(name)
    ]


def _print_config(context: click.Context, values: Mapping[str, Any]) -> None:
    """Print every option as a line of the file that `--config` reads, with the source of its value."""
    from hubbub.wire.urls import mask_url

    for name, option in configurable(context).items():
        value, source = values[name], context.get_parameter_source(name)
        shown: object = value
        if isinstance(option.type, Size):
            shown = format_exact_size(value)
        elif isinstance(value, str):
            shown = mask_url(value)
        elif isinstance(value, Mapping):
            shown = [f"{metric}={periods}" for metric, periods in value.items()]
        where = "" if source is None else source.name.lower().replace("_", " ").replace("default map", "file")
        click.echo(f"{name} = {json.dumps(shown)}  # {where}")


@click.command(cls=SectionedCommand, context_settings={"auto_envvar_prefix": VARIABLE_PREFIX})
@click.argument("definitions", type=PATH)
@_option(
    "--config",
    metavar="FILE",
    type=PATH,
    is_eager=True,
    expose_value=False,
    callback=_load_config,
    help="TOML file with these options by name; flags and environment variables override it.",
)
@_option("--host", cls=section(LISTENING), metavar="ADDRESS", default=LOOPBACK, help="Address to listen on.")
@_option(
    "--port",
    cls=section(LISTENING),
    metavar="PORT",
    type=click.IntRange(0, 65535),
    default=SERVICE_PORT,
    help="Port to listen on; 0 takes a free one.",
)
@_option(
    "--local-port",
    cls=section(LISTENING),
    metavar="PORT",
    type=click.IntRange(0, 65535),
    default=LOCAL_READS_PORT,
    help="Port on 127.0.0.1 for --local-reads-without-token; 0 takes a free one.",
)
@_option(
    "--database",
    cls=section(STORAGE),
    type=DatabaseName(),
    default=DATABASE_FILE,
    help="SQLite file or postgresql://user@host/database. Must exist if it is named; the default is created.",
)
@_option(
    "--segments",
    cls=section(STORAGE),
    default=None,
    metavar="PLACE",
    help="Append reports to this directory or s3://bucket/prefix instead of the database; `hubbub fold` counts them.",
)
@_option(
    "--create",
    cls=section(STORAGE),
    is_flag=True,
    help="Create the database if it does not exist, as `hubbub db create` does.",
)
@_option(
    "--log-format",
    cls=section(_LOG),
    type=click.Choice(FORMATS),
    default="text",
    help="Format of the log lines on stderr.",
)
@_option(
    "--log-level", cls=section(_LOG), type=click.Choice(LEVELS), default="warning", help="Lowest level that is logged."
)
@_settings_options
@click.option(
    "--print-config",
    is_flag=True,
    allow_from_autoenv=False,
    help="Check all options and DEFINITIONS, print each option with its value and source, and exit.",
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
    segments: str | None,
    create: bool,
    log_format: str,
    log_level: str,
    print_config: bool,
    options: Mapping[str, Any],
) -> None:
    """Collect reports of the metrics in DEFINITIONS, a TOML file.

    Reading their counts takes a token: see `hubbub token create`.

    \b
    Example:
      hubbub serve metrics.toml --database reports.db
    """
    import os
    from contextlib import ExitStack
    from uuid import uuid4

    from hubbub.metrics.definitions import load_definitions
    from hubbub.wire.urls import mask_url
    from hubbub_aggregator.app import create_app
    from hubbub_aggregator.database.location import is_postgres
    from hubbub_aggregator.monitoring.disk_space import free_bytes_at
    from hubbub_aggregator.pipeline.active_definitions import warn_of_removed_metrics
    from hubbub_aggregator.pipeline.retention import warn_of_reports_without_rule
    from hubbub_aggregator.server.listener import bound_address, bound_url, listen, run
    from hubbub_aggregator.store.sql_store import SqlStore

    checked = settings_of(options)
    load = partial(load_definitions, definitions)
    metrics = load()
    configure(log_format, log_level)
    for message in (
        *unknown_variables(os.environ, configurable(context)),
        *_settings_warnings(checked, metrics, segments),
    ):
        logger.warning(message)
    if print_config:
        _print_config(context, {**context.params, **options})
        return
    free_bytes = None if is_postgres(database) else free_bytes_at(Path(database))

    with ExitStack() as stack:
        listeners = [stack.enter_context(listen(host, port))]
        local_address = local_url = None
        if checked.local_reads_without_token:
            local = stack.enter_context(listen(LOOPBACK, local_port, "--local-port"))
            listeners.append(local)
            local_address, local_url = bound_address(local), bound_url(local)
        create = create or not is_named(context)
        if segments is None:
            store = SqlStore.open(database, create=create)
        else:
            from hubbub_aggregator.segments.object_store import ObjectStore
            from hubbub_aggregator.segments.segment_store import open_segment_store

            store = open_segment_store(database, ObjectStore.open(segments, _SEGMENTS_TIMEOUT), uuid4, create=create)
        stack.callback(_close, store)
        if store.created:
            level = logging.WARNING if is_named(context) else logging.INFO
            logger.log(level, "created a new database at %s", mask_url(database))
        warn_of_removed_metrics(metrics, store)
        warn_of_reports_without_rule(store, metrics, checked)
        app = create_app(metrics, store, checked, free_bytes=free_bytes, reload=load, local_address=local_address)
        ready = partial(announce, log_format, bound_url(listeners[0]), local_url)
        run(app, listeners, checked.connection_limits(), ready, store.stop)


def _close(store: Store) -> None:
    """Close the store. If this would destroy data in damaged files, end the process with exit code 1, as SIGKILL would."""
    import os

    from hubbub_aggregator.errors import FilesInDoubtError

    try:
        store.close()
    except FilesInDoubtError as problem:
        logger.error("the process ends with exit code 1, and leaves the database files as they are: %s", problem)
        logging.shutdown()
        os._exit(1)


def _settings_warnings(settings: Settings, metrics: Mapping[str, Metric], segments: str | None) -> list[str]:
    """Return warnings of settings that bias results or have no effect, for the log at the start."""
    warnings = []
    if settings.reject_implausible:
        warnings.append(
            "--reject-implausible is on: a few genuine clients are refused permanently, and shares are biased by up to "
            "1e-9 / (q* - p*). Summaries record this. Leave the option out if you need unbiased shares"
        )
    for option, named in (("keep-counts", settings.keep_counts), ("keep-reports", settings.keep_reports)):
        warnings += [
            f"--{option} {name}: no metric has this name, so it has no effect; the metrics are {', '.join(metrics)}"
            for name in named.keys() - set(metrics)
        ]
    if segments is not None:
        warnings += [
            f"--keep-reports {name}: reports in --segments are not retained by the service. `hubbub fold --keep-segments` keeps them"
            for name, periods in settings.keep_reports.items()
            if periods
        ]
    warnings += [
        f"{name}: a joint metric without --keep-reports {name}=N keeps only the counts of each part's bits. They do not show how the parts "
        "depend on each other, so `hubbub associate` cannot be used. Add the option before clients report"
        for name, metric in metrics.items()
        if len(metric.blocks) > 1 and not settings.keep_reports.get(name)
    ]
    return warnings
