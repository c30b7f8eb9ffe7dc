"""Association of the parts of a joint metric: `associate`, the result that it returns, its table and its heat map."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.table import Table
from rich.text import Text

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
from hubbub_decoder.model.distributions import norm
from hubbub_decoder.options import Options, Target
from hubbub_decoder.result import Result
from hubbub_decoder.results.table_result import TableResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_POSITIONS = ("first", "second", "third")
_GIVEN = ("given_first", "given_two")
_MAX_ROWS, _MAX_COLUMNS = 30, 8
_MIN_P_VALUE = 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class Conditional(Result):
    """Conditional share with its confidence interval; nan where the condition has no positive share, the interval below z standard errors."""

    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class Cell(Result):
    """One combination of values, one of each part.

    share, std_error, low, high : joint share with its standard error and confidence interval; may be negative
    guess : best guess of the share, non-negative; the guesses add up to 1
    given : `given[0]`: share of the other values among the reports with the first; `given[1]`, of three parts: share of the third value
            among the reports with the first two
    """

    values: tuple[str, ...]
    share: float
    std_error: float
    low: float
    high: float
    guess: float
    given: tuple[Conditional, ...]


@dataclass(frozen=True, eq=False)
class Association(TableResult[Cell]):
    """Joint distribution of two or three parts of a joint metric, and a test of their independence: a sequence of cells (`TableResult`).

    `association["UA", "EWR"]` is the cell of two values.

    parts      : names of the parts        names : of their components, candidates or categories first
    margins    : shares of the components of each part
    joint      : tables over the components
    test       : of (mutual) independence: every joint share is the product of the margins. It compares the components with clearly
                 positive shares
    confidence : level of the intervals
    pairs      : of three parts, the associations of the first and second, first and third, second and third part. The hypothesis of the
                 test of each: these two parts are independent, whatever the other
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
            given = [number for each in cell.given for number in (each.share, each.low, each.high)]
            yield dict(zip(columns, (*cell.values, *numbers, *given), strict=True))

    def to_dict(self) -> dict[str, Any]:
        return self._about() | {"cells": json_value(list(self._cells()))}

    def _about(self) -> dict[str, Any]:
        about: dict[str, Any] = json_value({
            "metric": self.metric.name,
            "digest": self.metric.digest,
            "parts": self.parts,
            "num_reports": self.num_reports,
            "confidence": self.confidence,
            "independence": {
                "statistic": self.test.statistic,
                "degrees_of_freedom": self.test.degrees_of_freedom,
                "p_value": self.test.p_value,
                "components": [[of_part[i] for i in kept] for of_part, kept in zip(self.names, self.test.kept, strict=True)],
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
        })  # fmt: skip
        return about

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from AssociationTable(self).__rich_console__(console, options)


@one_blas_thread()
def associate(
    reports: Reports,
    candidates: Mapping[str, Iterable[str]] | None = None,
    *,
    parts: Sequence[str] | None = None,
    confidence: float = 0.95,
    target: Target = "reporters",
    same_clients: bool = True,
) -> Association:
    """Estimate the joint distribution of two or three parts of a joint metric and test whether they are independent.

    reports    : retained reports of a joint metric, at least 100
    candidates : strings to look for in each string part, by the part's name; all others are "unlisted"
    parts      : names of two or three parts, in the order of the conditional shares; None: all parts of the metric. A table of two parts has
                 at most 2,500 combinations, one of three 1,000
    confidence : level of the intervals, in (0, 1)
    target     : "reporters": shares among the reporters; "population": of the population of which they are a random sample
    same_clients : of several periods, whether the same clients report in each. Their permanent noise then repeats, so several
                 periods are refused. False: each period has other clients

    Raises SummaryError for other reports and arguments out of range, CandidateError for candidates that cannot be used.
    """
    fit = fit_parts(reports, candidates, parts, Options(confidence, target=target, same_clients=same_clients))
    indices = tuple(range(len(fit.margins)))
    pairs = (
        tuple(_association(fit, pair, ()) for pair in itertools.combinations(indices, 2)) if len(indices) > 2 else ()
    )
    return _association(fit, indices, pairs)


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


class AssociationTable:
    """Table for the terminal: the guess of P(last part | other parts), darker cells for larger shares, with the joint shares' intervals.

    everything : show all components, not only those that the test compares
    """

    def __init__(self, association: Association, everything: bool = False) -> None:
        self._association = association
        self._everything = everything

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        found = self._association
        shown = Conditionals.of_association(found, everything=self._everything)
        columns = range(min(_MAX_COLUMNS, len(shown.columns)))
        table = Table(
            title=f"share of {found.parts[-1]} for each {shown.condition}, and of all reports", title_justify="left"
        )
        for part in found.parts[:-1]:
            table.add_column(escape_untrusted(part))
        table.add_column("all", justify="right")
        for column in columns:
            table.add_column(escape_untrusted(shown.columns[column]), justify="right")
        total = ["(all)", *[""] * (len(found.parts) - 2), "100.0 %"]
        table.add_row(*total, *(_shaded(shown.everything[column]) for column in columns), end_section=True)
        for labels, share, row in list(zip(shown.rows, shown.shares, shown.of_rows, strict=True))[:_MAX_ROWS]:
            table.add_row(
                *map(escape_untrusted, labels),
                f"{share:.1%}".replace("%", " %"),
                *(_shaded(row[column]) for column in columns),
            )
        yield table
        for sentence in verdicts(found):
            yield Text(sentence)
        strongest = strongest_cells(found)
        if strongest:
            yield Text(
                f"combinations furthest from independence, with {found.confidence:.0%} intervals of the joint share:"
            )
        for cell, expected in strongest:
            yield Text(
                f"  {' x '.join(map(escape_untrusted, cell.values))}: {cell.share:.2%} ({cell.low:.2%} to {cell.high:.2%}); "
                f"{expected:.2%} if independent"
            )
        hidden = max(0, len(shown.rows) - _MAX_ROWS), max(0, len(shown.columns) - _MAX_COLUMNS)
        if any(hidden):
            yield Text(
                f"{hidden[0]} rows and {hidden[1]} columns are not shown; --out and --json have all combinations"
            )


@dataclass(frozen=True, eq=False)
class Conditionals:
    """Guessed shares of the last part, for each combination of the other parts' shown components.

    rows       : labels of the combinations        shares  : (rows,) of each combination
    of_rows    : (rows, columns) conditional share of each shown component
    everything : (columns,) shares among all reports
    """

    condition: str
    rows: list[tuple[str, ...]]
    columns: list[str]
    shares: Floats
    of_rows: Floats
    everything: Floats

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
        condition = " and ".join(found.parts[:-1])
        return cls(condition, rows, [found.names[-1][i] for i in last], shares, of_rows, all_reports)


def verdicts(found: Association) -> list[str]:
    """The results of the tests, each in a sentence: of all parts, then of each pair."""
    test, mutual = found.test, found._mutual
    shown = f"p = {test.p_value:.2g}" if test.p_value > _MIN_P_VALUE else "p < 1e-300"
    dependent = "are not mutually independent" if mutual else "depend on each other"
    conclusion = dependent if test.p_value < 1 - found.confidence else "show no dependence"
    sentence = (
        f"{_phrase(found.parts)} {conclusion}: score test of {mutual}independence {test.statistic:.1f} "
        f"with {test.degrees_of_freedom} degrees of freedom, {shown} ({found.num_reports:,} reports)"
    )
    return [sentence, *(of_pair for pair in found.pairs for of_pair in verdicts(pair))]


def strongest_cells(found: Association, number: int = 5) -> list[tuple[Cell, float]]:
    """Cell and share under independence of the tested combinations whose interval excludes that share, furthest first."""
    expected = outer([margin.shares for margin in found.margins])
    kept = [set(each) for each in found.test.kept]
    outside = [
        (cell, float(expected[index]))
        for index, cell in zip(np.ndindex(expected.shape), found.cells, strict=True)
        if all(i in each for i, each in zip(index, kept, strict=True)) and not cell.low <= expected[index] <= cell.high
    ]
    return sorted(outside, key=lambda each: -abs(each[0].share - each[1]) / each[0].std_error)[:number]


def plot_heat_map(found: Association, *, everything: bool = False) -> Figure:
    """Figure of the guessed share of each value of the last part, for each combination of the others."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    shown = Conditionals.of_association(found, everything=everything)
    of_row = shown.of_rows
    figure = Figure(figsize=(3 + 0.5 * len(shown.columns), 1.6 + 0.3 * len(shown.rows)), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(of_row, cmap="Blues", vmin=0, vmax=max(1e-9, float(of_row.max())), aspect="auto")
    axes.set_xticks(range(len(shown.columns)), list(map(_label, shown.columns)), rotation=45, ha="right", fontsize=8)
    axes.set_yticks(range(len(shown.rows)), [", ".join(map(_label, row)) for row in shown.rows], fontsize=8)
    axes.set_xlabel(found.parts[-1])
    axes.set_ylabel(shown.condition)
    if of_row.size <= 400:
        for i, j in np.ndindex(of_row.shape):
            dark = of_row[i, j] > 0.6 * of_row.max()
            axes.text(
                j, i, f"{of_row[i, j]:.0%}", ha="center", va="center", fontsize=7, color="white" if dark else "black"
            )
    figure.colorbar(image, label=f"share of {found.parts[-1]}, for each {shown.condition}", format=PercentFormatter(1))
    return figure


def _shaded(share: float) -> Text:
    """A share on a background that is darker the larger it is."""
    level = min(max(share, 0.0), 1.0) ** 0.5
    blue, dark = int(255 - 150 * level), level > 0.75
    style = Style(
        bgcolor=f"#{int(247 - 239 * level):02x}{int(251 - 170 * level):02x}{blue:02x}",
        color="#ffffff" if dark else "#000000",
    )
    return Text(f"{share:.1%}".replace("%", " %"), style=style)


def _label(name: str) -> str:
    return escape_untrusted(name)[:40].replace("$", r"\$")
