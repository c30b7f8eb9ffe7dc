"""Terminal tables and curves of descriptions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from hubbub.privacy import Guarantee, Unit
from hubbub.privacy.guarantee import SAME_RUNS
from hubbub.privacy.pricing import shown_epsilon
from hubbub.text import escape_control_characters, escape_untrusted, format_count, with_article
from hubbub_decoder.planning.description import Description
from hubbub_decoder.planning.law.accuracy import DETECTION_LIMIT, count_text, percent_text

_BAR_WIDTH = 24
_MOST_ITEMS = 8
_DATA = {"bits": "bit counts", "patterns": "pattern counts", "reports": "retained reports"}


@dataclass(frozen=True, slots=True)
class DescriptionTables:
    """Figures of one definition, or of several side by side, as a rich renderable.

    explain : whether all figures and the curves are shown, and not only the most important figures
    """

    descriptions: Sequence[Description]
    explain: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        is_headed = self.explain or len(self.descriptions) > 1
        figures = Table(box=None, pad_edge=False, header_style="bold", show_header=is_headed)
        figures.add_column("")
        for description in self.descriptions:
            figures.add_column(description.label, overflow="fold")
        for name, values in _rows(self.descriptions, _figures if self.explain else _summary):
            figures.add_row(name, *map(Text, values))
        yield figures
        for description in self.descriptions if self.explain else ():
            title = f"{description.label}: " if len(self.descriptions) > 1 else ""
            yield from _curves(description, title)


def figure_rows(descriptions: Sequence[Description]) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of a figure and its text for each description."""
    return _rows(descriptions, _figures)


def _rows(
    descriptions: Sequence[Description], figures: Callable[[Description], Iterator[tuple[str, str]]]
) -> Iterator[tuple[str, list[str]]]:
    columns = [dict(figures(description)) for description in descriptions]
    for name in dict.fromkeys(name for column in columns for name in column):
        yield name, [column.get(name, "-") for column in columns]


def _summary(description: Description) -> Iterator[tuple[str, str]]:
    """Yield the most important figures: epsilons, what is decoded, and how exactly."""
    yield from _epsilons(description)
    yield _decoded(description)
    *_, accuracy = _accuracy(description)
    yield accuracy
    yield from _power(description)
    yield from _difference(description)


def _figures(description: Description) -> Iterator[tuple[str, str]]:
    for fact in description.metric.facts():
        yield fact.label, escape_control_characters(fact.line(_MOST_ITEMS, escape_untrusted))
    yield from _epsilons(description)
    totals = description.of_totals
    yield (
        "central epsilon",
        f"{_bound(totals)}; for the {totals.observer}, with delta = {totals.delta:g} and {totals.num_clients:,} genuine reports of a cohort",
    )
    identified = (
        f"{description.permanent_bits:,.1f} bits, identifies one of {_power_of_two(description.permanent_bits)} clients"
    )
    yield "permanent response", identified if description.permanent_bits else "none"
    yield "effective group size of 2 reports", f"{description.group_size:,.3g}"
    yield _decoded(description)
    yield from _accuracy(description)
    yield from _power(description)
    yield from _difference(description)


def _accuracy(description: Description) -> Iterator[tuple[str, str]]:
    """Yield the figures of the estimates, with what a detection means where a decoding tests nothing."""
    kind, level = description.metric.kind, description.accuracy.interval_level
    meaning = f": a decoding tests no {kind.value_nouns}, and detected means that the interval of {100 * level:.4g} % is above 0"
    for name, figure in description.accuracy.rows():
        yield name, figure + ("" if kind.is_tested or name != DETECTION_LIMIT else meaning)


def _power(description: Description) -> Iterator[tuple[str, str]]:
    if description.share is not None and description.power is not None:
        share = percent_text(description.share)
        yield "power", f"a share of {share} is detected with probability {description.power:.2g}"


def _difference(description: Description) -> Iterator[tuple[str, str]]:
    if description.difference is not None:
        share = "any share" if description.share is None else f"a share of {percent_text(description.share)}"
        of_power = (
            f"{count_text(number)} with probability {power:g}"
            for power, number in description.reports_of_difference.items()
        )
        yield (
            "two groups",
            f"reports of each that show a difference of {100 * description.difference:.3g} points from {share}: {', '.join(of_power)}",
        )


def _epsilons(description: Description) -> Iterator[tuple[str, str]]:
    of_days = description.of_days
    hint = ": `hold` gives one" if math.isinf(of_days.epsilon) else ""
    days = f"of any {format_count(description.num_days, 'day')} in a row"
    yield "epsilon of days", f"{_bound(of_days, days)}{hint}"
    found = description.privacy.of_operator()
    for unit in (Unit.REPORT, Unit.EPOCH, Unit.VALUE):
        if unit in found:
            yield f"epsilon of {with_article(unit)}", _bound(found[unit])
    yield "lifetime epsilon", _bound(found[Unit.LIFETIME], "under the default Policy")
    yield "observer", f"{of_days.observer}, {SAME_RUNS}"


def _bound(guarantee: Guarantee, of: str = "") -> str:
    """Return figure and condition of a guarantee."""
    return f"{shown_epsilon(guarantee.epsilon)}{f' {of}' if of else ''}, {guarantee.condition.sentence}"


def _decoded(description: Description) -> tuple[str, str]:
    law, reports = description.accuracy, format_count(description.num_reports, "report")
    shares = format_count(round(law.shares.count), "candidate")
    return "decoded", f"{format_count(description.periods, 'period')} of {reports}, {_DATA[law.data]}, {shares}"


def _curves(description: Description, title: str) -> Iterator[Text | Table]:
    has_epochs = description.metric.hold is not None
    yield Text(f"\n{title}Epsilon of t reports of one {'epoch' if has_epochs else 'value'}", style="bold")
    top = max((epsilon for _, epsilon in description.epsilons if math.isfinite(epsilon)), default=1.0)
    rows = [
        ("unlimited" if math.isinf(t) else f"{t:.0f}", shown_epsilon(epsilon), epsilon / top)
        for t, epsilon in description.epsilons
    ]
    yield _curve(("t", "epsilon"), rows)
    yield Text(f"\n{title}Accuracy by reports of a period", style="bold")
    points = [(number, error, limit) for number, error, limit in description.by_reports() if math.isfinite(error)]
    lowest, highest = (math.log(f((error for _, error, _ in points), default=1.0)) for f in (min, max))
    reach = max(highest - lowest, 1e-9)
    yield _curve(
        ("reports", "standard error", "detection limit"),
        [
            (f"{number:,}", percent_text(error), percent_text(limit), (math.log(error) - lowest) / reach * 0.95 + 0.05)
            for number, error, limit in points
        ],
    )
    if description.recovery:
        yield Text(f"\n{title}Probability that t linked reports reveal the whole permanent response", style="bold")
        yield _curve(("t", "probability"), [(f"{t}", f"{chance:.3f}", chance) for t, chance in description.recovery])


def _curve(names: tuple[str, ...], rows: Sequence[tuple[str | float, ...]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", width=_BAR_WIDTH, no_wrap=True)
    for *cells, height in rows:
        filled = min(max(round(float(height) * _BAR_WIDTH), 0), _BAR_WIDTH) if math.isfinite(float(height)) else 0
        table.add_row(*map(str, cells), "█" * filled)
    return table


def _power_of_two(bits: float) -> str:
    return f"{2**bits:,.3g}" if bits < 40 else f"2^{bits:.0f}"
