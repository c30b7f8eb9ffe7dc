"""Model of the labels of one definition, written from docs/reference/format.md, "Labels": a list of runs, and no steps."""

from __future__ import annotations

from hubbub.metrics.periods import Period


class LabelModel:
    """Runs of an app since consent was given."""

    def __init__(self) -> None:
        self.runs: list[tuple[Period, str]] = []

    def run(self, current: Period, value: str, *, is_start: bool) -> None:
        """Note a start of the app, or a process that runs on, in the period of the clock."""
        last = max((period for period, _ in self.runs), default=None)
        if last is not None and last > current.next():
            self.runs = [run for run in self.runs if run[0] < current]
            last = max((period for period, _ in self.runs), default=None)
        is_reached = last is not None and current <= last
        if is_start or not is_reached:
            self.runs.append((last if is_reached and last is not None else current, value))

    def withdraw(self) -> None:
        """Note a withdrawal."""
        self.runs.clear()

    def label(self, period: Period) -> str:
        """Return the label of a period."""
        first = next((value for run, value in self.runs if run == period), None)
        return first or next((value for run, value in reversed(self.runs) if run < period), self.runs[0][1])
