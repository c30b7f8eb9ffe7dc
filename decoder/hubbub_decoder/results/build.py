"""What any method makes of the counts -> intervals, tests, and the decoding that is handed out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.summary import BitCounts
from hubbub_decoder.inference.intervals import detectable_share, interval, level_after_selection, q_values
from hubbub_decoder.inference.null_distribution import ErrorLaw
from hubbub_decoder.inference.shrinkage import best_guess
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.estimates import Estimate, ShareEstimate

Floats = NDArray[np.float64]

_UNKNOWN = 0.25


@dataclass(frozen=True, eq=False)
class Answer:
    """Shares among those who reported, each with its standard error; nan where the reports do not determine it.

    groups     : (M) the candidates of each row; more than one where no report can tell them apart
    shares     : (M,)
    std_errors : (M,)
    p_values   : (M,) nan where the candidate is not tested
    totals     : share and standard error of the candidates, the unlisted, and both together
    null_error : the standard error of a candidate that nobody reported
    law        : of the candidates' errors; None: normal
    """

    groups: tuple[tuple[str, ...], ...]
    shares: Floats
    std_errors: Floats
    p_values: Floats
    totals: tuple[tuple[float, float], ...]
    null_error: float
    law: ErrorLaw | None = None


def decoding_of(answer: Answer, counts: BitCounts, confidence: float, fdr: float) -> Decoding:
    """Draw the intervals, make the tests, and put the largest first; of what was not fitted nothing is known."""
    listed_total, unlisted, some_value = (_mass(share, error, confidence) for share, error in answer.totals)
    return Decoding(
        metric=counts.metric,
        num_reports=counts.num_reports,
        confidence=confidence,
        fdr=fdr,
        estimates=_estimates(answer, confidence, fdr),
        listed_total=listed_total,
        unlisted=unlisted,
        no_value=_mass(1 - some_value.share, some_value.std_error, confidence),
        detection_limit=detectable_share(
            answer.null_error, max(1, int(np.sum(~np.isnan(answer.p_values)))), fdr, answer.law
        ),
        periods=counts.periods,
    )


def _estimates(answer: Answer, confidence: float, fdr: float) -> tuple[Estimate, ...]:
    tested = ~np.isnan(answer.p_values)
    p, q = np.where(tested, answer.p_values, 1), np.ones(len(tested))
    q[tested] = q_values(p[tested])
    detected = q <= fdr
    low, high = interval(answer.shares, answer.std_errors, confidence, answer.law)
    picked = np.where(detected, answer.shares, np.nan)
    wider = level_after_selection(1 - confidence, int(detected.sum()), max(1, int(tested.sum())))
    selection_adjusted_low, selection_adjusted_high = interval(picked, answer.std_errors, wider, answer.law)
    guess = best_guess(answer.shares, answer.std_errors, confidence)
    fitted = ~np.isnan(answer.shares)
    known_p, known_q, known_guess = (np.where(fitted, column, np.nan) for column in (p, q, guess.shares))
    columns = (
        *(
            answer.shares,
            answer.std_errors,
            low,
            high,
            known_p,
            known_q,
            selection_adjusted_low,
            selection_adjusted_high,
        ),
        *(known_guess, guess.low, guess.high),
    )
    names = (
        *(
            "share",
            "std_error",
            "low",
            "high",
            "p_value",
            "q_value",
            "selection_adjusted_low",
            "selection_adjusted_high",
        ),
        *("posterior_median", "credible_low", "credible_high"),
    )
    estimates = [
        Estimate(
            candidate=group[0],
            detected=bool(found),
            indistinguishable_from=group[1:],
            **dict(zip(names, row, strict=True)),
        )
        for group, found, row in zip(answer.groups, detected, np.column_stack(columns).tolist(), strict=True)
    ]
    return tuple(sorted(estimates, key=lambda e: -math.inf if math.isnan(e.share) else e.share, reverse=True))


def _mass(share: float, std_error: float, confidence: float) -> ShareEstimate:
    """Give a total its interval; one of which two standard errors each way are all there is, is not determined."""
    if not std_error <= _UNKNOWN:
        return ShareEstimate(math.nan, math.nan, math.nan, math.nan)
    low, high = interval(np.array(share), np.array(std_error), confidence)
    return ShareEstimate(share, std_error, float(low), float(high))
