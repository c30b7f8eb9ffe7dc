"""Report of an audit: sentences, JSON values, and the trade-off curve.

The trade-off curve is the false negative rate against the false positive rate of all tests of one statistic.
For an eps-private client every test has  FNR >= max(0, 1 - e^eps FPR, e^-eps (1 - FPR)).

Source: Dong, Roth, Su 2022 (arXiv 1905.02383), proposition 3; Kairouz, Oh, Viswanath 2015, theorem 2.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from hubbub.text import format_count
from hubbub_decoder.array_types import Floats
from hubbub_decoder.audit.audit import Audit
from hubbub_decoder.audit.clients import value_text
from hubbub_decoder.audit.evidence import FAMILY_LEVEL, NoiseTest
from hubbub_decoder.audit.loss_law import POWER, TIGHTNESS
from hubbub_decoder.data.output_files import write_figure

_MEASURED, _LIMIT, _CHANCE = "#2563a8", "#d9480f", "#9aa5b1"


def describe(name: str, audit: Audit, tests: Sequence[NoiseTest] = ()) -> str:
    """Report of an audit and its tests of the noise in words."""
    bound, schedule = audit.bound, audit.schedule
    first, second = (value_text(value) for value in audit.values[:: audit.event.sign])
    sent = format_count(schedule.reports, "report")
    per_epoch = "" if schedule.epochs == 1 else f" in {schedule.epochs} epochs of {schedule.per_epoch}"
    relation = "exceeds" if bound.epsilon > audit.claim else "is within"
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
    all_tests = [*audit.tests, *tests]
    if any(test.refuted for test in all_tests):
        lines.append(
            f"  the client is refuted: one that has the declared law is refuted with probability at most {FAMILY_LEVEL:.0e}. "
            "Do not deploy this client"
        )
    elif bound.epsilon > audit.claim:
        lines.append(
            f"  a correct client has a bound above its claim with probability at most {1 - audit.confidence:.3g}, which does not refute: repeat "
            "the audit with more --trials"
        )
    elif math.isinf(audit.trials_needed):
        lines.append("  no number of trials reaches the claim with these values: the bound is valid, but loose")
    elif audit.trials_needed > 4 * bound.trials:
        lines.append(
            f"  {bound.trials:,} of about {audit.trials_needed / 4:,.0f} clients of each value that a bound of {TIGHTNESS:.0%} of the claim "
            f"needs (power {POWER:.0%}): the bound is valid, but loose; use --trials {audit.trials_needed}"
        )
    lines += [f"  {'REFUTED ' if test.refuted else ''}{test.name}: {test.finding}" for test in all_tests]
    return "\n".join(lines)


def to_dict(audit: Audit, tests: Sequence[NoiseTest] = ()) -> dict[str, Any]:
    """Result of an audit and its tests of the noise as JSON values."""
    bound = audit.bound
    return {
        "claim": audit.claim,
        "epsilon_lower_bound": bound.epsilon,
        "confidence": audit.confidence,
        "refuted": audit.refuted or any(test.refuted for test in tests),
        "refuted_by_bound": audit.tests[0].refuted,
        "noise_tests": [{**asdict(test), "refuted": test.refuted} for test in (*audit.tests, *tests)],
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


def _epsilon(claim: float) -> str:
    return "without bound" if math.isinf(claim) else f"{claim:.3f}"


def _share(audit: Audit) -> str:
    return "" if math.isinf(audit.claim) else f" ({audit.bound.epsilon / audit.claim:.1%} of it)"


def _these(reports: int) -> str:
    return "this report" if reports == 1 else f"these {reports} reports"


def error_rates(scores: Floats, scores_other: Floats) -> tuple[Floats, Floats]:
    """False positive and false negative rates of the tests "first value if score >= threshold", for every threshold.

    >>> error_rates(np.array([1.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0]))
    (array([0.        , 0.33333333, 1.        ]), array([1.        , 0.33333333, 0.        ]))
    """
    thresholds = np.append(np.unique(np.concatenate([scores, scores_other])), np.inf)[::-1]
    false_positive = 1 - np.searchsorted(np.sort(scores_other), thresholds) / len(scores_other)
    false_negative = np.searchsorted(np.sort(scores), thresholds) / len(scores)
    return false_positive, false_negative


def limit(epsilon: float, false_positive: Floats) -> Floats:
    """Smallest false negative rate of an eps-private client.

    >>> limit(np.log(3), np.array([0.0, 0.25, 1.0])).round(12)
    array([1.  , 0.25, 0.  ])
    """
    smallest: Floats = np.maximum(
        np.maximum(0.0, 1 - np.exp(epsilon) * false_positive), np.exp(-epsilon) * (1 - false_positive)
    )
    return smallest


def plot_trade_off(audit: Audit, name: str) -> Figure:
    """Figure of the measured trade-off curve, the limit of the claim, and the limit of the lower bound."""
    figure = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.subplots()
    grid = np.union1d(np.linspace(0, 1, 501), 1 / (1 + np.exp([audit.claim, audit.bound.epsilon])))
    axes.plot(grid, 1 - grid, color=_CHANCE, linewidth=0.8, label="no information")
    axes.plot(
        grid,
        limit(audit.claim, grid),
        color=_LIMIT,
        linewidth=1,
        label=f"limit of the claim, epsilon {audit.claim:.3f} (odds {odds(audit.claim)} to 1)",
    )
    axes.plot(
        grid,
        limit(audit.bound.epsilon, grid),
        color=_LIMIT,
        linewidth=1,
        linestyle=":",
        label=f"limit of the lower bound, epsilon {audit.bound.epsilon:.3f}",
    )
    axes.plot(
        *error_rates(audit.scores, audit.scores_other),
        color=_MEASURED,
        marker=".",
        markersize=3,
        linewidth=0.8,
        label=audit.distinguisher,
    )
    first, second = map(value_text, audit.values)
    axes.set_xlabel(f"false positive rate: {second} taken for {first}")
    axes.set_ylabel(f"false negative rate: {first} taken for {second}")
    axes.set_title(f"{name}, reports of each client: {audit.schedule.reports}", fontsize=10)
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def write_plot(audit: Audit, name: str, path: Path) -> None:
    """Write the trade-off curve as .svg, .png or .pdf."""
    write_figure(plot_trade_off(audit, name), path)
