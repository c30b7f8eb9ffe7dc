"""How every command speaks: results on stdout, talk on stderr."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from hubbub.wire.json_values import replace_non_finite

PATH = click.Path(path_type=Path, readable=False)
"""Whatever is wrong with a file is said by who opens it, in the same words for all that can be wrong."""

json_option = click.option(
    "--json", "as_json", is_flag=True, allow_from_autoenv=False, help="Print the result as JSON."
)


def print_json(result: Any) -> None:
    """Print one JSON document; infinity, which JSON has no number for, becomes the string "inf"."""
    click.echo(json.dumps(replace_non_finite(result), indent=2, ensure_ascii=False, allow_nan=False))
