"""Exact law of everything that leaves a client for one raw history, without the encoder, the ledger or a closed form of the product.

A history has the recordings of each period; None is a period without a run. What leaves is the bits and the cohort of each report, its
period, its label, and the day on which it leaves: a day on which the app runs. Bits are independent of these given the reported values,
so a law is a schedule and the probabilities of all sequences of reports.

    reported value   one of the recordings at random; with `hold` that of the first report of the epoch; the last one that was reported, once
                     the units of values are spent
    response         of the secret and: the epoch (`hold`), the value (permanent noise), or the report (none)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np

from hubbub import Metric
from hubbub.privacy.guarantee import RawHistory
from tests.support.enumerate_mechanism import Floats

LAST_RUN = 99
NOTHING: Hashable = ("nothing was reported yet",)
Choices = tuple[Hashable, ...]


class Fault(Enum):
    """What a faulty client does otherwise."""

    NONE = auto()
    EACH_CHANGE_DRAWS_ANEW = auto()
    NEW_SECRET_REPEATS_RESPONSES = auto()
    EACH_REPORT_DRAWS_ANEW = auto()
    EQUAL_BITS_SHARE_A_RESPONSE = auto()
    NOTHING_IS_SENT_WITHOUT_A_VALUE = auto()
    LABEL_DEPENDS_ON_THE_VALUE = auto()
    LEAVES_LATER_WITHOUT_A_VALUE = auto()
    EPOCH_REPORTS_NEW_VALUES = auto()


@dataclass(frozen=True)
class Client:
    """A client of one cohort: its probability, and the equally probable values of a period with these recordings."""

    cohort: int
    probability: float
    choices: Callable[[tuple[Any, ...]], Choices]


@dataclass(frozen=True)
class Model:
    """What the enumeration knows of a metric.

    clients   : clients that differ in what they report; their probabilities add up to 1
    true      : index of the true bits of each reported value, a row of `permanent`
    permanent : (values, states) P(permanent response | true bits)
    once      : (states, outputs) P(bits of one report | permanent response)
    """

    metric: Metric
    clients: tuple[Client, ...]
    true: dict[Hashable, int]
    permanent: Floats
    once: Floats

    @property
    def has_permanent_noise(self) -> bool:
        return all(block.mechanism.has_permanent_noise for block in self.metric.blocks)


@dataclass(frozen=True)
class Sent:
    """A report: its period, the day on which it leaves, its label, its permanent response, and the reported value."""

    period: int
    day: int
    label: str
    response: Hashable
    value: Hashable


@dataclass(frozen=True)
class Law:
    """Law of what leaves: the schedule, and (outputs,) * reports probabilities for each cohort."""

    schedule: tuple[tuple[int, int, str], ...]
    probabilities: Floats

    def of_reports(self, periods: frozenset[int]) -> Law:
        """Return the law of the reports of some periods alone."""
        kept = [entry[0] in periods for entry in self.schedule]
        hidden = tuple(axis for axis, is_kept in enumerate(kept, 1) if not is_kept)
        schedule = tuple(entry for entry, is_kept in zip(self.schedule, kept, strict=True) if is_kept)
        return Law(schedule, self.probabilities.sum(axis=hidden))


def reports_of(
    model: Model, history: RawHistory, values: Choices, units: tuple[int, int], fault: Fault = Fault.NONE
) -> list[Sent]:
    """Return the reports of a client that reports these values.

    units : largest number of units under one secret, and under all
    """
    metric, sent, spent, used, last = model.metric, list[Sent](), 0, set[Hashable](), NOTHING
    held: dict[Hashable, Hashable] = {}
    secret, runs = 0, [recordings is not None for recordings in history.periods]
    for period, value in enumerate(values):
        if period in history.enrollments:
            secret, used, last = secret + 1, set(), NOTHING
        if not any(runs[: period + 1]):
            continue  # the client does not exist yet
        reported, unit = value, value
        if metric.hold is not None:
            unit = ("epoch", period // metric.hold)
            if fault is not Fault.EPOCH_REPORTS_NEW_VALUES:
                reported = held.setdefault((secret, unit), value)
        elif not model.has_permanent_noise:
            unit = ("report", period)
        if unit not in used:
            if len(used) == units[0] or spent == units[1]:
                if metric.hold is not None or not model.has_permanent_noise or last is NOTHING:
                    continue
                reported = unit = last
            else:
                used.add(unit)
                spent += 1
        last = reported
        response: Hashable = (secret, unit)
        is_empty = not history.periods[period]
        if fault is Fault.EACH_REPORT_DRAWS_ANEW:
            response = (secret, unit, period)
        elif fault is Fault.EACH_CHANGE_DRAWS_ANEW:
            response = sent[-1].response if sent and sent[-1].value == reported else (secret, unit, period)
        elif fault is Fault.NEW_SECRET_REPEATS_RESPONSES:
            response = unit
        elif fault is Fault.EQUAL_BITS_SHARE_A_RESPONSE:
            response = (secret, model.true[reported])
        elif fault is Fault.EPOCH_REPORTS_NEW_VALUES:
            response = (secret, unit, reported)
        if fault is Fault.NOTHING_IS_SENT_WITHOUT_A_VALUE and is_empty:
            continue
        day = next((later for later in range(period + 1, len(runs)) if runs[later]), LAST_RUN)
        day += fault is Fault.LEAVES_LATER_WITHOUT_A_VALUE and is_empty
        label = "1.x" if metric.group is not None else ""
        if fault is Fault.LABEL_DEPENDS_ON_THE_VALUE:
            label += str(is_empty)
        sent.append(Sent(period, day, label, response, reported))
    return sent


def law_of(model: Model, history: RawHistory, units: tuple[int, int], fault: Fault = Fault.NONE) -> Law:
    """Return the law of everything that leaves the client."""
    cohorts = sorted({client.cohort for client in model.clients})
    schedules, laws = set(), dict.fromkeys(cohorts, np.zeros(()))
    for client in model.clients:
        choices = [client.choices(recordings or ()) for recordings in history.periods]
        ways = list(itertools.product(*choices))
        for values in ways:
            sent = reports_of(model, history, values, units, fault)
            schedules.add(tuple((of.period, of.day, of.label) for of in sent))
            laws[client.cohort] = laws[client.cohort] + client.probability / len(ways) * _law_of_bits(model, sent)
    (schedule,) = schedules
    return Law(schedule, np.array([laws[cohort] for cohort in cohorts]))


def _law_of_bits(model: Model, sent: Sequence[Sent]) -> Floats:
    """(outputs,) * reports: probability of each sequence of bits, summed over every permanent response."""
    joint: Floats = np.ones((model.once.shape[1],) * len(sent))
    for response in dict.fromkeys(of.response for of in sent):
        at = [place for place, of in enumerate(sent) if of.response == response]
        group: Floats = model.permanent[model.true[sent[at[0]].value]]
        for _ in at:
            group = group[..., None] * model.once.reshape(len(model.once), *(1,) * (group.ndim - 1), -1)
        shape = [model.once.shape[1] if place in at else 1 for place in range(len(sent))]
        joint = joint * group.sum(axis=0).reshape(shape)
    return joint


def losses(laws: Sequence[Law]) -> Floats:
    """(n, n): the largest ln(P(seen | first) / P(seen | second)); infinite if only the first can have its schedule."""
    worst = np.full((len(laws),) * 2, np.inf)
    for schedule in {law.schedule for law in laws}:
        rows = [row for row, law in enumerate(laws) if law.schedule == schedule]
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(np.array([laws[row].probabilities.ravel() for row in rows]))
            for row, first in zip(rows, logs, strict=True):
                ratios = first - logs
                ratios[np.isnan(ratios)] = -np.inf  # neither history can have the output
                worst[row, rows] = ratios.max(axis=1)
    return worst
