"""Candidates: strings that may have been reported, from a list or a file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from hubbub_decoder.errors import CandidateError, OutputError

_HEADERS = ("candidate", "value")


def distinct_candidates(candidates: Iterable[str]) -> tuple[list[str], int]:
    """Return the candidates, each once in its first place, and how many repetitions were dropped.

    >>> distinct_candidates(["a", "b", "a"])
    (['a', 'b'], 1)
    """
    if isinstance(candidates, str):
        raise CandidateError(
            f"candidates must be a list of strings, got the string {candidates[:40]!r}: put it in a list"
        )
    given = list(candidates)
    if not given:
        raise CandidateError(
            "there is no candidate: a string metric is decoded for the strings you name, give at least one"
        )
    for candidate in given:
        if not isinstance(candidate, str):
            raise CandidateError(f"a candidate is a string, got {candidate!r}: convert it as the app did")
        try:
            candidate.encode()
        except UnicodeEncodeError:
            raise CandidateError(f"a candidate must be encodable as UTF-8, got {candidate!r}: drop it") from None
    distinct = list(dict.fromkeys(given))
    return distinct, len(given) - len(distinct)


def read_candidates(path: str | Path) -> list[str]:
    """Read a file of candidates.

    - `.csv`: the column `candidate` or `value`, or the only one; the first line is the header
    - anything else: one candidate a line, taken as it stands but for the end of the line; empty lines are skipped
    """
    text = read_text(path)
    names = _csv_column(Path(path), text) if Path(path).suffix.lower() == ".csv" else text.splitlines()
    candidates = [name for name in names if name]
    if not candidates:
        raise CandidateError(f"{path}: holds no candidate: write one string a line")
    return candidates


def write_candidates(candidates: list[str], path: str | Path) -> None:
    """Write a file that `read_candidates` reads back, one candidate a line."""
    text = "".join(f"{candidate}\n" for candidate in candidates)
    if text.splitlines() != candidates or "" in candidates:
        raise CandidateError(f"{path}: a candidate is empty or has a line break: a file of lines cannot hold it")
    try:
        Path(path).write_text(text, encoding="utf-8", newline="")
    except OSError as problem:
        raise OutputError(f"{path}: cannot be written: {problem.strerror}") from None


def read_text(path: str | Path) -> str:
    """Read UTF-8 text, with or without a byte order mark; whatever is not raises CandidateError."""
    try:
        data = Path(path).read_bytes()
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


def _csv_column(path: Path, text: str) -> list[str]:
    rows = list(csv.reader(io.StringIO(text, newline="")))
    if not rows:
        return []
    header = [name.strip().lower() for name in rows[0]]
    column = next((header.index(name) for name in _HEADERS if name in header), 0 if len(header) == 1 else None)
    if column is None:
        raise CandidateError(
            f"{path}: has no column {' or '.join(_HEADERS)} among {', '.join(header[:6])}: name the one with the strings so"
        )
    for number, row in enumerate(rows[1:], start=2):
        if row and len(row) <= column:
            raise CandidateError(f"{path}: line {number} has {len(row)} columns, the header {len(header)}: fill it up")
    return [row[column] for row in rows[1:] if row]
