"""Shared options, encoding and JSON output of the commands. Results go to stdout, messages to stderr."""

from __future__ import annotations

import codecs
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import click

from hubbub.errors import HubbubError
from hubbub.files.complete_file import replace_when_complete
from hubbub.wire.json_values import json_value

PATH = click.Path(path_type=Path, readable=False)
"""Path argument. click does not check it; the function that opens the file reports all errors in the same form."""


# generic since click 8.4, and the client needs 8.1
class Program(click.ParamType):  # type: ignore[type-arg]
    """Program with its arguments, in the words of a shell; it is started without one."""

    name = "command"

    def convert(
        self, value: str | tuple[str, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        import shlex

        try:
            words = tuple(shlex.split(value))
        except ValueError as problem:
            self.fail(f"{value!r} cannot be read: {problem}. Close each quote.", param, ctx)
        if not words:
            self.fail("it is empty. Name a program.", param, ctx)
        return words


json_option = click.option(
    "--json", "as_json", is_flag=True, allow_from_autoenv=False, help="Print the result as JSON."
)


def jobs_option(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """--jobs; `default` describes the number without it."""
    return click.option(
        "--jobs",
        metavar="N",
        type=click.IntRange(min=1),
        help=f"Number of processes that work at once. Default: {default}.",
    )


_PLAIN_CHARACTERS = dict(zip("▁▂▃▄▅▆▇█░·…", "_.-:=+*#:..", strict=True))
"""Characters of bars, with the ASCII characters that replace them where the terminal has no others."""


def replace_unencodable(*streams: TextIO) -> None:
    """Make text streams write every string: ASCII bars, and \\uXXXX for any other character that their encoding does not have.

    Without it, a terminal that is not UTF-8 ends a command in a UnicodeEncodeError, and so does the name of a file that is not text.
    """
    codecs.register_error("hubbub-replace", _replace_characters)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="hubbub-replace")


def _replace_characters(problem: UnicodeError) -> tuple[str, int]:
    """Return ASCII for the characters that an encoding does not have, and the position after them."""
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    characters = problem.object[problem.start : problem.end]
    return "".join(_PLAIN_CHARACTERS.get(character) or _escape(character) for character in characters), problem.end


def _escape(character: str) -> str:
    """Return a character as TOML and Python write it in ASCII.

    >>> _escape("é"), _escape(chr(0x1F600))
    ('\\\\u00e9', '\\\\U0001f600')
    """
    return f"\\u{ord(character):04x}" if ord(character) < 1 << 16 else f"\\U{ord(character):08x}"


def print_json(result: Any) -> None:
    """Print a value as one JSON document; infinity becomes the string "inf"."""
    click.echo(json.dumps(json_value(result), indent=2, ensure_ascii=not _is_utf8(), allow_nan=False))


def print_toml(text: str) -> None:
    """Print a TOML document, which is ASCII on a terminal that is not UTF-8: whoever reads its output takes it for UTF-8."""
    click.echo(text if _is_utf8() else re.sub(r"[^\x00-\x7f]", lambda found: _escape(found[0]), text), nl=False)


def _is_utf8() -> bool:
    return codecs.lookup(sys.stdout.encoding or "ascii").name == "utf-8"


def write_page(file: Path, text: str, *, private: bool = False) -> None:
    """Write an HTML page as UTF-8. An existing file is kept if that fails.

    private : only the owner may read the page

    Raises HubbubError for another suffix than .html, so that a page never replaces the input, or if the file cannot be written.
    """
    _write_file(file, text, ".html", "a page", private=private)


def write_json_file(file: Path, document: Any) -> None:
    """Write a value as one JSON document. An existing file is kept if that fails.

    Raises HubbubError for another suffix than .json, or if the file cannot be written.
    """
    _write_file(file, json.dumps(document, indent=2, allow_nan=False) + "\n", ".json", "a JSON file", private=False)


def _write_file(file: Path, text: str, suffix: str, noun: str, *, private: bool) -> None:
    if file.is_dir():
        raise HubbubError(f"cannot write {file}: it is a directory; name a file in it")
    if file.suffix.lower() != suffix:
        raise HubbubError(f"cannot write {file}: the name of {noun} must end in {suffix}")
    try:
        with replace_when_complete(file, private=private) as complete:
            complete.write(text.encode())
    except OSError as problem:
        raise HubbubError(
            f"cannot write {file}: {problem.strerror}; give a file in a directory that you can write"
        ) from None
