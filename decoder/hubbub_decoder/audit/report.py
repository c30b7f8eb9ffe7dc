"""Report of an audit: sentences and JSON values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hubbub.encoding.bloom import Value
from hubbub.text import format_count
from hubbub_decoder.audit.audit import Audit
from hubbub_decoder.audit.loss_law import POWER, TIGHTNESS
from hubbub_decoder.audit.replay import ReplayTest


def describe(name: str, audit: Audit, replays: Sequence[ReplayTest] = ()) -> str:
    """Report of an audit and its replay tests in words."""
    bound, schedule = audit.bound, audit.schedule
    first, second = (value_text(value) for value in audit.values[:: audit.event.sign])
    sent = format_count(schedule.reports, "report")
    per_epoch = "" if schedule.epochs == 1 else f" in {schedule.epochs} epochs of {schedule.per_epoch}"
    relation = "exceeds" if audit.refuted else "is within"
    finding = (
        f"{name}: epsilon of {sent}{per_epoch} is at least {bound.epsilon:.3f} (confidence {audit.confidence:.6g}), "
        f"which {relation} the claim {_epsilon(audit.claim)}{_share(audit)}"
    )
    belief = (
        f"  an observer with odds of 1 to 1 before {_these(schedule.reports)} can reach {odds(bound.epsilon)} to 1 after; "
        f"the claim allows {odds(audit.claim)} to 1"
    )
    evidence = (
        f"  values {first} and {second}; {audit.distinguisher}; the event occurred in {bound.occurred:,} of {bound.trials:,} and "
        f"{bound.occurred_other:,} of {bound.trials_other:,} clients"
    )
    lines = [finding, belief, evidence]
    if audit.refuted:
        lines.append(
            f"  the claim is refuted: a client that keeps it has a bound above it with probability at most {1 - audit.confidence:.3g}. "
            "Do not deploy this client"
        )
    elif math.isinf(audit.trials_needed):
        lines.append("  no number of trials reaches the claim with these values: the bound is valid, but loose")
    elif audit.trials_needed > audit.trials:
        lines.append(
            f"  {audit.trials:,} of about {audit.trials_needed:,} clients that a bound of {TIGHTNESS:.0%} of the claim needs "
            f"(power {POWER:.0%}): the bound is valid, but loose; use --trials {audit.trials_needed}"
        )
    lines += [f"  {test.name}: {test.finding}" for test in replays]
    return "\n".join(lines)


def to_dict(audit: Audit, replays: Sequence[ReplayTest] = ()) -> dict[str, Any]:
    """Result of an audit and its replay tests as JSON values."""
    bound = audit.bound
    return {
        "claim": audit.claim,
        "epsilon_lower_bound": bound.epsilon,
        "confidence": audit.confidence,
        "refuted": audit.refuted or any(test.refuted for test in replays),
        "refuted_by_bound": audit.refuted,
        "replay_tests": [{"name": test.name, "refuted": test.refuted, "finding": test.finding} for test in replays],
        "reports": audit.schedule.reports,
        "epochs": audit.schedule.epochs,
        "values": list(audit.values[:: audit.event.sign]),
        "distinguisher": audit.distinguisher,
        "threshold": audit.event.threshold,
        "occurred": [bound.occurred, bound.occurred_other],
        "trials_of_bound": [bound.trials, bound.trials_other],
        "trials": audit.trials,
        "trials_needed": None if math.isnan(audit.trials_needed) else audit.trials_needed,
    }


def odds(epsilon: float) -> str:
    """Largest odds of an observer with prior odds of 1 to 1.

    >>> odds(math.log(3)), odds(10), odds(math.inf)
    ('3.00', '22,000', 'any number')
    """
    if math.isinf(epsilon) or epsilon > 100:
        return "any number" if math.isinf(epsilon) else "more than 10^43"
    factor = math.exp(epsilon)
    return f"{factor:.2f}" if factor < 100 else f"{float(f'{factor:.2g}'):,.0f}"


def value_text(value: Value) -> str:
    """Name of an audited value.

    >>> value_text("v1"), value_text(True), value_text(None)
    ("'v1'", 'true', 'no value')
    """
    if value is None:
        return "no value"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _epsilon(claim: float) -> str:
    return "without bound" if math.isinf(claim) else f"{claim:.3f}"


def _share(audit: Audit) -> str:
    return "" if math.isinf(audit.claim) else f" ({audit.bound.epsilon / audit.claim:.1%} of it)"


def _these(reports: int) -> str:
    return "this report" if reports == 1 else f"these {reports} reports"
