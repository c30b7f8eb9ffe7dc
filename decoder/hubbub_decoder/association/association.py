"""Association of the parts of a joint metric: `associate`, the result that it returns, and the document that shows it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from hubbub.metrics.metric import Metric
from hubbub.summary import Reports
from hubbub.text import escape_untrusted
from hubbub.wire.json_values import json_value
from hubbub_decoder.array_types import Floats
from hubbub_decoder.association.dependence import IndependenceTest
from hubbub_decoder.association.fit import PartsFit, fit_parts
from hubbub_decoder.association.joint_shares import JointShares
from hubbub_decoder.association.margins import MarginFit, outer
from hubbub_decoder.blas_threads import one_blas_thread
from hubbub_decoder.documents.document import Column, Document, Row, Shade, Table, check_top
from hubbub_decoder.documents.finding import Finding
from hubbub_decoder.model.distributions import norm
from hubbub_decoder.options import IntervalFields, read_options
from hubbub_decoder.result import Result
from hubbub_decoder.results.estimates import share_text, short_names
from hubbub_decoder.results.table_result import TableResult
from hubbub_decoder.results.warnings import dropped_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_POSITIONS = ("first", "second", "third")
_GIVEN = ("given_first", "given_two")
_MAX_ROWS, _MAX_COLUMNS = 30, 8
_MIN_P_VALUE = 1e-300
_NUM_STRONGEST = 5


@dataclass(frozen=True, slots=True, eq=False)
class Conditional(Result):
    """Conditional share with its confidence interval.

    Attributes
    ----------
    share
        Share among the reports that fulfil the condition. nan: the condition has no positive share.
    low
        Lower end of the confidence interval. nan: the share of the condition is below z standard errors.
    high
        Upper end of the confidence interval.
    """

    share: float
    low: float
    high: float

    def __repr__(self) -> str:
        return f"<Conditional {share_text(self.share, self.low, self.high)}>"


@dataclass(frozen=True, slots=True, eq=False)
class Cell(Result):
    """One combination of values, one of each part.

    Attributes
    ----------
    values
        The value of each part.
    share
        Joint share. It may be negative.
    std_error
        Standard error of the share.
    low
        Lower end of the confidence interval of the share.
    high
        Upper end of the confidence interval of the share.
    guess
        Best guess of the share, non-negative. The guesses add up to 1.
    given
        `given[0]` is the share of the other values among the reports with the first. Of three parts, `given[1]` is the
        share of the third value among the reports with the first two.
    """

    values: tuple[str, ...]
    share: float
    std_error: float
    low: float
    high: float
    guess: float
    given: tuple[Conditional, ...]

    def __repr__(self) -> str:
        values = " x ".join(short_names((value,)) for value in self.values)
        return f"<Cell {values}: {share_text(self.share, self.low, self.high)}>"


@dataclass(frozen=True, eq=False)
class Association(TableResult[Cell]):
    """Joint distribution of parts of a joint metric, and a test of their independence.

    It is a sequence of cells (`TableResult`). `association["UA", "EWR"]` is the cell of two values.

    Attributes
    ----------
    metric
        Definition of the metric.
    parts
        Names of the two or three parts.
    names
        Names of each part's components: candidates or categories first.
    num_reports
        Number of reports.
    confidence
        Level of the intervals.
    margins
        Shares of each part's components.
    joint
        Tables over the components.
    test
        Test of (mutual) independence: every joint share is the product of the margins. It compares the components with
        clearly positive shares.
    pairs
        For three parts, the associations of the first and second, the first and third, and the second and third part.
        The hypothesis of each test is that these two parts are independent, whatever the other part is. Empty for two
        parts.
    warnings
        What the reader has to know, such as rows that were left out of the reports.
    """

    metric: Metric
    parts: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]
    num_reports: int
    confidence: float
    margins: tuple[MarginFit, ...]
    joint: JointShares
    test: IndependenceTest
    pairs: tuple[Association, ...] = ()
    warnings: tuple[Finding, ...] = ()

    def __repr__(self) -> str:
        return (
            f"<Association of {_phrase(self.parts)}: {self.num_reports:,} reports, "
            f"p-value of {self._mutual}independence {self.test.p_value:.3g}>"
        )

    @property
    def _mutual(self) -> str:
        return "mutual " if len(self.parts) > 2 else ""

    @property
    def total_variation(self) -> float:
        """Total variation of the guess from the product of its margins: 0 for independent parts."""
        guess, axes = self.joint.guess, range(len(self.parts))
        product = outer([guess.sum(axis=tuple(set(axes) - {axis})) for axis in axes])
        return float(np.abs(guess - product).sum() / 2)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All combinations of components, the last part fastest."""
        joint, z = self.joint, float(norm.ppf((1 + self.confidence) / 2))
        half = z * joint.std_errors
        tables = [joint.shares, joint.std_errors, joint.shares - half, joint.shares + half, joint.guess]
        tables += [table for ratio in joint.given for table in (ratio.shares, *ratio.interval(z))]
        numbers = np.stack(tables, axis=-1).reshape(-1, len(tables)).tolist()
        cells = []
        for values, (share, std_error, low, high, guess, *given) in zip(
            itertools.product(*self.names), numbers, strict=True
        ):
            conditionals = tuple(Conditional(*given[i : i + 3]) for i in range(0, len(given), 3))
            cells.append(Cell(values, share, std_error, low, high, guess, conditionals))
        return tuple(cells)

    @property
    def _rows(self) -> tuple[Cell, ...]:
        return self.cells

    def _names(self, row: Cell) -> tuple[tuple[str, ...]]:
        return (row.values,)

    @property
    def _columns(self) -> Mapping[str, str]:
        given = [f"{name}{end}" for name in _GIVEN[: len(self.parts) - 1] for end in ("", "_low", "_high")]
        numbers = ("share", "std_error", "low", "high", "guess", *given)
        return dict.fromkeys(_POSITIONS[: len(self.parts)], "str") | dict.fromkeys(numbers, "float")

    def _cells(self) -> Iterator[dict[str, Any]]:
        columns = tuple(self._columns)
        for cell in self.cells:
            numbers = (cell.share, cell.std_error, cell.low, cell.high, cell.guess)
            given = [number for share in cell.given for number in (share.share, share.low, share.high)]
            yield dict(zip(columns, (*cell.values, *numbers, *given), strict=True))

    def to_dict(self) -> dict[str, Any]:
        return self._about() | {"cells": json_value(list(self._cells()))}

    def _about(self) -> dict[str, Any]:
        about: dict[str, Any] = json_value(
            {
                "metric": self.metric.name,
                "digest": self.metric.digest,
                "parts": self.parts,
                "num_reports": self.num_reports,
                "confidence": self.confidence,
                "independence": {
                    "statistic": self.test.statistic,
                    "degrees_of_freedom": self.test.degrees_of_freedom,
                    "p_value": self.test.p_value,
                    "components": [
                        [of_part[i] for i in kept] for of_part, kept in zip(self.names, self.test.kept, strict=True)
                    ],
                },
                "total_variation_from_independence": self.total_variation,
                "margins": {
                    part: [
                        {"value": name, "share": share, "std_error": error}
                        for name, share, error in zip(names, fit.shares.tolist(), fit.std_errors.tolist(), strict=True)
                    ]
                    for part, names, fit in zip(self.parts, self.names, self.margins, strict=True)
                },
                "pairs": [pair.to_dict() for pair in self.pairs],
                "warnings": self.warnings,
            }
        )
        return about

    def document(self, *, everything: bool = False, top: int | None = None) -> Document:
        """Return what the terminal and a notebook show.

        It has the guess of P(last part | other parts), the unbiased estimates of the same shares with their intervals,
        the results of the tests, and the joint shares furthest from independence.

        Parameters
        ----------
        everything
            Whether to show all components, not only those that the test compares.
        top
            Largest number of rows. None: 30.

        Returns
        -------
        Document
            Headline, table, lines and warnings.
        """
        check_top(top)
        shown = Conditionals.of_association(self, everything=everything)
        num_rows, num_columns = top or _MAX_ROWS, _MAX_COLUMNS
        lines = [*shown.unbiased_lines(num_rows, num_columns, self.confidence), *verdicts(self)]
        strongest = strongest_cells(self)
        if strongest:
            lines.append(
                f"combinations furthest from independence, with {self.confidence:.0%} intervals of the joint share:"
            )
        for cell, expected in strongest:
            lines.append(
                f"  {' x '.join(map(escape_untrusted, cell.values))}: {cell.share:.2%} ({cell.low:.2%} to {cell.high:.2%}); "
                f"{expected:.2%} if independent"
            )
        hidden = max(0, len(shown.rows) - num_rows), max(0, len(shown.columns) - num_columns)
        if any(hidden):
            lines.append(
                f"{hidden[0]} rows and {hidden[1]} columns are not shown; --out and --json have all combinations"
            )
        return Document("", shown.table(num_rows, num_columns), tuple(lines), self.warnings)

    def plot(self, ax: Axes | Figure | None = None, *, top: int | None = None, everything: bool = False) -> Axes:
        """Draw the guessed share of each value of the last part, for each combination of the others.

        Parameters
        ----------
        ax
            Axes to draw on, or an empty figure, which gets the size that the plot needs. None: a new pyplot figure,
            which a notebook displays.
        top
            Largest number of combinations, the largest shares first. None: all.
        everything
            Whether to draw all components, not only those that the test compares.

        Returns
        -------
        Axes
            The axes with the plot.

        Raises
        ------
        ParameterError
            `top` is below 1.
        """
        from hubbub_decoder.results.plots import checked_top, draw_map

        shown = Conditionals.of_association(self, everything=everything)
        number = checked_top(top, len(shown.rows))
        labels = [", ".join(row) for row in shown.rows[:number]], shown.columns
        names = shown.condition, self.parts[-1]
        meaning = f"guessed share of {self.parts[-1]}, for each {shown.condition}"
        return draw_map(ax, shown.of_rows[:number], labels, names, meaning)


