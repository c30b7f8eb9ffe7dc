"""What a report, and many of them, can reveal: closed forms for one metric, and their composition.

Anything computed from reports alone (sums, estimates, plots, an aggregator's leak) reveals no more than the
reports did: differential privacy is closed under post-processing, so no function here is needed for it.
"""

from __future__ import annotations

from hubbub.privacy.composition import Composition, compose, group, parallel, sequential
from hubbub.privacy.loss import epsilon, epsilon_forever, epsilon_of_values
from hubbub.privacy.matching import crowd_told_apart, matched_at_most
from hubbub.privacy.shuffling import amplified, central_epsilon

__all__ = [
    "Composition",
    "amplified",
    "central_epsilon",
    "compose",
    "crowd_told_apart",
    "epsilon",
    "epsilon_forever",
    "epsilon_of_values",
    "group",
    "matched_at_most",
    "parallel",
    "sequential",
]
