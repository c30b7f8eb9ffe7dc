"""`TableResult`: what every result with rows has in common: look-up, data frames, files, and its display in a notebook."""

from __future__ import annotations

import io
import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, overload

from hubbub_decoder.data.csv_cells import csv_bytes
from hubbub_decoder.data.output_files import TABLES, atomic_write, check_table_path, join_suffixes
from hubbub_decoder.documents.document import UNLISTED_STRINGS, Document, with_steps
from hubbub_decoder.errors import OutputError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.console import Console, ConsoleOptions, RenderResult

R = TypeVar("R")
_STEPS = {UNLISTED_STRINGS: "`Decoding.match_unlisted` compares such a list."}
_MOST_NAMES = 10_000  # that are compared with an unknown one


def columns_of(row: type, *names: str) -> dict[str, str]:
    """Return the names of a dataclass' fields with their types as text, in the order of `names`, or of the fields."""
    types = {field.name: str(field.type) for field in fields(row)}
    return {name: types[name] for name in names or types}


class TableResult(Sequence[R]):
    """Sequence of rows: `result[0]`, `result[:10]`, `result[name]`, and `name in result`.

    It displays itself as a table with `rich.print(result)` and in a notebook. `save` writes CSV, JSON or Parquet.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def _columns(self) -> Mapping[str, str]:
        """Columns of a data frame, with their types."""

    @property
    @abstractmethod
    def _rows(self) -> tuple[R, ...]: ...

    @abstractmethod
    def _names(self, row: R) -> Sequence[Any]:
        """Names by which a row is found."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values.

        Returns
        -------
        dict[str, Any]
            Fields by name. A number that is not determined is None, and an infinite number is "inf".
        """

    @abstractmethod
    def _about(self) -> dict[str, Any]:
        """Return the fields that a Parquet file has besides the rows."""

    @abstractmethod
    def document(self, *, everything: bool = False, top: int | None = None) -> Document:
        """Return what the terminal and a notebook show.

        Parameters
        ----------
        everything
            Whether to show every row. False: where there are tests, only the rows that they confirm. Categories are not
            tested, so all are shown.
        top
            Largest number of rows, the first ones in the order of the result. None: all.

        Returns
        -------
        Document
            Headline, table, lines and warnings.
        """

    @abstractmethod
    def plot(self, ax: Axes | Figure | None = None, *, top: int | None = None) -> Axes:
        """Draw the largest rows with their intervals.

        Parameters
        ----------
        ax
            Axes to draw on, or an empty figure, which gets the size that the plot needs. None: a new pyplot figure,
            which a notebook displays.
        top
            Largest number of rows. None: as many as can be read.

        Returns
        -------
        Axes
            The axes with the plot.

        Raises
        ------
        ParameterError
            `top` is out of range.
        SummaryError
            The result has nothing to draw.
        """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from hubbub_decoder.documents.terminal import TerminalDocument

        yield TerminalDocument(self._document_in_python())

    def _repr_html_(self) -> str:
        from hubbub_decoder.documents.html import html_fragment

        return html_fragment(self._document_in_python())

    def _document_in_python(self) -> Document:
        document = self.document()
        return replace(document, findings=with_steps(document.findings, _STEPS))

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[R]:
        return iter(self._rows)

    def __contains__(self, name: object) -> bool:
        """Whether a row has this name, or is equal to it."""
        rows = self._rows
        return any(name in self._names(row) for row in rows) if isinstance(name, str | tuple) else name in rows

    @overload
    def __getitem__(self, key: SupportsIndex) -> R: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[R, ...]: ...
    @overload
    def __getitem__(self, key: str | tuple[str, ...]) -> R: ...
    def __getitem__(self, key: str | tuple[str, ...] | SupportsIndex | slice) -> R | tuple[R, ...]:
        """Return the row with a name, or rows by position.

        Raises KeyError, with the nearest names, for an unknown name, and IndexError for a position out of range.
        """
        if not isinstance(key, str | tuple):
            return self._rows[key]
        for row in self._rows:
            if key in self._names(row):
                return row
        raise KeyError(self._unknown(key))

    def _unknown(self, key: str | tuple[str, ...]) -> str:
        from difflib import get_close_matches

        names = {str(name): name for row in self._rows[:_MOST_NAMES] for name in self._names(row)}
        near = " or ".join(repr(names[name]) for name in get_close_matches(str(key), names))
        return f"{key!r} is not in this result{f'. Near it: {near}' if near else ''}"

    def _cells(self) -> Iterator[Mapping[str, Any]]:
        """Yield the cells of each row of a data frame, by column and in the order of the columns."""
        columns = tuple(self._columns)
        for row in self._rows:
            yield {name: getattr(row, name) for name in columns}

    def to_table(self) -> pa.Table:
        """Return an Arrow table.

        Returns
        -------
        pa.Table
            Arrow table with one row per row of the result. A number that is not known, and the answer of a test that was
            not made, are null.
        """
        import pyarrow as pa

        types = {
            "str": pa.string(),
            "float": pa.float64(),
            "bool | None": pa.bool_(),
            "int | None": pa.int64(),
            "tuple[str, ...]": pa.list_(pa.string()),
        }
        cells = list(self._cells())
        columns = self._columns.items()
        return pa.table(
            {name: pa.array([row[name] for row in cells], types[kind], from_pandas=True) for name, kind in columns}
        )

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas DataFrame.

        Returns
        -------
        pd.DataFrame
            Data frame with the rows of `to_table`. Null is nan in a column of numbers, and `<NA>` in one of whole
            numbers or truth values, which have the types Int64 and boolean.

        Raises
        ------
        ModuleNotFoundError
            Pandas is not installed. hubbub does not require it.
        """
        _require("pandas", f"{type(self).__name__}.to_pandas")
        import pandas as pd
        import pyarrow as pa

        nullable = {pa.bool_(): pd.BooleanDtype(), pa.int64(): pd.Int64Dtype()}
        return self.to_table().to_pandas(types_mapper=nullable.get)

    def to_polars(self) -> pl.DataFrame:
        """Return a polars DataFrame.

        Returns
        -------
        pl.DataFrame
            Data frame with the rows of `to_table`.

        Raises
        ------
        ModuleNotFoundError
            Polars is not installed. hubbub does not require it.
        """
        polars = _require("polars", f"{type(self).__name__}.to_polars")
        frame: pl.DataFrame = polars.from_arrow(self.to_table())
        return frame

    def save(self, path: str | Path) -> None:
        """Write the rows to a .csv or .parquet file, or all fields to a .json file.

        Parameters
        ----------
        path
            File with the suffix .csv, .parquet or .json.

        Raises
        ------
        OutputError
            The suffix is another one, or the file cannot be written.

        Notes
        -----
        In CSV, a number that is not known, or the answer of a test that was not made, is an empty cell. A list of strings is a JSON list, and an empty list is an
        empty cell. Text that a spreadsheet program would run as a formula has an apostrophe in front, which
        `read_candidates` removes.
        """
        path = Path(path)
        check_table_path(path)
        data = self.to_bytes(path.suffix.lower())
        with atomic_write(path) as file:
            file.write(data)

    def to_bytes(self, suffix: str) -> bytes:
        """Return the content of the file that `save` writes.

        Parameters
        ----------
        suffix
            Format: ".csv", ".parquet" or ".json".

        Returns
        -------
        bytes
            Content of the file.

        Raises
        ------
        OutputError
            The suffix is another one, or the file would be empty.
        """
        self._check_format(suffix)
        match suffix:
            case ".json":
                return (json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n").encode()
            case ".csv":
                return csv_bytes(
                    list(self._columns), (list(map(_csv_value, cells.values())) for cells in self._cells())
                )
            case ".parquet":
                return self._parquet()
        raise OutputError(f"{suffix} is no format of a table. Pass {join_suffixes(TABLES)}.")

    def _check_format(self, suffix: str) -> None:
        """Raise OutputError if a file of this suffix would be empty."""

    def _parquet(self) -> bytes:
        import pyarrow.parquet as pq

        about = {f"hubbub-{type(self).__name__.lower()}": json.dumps(self._about())}
        sink = io.BytesIO()
        pq.write_table(self.to_table().replace_schema_metadata(about), sink)
        return sink.getvalue()


def _csv_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return json.dumps(value, ensure_ascii=False) if value else None
    return value


def _require(package: str, method: str) -> Any:
    """Return an optional package; raises ModuleNotFoundError with the command that installs it."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        message = f"{method} needs {package}, which is not installed: run pip install {package}, or use to_table."
        raise ModuleNotFoundError(message, name=package) from None