@one_blas_thread()
def associate(
    reports: Reports,
    candidates: Mapping[str, Iterable[str]] | None = None,
    *,
    parts: Sequence[str] | None = None,
    same_clients: bool = True,
    **options: Unpack[IntervalFields],
) -> Association:
    """Estimate the joint distribution of parts of a joint metric, and test whether the parts are independent.

    Parameters
    ----------
    reports
        Retained reports of a joint metric, at least 100.
    candidates
        Strings to look for in each string part, by the part's name. All other strings are "unlisted".
    parts
        Names of two or three parts, in the order of the conditional shares. A table of two parts has at most 2,500
        combinations, and a table of three 1,000. None: all parts of the metric.
    same_clients
        Whether the same clients report in each of several periods. Their permanent noise then repeats, so several
        periods are refused. False: each period has other clients.
    **options
        Keywords `confidence` and `target`, which `Options` describes.

    Returns
    -------
    Association
        Joint shares, conditional shares and the test.

    Raises
    ------
    SummaryError
        The reports are too few, not of a joint metric, or of several periods with the same clients.
    ParameterError
        An argument is out of range.
    CandidateError
        The candidates cannot be used.
    """
    chosen = replace(read_options(options, IntervalFields), same_clients=same_clients)
    fit = fit_parts(reports, candidates, parts, chosen)
    indices = tuple(range(len(fit.margins)))
    pairs = (
        tuple(_association(fit, pair, ()) for pair in itertools.combinations(indices, 2)) if len(indices) > 2 else ()
    )
    return replace(_association(fit, indices, pairs), warnings=tuple(dropped_rows(reports)))


