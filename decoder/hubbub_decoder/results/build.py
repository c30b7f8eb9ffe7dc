"""Turn the result of an estimator into a `Decoding`: intervals, q-values, posterior medians, order."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hubbub.summary import BitCounts
from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.fit_result import FitResult
from hubbub_decoder.inference.intervals import Target, detection_limit, interval, selection_adjusted_level
from hubbub_decoder.inference.multiple_testing import q_values
from hubbub_decoder.inference.shrinkage import posterior_medians
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.estimates import Estimate, ShareEstimate

_MAX_TOTAL_ERROR = 0.25  # two standard errors each way then span the whole range of shares


def build_decoding(
    fit: FitResult, groups: Sequence[tuple[str, ...]], counts: BitCounts, target: Target, confidence: float, fdr: float
) -> Decoding:
    """Decoding of a fit: intervals at `confidence`, detected candidates at false discovery rate `fdr`, the largest share first.

    groups : (M) the candidates of each share; more than one where no report can distinguish them
    """
    population = target == "population"
    std_errors = np.sqrt(fit.variances if population else fit.reporter_variances)
    total_errors = np.sqrt(fit.total_variances if population else fit.total_reporter_variances)
    totals = zip(fit.totals.tolist(), total_errors.tolist(), strict=True)
    listed_total, unlisted, some_value = (_total(share, error, confidence) for share, error in totals)
    return Decoding(
        metric=counts.metric,
        num_reports=counts.num_reports,
        confidence=confidence,
        fdr=fdr,
        estimates=_estimates(fit, std_errors, groups, confidence, fdr),
        listed_total=listed_total,
        unlisted=unlisted,
        no_value=_total(1 - some_value.share, some_value.std_error, confidence),
        detection_limit=detection_limit(
            fit.null_error, max(1, int(np.sum(~np.isnan(fit.p_values)))), fdr, fit.null_distribution
        ),
        periods=counts.periods,
    )


def _estimates(
    fit: FitResult, std_errors: Floats, groups: Sequence[tuple[str, ...]], confidence: float, fdr: float
) -> tuple[Estimate, ...]:
    """Estimates of all groups in descending order of share; what is not determined comes last."""
    tested = ~np.isnan(fit.p_values)
    p, q = np.where(tested, fit.p_values, 1), np.ones(len(tested))
    q[tested] = q_values(p[tested])
    detected = q <= fdr
    low, high = interval(fit.shares, std_errors, confidence, fit.null_distribution)
    detected_shares = np.where(detected, fit.shares, np.nan)
    wider = selection_adjusted_level(1 - confidence, int(detected.sum()), max(1, int(tested.sum())))
    adjusted_low, adjusted_high = interval(detected_shares, std_errors, wider, fit.null_distribution)
    medians = posterior_medians(fit.shares, std_errors, confidence)
    fitted = ~np.isnan(fit.shares)
    known_p, known_q, known_median = (np.where(fitted, column, np.nan) for column in (p, q, medians.shares))
    columns = (
        *(fit.shares, std_errors, low, high, known_p, known_q, adjusted_low, adjusted_high),
        *(known_median, medians.low, medians.high),
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
        for group, found, row in zip(groups, detected, np.column_stack(columns).tolist(), strict=True)
    ]
    return tuple(sorted(estimates, key=lambda e: -math.inf if math.isnan(e.share) else e.share, reverse=True))


def _total(share: float, std_error: float, confidence: float) -> ShareEstimate:
    """Estimate of a total with its interval; nan if its standard error is above 0.25, since it then is not determined."""
    if not std_error <= _MAX_TOTAL_ERROR:
        return ShareEstimate(math.nan, math.nan, math.nan, math.nan)
    low, high = interval(np.array(share), np.array(std_error), confidence)
    return ShareEstimate(share, std_error, float(low), float(high))
