"""Turn the result of an estimator into a `Decoding`: intervals, q-values, posterior medians, order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hubbub.metrics.buckets import Buckets
from hubbub.metrics.kinds import Kind
from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.estimators.categories import category_intervals, simultaneous_level
from hubbub_decoder.estimators.fit_result import FitResult, ShareFit
from hubbub_decoder.estimators.items import ItemFit
from hubbub_decoder.estimators.ordinal import estimate_mean, fit_buckets
from hubbub_decoder.inference.detections import Detections
from hubbub_decoder.inference.influence import ReportInfluence
from hubbub_decoder.inference.intervals import normal_interval
from hubbub_decoder.inference.multiple_testing import CandidateTests
from hubbub_decoder.inference.null_distribution import NullDistribution
from hubbub_decoder.inference.shrinkage import posterior_shares
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.options import Options, Target
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.estimates import Estimate, ShareEstimate
from hubbub_decoder.results.ordinal import build_mean, build_numbers

MAX_TOTAL_ERROR = 0.25  # two standard errors each way then span the whole range of shares
UNDETERMINED = ShareEstimate(math.nan, math.nan, math.nan, math.nan)


def build_decoding(
    fit: FitResult,
    groups: Sequence[tuple[str, ...]],
    evidence: Evidence,
    options: Options,
    strata: Indices | None = None,
) -> Decoding:
    """Decoding of a string metric: intervals and tests of all candidates, the largest share first.

    groups : (M) the candidates of each share; more than one where no report can distinguish them
    strata : (M,) of the candidates by a weight known before the reports; None: no weights
    """
    law, crowding = fit.error_law(evidence, options.target), fit.nuisance.crowding
    detections = Detections.of(law, fit.tests, fit.influence, strata, evidence, options)
    null = fit.tests.null_distribution if crowding and (crowding.few_cohorts or crowding.unsettled) else None
    return _tested_decoding(detections, groups, _totals(fit, options), evidence, options, null)


def build_category_decoding(fit: ShareFit, selected: Sequence[str], evidence: Evidence, options: Options) -> Decoding:
    """Decoding of a categorical, boolean or ordinal metric: pointwise and simultaneous intervals, and no tests."""
    target, level = options.target, options.confidence
    std_errors = np.sqrt(fit.variances if target == "population" else fit.reporter_variances)
    independent = target == "reporters" and evidence.params.mechanism.has_independent_bits
    totals = _totals(fit, options)
    joint = simultaneous_level(level, len(selected), independent=independent)
    intervals = CategoryIntervals(
        evidence.as_bit_counts(), tuple(selected), target, options.fabricated, np.arange(len(selected))
    )
    (low, high), (joint_low, joint_high) = intervals(level), intervals(joint)
    columns = {
        "share": fit.shares,
        "std_error": std_errors,
        "low": low,
        "high": high,
        "simultaneous_low": joint_low,
        "simultaneous_high": joint_high,
        **_posterior_columns(fit.shares, std_errors, totals[0].share, evidence.metric.kind, options),
    }
    untested = [None] * len(selected)
    estimates = _rows(columns, [(name,) for name in selected], untested, untested)
    decoding = _decoding(totals, estimates, math.nan, evidence, options)
    return replace(decoding, _intervals=replace(intervals, order=_descending(fit.shares)))


def with_numbers(decoding: Decoding, evidence: Evidence, buckets: Buckets, options: Options) -> Decoding:
    """Decoding of an ordinal metric with the mean, the quantiles and the distribution function of its numbers."""
    fit = fit_buckets(evidence, buckets, options.target)
    return replace(decoding, numbers=build_numbers(fit, options.confidence))


def build_mean_decoding(evidence: Evidence, buckets: Buckets, options: Options) -> Decoding:
    """Decoding of an ordinal metric with estimate = "mean": no shares; every report has a number, since it has a `default`."""
    everything, nothing = ShareEstimate(1.0, 0.0, 1.0, 1.0), ShareEstimate(0.0, 0.0, 0.0, 0.0)
    return Decoding(
        **_provenance(evidence, options),
        estimates=(),
        listed_total=everything,
        unlisted=nothing,
        no_value=nothing,
        detection_limit=math.nan,
        numbers=build_mean(estimate_mean(evidence, buckets, options.target, options.confidence), buckets),
    )


def build_item_decoding(
    fit: ItemFit, groups: Sequence[tuple[str, ...]], shown: Indices, evidence: Evidence, options: Options
) -> Decoding:
    """Decoding of values that do not exclude each other: intervals and tests, and their mean number as the total of the listed ones.

    groups : names of the `shown` positions of the fit, more than one where no report can distinguish them
    """
    law = fit.law.take(shown)
    tests = CandidateTests(None, law.p_values(), np.zeros(len(shown), bool))
    detections = Detections.of(law, tests, lambda some: fit.influence(shown[some]), None, evidence, options)
    unlisted = UNDETERMINED if evidence.metric.kind.needs_candidates else ShareEstimate(0.0, 0.0, 0.0, 0.0)
    totals = [_mean_number(fit, options.confidence), unlisted, UNDETERMINED]
    if options.fabricated:
        totals = [UNDETERMINED] * 3
    return _tested_decoding(detections, groups, totals, evidence, options)


def _mean_number(fit: ItemFit, confidence: float) -> ShareEstimate:
    """Mean number of items of a client."""
    mean = fit.mean_law
    low, high = mean.interval(confidence, mean.p_values(), np.zeros(1, bool))
    of_mean = np.concatenate([mean.shares, np.sqrt(mean.variances), low, high]) * len(fit.shares)
    return ShareEstimate(*of_mean.tolist())


def _decoding(
    totals: Sequence[ShareEstimate],
    estimates: tuple[Estimate, ...],
    limit: float,
    evidence: Evidence,
    options: Options,
) -> Decoding:
    """Decoding with these estimates and this detection limit.

    totals : of the candidates together, the unlisted values, and both together
    """
    listed_total, unlisted, some_value = totals
    return Decoding(
        **_provenance(evidence, options),
        estimates=estimates,
        listed_total=listed_total,
        unlisted=unlisted,
        no_value=_total(1 - some_value.share, some_value.std_error, options.confidence),
        detection_limit=limit,
    )


def _provenance(evidence: Evidence, options: Options) -> dict[str, Any]:
    """Fields of a decoding that say what it was made from, and how."""
    return {
        "metric": evidence.metric,
        "num_reports": evidence.num_reports,
        "confidence": options.confidence,
        "fdr": options.fdr,
        "target": options.target,
        "periods": evidence.periods,
        "same_clients": evidence.same_clients if len(evidence.periods) > 1 else None,
        "fabricated": options.fabricated,
    }


def _rows(
    columns: Mapping[str, Floats],
    groups: Sequence[tuple[str, ...]],
    detected: Sequence[bool | None],
    forged: Sequence[int | None],
) -> tuple[Estimate, ...]:
    """Estimates in descending order of share; what is not determined comes last."""
    figures = np.column_stack(list(columns.values()))
    determined = np.flatnonzero(~np.isnan(figures).all(axis=1))
    # One row for all that are not determined: a lasso leaves out nearly all of a million candidates.
    rows = [[math.nan] * len(columns)] * len(figures)
    for at, row in zip(determined.tolist(), figures[determined].tolist(), strict=True):
        rows[at] = row
    estimates = [
        Estimate(
            candidate=group[0],
            detected=found,
            indistinguishable_from=group[1:],
            forged_reports_needed=needed,
            **dict(zip(columns, row, strict=True)),
        )
        for group, found, needed, row in zip(groups, detected, forged, rows, strict=True)
    ]
    return tuple(estimates[i] for i in _descending(columns["share"]))


def _descending(shares: Floats) -> Indices:
    """Positions of shares in descending order, (M,); equal ones keep their order, and those that are not determined come last."""
    return np.argsort(-np.where(np.isnan(shares), -np.inf, shares), kind="stable")


@dataclass(frozen=True, slots=True, eq=False)
class CategoryIntervals:
    """Function of a level that returns the intervals of categories, (a,) and (a,), in the order of the estimates."""

    evidence: Evidence
    selected: tuple[str, ...]
    target: Target
    fabricated: float
    order: Indices

    def __call__(self, level: float) -> tuple[Floats, Floats]:
        low, high = category_intervals(self.evidence, self.selected, level, self.target)
        influence = ReportInfluence.of_bits(
            self.evidence.params.mechanism, np.full(len(low), self.evidence.num_reports)
        )
        num_forged = self.fabricated * self.evidence.num_reports
        low, high = influence.honest_shares(low, num_forged)[0], influence.honest_shares(high, num_forged)[1]
        return low[self.order], high[self.order]


def _tested_decoding(
    tests: Detections,
    groups: Sequence[tuple[str, ...]],
    totals: Sequence[ShareEstimate],
    evidence: Evidence,
    options: Options,
    null: NullDistribution | None = None,
) -> Decoding:
    """Decoding of all groups of candidates, with tests, and their intervals at other levels.

    null : law of error / standard error for the posterior shares; None: normal
    """
    shares, std_errors = tests.law.shares, tests.law.std_errors(tests.law.shares)
    adjusted_low, adjusted_high = tests.adjusted_intervals(options.confidence)
    columns = {
        "share": shares,
        "std_error": std_errors,
        "low": tests.low,
        "high": tests.high,
        "p_value": tests.intervals.p_values,
        "q_value": tests.q_values,
        "selection_adjusted_low": adjusted_low,
        "selection_adjusted_high": adjusted_high,
        **_posterior_columns(shares, std_errors, totals[0].share, evidence.metric.kind, options, tests.strata, null),
    }
    known = {name: np.where(np.isnan(shares), np.nan, column) for name, column in columns.items()}
    answers = zip(known["q_value"].tolist(), tests.detected.tolist(), strict=True)
    detected = [None if math.isnan(q_value) else is_detected for q_value, is_detected in answers]
    rows = _rows(known, groups, detected, tests.forged_reports(options))
    decoding = _decoding(totals, rows, tests.limit, evidence, options)
    return replace(decoding, _intervals=replace(tests.intervals, order=_descending(shares)))


def _posterior_columns(
    shares: Floats,
    std_errors: Floats,
    total: float,
    kind: Kind,
    options: Options,
    strata: Indices | None = None,
    null: NullDistribution | None = None,
) -> dict[str, Floats]:
    """Posterior medians, their intervals, and posterior means that add up to the listed total, if the values exclude each other.

    Of strings, all are nan if the reports do not determine the listed total. The errors of the candidates then have a large part in common, so
    shrinking each of them by its own error is often further from the truth than shares of 0. A category or an item has a bit of its own: the sum
    of many errors is large because there are many, and the means add up to what they are.

    Where no candidate is subtracted from the others, errors are not normal, and have the law of random strings. With forged reports, all are
    nan, because the bound is one for single shares.
    """
    if (math.isnan(total) and kind.needs_candidates) or options.fabricated:
        names = ("posterior_median", "credible_low", "credible_high", "posterior_mean")
        return dict.fromkeys(names, np.full_like(shares, np.nan))
    posterior = posterior_shares(
        shares, std_errors, options.confidence, total, strata, null, exclusive=kind.has_exclusive_values
    )
    return {
        "posterior_median": posterior.medians,
        "credible_low": posterior.low,
        "credible_high": posterior.high,
        "posterior_mean": posterior.means,
    }


def _totals(fit: ShareFit, options: Options) -> list[ShareEstimate]:
    """Estimates of the candidates together, the unlisted values, and both together; not determined if reports may be forged."""
    if options.fabricated:
        return [UNDETERMINED] * 3
    errors = np.sqrt(fit.total_variances if options.target == "population" else fit.total_reporter_variances)
    return [_total(*pair, options.confidence) for pair in zip(fit.totals.tolist(), errors.tolist(), strict=True)]


def _total(share: float, std_error: float, confidence: float) -> ShareEstimate:
    """Estimate of a total with its interval; nan if its standard error is above 0.25, since it then is not determined."""
    if not std_error <= MAX_TOTAL_ERROR:
        return UNDETERMINED
    return ShareEstimate(share, std_error, *normal_interval(share, std_error, confidence))
