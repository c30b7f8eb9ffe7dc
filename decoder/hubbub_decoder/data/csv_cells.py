"""Cells of CSV files: text that a spreadsheet program would run as a formula is written as text, and read back unchanged.

A cell is protected by an apostrophe in front of it if, after any apostrophes and spaces, it begins with one of `= + - @` (also in full
width), or if it begins with a tab or a line break. Strings in results come from senders of reports, so an analyst who opens a file must
not run them. Numbers are not changed.

Source: OWASP, "CSV Injection".
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

_FORMULA = re.compile(r"'*(?:\s*[=+\-@＝＋－＠]|[\t\r\n])")
_NEEDS_QUOTES = frozenset(',;"')


def csv_bytes(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """Return a CSV file with lines that end in CRLF. None, nan and infinity are empty cells; an empty string is a cell with quotes.

    >>> csv_bytes(["candidate", "share"], [["=1+1", -0.5], ["a,b", None]])
    b'candidate,share\\r\\n\\'=1+1,-0.5\\r\\n"a,b",\\r\\n'
    """
    return "".join(f"{','.join(map(_cell, row))}\r\n" for row in (columns, *rows)).encode()


def text_of_cell(cell: str) -> str:
    """Return the text of a cell, without the apostrophe that protects a formula.

    >>> [text_of_cell(cell) for cell in ("'=1+1", "''=1+1", "'tis", "=1+1")]
    ['=1+1', "'=1+1", "'tis", '=1+1']
    """
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell[1:]) else cell


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if not isinstance(value, str):
        return str(value)
    text = f"'{value}" if _FORMULA.match(value) else value
    if text and text.isprintable() and _NEEDS_QUOTES.isdisjoint(text):
        return text
    return '"' + text.replace('"', '""') + '"'
