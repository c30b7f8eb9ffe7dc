"""Share of clients with the same value in two samples, estimated from the variance of the change of their counts.

The permanent noise of a client that keeps its value is the same in both samples, so it cancels in the change:

    Cov (y_B - y_A) = S_0 - 2 s K + t V        S_0: independent samples        K: covariance.py        t V: unlisted strings that changed

No client is linked: only the variance of the residuals over the m k bits is used. It equals the correlation of the residuals of both
samples less the error of hashing that they share, sigma**2 corr - tau**2 = sigma**2 - Var (r_B - r_A) / 2. At equal samples, share 0:

    N Var (change) = 2 (V_prr (1 - s) + V_irr)        s.e.(s) = sqrt(2 / (m k)) (V_irr + (1 - s) V_prr) / V_prr

Unlisted strings that changed (t > 0) make s look smaller, and the change's variance no smaller than it is.
docs/explanation/mathematics.md, equations (19.3) and (19.4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hubbub_decoder.result import Result

MAX_STD_ERROR = 0.2
"""Standard error of s above which it counts as unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class Overlap(Result):
    """Share s of the clients of the smaller sample that are in the other with the same value.

    estimate  : s, clipped to [0, 1]; nan where the reports do not determine it
    std_error : of the estimate before it is clipped; 0 if s is known
    low, high : one standard error below and above, clipped; 0 and 1 where the standard error is above .2. `low` is conservative for a
                change, and `high` for a mean
    """

    estimate: float
    std_error: float
    low: float
    high: float

    @classmethod
    def known(cls, share: float) -> Overlap:
        """s is known; 0: the samples have different clients."""
        return cls(share, 0.0, share, share)

    @classmethod
    def unknown(cls) -> Overlap:
        """The reports do not determine s."""
        return cls(math.nan, math.inf, 0.0, 1.0)

    @classmethod
    def estimated(cls, share: float, std_error: float) -> Overlap:
        """s with its limits.

        >>> Overlap.estimated(0.95, 0.1)
        Overlap(estimate=0.95, std_error=0.1, low=0.85, high=1.0)
        >>> Overlap.estimated(0.95, 0.3).low
        0.0
        """
        if not std_error <= MAX_STD_ERROR:
            return cls(_clip(share), std_error, 0.0, 1.0)
        return cls(_clip(share), std_error, _clip(share - std_error), _clip(share + std_error))


def _clip(share: float) -> float:
    return share if math.isnan(share) else min(max(share, 0.0), 1.0)
