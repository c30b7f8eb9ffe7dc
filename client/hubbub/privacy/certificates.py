"""Certificate of a metric: its guarantees with e^epsilon as exact fractions, which a reviewer checks without hubbub.

The checker is docs/reference/certificate_checker.py. It shares no code with this module, and writes the same certificate from the
definition's canonical bytes alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from hubbub.errors import DefinitionError
from hubbub.mechanisms.ratio import ExactRatio, log_rounded_up
from hubbub.metrics.metric import Metric, canonical_bytes
from hubbub.number_checks import check_integer
from hubbub.privacy.guarantee import (
    AnyRecordings,
    Condition,
    Guarantee,
    Observer,
    SamePattern,
    UnchangedValue,
    Unit,
    guarantees,
)
from hubbub.privacy.loss import exact_ratio
from hubbub.privacy.policy import Policy
from hubbub.wire.json_values import json_value

FORMAT = "hubbub-certificate-v1"
MAX_REPORTS = 1000
"""Most reports of one permanent response for which a ratio is computed exactly. Its integers have 24 to 34 digits a report."""

_SAME_RUNS = "In both histories the app runs, and has a new secret, in the same periods."
_SAME_PATTERN = "Under each secret, the reported values of two periods are equal in one history exactly where they are in the other."
MEANINGS: dict[type[Condition], str] = {
    AnyRecordings: f"{_SAME_RUNS} What is recorded may differ in every way.",
    SamePattern: f"{_SAME_RUNS} {_SAME_PATTERN}",
    UnchangedValue: f"{_SAME_RUNS} The reported value of each history is the same in every period.",
}
"""Each predicate in words that are the same for all kinds of metrics."""


def certificate(metric: Metric, policy: Policy, *, num_reports: int | None = None) -> dict[str, Any]:
    """Return the certificate of a metric: what the operator can learn, with e^epsilon as fractions, as JSON values.

    docs/reference/certificate.md describes the fields. Each statement bounds ln(P(seen | first) / P(seen | second)) for every pair of
    histories that its condition admits, with delta = 0.

    num_reports : reports of one unchanging value of the second statement, 1 to 1,000, with `hold` at most an epoch; None: 30, or an epoch

    Raises DefinitionError if clients do not report under these parameters or `hold` is above 1,000, and ParameterError for `num_reports`.

    >>> from hubbub import Metric, UnaryResponse
    >>> survey = Metric.boolean("survey", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
    >>> certificate(survey, Policy())["statements"][0]["factors"]
    [{'ratio': '3/1', 'exponent': 1, 'epsilon': '1.09861228866810969140'}]
    """
    metric = metric.in_group(None).require_collectable()
    longest = min(metric.hold or MAX_REPORTS, MAX_REPORTS)
    if metric.hold is not None and metric.hold > MAX_REPORTS:
        raise DefinitionError(
            f"{metric.name}: hold must be at most {MAX_REPORTS:,} for a certificate, got {metric.hold:,}: the fractions would be too large"
        )
    if num_reports is None:
        num_reports = min(30, longest)
    hint = f"it is the number of reports of one permanent response, of which there are at most {longest:,}"
    check_integer("num_reports", num_reports, 1, longest, hint=hint)
    found = [of for of in guarantees(metric, policy) if of.observer is Observer.OPERATOR]
    document = {
        "format": FORMAT,
        "digest": metric.digest,
        "definition": canonical_bytes(metric).decode("ascii"),
        "num_reports": num_reports,
        "policy": {field.name: getattr(policy, field.name) for field in fields(policy)},
        "lifetime_epsilon": metric.lifetime_epsilon,
        "statements": list(_statements(metric, found, num_reports)),
    }
    values: dict[str, Any] = json_value(document)
    return values


def _statements(metric: Metric, found: list[Guarantee], num_reports: int) -> Iterator[dict[str, Any]]:
    """Yield the statement of each guarantee; the one of several reports has the condition of a unit that covers them."""
    once, *others = found
    yield _statement(once, exact_ratio(metric, 1), 1, 1)
    same_value = next((of.condition for of in others if of.unit is Unit.VALUE), once.condition)
    yield _statement(replace(once, condition=same_value), exact_ratio(metric, num_reports), num_reports, 1)
    of_unit = exact_ratio(metric, metric.reports_per_unit)
    for of in others:
        yield _statement(of, of_unit, metric.reports_per_unit, of.num_units)


def _statement(of: Guarantee, unit: ExactRatio | None, num_reports: float, num_units: float) -> dict[str, Any]:
    total = None if unit is None or num_units in (0, math.inf) else unit.power(int(num_units))
    return {
        "unit": of.unit,
        "observer": of.observer,
        "condition": of.condition.name,
        "meaning": MEANINGS[type(of.condition)],
        "num_reports": num_reports,
        "num_units": num_units,
        "factors": [
            {
                "ratio": f"{fraction.numerator:x}/{fraction.denominator:x}",
                "exponent": exponent,
                "epsilon": f"{log_rounded_up(fraction):f}",
            }
            for fraction, exponent in (total.factors if total else ())
        ],
        "epsilon": f"{total.epsilon:f}" if total else "inf",
    }
