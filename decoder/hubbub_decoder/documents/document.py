"""`Document`: what a result shows, as data: a headline, a table of typed cells, lines of text and findings.

Every result builds one. `terminal.py` and `html.py` render it, so a result knows no table of any surface, and no renderer knows a result: the
layers contract refuses the import.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from hubbub.number_checks import check_integer
from hubbub.text import escape_untrusted, format_count
from hubbub_decoder.documents.finding import Finding

INTERVAL_WIDTH = 18
MAX_POINTS = 24
"""Largest number of shares in a sparkline, and of periods in a table: the latest ones."""


@dataclass(frozen=True, slots=True)
class Bar:
    """Interval low .. high with its estimate, on a scale from `start` to `end`; a scale of changes has 0 in the middle."""

    low: float
    value: float
    high: float
    end: float
    start: float = 0.0


@dataclass(frozen=True, slots=True)
class Sparkline:
    """Shares in order of time, nan where a share is not known; axis : `trend_axis` of their intervals, from which to which it is drawn."""

    shares: tuple[float, ...]
    axis: tuple[float, float]

    @property
    def heights(self) -> tuple[float, ...]:
        """Place of each share on the axis, in [0, 1]."""
        start, end = self.axis
        return tuple((share - start) / (end - start) if end > start else 0.0 for share in self.shares)


@dataclass(frozen=True, slots=True)
class Shade:
    """Share on a background that is darker the larger the share is."""

    share: float

    @property
    def color(self) -> str:
        """Background color, #rrggbb.

        >>> Shade(0.0).color, Shade(1.0).color
        ('#f7fbff', '#085169')
        """
        level = self._level
        return f"#{int(247 - 239 * level):02x}{int(251 - 170 * level):02x}{int(255 - 150 * level):02x}"

    @property
    def is_dark(self) -> bool:
        """Whether white text is easier to read on the background than black text."""
        return self._level > 0.75

    @property
    def _level(self) -> float:
        return float(min(max(self.share, 0.0), 1.0) ** 0.5)


Cell: TypeAlias = "str | float | tuple[float, float] | Bar | Sparkline | Shade"
"""Text, a number, both ends of an interval, or a drawing. A text in a column of numbers replaces the number."""


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a table.

    kind  : of its cells; a column of bars takes the width that the other columns leave, and at most its own. If its own width is odd,
            so is the one that it takes, because bars around 0 need a middle
    show  : text of one number
    width : usual width of its cells in characters
    spare : the column is shown only where the surface has at least so many characters left for bars; None: it is always shown
    """

    heading: str
    kind: Literal["text", "number", "bar", "sparkline"]
    show: Callable[[float], str] = str
    width: int = 12
    spare: int | None = None

    @classmethod
    def names(cls, heading: str, width: int = 13) -> Column:
        """Column of the names of the rows."""
        return cls(heading, "text", width=width)

    @classmethod
    def shares(cls, heading: str, *, width: int = 7, spare: int | None = None) -> Column:
        """Column of shares, or of intervals of shares."""
        return cls(heading, "number", format_share, width, spare)

    @classmethod
    def changes(cls, heading: str, *, width: int = 7) -> Column:
        """Column of changes of shares, or of their intervals, in percentage points, as the second line of its heading says."""
        return cls(f"{heading}\npoints", "number", format_change, width)

    @classmethod
    def q_values(cls) -> Column:
        """Column of q-values."""
        return cls("q value", "number", format_q_value, 7)

    @classmethod
    def counts(cls, heading: str, *, spare: int | None = None) -> Column:
        """Column of whole numbers, as text."""
        return cls(heading, "number", str, 9, spare)

    @classmethod
    def bars(cls, width: int = 24) -> Column:
        """Column of bars of at most this width."""
        return cls("", "bar", width=width)

    def text(self, cell: str | float | Shade) -> str:
        """Text of a cell that is a text or one number."""
        if isinstance(cell, str):
            return cell
        return self.show(cell.share if isinstance(cell, Shade) else cell)

    def ends(self, cell: tuple[float, float]) -> tuple[str, str] | None:
        """Texts of both ends of an interval; None if it is not determined."""
        return None if math.isnan(cell[0]) else (self.show(cell[0]), self.show(cell[1]))


