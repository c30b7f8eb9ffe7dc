"""The label of each period: the value of a metric's group that its reports have.

A period has the label of the first run in it. A period without a run has that of the last run before it, so that no label says whether
the app ran. If the last run was more than one period ahead of the clock, the runs from the current period on are forgotten. The client remembers one step for each change, and last always a step for the period after the last run:

    [["2026-12-01", "1.x"], ["2026-12-05", "2.x"], ["2026-12-06", "2.x"]]    1.x ran on the 1st, 2.x on the 5th

docs/reference/format.md, "Labels", has the rule.
"""

from __future__ import annotations

from hubbub.metrics.periods import Period

LabelSteps = list[list[str]]
"""[first day, value]: the label of a period is the value of the last step up to it."""

_MAX_STEPS = 64
"""More than the periods of which reports are still built."""


def label_of(steps: LabelSteps, period: str) -> str:
    """Return the label of a period; that of the first step if the period is earlier.

    >>> [label_of([["2026-12-01", "1.x"], ["2026-12-05", "2.x"]], day) for day in ("2026-12-04", "2026-12-05")]
    ['1.x', '2.x']
    """
    return next((value for start, value in reversed(steps) if start <= period), steps[0][1])


def after_run(steps: LabelSteps, period: Period, value: str, *, is_start: bool) -> LabelSteps:
    """Return the steps after a run of the app with a value in a period.

    is_start : whether the app was started, or consent given; else it runs on, and only a period that no run has reached gets its label

    >>> from datetime import date
    >>> from hubbub.metrics.periods import PeriodKind
    >>> after_run([["2026-12-01", "1.x"], ["2026-12-02", "1.x"]], Period(date(2026, 12, 5), PeriodKind.DAY), "2.x", is_start=True)
    [['2026-12-01', '1.x'], ['2026-12-05', '2.x'], ['2026-12-06', '2.x']]
    """
    current, following = str(period), period.next()
    was_ahead = bool(steps) and steps[-1][0] > str(following.next())
    if steps and current < steps[-1][0] and not was_ahead:
        return [*steps[:-1], [steps[-1][0], value]] if is_start else steps
    changes: LabelSteps = []
    for step in (*(step for step in steps if step[0] < current), [current, value]):
        if not changes or changes[-1][1] != step[1]:
            changes.append(step)
    return [*changes, [str(following), value]][-_MAX_STEPS:]
