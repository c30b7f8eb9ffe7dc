"""Tables of figures: the rows of a benchmark, as a CSV file of docs/explanation/data and as Markdown.

A row maps the name of a column to its text. All rows of a table have the same columns.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "explanation" / "data"
Row = dict[str, str]


class Table:
    """A table that is printed line by line as its rows come, and written to a CSV file after each of them.

    path : CSV file; None: the table is only printed
    last : cells at the end of each row, for example of the commit
    """

    def __init__(self, path: Path | None, last: Row) -> None:
        self._path = path
        self._last = last
        self._rows: list[Row] = []

    def add(self, row: Row) -> None:
        """Print a row, below the header if it is the first, and write the file."""
        self._rows.append({**row, **self._last})
        print(*markdown(self._rows)[0 if len(self._rows) == 1 else -1 :], sep="\n", flush=True)
        if self._path is not None:
            write_table(self._path, self._rows)

    def add_all(self, rows: Iterable[Row]) -> None:
        """Add rows, and print an empty line below them."""
        for row in rows:
            self.add(row)
        print()


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
    lines = (f"| {' | '.join(cells)} |" for cells in (rows[0], *(row.values() for row in rows)))
    return [next(lines), "|---" * len(rows[0]) + "|", *lines]
