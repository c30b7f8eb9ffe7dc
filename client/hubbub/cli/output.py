"""Shared options and JSON output of the commands. Results go to stdout, messages to stderr."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from hubbub.errors import HubbubError
from hubbub.wire.json_values import replace_non_finite

PATH = click.Path(path_type=Path, readable=False)
"""Path argument. click does not check it; the function that opens the file reports all errors in the same form."""

json_option = click.option(
    "--json", "as_json", is_flag=True, allow_from_autoenv=False, help="Print the result as JSON."
)


def print_json(result: Any) -> None:
    """Print a value as one JSON document; infinity becomes the string "inf"."""
    click.echo(json.dumps(replace_non_finite(result), indent=2, ensure_ascii=False, allow_nan=False))


def write_page(file: Path, text: str) -> None:
    """Write an HTML page as UTF-8. An existing file is kept if that fails.

    Raises HubbubError for another suffix than .html, so that a page never replaces the input, or if the file cannot be written.
    """
    if file.is_dir():
        raise HubbubError(f"cannot write {file}: it is a directory; name a file in it")
    if file.suffix.lower() != ".html":
        raise HubbubError(f"cannot write {file}: the name of a page must end in .html")
    target = file.resolve()
    temporary = target.with_name(f"{target.name}.part")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(target)
    except OSError as problem:
        raise HubbubError(
            f"cannot write {file}: {problem.strerror}; give a file in a directory that you can write"
        ) from None
    finally:
        with suppress(OSError):
            temporary.unlink()
