"""Output of an association: a table in the terminal, and a heat map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.table import Table
from rich.text import Text

from hubbub.text import escape_untrusted
from hubbub_decoder.association.association import Association, Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_ROWS, _MAX_COLUMNS = 30, 8
_MIN_P_VALUE = 1e-300


class AssociationTable:
    """Table for the terminal: the guess of P(second | first), darker cells for larger shares, with the joint shares' intervals.

    everything : show all components, not only those that the test compares
    """

    def __init__(self, association: Association, everything: bool = False) -> None:
        self._association = association
        self._everything = everything

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        found = self._association
        rows, columns = shown_components(found, everything=self._everything)
        hidden = max(0, len(columns) - _MAX_COLUMNS), max(0, len(rows) - _MAX_ROWS)
        rows, columns = rows[:_MAX_ROWS], columns[:_MAX_COLUMNS]
        guess = found.joint.guess
        of_row = guess / np.where(guess.sum(axis=1) > 0, guess.sum(axis=1), 1)[:, None]
        table = Table(title=f"share of {found.second} for each {found.first}, and of all reports", title_justify="left")
        table.add_column(escape_untrusted(found.first))
        table.add_column("all", justify="right")
        for column in columns:
            table.add_column(escape_untrusted(found.names[1][column]), justify="right")
        everything = guess.sum(axis=0)
        table.add_row("(all)", "100.0 %", *(_shaded(everything[column]) for column in columns), end_section=True)
        for row in rows:
            label = escape_untrusted(found.names[0][row])
            table.add_row(
                label,
                f"{guess[row].sum():.1%}".replace("%", " %"),
                *(_shaded(of_row[row, column]) for column in columns),
            )
        yield table
        yield Text(verdict(found))
        strongest = strongest_pairs(found)
        if strongest:
            yield Text(f"pairs furthest from independence, with {found.confidence:.0%} intervals of the joint share:")
        for cell, expected in strongest:
            yield Text(
                f"  {escape_untrusted(cell.first)} x {escape_untrusted(cell.second)}: {cell.share:.2%} ({cell.low:.2%} to {cell.high:.2%}); "
                f"{expected:.2%} if independent"
            )
        if any(hidden):
            yield Text(f"{hidden[1]} rows and {hidden[0]} columns are not shown; --out and --json have all pairs")


def verdict(found: Association) -> str:
    """The result of the test in a sentence."""
    test = found.test
    shown = f"p = {test.p_value:.2g}" if test.p_value > _MIN_P_VALUE else "p < 1e-300"
    conclusion = "depend on each other" if test.p_value < 1 - found.confidence else "show no dependence"
    return (
        f"{found.first} and {found.second} {conclusion}: score test of independence {test.statistic:.1f} with {test.degrees_of_freedom} "
        f"degrees of freedom, {shown} ({found.num_reports:,} reports)"
    )


def strongest_pairs(found: Association, number: int = 5) -> list[tuple[Cell, float]]:
    """Pairs of tested components whose interval excludes their share under independence, furthest first, with that share."""
    x, y = (margin.shares for margin in found.margins)
    kept = [set(each) for each in found.test.kept]
    width = len(found.names[1])
    pairs = [
        (cell, float(x[index // width] * y[index % width]))
        for index, cell in enumerate(found.cells)
        if index // width in kept[0] and index % width in kept[1]
    ]
    outside = [(cell, expected) for cell, expected in pairs if not cell.low <= expected <= cell.high]
    return sorted(outside, key=lambda pair: -abs(pair[0].share - pair[1]) / pair[0].std_error)[:number]


def shown_components(found: Association, *, everything: bool) -> tuple[list[int], list[int]]:
    """Components of each part to show, in descending order of their shares."""
    chosen = (
        range(len(names)) if everything else kept for names, kept in zip(found.names, found.test.kept, strict=True)
    )
    rows, columns = (
        sorted(each, key=lambda i, margin=margin: -margin.shares[i])
        for each, margin in zip(chosen, found.margins, strict=True)
    )
    return rows, columns


def plot_heat_map(found: Association, *, everything: bool = False) -> Figure:
    """Figure of the guessed share of each value of the second part, for each value of the first."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    rows, columns = shown_components(found, everything=everything)
    guess = found.joint.guess
    of_row = guess[np.ix_(rows, columns)] / np.where(guess[rows].sum(axis=1) > 0, guess[rows].sum(axis=1), 1)[:, None]
    figure = Figure(figsize=(3 + 0.5 * len(columns), 1.6 + 0.3 * len(rows)), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(of_row, cmap="Blues", vmin=0, vmax=max(1e-9, float(of_row.max())), aspect="auto")
    axes.set_xticks(range(len(columns)), _labels(found.names[1], columns), rotation=45, ha="right", fontsize=8)
    axes.set_yticks(range(len(rows)), _labels(found.names[0], rows), fontsize=8)
    axes.set_xlabel(found.second)
    axes.set_ylabel(found.first)
    if len(rows) * len(columns) <= 400:
        for i, j in np.ndindex(of_row.shape):
            dark = of_row[i, j] > 0.6 * of_row.max()
            axes.text(
                j, i, f"{of_row[i, j]:.0%}", ha="center", va="center", fontsize=7, color="white" if dark else "black"
            )
    figure.colorbar(image, label=f"share of {found.second}, for each {found.first}", format=PercentFormatter(1))
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


def _labels(names: Sequence[str], chosen: Sequence[int]) -> list[str]:
    return [escape_untrusted(names[i])[:40].replace("$", r"\$") for i in chosen]
