"""The decoder's pipeline on one page: summary + candidates -> design matrix -> screening -> fit -> inference -> decoding."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import count
from numbers import Real

import numpy as np

from hubbub.errors import SummaryError
from hubbub.metrics.metric import Kind, Metric
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub.text import format_count, with_article
from hubbub_decoder.blas_threads import idle_blas_threads, one_blas_thread
from hubbub_decoder.data.candidates import distinct_candidates
from hubbub_decoder.data.combine import Collected
from hubbub_decoder.data.groups import held_out_counts
from hubbub_decoder.data.weights import group_weights
from hubbub_decoder.errors import CandidateError
from hubbub_decoder.estimators.bit_counts import fit_bits, is_crowded
from hubbub_decoder.estimators.categories import fit_categories, select_categories
from hubbub_decoder.estimators.fit_result import FitResult
from hubbub_decoder.estimators.lasso_screening import Method, Selection, select_candidates
from hubbub_decoder.estimators.least_squares import fit_least_squares, use_fixed_effects
from hubbub_decoder.estimators.noise_cumulants import bit_noise_cumulants, pattern_noise_cumulants
from hubbub_decoder.estimators.pattern_counts import fit_patterns
from hubbub_decoder.estimators.reports.mixed_effects import fit_reports_mixed, within_size_limit
from hubbub_decoder.estimators.reports.one_step import fit_reports_one_step
from hubbub_decoder.estimators.unlisted_strings import UnlistedFit, fit_with_unlisted_strings
from hubbub_decoder.inference.intervals import Target, unlisted_std_error
from hubbub_decoder.inference.weight_strata import weight_strata
from hubbub_decoder.model.design_matrix import DesignMatrix, design_matrix
from hubbub_decoder.model.pattern_likelihood import count_filters, supports_pattern_likelihood
from hubbub_decoder.results import warnings
from hubbub_decoder.results.build import build_category_decoding, build_decoding, build_mean_decoding
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.goodness_of_fit import run_fit_tests
from hubbub_decoder.results.unlisted_strings import build_unlisted_strings

Progress = Callable[[str, float], None]
_HASHING, _FITTING, _FITTING_AGAIN, _TESTING = 0.01, 0.05, 0.6, 0.8
"""Usual shares of the time before each stage, measured with 20,000 and 100,000 candidates."""


@one_blas_thread()
def decode(
    summary: BitCounts | PatternCounts | Reports,
    candidates: Iterable[str] | DesignMatrix | None = None,
    *,
    confidence: float = 0.95,
    fdr: float = 0.05,
    target: Target = "reporters",
    method: Method = "auto",
    same_clients: bool = True,
    weights: Mapping[str, float] | None = None,
    progress: Progress = lambda _stage, _share: None,
) -> Decoding:
    """Estimate the share of the reports that carry each candidate.

    summary    : BitCounts, PatternCounts or Reports, with at least one report. PatternCounts (k <= 16) and Reports have smaller errors.
    candidates : strings to look for, or a design matrix of them; for a categorical metric, the categories to show (None: all)
    confidence : level of the intervals, in (0, 1)
    fdr        : false discovery rate of the detected candidates, in (0, 1)
    target     : "reporters": shares among the reporters; "population": shares of the population of which they are a random
                 sample, with wider intervals
    method     : "auto": all candidates are estimated (up to 100,000 of bit counts); "lasso": only those that a lasso on the bits of
                 half of the cohorts keeps, from the other half
    same_clients : of a summary of several periods, whether the same clients report in each, with the same values. Their permanent noise
                 then repeats, so intervals are wider than for independent reports. False: each period has other clients

    progress   : called with each stage of a string metric, and the usual share of the time that the stages before it take
    weights    : of candidates of a string metric, known before the reports, such as frequencies in an earlier list. Only their order
                 counts, and the reports decide whether it means anything. Intervals and false discoveries hold with a wrong list

    Of a metric with `discover`, only the held-out group reports whole strings: the decoding is that of its reports. It is a sample of the
    reporters, so the intervals of the shares among the reporters contain its sampling error.

    BLAS is limited to one thread in the whole process until `decode` returns; large models use the idle cores (decision 75).

    Raises SummaryError without reports or for arguments out of range, CandidateError for candidates that cannot be tested.

    >>> from hubbub.metrics.metric import Metric
    >>> os = Metric.categorical("os", ("linux", "macos"), prob_p=0.25, prob_q=0.75, prob_f=0)
    >>> decoding = decode(BitCounts(os, [1000], [[500, 400]]))  # (1/2 - 1/4) / (3/4 - 1/4)
    >>> [(e.candidate, round(e.share, 3), round(e.std_error, 3)) for e in decoding.estimates]
    [('linux', 0.5, 0.027), ('macos', 0.3, 0.027)]
    """
    _check_arguments(summary, confidence, fdr, target, method, same_clients)
    periods = summary.periods
    if not same_clients:
        summary = replace(summary, periods=())  # reports of unknown periods count as independent
    if isinstance(summary, Reports) and supports_pattern_likelihood(summary.metric.params):
        summary = summary.pattern_counts()
    counts = summary if isinstance(summary, BitCounts) else summary.bit_counts()
    if method == "lasso" and isinstance(summary, PatternCounts):
        summary = counts
    metric = counts.metric
    if counts.num_reports == 0:
        raise SummaryError(
            f"{metric.name}: the summary holds no report, so no share can be estimated. Decode it when reports have arrived."
        )
    progress("testing the goodness of fit", 0.0)
    tests, collected = run_fit_tests(summary), counts
    if metric.discover is not None:
        summary = counts = held_out_counts(counts, metric.discover)
        if counts.num_reports == 0:
            raise SummaryError(
                f"{metric.name}: the held-out group has no report, and the others report prefixes only. Decode when more reports have arrived."
            )
    if metric.kind is not Kind.STRING:
        if weights is not None:
            raise CandidateError(
                f"{metric.name}: categories are not tested, so {with_article(metric.kind)} metric has no weights. Leave out weights (--weights)."
            )
        names = _category_names(metric, candidates)
        if metric.buckets is not None and metric.buckets.is_mean:
            if names is not None:
                raise CandidateError(
                    f'{metric.name}: its reports estimate a mean (estimate = "mean"), and no share of any value. Leave candidates out.'
                )
            decoding = build_mean_decoding(counts, metric.buckets, target, confidence, fdr)
        else:
            selected = select_categories(metric, names)
            fit = fit_categories(counts, selected)
            decoding = build_category_decoding(fit, selected, counts, target, confidence, fdr)
        messages = [*warnings.warn_counts(counts), *warnings.warn_impossible_totals(decoding)]
    else:
        progress("hashing the candidates", _HASHING)
        design, repeated = _design(metric, candidates)
        if weights is not None:
            design = replace(design, strata=weight_strata(group_weights(weights, design.groups)))
        selection = select_candidates(counts, design, method=method, keep_all=_is_pattern_fit(summary))
        with idle_blas_threads(_largest_dimension(summary, selection, design)):
            fit, unlisted = _fit(summary, collected.num_reports, design, selection, progress)
        progress("testing the candidates", _TESTING)
        decoding = build_decoding(
            fit, design.groups, counts, target, confidence, fdr, design.strata, collected.num_reports
        )
        decoding = replace(
            decoding,
            lowest_detection_limit=_lowest_detection_limit(summary, fit, decoding),
            unlisted_strings=build_unlisted_strings(unlisted, metric.params.num_bits, target, confidence),
        )
        if len(selection.columns) < len(design.groups):
            decoding = replace(decoding, num_kept=len(selection.columns))
        messages = _warnings(summary, collected, design, repeated, selection, fit, decoding)
    assumed = same_clients if len(periods) > 1 else None
    decoding = replace(decoding, periods=periods, same_clients=assumed)
    return replace(decoding, fit_tests=tests, warnings=(*messages, *warnings.warn_failed_fit_tests(tests, collected)))


def _fit(
    summary: Collected, num_reports: int, design: DesignMatrix, selection: Selection, progress: Progress
) -> tuple[FitResult, tuple[UnlistedFit, ...]]:
    """Fit the selected candidates, and search for frequent unlisted strings; num_reports : of all reporters, those of prefixes included."""
    kept = design.take(selection.columns)
    fits = count(1)

    def fit_columns(columns: DesignMatrix) -> FitResult:
        number = next(fits)
        again = f", fit {number} with unlisted strings" if number > 1 else ""
        progress(
            f"estimating {format_count(len(columns.groups), 'share')}{again}",
            _FITTING if number == 1 else _FITTING_AGAIN,
        )
        return _fit_columns(summary, num_reports, columns, selection)

    fit, unlisted = fit_with_unlisted_strings(selection.counts, kept, fit_columns)
    return fit.expand(
        selection.columns, len(design.groups), p_value=math.nan if selection.independent else 1.0
    ), unlisted


def _fit_columns(summary: Collected, n: int, kept: DesignMatrix, selection: Selection) -> FitResult:
    """Fit the columns by the most precise estimator for this summary and this number of columns.

    summary                       | few candidates: fixed effects | many candidates: random effects, empirical Bayes
    PatternCounts (k <= 16)       |                         fit_patterns
    Reports (<= 1,500 candidates) | fit_reports_one_step          | fit_reports_mixed
    otherwise, their bit counts   | fit_least_squares             | fit_bits
    """
    if isinstance(summary, PatternCounts) and _is_pattern_fit(summary):
        fit = fit_patterns(summary, kept)
        return fit.with_cumulants(pattern_noise_cumulants(summary, kept, fit))
    fixed = use_fixed_effects(selection.counts, kept)
    if isinstance(summary, Reports) and within_size_limit(kept) and not is_crowded(selection.counts, kept):
        reports = selection.reports_of(summary)
        return fit_reports_one_step(reports, kept, n) if fixed else fit_reports_mixed(reports, kept, n)
    fit = fit_least_squares(selection.counts, kept, n) if fixed else fit_bits(selection.counts, kept, n)
    return fit.with_cumulants(bit_noise_cumulants(selection.counts, kept, fit))


def _lowest_detection_limit(summary: Collected, fit: FitResult, decoding: Decoding) -> float:
    """Detection limit with infinitely many reports, for tau**2 two standard errors below its estimate; 0 if that is below 0.

    Bit counts of a cohort have at most k independent numbers about the unlisted strings; patterns and reports have one for each filter.
    """
    params = summary.metric.params
    if isinstance(summary, BitCounts):
        dimensions = params.num_bits - (params.hash_scheme != "google-md5")
    else:
        dimensions = count_filters(params) - 2  # without "no value", and the probabilities sum to 1
    surely = fit.unlisted_variance - 2 * fit.unlisted_variance_error
    counts = summary if isinstance(summary, BitCounts) else summary.bit_counts()
    error = unlisted_std_error(surely, int((counts.reports > 0).sum()), dimensions)
    return decoding.detection_limit * min(error / fit.null_error, 1) if error and fit.null_error < math.inf else 0.0


def _largest_dimension(summary: Collected, selection: Selection, design: DesignMatrix) -> int:
    """Largest dimension of a dense matrix in the fit: the number of shares; message passing has none."""
    has_matrix = isinstance(summary, Reports) or use_fixed_effects(selection.counts, design.take(selection.columns))
    return len(selection.columns) if has_matrix and not _is_pattern_fit(summary) else 0


def _is_pattern_fit(summary: Collected) -> bool:
    """Whether the summary is fitted as pattern counts."""
    return isinstance(summary, PatternCounts) and supports_pattern_likelihood(summary.metric.params)


def _design(metric: Metric, candidates: Iterable[str] | DesignMatrix | None) -> tuple[DesignMatrix, int]:
    """Design matrix of the candidates, and the number of repetitions among them."""
    if candidates is None:
        raise CandidateError(
            f"{metric.name}: no candidates were given, and a string metric is decoded for given strings only. To decode it, give candidates."
        )
    if not isinstance(candidates, DesignMatrix):
        names, repeated = distinct_candidates(candidates)
        return design_matrix(names, metric.params), repeated
    if candidates.params != metric.params:
        raise CandidateError(
            f"{metric.name}: the design matrix was made for other parameters ({candidates.params}) than the reports ({metric.params}). "
            "Make it with the parameters of the reports."
        )
    return candidates, 0


def _category_names(metric: Metric, candidates: Iterable[str] | DesignMatrix | None) -> list[str] | None:
    """Names of the categories to show, each once; None: all."""
    if isinstance(candidates, DesignMatrix):
        raise CandidateError(
            f"{metric.name}: {with_article(metric.kind)} metric has no design matrix. Pass names of categories, or leave candidates out."
        )
    return None if candidates is None else distinct_candidates(candidates)[0]


def _check_arguments(
    summary: object, confidence: float, fdr: float, target: str, method: str, same_clients: object
) -> None:
    """Raise SummaryError for a wrong type or a value out of range."""
    if not isinstance(summary, BitCounts | PatternCounts | Reports):
        raise SummaryError(
            f"summary must be BitCounts, PatternCounts or Reports, got {type(summary).__name__}: "
            "hubbub.summary.read_collected(path) reads whichever a file holds"
        )
    if summary.metric.parts:
        raise SummaryError(
            f"{summary.metric.name}: a joint metric has the bits of {len(summary.metric.parts)} parts. Use `hubbub associate` for "
            "their joint distribution, or decode(summary.part(name)) for one part."
        )
    for name, value in (("confidence", confidence), ("fdr", fdr)):
        if not isinstance(value, Real) or not 0 < value < 1:
            raise SummaryError(f"{name} must be a number in (0, 1), got {value!r}")
    if target not in ("reporters", "population"):
        raise SummaryError(f'target must be "reporters" or "population", got {target!r}')
    if method not in ("auto", "lasso"):
        raise SummaryError(f'method must be "auto" or "lasso", got {method!r}')
    if not isinstance(same_clients, bool):
        raise SummaryError(f"same_clients must be True or False, got {same_clients!r}")


def _warnings(
    summary: Collected,
    counts: BitCounts,
    design: DesignMatrix,
    repeated: int,
    selection: Selection,
    fit: FitResult,
    decoding: Decoding,
) -> list[str]:
    """Warnings about the decoding of a string metric, in the order of its steps."""
    reports = summary if isinstance(summary, Reports) else None
    few_cohorts = int((selection.counts.reports > 0).sum()) < warnings.MIN_COHORTS
    return [
        *warnings.warn_counts(counts),
        *warnings.warn_padded_candidates(design),
        *warnings.warn_merged_candidates(design, repeated),
        *warnings.warn_header_line(design, decoding),
        *warnings.warn_separators(design),
        *warnings.warn_screening(design, selection, few_cohorts=few_cohorts),
        *warnings.warn_unused_reports(reports, design.take(selection.columns)),
        *warnings.warn_undetermined_shares(int(np.isnan(fit.shares[selection.columns]).sum())),
        *warnings.warn_few_cohorts(selection.counts, decoding),
        *warnings.warn_unlisted_strings(decoding),
        *warnings.warn_unsubtracted_candidates(decoding, fit),
        *warnings.warn_undetermined_totals(decoding, fit),
        *warnings.warn_impossible_totals(decoding, None if _is_pattern_fit(summary) else fit),
        *warnings.warn_nothing_detected(decoding),
    ]
