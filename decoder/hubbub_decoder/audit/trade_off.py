"""Trade-off curve of an audit: false positive rate against false negative rate of all tests of one statistic.

For an eps-private client every test has  FNR >= max(0, 1 - e^eps FPR, e^-eps (1 - FPR)).

Source: Dong, Roth, Su 2022 (arXiv 1905.02383), proposition 3; Kairouz, Oh, Viswanath 2015, theorem 2.1.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from hubbub_decoder.array_types import Floats
from hubbub_decoder.audit.audit import Audit
from hubbub_decoder.audit.report import odds, value_text
from hubbub_decoder.data.output_files import write_figure

_MEASURED, _LIMIT, _CHANCE = "#2563a8", "#d9480f", "#9aa5b1"


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
        grid, limit(audit.bound.epsilon, grid), color=_LIMIT, linewidth=1, linestyle=":",
        label=f"limit of the lower bound, epsilon {audit.bound.epsilon:.3f}",
    )  # fmt: skip
    axes.plot(
        *error_rates(audit.scores, audit.scores_other), color=_MEASURED, marker=".", markersize=3, linewidth=0.8,
        label=audit.distinguisher,
    )  # fmt: skip
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
