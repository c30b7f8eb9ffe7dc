"""Candidates: strings that may have been reported, from a list or a file."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from hubbub.text import shown
from hubbub_decoder.data.output_files import atomic_write
from hubbub_decoder.errors import CandidateError

_HEADERS = ("candidate", "value")


def distinct_candidates(candidates: Iterable[str]) -> tuple[list[str], int]:
    """Return the candidates, each once in its first place, and how many repetitions were dropped.

    >>> distinct_candidates(["a", "b", "a"])
    (['a', 'b'], 1)
    """
    if isinstance(candidates, str | bytes | Mapping) or not isinstance(candidates, Iterable):
        raise CandidateError(
            f"candidates must be a list of strings, got {type(candidates).__name__} {shown(repr(candidates))}: put the strings in a list"
        )
    given = list(candidates)
    if not given:
        raise CandidateError(
            "there is no candidate: a string metric is decoded for the strings you name, give at least one"
        )
    for candidate in given:
        if not isinstance(candidate, str):
            raise CandidateError(f"a candidate is a string, got {shown(repr(candidate))}: convert it as the app did")
        try:
            candidate.encode()
        except UnicodeEncodeError:
            raise CandidateError(
                f"a candidate must be encodable as UTF-8, got {shown(repr(candidate))}: drop it"
            ) from None
    distinct = list(dict.fromkeys(map(str, given)))
    return distinct, len(given) - len(distinct)


def read_candidates(path: str | Path) -> list[str]:
    """Read a file of candidates; `-` is standard input.

    - `.csv`: the column `candidate` or `value`, which the first line names; an empty cell is the empty string
    - anything else: one candidate a line, taken as it stands but for the line feed, or carriage return and line feed, at its end; empty
      lines are skipped
    """
    text = read_text(path)
    candidates = (
        _csv_column(Path(path), text)
        if Path(path).suffix.lower() == ".csv"
        else [line for line in _lines(text) if line]
    )
    if not candidates:
        raise CandidateError(f"{path}: holds no candidate: write one string a line")
    return candidates


def write_candidates(candidates: list[str], path: str | Path) -> None:
    """Write a file that `read_candidates` reads back, one candidate a line."""
    text = "".join(f"{candidate}\n" for candidate in candidates)
    if _lines(text)[:-1] != candidates or "" in candidates:
        raise CandidateError(f"{path}: a candidate is empty or has a line break: a file of lines cannot hold it")
    with atomic_write(path) as file:
        file.write(text.encode())


def read_text(path: str | Path) -> str:
    """Read UTF-8 text, with or without a byte order mark; whatever is not raises CandidateError."""
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else Path(path).read_bytes()
    except OSError as problem:
        raise CandidateError(f"{path}: cannot be read: {problem.strerror}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise CandidateError(
            f"{path}: byte {problem.start} is not UTF-8: save the file as UTF-8 text, the encoding clients hash"
        ) from None
    if "\0" in text:
        raise CandidateError(f"{path}: is binary (byte {text.index(chr(0))} is zero): give a text file")
    return text


def _lines(text: str) -> list[str]:
    """Split at line feeds alone: a form feed or U+2028 is part of a candidate."""
    return [line.removesuffix("\r") for line in text.split("\n")]


def _csv_column(path: Path, text: str) -> list[str]:
    try:
        rows = list(csv.reader(io.StringIO(text, newline="")))
    except csv.Error as problem:
        raise CandidateError(f"{path}: is no CSV ({problem}): save it as .txt with one candidate a line") from None
    if not rows:
        return []
    header = [name.strip().lower() for name in rows[0]]
    column = next((header.index(name) for name in _HEADERS if name in header), None)
    if column is None:
        raise CandidateError(
            f"{path}: line 1 has no column {' or '.join(_HEADERS)}, but {shown(', '.join(rows[0][:6]))}: a .csv starts with the names of "
            "its columns; name the one with the strings so, or save one candidate a line as .txt"
        )
    for number, row in enumerate(rows[1:], start=2):
        if row and len(row) <= column:
            raise CandidateError(f"{path}: line {number} has {len(row)} columns, the header {len(header)}: fill it up")
    return [row[column] for row in rows[1:] if row]