@dataclass(frozen=True, slots=True)
class Row:
    """Cells in the order of the columns.

    look     : "dim": not detected or not determined; "missed": an interval that does not contain the known truth
    is_total : the rows below it are its parts
    """

    cells: tuple[Cell, ...]
    look: Literal["", "dim", "missed"] = ""
    is_total: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with their columns.

    hidden   : number of rows that are left out
    has_grid : whether lines separate rows from columns, because both are values of the data
    """

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    title: str = ""
    hidden: int = 0
    has_grid: bool = False

    @property
    def hidden_line(self) -> str:
        """Number of rows that are left out, as a sentence; empty if every row is shown."""
        return f"{format_count(self.hidden, 'more row')} not shown." if self.hidden else ""


@dataclass(frozen=True, slots=True)
class Document:
    """What a result shows, from top to bottom. All texts are printable: untrusted ones are escaped.

    Attributes
    ----------
    headline
        The result in one line.
    table
        Columns and rows.
    lines
        Further results, a line each.
    findings
        Warnings about the result.
    """

    headline: str
    table: Table
    lines: tuple[str, ...]
    findings: tuple[Finding, ...] = ()


UNLISTED_STRINGS = "unlisted_strings"
"""Kind of the finding that a command, a function and a page each help with in their own way."""


def with_steps(findings: Iterable[Finding], steps: Mapping[str, str]) -> tuple[Finding, ...]:
    """Findings with the next step that the surface at hand offers, after their remedies; steps : sentences by kind."""
    return tuple(
        replace(finding, remedy=f"{finding.remedy} {steps[finding.kind]}") if finding.kind in steps else finding
        for finding in findings
    )


def group_name(names: Sequence[str]) -> str:
    """Name of a row of candidates that no report can distinguish, or of a single one.

    >>> group_name(["a", "b"])
    'a = b'
    """
    return " = ".join(map(escape_untrusted, names))


def format_share(share: float) -> str:
    """Share as a percentage with two decimals.

    >>> format_share(0.1234), format_share(-0.0), format_share(math.nan)
    ('12.34%', '0.00%', '-')
    """
    return "-" if math.isnan(share) else f"{share:z.2%}"


def format_change(difference: float, digits: int = 2) -> str:
    """Difference of two shares with its sign, in percentage points; the text around it has the unit, "points".

    >>> format_change(0.1234), format_change(-0.01), format_change(math.nan)
    ('+12.34', '-1.00', '-')
    """
    return "-" if math.isnan(difference) else f"{100 * difference:+z.{digits}f}"


def format_q_value(q: float) -> str:
    """Q-value as text.

    >>> format_q_value(0.04), format_q_value(2e-7), format_q_value(0.0), format_q_value(math.nan)
    ('0.040', '2e-07', '<1e-99', '-')
    """
    return "-" if math.isnan(q) else "<1e-99" if q < 1e-99 else f"{q:.0e}" if q < 0.001 else f"{q:.3f}"


def format_level(confidence: float) -> str:
    """Confidence level as a percentage.

    >>> format_level(0.95), format_level(0.999)
    ('95%', '99.9%')
    """
    return f"{100 * confidence:.4g}%"


def trend_axis(lows: Iterable[float], highs: Iterable[float]) -> tuple[float, float]:
    """Ends of the axis of shares over time: it has all intervals, and begins at 0 if this takes at most half of its length.

    report.js has the same rule.

    >>> trend_axis([0.52, 0.56], [0.55, 0.59]), trend_axis([0.01, math.nan], [0.05, math.nan]), trend_axis([-0.01], [0.02])
    ((0.52, 0.59), (0.0, 0.05), (-0.01, 0.02))
    """
    low = min(filter(math.isfinite, lows), default=0.0)
    high = max(filter(math.isfinite, highs), default=0.0)
    return (min(low, 0.0) if low <= high - low else low), high


def check_top(top: int | None) -> None:
    """Raise ParameterError for a largest number of rows below 1."""
    if top is not None:
        check_integer("top", top, 1, hint="leave it out for all rows")
