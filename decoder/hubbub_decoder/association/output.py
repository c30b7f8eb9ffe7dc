"""Output of an association: a table in the terminal, and a heat map."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.table import Table
from rich.text import Text

from hubbub.text import escape_untrusted
from hubbub_decoder.array_types import Floats
from hubbub_decoder.association.margins import outer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hubbub_decoder.association.association import Association, Cell
    from hubbub_decoder.association.three_way import ThreeWayAssociation, ThreeWayCell

    Found: TypeAlias = Association | ThreeWayAssociation

_MAX_ROWS, _MAX_COLUMNS = 30, 8
_MIN_P_VALUE = 1e-300


class AssociationTable:
    """Table for the terminal: the guess of P(last part | other parts), darker cells for larger shares, with the joint shares' intervals.

    everything : show all components, not only those that the test compares
    """

    def __init__(self, association: Found, everything: bool = False) -> None:
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
        for names, cell, expected in strongest:
            yield Text(
                f"  {' x '.join(map(escape_untrusted, names))}: {cell.share:.2%} ({cell.low:.2%} to {cell.high:.2%}); "
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
    def of_association(cls, found: Found, *, everything: bool) -> Conditionals:
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


def verdicts(found: Found) -> list[str]:
    """The results of the tests, each in a sentence: of all parts, then of each pair."""
    test, mutual = found.test, "mutual " if len(found.parts) > 2 else ""
    shown = f"p = {test.p_value:.2g}" if test.p_value > _MIN_P_VALUE else "p < 1e-300"
    dependent = "are not mutually independent" if mutual else "depend on each other"
    conclusion = dependent if test.p_value < 1 - found.confidence else "show no dependence"
    sentence = (
        f"{', '.join(found.parts[:-1])} and {found.parts[-1]} {conclusion}: score test of {mutual}independence {test.statistic:.1f} "
        f"with {test.degrees_of_freedom} degrees of freedom, {shown} ({found.num_reports:,} reports)"
    )
    return [sentence, *(of_pair for pair in found.pairs for of_pair in verdicts(pair))]


def strongest_cells(found: Found, number: int = 5) -> list[tuple[tuple[str, ...], Cell | ThreeWayCell, float]]:
    """Names, cell and share under independence of the tested combinations whose interval excludes that share, furthest first."""
    expected = outer([margin.shares for margin in found.margins])
    kept = [set(each) for each in found.test.kept]
    cells: Sequence[Cell | ThreeWayCell] = found.cells
    outside = [
        (tuple(names[i] for names, i in zip(found.names, index, strict=True)), cell, float(expected[index]))
        for index, cell in zip(np.ndindex(expected.shape), cells, strict=True)
        if all(i in each for i, each in zip(index, kept, strict=True)) and not cell.low <= expected[index] <= cell.high
    ]
    return sorted(outside, key=lambda each: -abs(each[1].share - each[2]) / each[1].std_error)[:number]


def plot_heat_map(found: Found, *, everything: bool = False) -> Figure:
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
