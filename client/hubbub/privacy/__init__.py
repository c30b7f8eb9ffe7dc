"""Privacy loss of reports: closed forms for one metric, composition, amplification by shuffling, linkability.

Sums, estimates and plots are computed from reports alone, so they reveal no more than the reports (post-processing).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubbub.late_names import late_names

if TYPE_CHECKING:
    from hubbub.privacy.amplification import shuffle_amplification
    from hubbub.privacy.central import central_epsilon
    from hubbub.privacy.composition import (
        Composition,
        compose,
        group_privacy,
        parallel_composition,
        sequential_composition,
    )
    from hubbub.privacy.guarantee import (
        Condition,
        Guarantee,
        Observer,
        RawHistory,
        Unit,
        guarantee_of_days,
        guarantees,
        published_guarantee,
    )
    from hubbub.privacy.lifetime import PrivacyFigures, epsilon_lifetime, privacy_figures
    from hubbub.privacy.linkability import effective_group_size, match_probability_bound
    from hubbub.privacy.loss import epsilon, epsilon_of_values, epsilon_permanent
else:
    __getattr__ = late_names(
        __name__,
        {
            "amplification": "shuffle_amplification",
            "central": "central_epsilon",
            "composition": "Composition compose group_privacy parallel_composition sequential_composition",
            "guarantee": "Condition Guarantee Observer RawHistory Unit guarantee_of_days guarantees published_guarantee",
            "lifetime": "PrivacyFigures epsilon_lifetime privacy_figures",
            "linkability": "effective_group_size match_probability_bound",
            "loss": "epsilon epsilon_of_values epsilon_permanent",
        },
    )

__all__ = [
    "Composition",
    "Condition",
    "Guarantee",
    "Observer",
    "PrivacyFigures",
    "RawHistory",
    "Unit",
    "central_epsilon",
    "compose",
    "effective_group_size",
    "epsilon",
    "epsilon_lifetime",
    "epsilon_of_values",
    "epsilon_permanent",
    "group_privacy",
    "guarantee_of_days",
    "guarantees",
    "match_probability_bound",
    "parallel_composition",
    "privacy_figures",
    "published_guarantee",
    "sequential_composition",
    "shuffle_amplification",
]
