"""The decoder's pipeline on one page: summary + candidates -> design matrix -> screening -> fit -> inference -> decoding."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import count

import numpy as np

from hubbub.errors import SummaryError
from hubbub.metrics.kinds import MeanKind
from hubbub.metrics.metric import Metric
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub.text import format_count, with_article
from hubbub_decoder.blas_threads import idle_blas_threads, one_blas_thread
from hubbub_decoder.data.candidates import distinct_candidates
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
from hubbub_decoder.inference.intervals import unlisted_std_error
from hubbub_decoder.inference.weight_strata import weight_strata
from hubbub_decoder.model.design_matrix import DesignMatrix, design_matrix
from hubbub_decoder.model.evidence import Collected, Evidence
from hubbub_decoder.model.pattern_likelihood import count_filters, supports_pattern_likelihood
from hubbub_decoder.options import Options, Target
from hubbub_decoder.results import warnings
from hubbub_decoder.results.build import build_category_decoding, build_decoding, build_mean_decoding
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.estimates import Finding
from hubbub_decoder.results.goodness_of_fit import run_fit_tests
from hubbub_decoder.results.unlisted_strings import build_unlisted_string

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
    options = Options(confidence, fdr, target, same_clients)
    evidence = collect_evidence(summary, options)
    return decode_evidence(evidence, candidates, options, method=method, weights=weights, progress=progress)


def decode_evidence(
    evidence: Evidence,
    candidates: Iterable[str] | DesignMatrix | None,
    options: Options,
    *,
    method: Method = "auto",
    weights: Mapping[str, float] | None = None,
    progress: Progress = lambda _stage, _share: None,
) -> Decoding:
    """Decode evidence: the steps of `decode`, from counts to shares with intervals, tests and warnings."""
    if method not in ("auto", "lasso"):
        raise SummaryError(f'method must be "auto" or "lasso", got {method!r}')
    if method == "lasso" and isinstance(evidence.source, PatternCounts):
        evidence = evidence.as_bit_counts()
    progress("testing the goodness of fit", 0.0)
    tests = run_fit_tests(evidence.collected)
    whole = _whole_values(evidence)
    if not evidence.metric.kind.needs_candidates:
        decoding = _decode_categories(whole, candidates, options, weights)
    else:
        progress("hashing the candidates", _HASHING)
        design, repeated = _design(evidence.metric, candidates, weights)
        selection = select_candidates(whole, design, method=method, keep_all=_is_pattern_fit(whole))
        with idle_blas_threads(_largest_dimension(selection, design)):
            fit, unlisted = _fit(selection, design, progress)
        progress("testing the candidates", _TESTING)
        decoding = build_decoding(fit, design.groups, whole, options, design.strata)
        decoding = replace(
            decoding,
            lowest_detection_limit=_lowest_detection_limit(whole, fit, decoding),
            unlisted_strings=tuple(build_unlisted_string(each, whole.params.num_bits, options) for each in unlisted),
            num_kept=None if len(selection.columns) == len(design.groups) else len(selection.columns),
        )
        decoding = replace(decoding, warnings=_warnings(evidence, whole, design, repeated, selection, fit, decoding))
    failed = warnings.failed_fit_tests(tests, evidence.counts)
    return replace(decoding, fit_tests=tests, warnings=(*decoding.warnings, *failed))


def collect_evidence(summary: Collected, options: Options) -> Evidence:
    """Evidence in the form that is fitted; raises SummaryError for a joint metric, and without a report."""
    evidence = Evidence.from_summary(summary, same_clients=options.same_clients)
    metric = evidence.metric
    if metric.parts:
        raise SummaryError(
            f"{metric.name}: a joint metric has the bits of {len(metric.parts)} parts. Use `hubbub associate` for "
            "their joint distribution, or decode(summary.part(name)) for one part."
        )
    if evidence.num_reports == 0:
        raise SummaryError(
            f"{metric.name}: the summary holds no report, so no share can be estimated. Decode it when reports have arrived."
        )
    return evidence


def _whole_values(evidence: Evidence) -> Evidence:
    """Evidence of the clients that report whole values, of which there must be some."""
    whole = evidence.held_out()
    if whole.num_reports == 0:
        raise SummaryError(
            f"{whole.metric.name}: the held-out group has no report, and the others report prefixes only. Decode when more reports have arrived."
        )
    return whole


def _decode_categories(
    evidence: Evidence,
    candidates: Iterable[str] | DesignMatrix | None,
    options: Options,
    weights: Mapping[str, float] | None,
) -> Decoding:
    """Decode a metric of which every value has a bit of its own, in closed form."""
    metric = evidence.metric
    if weights is not None:
        raise CandidateError(
            f"{metric.name}: categories are not tested, so {with_article(metric.kind.word)} metric has no weights. Leave out weights (--weights)."
        )
    names = category_names(metric, candidates)
    if isinstance(metric.kind, MeanKind):
        if names is not None:
            raise CandidateError(
                f'{metric.name}: its reports estimate a mean (estimate = "mean"), and no share of any value. Leave candidates out.'
            )
        decoding = build_mean_decoding(evidence, metric.kind.buckets, options)
    else:
        selected = select_categories(metric, names)
        decoding = build_category_decoding(fit_categories(evidence, selected), selected, evidence, options)
    counts = evidence.counts
    found = (*warnings.few_reports(counts), *warnings.rejected_reports(counts), *warnings.impossible_totals(decoding))
    return replace(decoding, warnings=found)


def _fit(selection: Selection, design: DesignMatrix, progress: Progress) -> tuple[FitResult, tuple[UnlistedFit, ...]]:
    """Fit the selected candidates, and search for frequent unlisted strings."""
    fits = count(1)

    def fit_columns(columns: DesignMatrix) -> FitResult:
        number = next(fits)
        again = f", fit {number} with unlisted strings" if number > 1 else ""
        progress(
            f"estimating {format_count(len(columns.groups), 'share')}{again}",
            _FITTING if number == 1 else _FITTING_AGAIN,
        )
        return _fit_columns(selection.evidence, columns)

    fit, unlisted = fit_with_unlisted_strings(selection.evidence, design.take(selection.columns), fit_columns)
    left_out = math.nan if selection.independent else 1.0
    return fit.expand(selection.columns, len(design.groups), p_value=left_out), unlisted


def _fit_columns(evidence: Evidence, kept: DesignMatrix) -> FitResult:
    """Fit the columns by the most precise estimator for this evidence and this number of columns.

    evidence                      | few candidates: fixed effects | many candidates: random effects, empirical Bayes
    PatternCounts (k <= 16)       |                         fit_patterns
    Reports (<= 1,500 candidates) | fit_reports_one_step          | fit_reports_mixed
    otherwise, their bit counts   | fit_least_squares             | fit_bits
    """
    if _is_pattern_fit(evidence):
        fit = fit_patterns(evidence, kept)
        return fit.with_cumulants(pattern_noise_cumulants(evidence, kept, fit))
    fixed = use_fixed_effects(evidence, kept)
    if isinstance(evidence.source, Reports) and within_size_limit(kept) and not is_crowded(evidence, kept):
        return fit_reports_one_step(evidence, kept) if fixed else fit_reports_mixed(evidence, kept)
    fit = fit_least_squares(evidence, kept) if fixed else fit_bits(evidence, kept)
    return fit.with_cumulants(bit_noise_cumulants(evidence, kept, fit))


def _lowest_detection_limit(evidence: Evidence, fit: FitResult, decoding: Decoding) -> float:
    """Detection limit with infinitely many reports, for tau**2 two standard errors below its estimate; 0 if that is below 0.

    Bit counts of a cohort have at most k independent numbers about the unlisted strings; patterns and reports have one for each filter.
    """
    params = evidence.params
    if isinstance(evidence.source, BitCounts):
        dimensions = params.num_bits - (params.hash_scheme != "google-md5")
    else:
        dimensions = count_filters(params) - 2  # without "no value", and the probabilities sum to 1
    surely = fit.unlisted_variance - 2 * fit.unlisted_variance_error
    error = unlisted_std_error(surely, evidence.num_used, dimensions)
    return decoding.detection_limit * min(error / fit.null_error, 1) if error and fit.null_error < math.inf else 0.0


def _largest_dimension(selection: Selection, design: DesignMatrix) -> int:
    """Largest dimension of a dense matrix in the fit: the number of shares; message passing has none."""
    evidence, kept = selection.evidence, design.take(selection.columns)
    has_matrix = isinstance(evidence.source, Reports) or use_fixed_effects(evidence, kept)
    return len(selection.columns) if has_matrix and not _is_pattern_fit(evidence) else 0


def _is_pattern_fit(evidence: Evidence) -> bool:
    """Whether the evidence is fitted as pattern counts."""
    return isinstance(evidence.source, PatternCounts) and supports_pattern_likelihood(evidence.params)


def _design(
    metric: Metric, candidates: Iterable[str] | DesignMatrix | None, weights: Mapping[str, float] | None
) -> tuple[DesignMatrix, int]:
    """Design matrix of the candidates with the strata of their weights, and the number of repetitions among them."""
    design, repeated = hash_candidates(metric, candidates)
    if weights is not None:
        design = replace(design, strata=weight_strata(group_weights(weights, design.groups)))
    return design, repeated


def hash_candidates(metric: Metric, candidates: Iterable[str] | DesignMatrix | None) -> tuple[DesignMatrix, int]:
    """Design matrix of the candidates of a string metric, and the number of repetitions among them."""
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


def category_names(metric: Metric, candidates: Iterable[str] | DesignMatrix | None) -> list[str] | None:
    """Names of the categories to show, each once; None: all."""
    if isinstance(candidates, DesignMatrix):
        raise CandidateError(
            f"{metric.name}: {with_article(metric.kind.word)} metric has no design matrix. Pass names of categories, or leave candidates out."
        )
    return None if candidates is None else distinct_candidates(candidates)[0]


def _warnings(
    evidence: Evidence,
    whole: Evidence,
    design: DesignMatrix,
    repeated: int,
    selection: Selection,
    fit: FitResult,
    decoding: Decoding,
) -> tuple[Finding, ...]:
    """Warnings about the decoding of a string metric, in the order of its steps."""
    reports = whole.source if isinstance(whole.source, Reports) else None
    return (
        *warnings.few_reports(evidence.counts),
        *warnings.rejected_reports(evidence.counts),
        *warnings.padded_candidates(design),
        *warnings.repeated_candidates(repeated),
        *warnings.merged_candidates(design),
        *warnings.header_line(design, decoding),
        *warnings.unsplit_candidates(design),
        *warnings.quoted_candidates(design),
        *warnings.screened_candidates(design, selection),
        *warnings.unused_reports(reports, design.take(selection.columns)),
        *warnings.undetermined_shares(int(np.isnan(fit.shares[selection.columns]).sum())),
        *warnings.few_cohorts(selection.evidence.counts, decoding),
        *warnings.unlisted_strings(decoding),
        *warnings.unsubtracted_candidates(decoding, fit),
        *warnings.undetermined_totals(decoding, fit),
        *warnings.impossible_totals(decoding, None if _is_pattern_fit(whole) else fit),
        *warnings.nothing_detected(decoding),
    )
