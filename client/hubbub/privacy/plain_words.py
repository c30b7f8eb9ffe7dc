"""An epsilon in words for people without statistics: how sure a reader of reports can become, and under which condition.

Every certainty on a page or in a text for users comes from `certainty_text`, with the exact epsilon.
"""

from __future__ import annotations

import math

from hubbub.metrics.kinds import ChangeWords
from hubbub.metrics.metric import Metric

CERTAIN = "practically certain"
_CERTAIN_PERCENT = 99.9
_FLOAT_ERROR_PERCENT = 1e-11
"""Bound on the rounding error of the floating-point formulas, so that exactly 75 % is not printed as 76 %."""


def certainty_percent(epsilon: float) -> float:
    """Largest certainty, in percent, about which of two equally likely values is true, after reading what has this epsilon.

        100 / (1 + e^-epsilon), rounded up to a whole percent; above 99, to a tenth

    Source: Bayes' theorem with even prior odds; the posterior odds are at most e^epsilon.

    >>> [certainty_percent(epsilon) for epsilon in (0, math.log(3), 2, 5, math.inf)]
    [50.0, 75.0, 89.0, 99.4, 100.0]
    """
    exact = 100 / (1 + math.exp(-epsilon)) - _FLOAT_ERROR_PERCENT
    return float(math.ceil(exact)) if exact <= 99 else min(100.0, math.ceil(exact * 10) / 10)


def certainty_text(epsilon: float) -> str:
    """Return the certainty in words.

    >>> certainty_text(math.log(3)), certainty_text(20)
    ('at most 75 % sure', 'practically certain')
    """
    percent = certainty_percent(epsilon)
    return CERTAIN if percent > _CERTAIN_PERCENT else f"at most {percent:g} % sure"


def changed_text(metric: Metric | None) -> str:
    """Return what ends the condition of an unchanging value, and what a reader of linked reports can then know, in words.

    >>> from hubbub import UnaryResponse
    >>> changed_text(Metric.boolean("survey", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5)))
    'if your answer changes, practically certain that it changed'
    """
    return f"if {_change(metric).event}, {CERTAIN} that {_change(metric).known}"


def _change(metric: Metric | None) -> ChangeWords:
    return ChangeWords() if metric is None else metric.kind.change
