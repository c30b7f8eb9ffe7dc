"""Read, check and write candidate lists: the strings that a decoding looks for."""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from numbers import Real
from pathlib import Path
from typing import Any

from hubbub.text import escape_untrusted
from hubbub_decoder.data.csv_cells import text_of_cell
from hubbub_decoder.data.output_files import atomic_write
from hubbub_decoder.errors import CandidateError

MAX_FILE_BYTES = 64 << 20
"""Of a file of candidates, words, weights or a population. A decoding takes about 20 times as much memory as its candidate file."""

_HEADERS = ("candidate", "value")


def distinct_candidates(candidates: Iterable[str]) -> tuple[list[str], int]:
    """Candidates without repetitions, in their original order, and the number of repetitions.

    candidates : a collection or iterator of strings; a pandas or polars Series or a pyarrow or numpy array; or a DataFrame or pyarrow
                 Table, of which the only column counts, or the column `candidate` or `value`

    Raises CandidateError for anything else, for no candidate, and for strings that UTF-8 cannot encode.

    >>> distinct_candidates(["a", "b", "a"])
    (['a', 'b'], 1)
    """
    column = _table_column(candidates)
    scalar = not isinstance(column, Iterable) or getattr(column, "ndim", 1) == 0
    if scalar or isinstance(column, str | bytes | Mapping):
        raise CandidateError(
            f"candidates must be a list of strings, got {type(column).__name__} {escape_untrusted(repr(column))}. "
            "Pass the strings as a list; `read_candidates` reads a file."
        )
    given = column.to_pylist() if hasattr(column, "to_pylist") else list(column)  # pyarrow iterates over scalars
    if not given:
        raise CandidateError(
            "There is no candidate. A string metric can only be decoded for given strings: pass at least one."
        )
    for index, candidate in enumerate(given):
        if not isinstance(candidate, str):
            raise _not_a_string(index, candidate)
        try:
            candidate.encode()
        except UnicodeEncodeError:
            raise CandidateError(
                f"candidates[{index}] must be encodable as UTF-8, got {escape_untrusted(repr(candidate))}. "
                "Clients cannot report such strings: remove it."
            ) from None
    distinct = list(dict.fromkeys(map(str, given)))
    return distinct, len(given) - len(distinct)


def _table_column(candidates: Any) -> Any:
    """Column with the candidates if they are a table (pandas, polars, pyarrow); otherwise the candidates."""
    names = getattr(candidates, "column_names", None)
    if names is None and isinstance(candidates, Iterable) and getattr(candidates, "ndim", 2) == 2:
        names = getattr(candidates, "columns", None)
    if names is None:
        return candidates
    names = [str(name) for name in names]
    index = 0 if len(names) == 1 else _column_index(names)
    if index is None:
        raise CandidateError(
            f"candidates is a {type(candidates).__name__} with the columns {escape_untrusted(', '.join(names))}, and none of them is "
            f"{' or '.join(_HEADERS)}. Pass the column with the strings, or rename it to {_HEADERS[0]}."
            if names
            else f"candidates is a {type(candidates).__name__} without columns. Pass the strings as a list."
        )
    if hasattr(candidates, "iloc"):
        return candidates.iloc[:, index]
    return candidates.column(index) if hasattr(candidates, "column_names") else candidates[candidates.columns[index]]


def _column_index(names: Sequence[str]) -> int | None:
    """Position of the column `candidate`, else `value`, without regard to case and surrounding spaces; None if there is neither."""
    plain = [name.strip().lower() for name in names]
    return next((plain.index(header) for header in _HEADERS if header in plain), None)


def _not_a_string(index: int, candidate: object) -> CandidateError:
    """Error for a candidate that is missing (None, NaN, NA) or of another type than str."""
    missing = (
        candidate is None
        or type(candidate).__name__ in ("NAType", "NaTType")
        or (isinstance(candidate, Real) and math.isnan(candidate))
    )
    remedy = (
        "Remove missing values; the share of reports without a value is estimated without a candidate."
        if missing
        else "Decode it to a string."
        if isinstance(candidate, bytes)
        else "Pass a one-dimensional list of strings."
        if hasattr(candidate, "__len__")
        else "Convert it to the string that the app records."
    )
    return CandidateError(
        f"candidates[{index}] must be a string, got {type(candidate).__name__} {escape_untrusted(repr(candidate))}. {remedy}"
    )


