"""An epsilon in words for people without statistics: how sure a reader of reports can become."""

from __future__ import annotations

import math

_CERTAIN_PERCENT = 99.9


def certainty_percent(epsilon: float) -> float:
    """Largest certainty, in percent, about which of two equally likely values is true, after reading what has this epsilon.

        100 / (1 + e^-epsilon), rounded up to a whole percent; above 99, to a tenth

    Source: Bayes' theorem with even prior odds; the posterior odds are at most e^epsilon.

    >>> [certainty_percent(epsilon) for epsilon in (0, math.log(3), 2, 5, math.inf)]
    [50.0, 75.0, 89.0, 99.4, 100.0]
    """
    exact = 100 / (1 + math.exp(-epsilon)) - 1e-9
    return float(math.ceil(exact)) if exact <= 99 else min(100.0, math.ceil(exact * 10) / 10)


def certainty_text(epsilon: float) -> str:
    """Return the certainty in words.

    >>> certainty_text(math.log(3)), certainty_text(20)
    ('at most 75 % sure', 'practically certain')
    """
    percent = certainty_percent(epsilon)
    return "practically certain" if percent > _CERTAIN_PERCENT else f"at most {percent:g} % sure"
