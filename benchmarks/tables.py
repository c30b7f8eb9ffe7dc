"""Tables of figures: the rows of a benchmark, as a CSV file of docs/explanation/data and as Markdown.

A row maps the name of a column to its text. All rows of a table have the same columns.
"""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "explanation" / "data"
Row = dict[str, str]


def commit() -> str:
    """Name of the commit that is measured, with "-dirty" if the code differs from it."""
    command = ["git", "describe", "--always", "--dirty"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    return found.stdout.strip() or "no commit"


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write rows as a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_table(name: str) -> list[Row]:
    """Rows of a CSV file of docs/explanation/data, by its name without suffix."""
    with (FOLDER / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def markdown(rows: Sequence[Row]) -> list[str]:
    """Lines of a Markdown table.

    >>> markdown([{"eps": "1", "error": "0.5"}])
    ['| eps | error |', '|---|---|', '| 1 | 0.5 |']
    """
    header = list(rows[0])
    return [markdown_row(header), "|---" * len(header) + "|", *(markdown_row(row.values()) for row in rows)]


def markdown_row(cells: Iterable[str]) -> str:
    """Line of a Markdown table."""
    return f"| {' | '.join(cells)} |"
