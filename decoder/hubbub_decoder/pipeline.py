"""The decoder's pipeline on one page: summary + candidates -> design matrix -> screening -> fit -> inference -> decoding."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from numbers import Real

import numpy as np

from hubbub.errors import SummaryError
from hubbub.metrics.metric import Kind, Metric
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub_decoder.data.candidates import distinct_candidates
from hubbub_decoder.data.combine import Collected
from hubbub_decoder.errors import CandidateError
from hubbub_decoder.estimators.bit_counts import fit_bits
from hubbub_decoder.estimators.categories import fit_categories, select_categories
from hubbub_decoder.estimators.fit_result import FitResult
from hubbub_decoder.estimators.lasso_screening import Selection, select
from hubbub_decoder.estimators.least_squares import fit_least_squares, must_be_fixed
from hubbub_decoder.estimators.pattern_counts import fit_patterns, is_small
from hubbub_decoder.estimators.reports.mixed_effects import fit_many, worth_fitting
from hubbub_decoder.estimators.reports.one_step import fit_reports
from hubbub_decoder.inference.intervals import Target
from hubbub_decoder.model.design_matrix import DesignMatrix, design_matrix
from hubbub_decoder.results import warnings as decoding_warnings
from hubbub_decoder.results.build import build_decoding
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.goodness_of_fit import run_fit_tests


def decode(
    summary: BitCounts | PatternCounts | Reports,
    candidates: Iterable[str] | DesignMatrix | None = None,
    *,
    confidence: float = 0.95,
    fdr: float = 0.05,
    target: Target = "reporters",
) -> Decoding:
    """Estimate which share of those who reported has each candidate.

    summary    : bit or pattern counts with at least one report, or the reports; patterns say more, and are used whole
    candidates : for a string metric, the strings to look for, or a design matrix that says which bits each sets; otherwise all
                 categories, or those of them to show
    confidence      : of the intervals, in (0, 1)
    fdr        : the share of false ones expected among the detected, in (0, 1)
    target     : "reporters", the people who reported, or "population", whom they are a random sample of: wider

    Raises SummaryError without reports, CandidateError for candidates that cannot be tested.

    >>> from hubbub.metrics.metric import Metric
    >>> os = Metric.categorical("os", ("linux", "macos"), prob_p=0.25, prob_q=0.75, prob_f=0)
    >>> decoding = decode(BitCounts(os, [1000], [[500, 400]]))  # (1/2 - 1/4) / (3/4 - 1/4)
    >>> [(e.candidate, round(e.share, 3), round(e.std_error, 3)) for e in decoding.estimates]
    [('linux', 0.5, 0.027), ('macos', 0.3, 0.027)]
    """
    _check_arguments(summary, confidence, fdr, target)
    if isinstance(summary, Reports) and is_small(summary.metric.params):
        summary = summary.pattern_counts()
    counts = summary if isinstance(summary, BitCounts) else summary.bit_counts()
    metric = counts.metric
    if counts.num_reports == 0:
        raise SummaryError(f"{metric.name}: the summary holds no report: there is nothing to decode yet")
    tests = run_fit_tests(summary)
    if metric.kind is not Kind.STRING:
        selected = select_categories(metric, _named_categories(metric, candidates))
        fit = fit_categories(counts, selected)
        decoding = build_decoding(fit, [(name,) for name in selected], counts, target, confidence, fdr)
        warnings = [*decoding_warnings.warn_counts(counts), *decoding_warnings.warn_impossible_totals(decoding)]
    else:
        design, repeated = _design(candidates, counts)
        selection = select(counts, design, keep_all=_fits_patterns(summary))
        fit = _fit(summary, counts, design, selection)
        decoding = build_decoding(fit, design.groups, counts, target, confidence, fdr)
        if len(selection.columns) < len(design.groups):
            decoding = replace(decoding, num_screened=len(selection.columns))
        warnings = _warnings(summary, counts, design, repeated, selection, fit, decoding)
    return replace(
        decoding, fit_tests=tests, warnings=(*warnings, *decoding_warnings.warn_failed_fit_tests(tests, counts))
    )


def _check_arguments(summary: object, confidence: float, fdr: float, target: str) -> None:
    if not isinstance(summary, BitCounts | PatternCounts | Reports):
        raise SummaryError(
            f"summary must be BitCounts, PatternCounts or Reports, got {type(summary).__name__}: "
            "hubbub.summary.read_collected(path) reads whichever a file holds"
        )
    for name, value in (("confidence", confidence), ("fdr", fdr)):
        if not isinstance(value, Real) or not 0 < value < 1:
            raise SummaryError(f"{name} must be a number in (0, 1), got {value!r}")
    if target not in ("reporters", "population"):
        raise SummaryError(f'target must be "reporters" or "population", got {target!r}')


def _named_categories(metric: Metric, candidates: Iterable[str] | DesignMatrix | None) -> list[str] | None:
    if isinstance(candidates, DesignMatrix):
        raise CandidateError(f"{metric.name}: a {metric.kind} metric has no design matrix: name categories")
    return None if candidates is None else distinct_candidates(candidates)[0]


def _design(candidates: Iterable[str] | DesignMatrix | None, counts: BitCounts) -> tuple[DesignMatrix, int]:
    """Return the design matrix of the candidates, and how many repetitions they had."""
    metric = counts.metric
    if candidates is None:
        raise CandidateError(f"{metric.name}: a string metric is decoded for the strings you name: give candidates")
    if not isinstance(candidates, DesignMatrix):
        names, repeated = distinct_candidates(candidates)
        return design_matrix(names, metric.params), repeated
    if candidates.params != metric.params:
        raise CandidateError(
            f"{metric.name}: the design matrix was made for other parameters ({candidates.params}) than the reports ({metric.params})"
        )
    return candidates, 0


def _fits_patterns(summary: Collected) -> bool:
    return isinstance(summary, PatternCounts) and is_small(summary.metric.params)


def _fit(summary: Collected, counts: BitCounts, design: DesignMatrix, selection: Selection) -> FitResult:
    """Fit the candidates by the most informative estimator that the summary and their number allow.

    Pattern counts and reports have their full likelihood. Few candidates have fixed effects, many random effects with an empirical prior.
    """
    if isinstance(summary, PatternCounts) and _fits_patterns(summary):
        return fit_patterns(summary, design)
    chosen, n = design.take(selection.columns), counts.num_reports
    fixed = must_be_fixed(selection.counts, chosen)
    if isinstance(summary, Reports) and worth_fitting(chosen):
        reports = selection.reports_of(summary)
        fit = fit_reports(reports, chosen, n) if fixed else fit_many(reports, chosen, n)
    else:
        fit = fit_least_squares(selection.counts, chosen, n) if fixed else fit_bits(selection.counts, chosen, n)
    return fit.spread(selection.columns, len(design.groups), p_value=math.nan if selection.independent else 1.0)


def _warnings(
    summary: Collected,
    counts: BitCounts,
    design: DesignMatrix,
    repeated: int,
    selection: Selection,
    fit: FitResult,
    decoding: Decoding,
) -> list[str]:
    reports = summary if isinstance(summary, Reports) else None
    return [
        *decoding_warnings.warn_counts(counts),
        *decoding_warnings.warn_padded_candidates(design),
        *decoding_warnings.warn_merged_candidates(design, repeated),
        *decoding_warnings.warn_screening(design, selection),
        *decoding_warnings.warn_unused_reports(reports, design.take(selection.columns)),
        *decoding_warnings.warn_undetermined_shares(int(np.isnan(fit.shares[selection.columns]).sum())),
        *decoding_warnings.warn_few_cohorts(selection.counts, decoding),
        *decoding_warnings.warn_frequent_unlisted_string(fit.null_distribution, fit.unlisted_variance),
        *decoding_warnings.warn_undetermined_totals(decoding),
        *decoding_warnings.warn_impossible_totals(decoding, None if _fits_patterns(summary) else fit),
        *decoding_warnings.warn_nothing_detected(decoding),
    ]
