"""Turn the result of an estimator into a `Decoding`: intervals, q-values, posterior medians, order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hubbub.metrics.buckets import Buckets
from hubbub.metrics.kinds import Kind
from hubbub_decoder.array_types import Flags, Floats, Indices
from hubbub_decoder.estimators.categories import category_intervals, simultaneous_level
from hubbub_decoder.estimators.fit_result import NO_STRINGS, FitResult
from hubbub_decoder.estimators.items import ItemFit
from hubbub_decoder.estimators.ordinal import estimate_mean, fit_buckets
from hubbub_decoder.inference.error_law import ErrorLaw, Sampling
from hubbub_decoder.inference.influence import ReportInfluence
from hubbub_decoder.inference.intervals import (
    DETECTION_POWER,
    detection_level,
    normal_interval,
    selection_adjusted_level,
)
from hubbub_decoder.inference.multiple_testing import CandidateTests, largest_p_values, q_values
from hubbub_decoder.inference.shrinkage import posterior_shares
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.model.repetition import ONCE
from hubbub_decoder.options import Options, Target
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.estimates import Estimate, ShareEstimate
from hubbub_decoder.results.ordinal import build_mean, build_numbers

_NOISE = 2.0  # standard errors above 0, up to which an estimate may be noise
_CANDIDATES_AT_ONCE = 512  # of which the influence of a report is computed
MAX_TOTAL_ERROR = 0.25  # two standard errors each way then span the whole range of shares


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
    law = _error_law(fit, evidence, options)
    return _tested_decoding(fit, law, groups, evidence, options, strata)


def build_category_decoding(fit: FitResult, selected: Sequence[str], evidence: Evidence, options: Options) -> Decoding:
    """Decoding of a categorical, boolean or ordinal metric: pointwise and simultaneous intervals, and no tests."""
    target, level = options.target, options.confidence
    std_errors = np.sqrt(fit.variances if target == "population" else fit.reporter_variances)
    independent = target == "reporters" and evidence.params.mechanism.has_independent_bits
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
        **_posterior_columns(fit, std_errors, evidence.metric.kind, options),
    }
    untested = [None] * len(selected)
    estimates = _rows(columns, [(name,) for name in selected], untested, untested)
    decoding = _decoding(fit, estimates, math.nan, evidence, options)
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


def build_item_decoding(fit: ItemFit, evidence: Evidence, selected: Sequence[str], options: Options) -> Decoding:
    """Decoding of values that do not exclude each other: intervals and tests of all, and their mean number as the total of the listed ones."""
    items = evidence.metric.kind.named_values
    shown = np.array([items.index(name) for name in selected])
    law = fit.law.take(shown)
    nothing, unknown = ShareEstimate(0.0, 0.0, 0.0, 0.0), np.full(3, np.nan)
    of_shown = FitResult(
        shares=law.shares,
        variances=law.variances,
        reporter_variances=law.variances,
        totals=unknown,
        total_variances=unknown,
        total_reporter_variances=unknown,
        null_error=fit.null_error,
        tests=CandidateTests(None, law.p_values(), np.zeros(len(shown), bool)),
        cumulants=law.cumulants,
        nuisance=NO_STRINGS,
        influence=lambda items: fit.influence.take(shown[items]),
    )
    decoding = _tested_decoding(of_shown, law, [(name,) for name in selected], evidence, options)
    if options.fabricated:
        return decoding
    mean = fit.mean_law
    low, high = mean.interval(options.confidence, mean.p_values(), np.zeros(1, bool))
    of_mean = np.concatenate([mean.shares, np.sqrt(mean.variances), low, high]) * len(fit.shares)
    return replace(decoding, listed_total=ShareEstimate(*of_mean.tolist()), unlisted=nothing)


def _decoding(
    fit: FitResult,
    estimates: tuple[Estimate, ...],
    limit: float,
    evidence: Evidence,
    options: Options,
) -> Decoding:
    """Decoding with these estimates and this detection limit."""
    if options.fabricated:
        unknown = np.full(3, np.nan)
        fit = replace(fit, totals=unknown, total_variances=unknown, total_reporter_variances=unknown)
    listed_total, unlisted, some_value = _totals(fit, options)
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
    rows = np.column_stack(list(columns.values())).tolist()
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
class CandidateIntervals:
    """Function of a level that returns the intervals of tested candidates, (M,) and (M,), in the order of the estimates.

    lower, upper : laws of the least and the largest estimates; they differ if reports may be forged
    """

    lower: ErrorLaw
    upper: ErrorLaw
    p_values: Floats
    retested: Flags
    order: Indices

    def __call__(self, level: float) -> tuple[Floats, Floats]:
        low, high = self.lower.interval(level, self.p_values, self.retested)
        if self.upper is not self.lower:
            high = self.upper.interval(level, self.upper.p_values(), self.retested)[1]
        return low[self.order], high[self.order]


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


def _error_law(fit: FitResult, evidence: Evidence, options: Options) -> ErrorLaw:
    """Distribution of the errors of the shares as those among all reporters, of which these clients are a sample, or of a population."""
    cumulants = replace(fit.cumulants, variances=fit.cumulants.variances * _variance_inflation(fit))
    if options.target == "population":
        sampling, variances = Sampling.of_clients(evidence.num_clients), fit.variances
    else:
        sampling = Sampling.of_clients(evidence.num_clients, evidence.num_all_clients)
        variances = fit.reporter_variances
    return ErrorLaw(fit.shares, variances, cumulants, fit.tests.null_distribution, sampling)


def _variance_inflation(fit: FitResult) -> float:
    """Median ratio of the variances of estimates near 0 to those of each candidate alone: the part of other candidates and unlisted strings.

    An estimate x of noise alone is above 0 by chance. Its variance as a share among the reporters, Var - x (1 - x) / N, would be too small.
    """
    alone = fit.cumulants.variances
    near_zero = (fit.shares < _NOISE * np.sqrt(fit.variances)) & (alone > 0)
    return max(1.0, float(np.median(fit.variances[near_zero] / alone[near_zero]))) if near_zero.any() else 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Detections:
    """Which of M candidates are detected, and the intervals and the detection limit that agree with it.

    A candidate is detected if q <= fdr and p < (1 - confidence) / 2. The latter holds exactly where its interval is above 0.

    intervals        : function of a level; it has the p-values p (M,), 1 where a candidate was not tested
    low, high        : (M,) intervals at the confidence level
    q_values         : (M,) 1 where a candidate was not tested
    tested, detected : (M,)
    limit            : detection limit; nan where no bound on forged reports is known
    """

    intervals: CandidateIntervals
    low: Floats
    high: Floats
    q_values: Floats
    tested: Flags
    detected: Flags
    limit: float

    @classmethod
    def of(
        cls, fit: FitResult, law: ErrorLaw, strata: Indices | None, evidence: Evidence, options: Options
    ) -> Detections:
        """Test all candidates."""
        tested, fitted = ~np.isnan(fit.tests.p_values), ~np.isnan(fit.shares)
        intervals = _received_intervals(fit, law)
        if options.fabricated:
            intervals = _honest_intervals(fit, intervals, options.fabricated * evidence.num_all_reports)
        p, q = intervals.p_values, np.ones(len(tested))
        q[tested] = q_values(p[tested], options.fdr, None if strata is None else strata[tested])
        moved = (fit.shares - intervals.lower.shares)[tested & fitted]
        limit = _detection_limit(fit, law, evidence, options) + (float(np.median(moved)) if moved.size else 0.0)
        detected = (q <= options.fdr) & (p < (1 - options.confidence) / 2) & fitted
        return cls(intervals, *intervals(options.confidence), q, tested, detected, limit)

    def adjusted_intervals(self, confidence: float) -> tuple[Floats, Floats]:
        """Intervals of the detected candidates that are adjusted for their selection, (M,) and (M,); nan for the others."""
        found, tested = int(self.detected.sum()), int(self.tested.sum())
        if not found:
            low, high = np.full((2, len(self.detected)), np.nan)
            return low, high
        low, high = self.intervals(selection_adjusted_level(1 - confidence, found, tested))
        # The expansion of a skewed law may cross itself far out, but a higher level never excludes more.
        low, high = np.minimum(self.low, low), np.maximum(self.high, high)
        return np.where(self.detected, low, np.nan), np.where(self.detected, high, np.nan)


def _received_intervals(fit: FitResult, law: ErrorLaw) -> CandidateIntervals:
    """Intervals and p-values from the reports as they were received.

    p is that of the error law. Where a candidate was tested again, p is that of this test, and at least that of noise alone. It is at least
    the probability that a random string has the candidate's bits, because no report tells the two apart.
    """
    tested, fitted, retested = ~np.isnan(fit.tests.p_values), ~np.isnan(fit.shares), fit.tests.retested
    of_tests = np.where(tested, fit.tests.p_values, 1)
    p = np.select(
        [retested, tested & fitted], [np.maximum(of_tests, law.noise_p_values()), law.p_values()], default=of_tests
    )
    least = np.maximum(p, fit.tests.least)
    return CandidateIntervals(law, law, least, retested | (least > p), np.arange(len(p)))


def _honest_intervals(fit: FitResult, received: CandidateIntervals, num_forged: float) -> CandidateIntervals:
    """Intervals from the least and the largest estimates without the forged reports, and p-values of the least.

    A candidate that was tested again has an error as much larger as that test found. Without a bound, nothing is known.
    """
    law, (least, largest) = received.lower, np.full((2, len(fit.shares)), np.nan)
    known, forged = np.flatnonzero(~np.isnan(fit.shares)), 0.0
    for some in np.split(known, range(_CANDIDATES_AT_ONCE, len(known), _CANDIDATES_AT_ONCE)):
        if fit.influence is not None and len(some):
            influence = fit.influence(some)
            least[some], largest[some] = influence.honest_shares(fit.shares[some], num_forged)
            forged = max(forged, min(num_forged / float(np.min(influence.num_reports)), 1 - 1e-9))
    factors = np.maximum(law.scales(received.p_values, fit.tests.retested), 1)
    p = np.nan_to_num(law.of_honest(least / factors, forged).p_values(), nan=1.0)
    return CandidateIntervals(
        lower=law.of_honest(least, forged),
        upper=law.of_honest(largest, forged),
        p_values=np.maximum(p, fit.tests.least),
        retested=p < fit.tests.least,
        order=received.order,
    )


def _detection_limit(fit: FitResult, law: ErrorLaw, evidence: Evidence, options: Options) -> float:
    """Median of the shares with which the candidates are detected with probability .9; infinite if nothing is known about any.

    Where clients repeat their noise, the possible estimates are closer to each other than the steps of the law.
    """
    tested = ~np.isnan(fit.tests.p_values)
    known = np.flatnonzero(tested & np.isfinite(law.shares) & np.isfinite(law.variances))
    level = detection_level(int(tested.sum()), options.fdr, options.confidence)
    limits = law.take(known).detection_limits(level, DETECTION_POWER, on_grid=evidence.repetition == ONCE)
    return float(np.median(limits)) if limits.size else math.inf


def _tested_decoding(
    fit: FitResult,
    law: ErrorLaw,
    groups: Sequence[tuple[str, ...]],
    evidence: Evidence,
    options: Options,
    strata: Indices | None = None,
) -> Decoding:
    """Decoding of all groups of candidates, with tests, and their intervals at other levels."""
    tests = Detections.of(fit, law, strata, evidence, options)
    adjusted_low, adjusted_high = tests.adjusted_intervals(options.confidence)
    std_errors = law.std_errors(fit.shares)
    columns = {
        "share": fit.shares,
        "std_error": std_errors,
        "low": tests.low,
        "high": tests.high,
        "p_value": tests.intervals.p_values,
        "q_value": tests.q_values,
        "selection_adjusted_low": adjusted_low,
        "selection_adjusted_high": adjusted_high,
        **_posterior_columns(fit, std_errors, evidence.metric.kind, options, strata),
    }
    known = {name: np.where(np.isnan(fit.shares), np.nan, column) for name, column in columns.items()}
    answers = zip(known["q_value"].tolist(), tests.detected.tolist(), strict=True)
    detected = [None if math.isnan(q_value) else is_detected for q_value, is_detected in answers]
    forged = _forged_reports(fit, law, tests, options, strata)
    decoding = _decoding(fit, _rows(known, groups, detected, forged), tests.limit, evidence, options)
    return replace(decoding, _intervals=replace(tests.intervals, order=_descending(fit.shares)))


def _forged_reports(
    fit: FitResult, law: ErrorLaw, tests: Detections, options: Options, strata: Indices | None
) -> list[int | None]:
    """Least number of forged reports without which each detected candidate, (M,), would not be detected; None: not detected, or unknown."""
    p, retested, tested = tests.intervals.p_values, tests.intervals.retested, tests.tested
    needed: list[int | None] = [None] * len(p)
    found = np.flatnonzero(tests.detected)
    if fit.influence is None or not len(found):
        return needed
    largest = np.ones(len(p))
    largest[tested] = largest_p_values(p[tested], options.fdr, len(found), None if strata is None else strata[tested])
    largest = np.minimum(largest, (1 - options.confidence) / 2)
    influence, shares = fit.influence(found), fit.shares[found]
    cuts = law.take(found).cuts(p[found], largest[found], retested[found])
    number = np.maximum(influence.num_forged(shares, cuts), 1)
    for j, forged in zip(found.tolist(), number.tolist(), strict=True):
        needed[j] = None if math.isnan(forged) else int(forged)
    return needed


def _posterior_columns(
    fit: FitResult, std_errors: Floats, kind: Kind, options: Options, strata: Indices | None = None
) -> dict[str, Floats]:
    """Posterior medians, their intervals, and posterior means that add up to the listed total, if the values exclude each other.

    Of strings, all are nan if the reports do not determine the listed total. The errors of the candidates then have a large part in common, so
    shrinking each of them by its own error is often further from the truth than shares of 0. A category or an item has a bit of its own: the sum
    of many errors is large because there are many, and the means add up to what they are.

    Where no candidate is subtracted from the others, errors are not normal, and have the law of random strings. With forged reports, all are
    nan, because the bound is one for single shares.
    """
    total = _totals(fit, options)[0].share
    if (math.isnan(total) and kind.needs_candidates) or options.fabricated:
        names = ("posterior_median", "credible_low", "credible_high", "posterior_mean")
        return dict.fromkeys(names, np.full_like(fit.shares, np.nan))
    crowding = fit.nuisance.crowding
    null = fit.tests.null_distribution if crowding and (crowding.few_cohorts or crowding.unsettled) else None
    posterior = posterior_shares(
        fit.shares, std_errors, options.confidence, total, strata, null, exclusive=kind.has_exclusive_values
    )
    return {
        "posterior_median": posterior.medians,
        "credible_low": posterior.low,
        "credible_high": posterior.high,
        "posterior_mean": posterior.means,
    }


def _totals(fit: FitResult, options: Options) -> list[ShareEstimate]:
    """Estimates of the candidates together, the unlisted strings, and both together."""
    errors = np.sqrt(fit.total_variances if options.target == "population" else fit.total_reporter_variances)
    return [_total(*pair, options.confidence) for pair in zip(fit.totals.tolist(), errors.tolist(), strict=True)]


def _total(share: float, std_error: float, confidence: float) -> ShareEstimate:
    """Estimate of a total with its interval; nan if its standard error is above 0.25, since it then is not determined."""
    if not std_error <= MAX_TOTAL_ERROR:
        return ShareEstimate(math.nan, math.nan, math.nan, math.nan)
    return ShareEstimate(share, std_error, *normal_interval(share, std_error, confidence))
