"""The `hubbub` command group. Subcommands are entry points, loaded on use.

Each package registers its subcommands in the group `hubbub.commands`. The module of a subcommand imports click only and imports
everything else inside the command, so `hubbub --help` is fast. Commands that are not installed name the extra that has them.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import EntryPoint, entry_points, version
from typing import Any

import click

from hubbub.cli.output import replace_unencodable
from hubbub.errors import HubbubError
from hubbub.text import DISTRIBUTION, SERVER_DISTRIBUTION, did_you_mean, install_hint
from hubbub.wire.urls import mask_url, mask_urls

_ARGUMENTS = "hubbub.arguments"
SECTIONS = {
    "First steps": ("demo", "plan", "serve", "pull", "decode"),
    "App": ("metrics", "encode", "inspect", "conformance"),
    "Service": ("token", "doctor", "db", "fold"),
    "Analysis": (
        "explore",
        "publish",
        "decode-all",
        "compare",
        "watch",
        "discover",
        "associate",
        "simulate",
        "import",
        "survey",
        "audit",
    ),
}
"""Commands by their user, in the order of `hubbub --help`: the first five are those that a newcomer needs."""


def _discard_buffered_output() -> None:
    """Let what standard output still holds end in the null device: Python flushes it at its end, which would fail again."""
    with suppress(OSError, ValueError):  # standard output without a file descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Commands(click.Group):
    """Command group with entry points as commands. A HubbubError is printed as one line, with exit code 1.

    No error and no traceback shows the secrets of a URL.
    """

    def __call__(self, args: Sequence[str] | None = None, prog_name: str | None = None) -> Any:
        """Run the program, which has this process for itself: its hooks, its streams and its end."""
        sys.excepthook = _print_traceback
        threading.excepthook = _print_traceback_of_thread
        replace_unencodable(sys.stdout, sys.stderr)
        try:
            return self.main(args, prog_name)
        except OSError as problem:
            if problem.errno != errno.ENOSPC:
                raise
            click.echo(f"Error: cannot write the output: {problem.strerror}", err=True)
            _discard_buffered_output()
            sys.exit(1)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_ARGUMENTS] = arguments = tuple(args)
        with _masked_errors(arguments):
            return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (signature of click)
        listed = [name for names in SECTIONS.values() for name in names]
        return sorted(_commands(), key=lambda name: (listed.index(name) if name in listed else len(listed), name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section."""
        listed = self.list_commands(ctx)
        width = max(map(len, listed))
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in listed:
            command = self.get_command(ctx, name)
            section = next((title for title, names in SECTIONS.items() if name in names), "Other commands")
            text = "" if command is None else command.get_short_help_str(formatter.width - width - 4)
            sections.setdefault(section, []).append((name.ljust(width), text))
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows)
        if not _listed() <= {*listed}:
            formatter.write(f"\nFor the commands of the aggregator and the decoder,\n{install_hint('all')}\n")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not (name.startswith("-") or ctx.resilient_parsing):
            _check_installed(ctx, name)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        entry = _commands().get(cmd_name)
        return None if entry is None else entry.load()

    def invoke(self, ctx: click.Context) -> Any:
        with _masked_errors(ctx.meta[_ARGUMENTS]):
            return self._invoke(ctx)

    def _invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HubbubError as problem:
            raise click.ClickException(str(problem)) from None
        except ModuleNotFoundError as problem:
            if sys.platform == "win32" and problem.name in sys.stdlib_module_names:  # fcntl and others
                raise click.ClickException(
                    f"`hubbub {ctx.invoked_subcommand}` needs {problem.name}, which Python does not have on {sys.platform}: use Linux or macOS"
                ) from None
            extra = _extra_of(ctx.invoked_subcommand)
            if extra is None or (problem.name or "").partition(".")[0].startswith("hubbub"):
                raise
            raise click.ClickException(
                f"`hubbub {ctx.invoked_subcommand}` needs {problem.name}: {install_hint(extra)}"
            ) from None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name=DISTRIBUTION)
def main() -> None:
    """Collect telemetry with local differential privacy: randomize on the client, estimate frequencies on the server.

    \b
    Example:
      hubbub demo
    """


def _commands() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group="hubbub.commands")}


def _listed() -> set[str]:
    return {name for names in SECTIONS.values() for name in names}


def _check_installed(ctx: click.Context, name: str) -> None:
    """Raise an error unless this command is installed, in the version of the client."""
    entry, extra, own = _commands().get(name), _extra_of(name), version(DISTRIBUTION)
    if entry is None and extra is not None:
        raise click.ClickException(f"`hubbub {name}` is not installed: {install_hint(extra)}")
    if entry is None:
        ctx.fail(f"No such command {name!r}.{did_you_mean(name, _listed() | _commands().keys())}")
    if entry.dist is not None and entry.dist.name == SERVER_DISTRIBUTION and entry.dist.version != own:
        raise click.ClickException(
            f"`hubbub {name}` is in {SERVER_DISTRIBUTION} {entry.dist.version}, but {DISTRIBUTION} is {own}. "
            f"Both must have the same version: run pip install '{DISTRIBUTION}[{extra}]=={own}'"
        )


@contextmanager
def _masked_errors(arguments: Iterable[str]) -> Iterator[None]:
    """Mask URLs in the message of an error, which may repeat arguments: where such a URL ends is known. Name what to type instead."""
    try:
        yield
    except click.ClickException as problem:
        _complete_usage_error(problem)
        text = problem.message
        for argument in sorted(arguments, key=len, reverse=True):
            if "://" in argument:
                text = text.replace(argument, mask_url(argument))
        problem.message = mask_urls(text)  # type: ignore[misc]  # click prints it, with the usage of the command
        raise


def _complete_usage_error(problem: click.ClickException) -> None:
    """Name all required options that are missing, and --out for a page of HTML."""
    context = problem.ctx if isinstance(problem, click.UsageError) else None
    if context is None:
        return
    parameters = context.command.params
    if isinstance(problem, click.MissingParameter) and isinstance(problem.param, click.Option):
        # what was given is parsed before what was not, so the other required options are not in `params` either
        missing = [
            parameter.opts[0]
            for parameter in parameters
            if isinstance(parameter, click.Option) and parameter.required and parameter.name not in context.params
            if parameter.value_from_envvar(context) is None
        ]
        problem.param_hint = ", ".join(f"'{option}'" for option in missing)
    writes_pages = any("--out" in p.opts and ".html" in (getattr(p, "help", "") or "") for p in parameters)
    if isinstance(problem, click.NoSuchOption) and problem.option_name == "--html" and writes_pages:
        problem.possibilities = ["--out page.html"]  # type: ignore[misc]  # click prints it


def _print_traceback(*problem: Any) -> None:
    print("".join(map(mask_urls, traceback.format_exception(*problem))), end="", file=sys.stderr)  # noqa: T201  (as Python does)


def _print_traceback_of_thread(hook: threading.ExceptHookArgs) -> None:
    if not issubclass(hook.exc_type, SystemExit):  # which ends the thread without a message
        _print_traceback(hook.exc_type, hook.exc_value, hook.exc_traceback)


def _extra_of(name: str | None) -> str | None:
    """Return the extra that a command needs; `doctor` needs it for the checks of an aggregator."""
    if name == "serve" or name in SECTIONS["Service"]:
        return "aggregator"
    return "decoder" if name in _listed().difference(SECTIONS["App"]) else None
