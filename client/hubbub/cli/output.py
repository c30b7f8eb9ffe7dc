"""Shared options and JSON output of the commands. Results go to stdout, messages to stderr."""

from __future__ import annotations

import json
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


def write_file(file: Path, text: str) -> None:
    """Write a text file as UTF-8; HubbubError with the reason if that fails."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise HubbubError(
            f"cannot write {file}: {problem.strerror}; give a file in a directory that you can write"
        ) from None