def _association(fit: PartsFit, parts: tuple[int, ...], pairs: tuple[Association, ...]) -> Association:
    """Association of some parts of a fit."""
    return Association(
        fit.evidence.metric,
        tuple(fit.sample.parts[part].metric.name for part in parts),
        fit.names(parts),
        fit.evidence.num_reports,
        fit.options.confidence,
        tuple(fit.margins[part] for part in parts),
        fit.joint(parts),
        fit.test(parts),
        pairs,
    )


def _phrase(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


@dataclass(frozen=True, eq=False)
class Conditionals:
    """Guessed shares of the last part, for each combination of the other parts' shown components.

    parts      : names of the parts
    rows       : labels of the combinations        shares  : (rows,) of each combination
    of_rows    : (rows, columns) conditional share of each shown component
    everything : (columns,) shares among all reports
    unbiased   : estimates of `of_rows` with their intervals, by row and column
    """

    parts: tuple[str, ...]
    rows: list[tuple[str, ...]]
    columns: list[str]
    shares: Floats
    of_rows: Floats
    everything: Floats
    unbiased: list[list[Conditional]]

    @classmethod
    def of_association(cls, found: Association, *, everything: bool) -> Conditionals:
        """The components that the test compares, or all, in descending order of their shares."""
        *others, last = (
            sorted(range(len(names)) if everything else kept, key=lambda i, margin=margin: -margin.shares[i])
            for names, kept, margin in zip(found.names, found.test.kept, found.margins, strict=True)
        )
        guess = found.joint.guess[np.ix_(*others)].reshape(-1, len(found.names[-1]))
        shares = guess.sum(axis=1)
        rows = [
            tuple(names[i] for names, i in zip(found.names, row, strict=False)) for row in itertools.product(*others)
        ]
        of_rows = guess[:, last] / np.where(shares > 0, shares, 1)[:, None]
        all_reports = found.joint.guess.sum(axis=tuple(range(len(others))))[last]
        cells = dict(zip(itertools.product(*found.names), found.cells, strict=True))
        columns = [found.names[-1][i] for i in last]
        unbiased = [[cells[*row, column].given[-1] for column in columns] for row in rows]
        return cls(found.parts, rows, columns, shares, of_rows, all_reports, unbiased)

    @property
    def condition(self) -> str:
        """Names of the parts that are given."""
        return " and ".join(self.parts[:-1])

    def table(self, num_rows: int, num_columns: int) -> Table:
        """Table with darker cells for larger shares; the first row has the shares among all reports."""
        columns = (
            *(Column.names(escape_untrusted(part)) for part in self.parts[:-1]),
            *(Column(name, "number", _percent) for name in ("all", *map(escape_untrusted, self.columns[:num_columns]))),
        )
        total: list[Any] = [
            "(all)",
            *[""] * (len(self.parts) - 2),
            1.0,
            *map(Shade, self.everything[:num_columns].tolist()),
        ]
        rows = [Row(tuple(total), is_total=True)]
        for labels, share, row in zip(self.rows[:num_rows], self.shares.tolist(), self.of_rows.tolist(), strict=False):
            rows.append(Row((*map(escape_untrusted, labels), share, *map(Shade, row[:num_columns]))))
        title = f"guessed share of {self.parts[-1]} for each {self.condition}, and of all reports: drawn toward independence"
        return Table(columns, tuple(rows), title, has_grid=True)

    def unbiased_lines(self, num_rows: int, num_columns: int, confidence: float) -> Iterator[str]:
        """Yield the unbiased shares of the table's cells with their intervals, a line for each row."""
        yield f"unbiased shares of {self.parts[-1]} for each {self.condition}, with {confidence:.0%} intervals:"
        for labels, row in zip(self.rows[:num_rows], self.unbiased, strict=False):
            shares = (
                f"{escape_untrusted(column)} {'not known' if math.isnan(one.low) else f'{one.share:.1%} ({one.low:.1%} to {one.high:.1%})'}"
                for column, one in zip(self.columns[:num_columns], row, strict=False)
            )
            yield f"  {', '.join(map(escape_untrusted, labels))}: {'; '.join(shares)}"


def verdicts(found: Association) -> list[str]:
    """The results of the tests, each in a sentence: of all parts, then of each pair."""
    test, mutual = found.test, found._mutual
    shown = f"p = {test.p_value:.2g}" if test.p_value > _MIN_P_VALUE else "p < 1e-300"
    dependent = "are not mutually independent" if mutual else "depend on each other"
    conclusion = dependent if test.p_value < 1 - found.confidence else "show no dependence with these reports"
    sentence = (
        f"{_phrase(found.parts)} {conclusion}: score test of {mutual}independence {test.statistic:.1f} "
        f"with {test.degrees_of_freedom} degrees of freedom, {shown} ({found.num_reports:,} reports)"
    )
    return [sentence, *(of_pair for pair in found.pairs for of_pair in verdicts(pair))]


def strongest_cells(found: Association) -> list[tuple[Cell, float]]:
    """Cell and share under independence of the few tested combinations whose interval excludes that share, furthest first."""
    expected = outer([margin.shares for margin in found.margins])
    kept = [set(components) for components in found.test.kept]
    outside = [
        (cell, float(expected[index]))
        for index, cell in zip(np.ndindex(expected.shape), found.cells, strict=True)
        if all(i in components for i, components in zip(index, kept, strict=True))
        and not cell.low <= expected[index] <= cell.high
    ]
    return sorted(outside, key=lambda pair: -abs(pair[0].share - pair[1]) / pair[0].std_error)[:_NUM_STRONGEST]


def _percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %")