def read_candidates(path: str | Path) -> list[str]:
    """Read the candidates of a file.

    Parameters
    ----------
    path
        Path of the file. `-` is standard input.

    Returns
    -------
    list[str]
        Candidates in the order of the file.

    Raises
    ------
    CandidateError
        The file cannot be read, has more than 64 MiB, is JSON, is not UTF-8 text or has no candidate.

    Notes
    -----
    In a .csv file the candidates are the column `candidate` or `value`, named in line 1. An empty cell is the empty
    string, and an apostrophe before a formula is removed.

    A file with any other suffix has one candidate per line, without the LF or CRLF at its end. Empty lines are
    skipped.
    """
    text = read_text(path)
    if Path(path).suffix.lower() == ".json":
        raise CandidateError(f"{path} is a JSON file. Save the candidates as .txt with one string per line.")
    candidates = (
        _csv_column(Path(path), text)
        if Path(path).suffix.lower() == ".csv"
        else [line for line in _lines(text) if line]
    )
    if not candidates:
        raise CandidateError(f"{path} has no candidate. Write one string per line.")
    return candidates


def write_candidates(candidates: list[str], path: str | Path) -> None:
    """Write one candidate per line, so that `read_candidates` returns the same list.

    Raises CandidateError if a candidate is empty or has a line break.
    """
    text = "".join(f"{candidate}\n" for candidate in candidates)
    if _lines(text)[:-1] != candidates or "" in candidates:
        raise CandidateError(
            f"{path} cannot be written: a candidate is empty or has a line break. Remove it, or write a .csv file yourself."
        )
    with atomic_write(path) as file:
        file.write(text.encode())


def read_text(path: str | Path) -> str:
    """Read UTF-8 text with or without a byte order mark; raises CandidateError for other content, and for more than MAX_FILE_BYTES."""
    if not isinstance(path, str | Path) or "\0" in str(path):
        raise CandidateError(f"path must be the path of a text file, got {path!r}. Pass a str or a Path.")
    try:
        with nullcontext(sys.stdin.buffer) if str(path) == "-" else Path(path).open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as problem:
        raise CandidateError(f"{path} cannot be read: {problem.strerror}.") from None
    if len(data) > MAX_FILE_BYTES:
        size = f"more than {MAX_FILE_BYTES:,}" if str(path) == "-" else f"{Path(path).stat().st_size:,}"
        raise CandidateError(
            f"{path} has {size} bytes, and at most {MAX_FILE_BYTES:,} are read: a decoding takes about 20 times as much memory as its "
            "candidates. Keep the most likely strings, such as the first million of a list in the order of frequency."
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise CandidateError(
            f"{path} is not UTF-8 text (byte {problem.start}). Clients hash UTF-8: save the file in that encoding."
        ) from None
    if "\0" in text:
        raise CandidateError(f"{path} is a binary file (byte {text.index(chr(0))} is zero). Pass a text file.")
    return text


def _lines(text: str) -> list[str]:
    """Lines of a text, split at LF only: a form feed or U+2028 belongs to a candidate."""
    return [line.removesuffix("\r") for line in text.split("\n")]


def _csv_column(path: Path, text: str) -> list[str]:
    try:
        rows = list(csv.reader(io.StringIO(text, newline="")))
    except csv.Error as problem:
        raise CandidateError(
            f"{path} is not valid CSV ({problem}). Save it as .txt with one candidate per line."
        ) from None
    if not rows:
        return []
    column = _column_index(rows[0])
    if column is None:
        raise CandidateError(
            f"{path}: line 1 must name the columns, and has no column {' or '.join(_HEADERS)} but {escape_untrusted(', '.join(rows[0][:6]))}. "
            "Rename the column with the strings, or save the file as .txt with one candidate per line."
        )
    for number, row in enumerate(rows[1:], start=2):
        if row and len(row) <= column:
            raise CandidateError(
                f"{path}: line {number} has {len(row)} columns and the header {len(rows[0])}. Add the missing cells."
            )
    return [text_of_cell(row[column]) for row in rows[1:] if row]
