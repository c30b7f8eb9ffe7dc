"""The decoder's pipeline on one page: summary + candidates -> design matrix -> screening -> fit -> inference -> decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import SummaryError
from hubbub.metrics.metric import Kind
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub_decoder.data.candidates import distinct_candidates
from hubbub_decoder.errors import CandidateError
from hubbub_decoder.estimators import categories
from hubbub_decoder.estimators.bit_counts import fit_bits
from hubbub_decoder.estimators.fit_result import Fitted
from hubbub_decoder.estimators.lasso_screening import Selection, select
from hubbub_decoder.estimators.least_squares import Fit, fit, must_be_fixed
from hubbub_decoder.estimators.pattern_counts import fit_patterns, is_small
from hubbub_decoder.estimators.reports.mixed_effects import fit_many, worth_fitting
from hubbub_decoder.estimators.reports.one_step import fit_reports
from hubbub_decoder.inference.intervals import Target, among_reporters, of_poisson, p_values
from hubbub_decoder.model.design_matrix import DesignMatrix, design_matrix
from hubbub_decoder.results import warnings as decoding_warnings
from hubbub_decoder.results.build import Answer, decoding_of
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.estimates import FitTest
from hubbub_decoder.results.goodness_of_fit import run_fit_tests

Floats = NDArray[np.float64]


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
    if isinstance(summary, Reports) and is_small(summary.metric.params):
        summary = summary.pattern_counts()
    counts = summary if isinstance(summary, BitCounts) else summary.bit_counts()
    if counts.num_reports == 0:
        raise SummaryError(f"{counts.metric.name}: the summary holds no report: there is nothing to decode yet")
    tests = run_fit_tests(summary)
    if counts.metric.kind is not Kind.STRING:
        return _tested(_decode_categories(counts, candidates, confidence, fdr, target), tests, counts)
    if candidates is None:
        raise CandidateError(
            f"{counts.metric.name}: a string metric is decoded for the strings you name: give candidates"
        )
    design, repeated = _designed(candidates, counts)
    if isinstance(summary, PatternCounts) and is_small(counts.metric.params):
        return _tested(_decode_patterns(summary, counts, design, repeated, confidence, fdr, target), tests, counts)
    reports = summary if isinstance(summary, Reports) else None
    return _tested(_decode_bits(counts, reports, design, repeated, confidence, fdr, target), tests, counts)


def _tested(decoding: Decoding, tests: tuple[FitTest, ...], counts: BitCounts) -> Decoding:
    return replace(
        decoding,
        fit_tests=tests,
        warnings=(*decoding.warnings, *decoding_warnings.warn_failed_fit_tests(tests, counts)),
    )


def _designed(candidates: Iterable[str] | DesignMatrix, counts: BitCounts) -> tuple[DesignMatrix, int]:
    """Return the design of the candidates, and how many of them were given more than once."""
    params = counts.metric.params
    if not isinstance(candidates, DesignMatrix):
        names, repeated = distinct_candidates(candidates)
        return design_matrix(names, params), repeated
    if candidates.params != params:
        raise CandidateError(
            f"{counts.metric.name}: the design matrix was made for other parameters ({candidates.params}) than the reports ({params})"
        )
    return candidates, 0


def _decode_patterns(
    summary: PatternCounts,
    counts: BitCounts,
    design: DesignMatrix,
    repeated: int,
    confidence: float,
    fdr: float,
    target: Target,
) -> Decoding:
    fitted = fit_patterns(summary, design)
    n = counts.num_reports

    def errors(variances: Floats, shares: Floats) -> Floats:
        return np.sqrt(of_poisson(variances, shares, None if target == "population" else n, n))

    (listed, unlisted, nothing), totals = fitted.totals.shares, fitted.totals
    of_totals = errors(np.diag(totals.covariance), totals.shares)
    answer = _answer_of(
        fitted, np.arange(len(design.groups)), design, errors, ([listed, unlisted, 1 - nothing], of_totals)
    )
    decoding = decoding_of(answer, counts, confidence, fdr)
    warnings = (
        *decoding_warnings.warn_counts(counts),
        *decoding_warnings.warn_padded_candidates(design),
        *decoding_warnings.warn_merged_candidates(design, repeated),
        *decoding_warnings.warn_undetermined_shares(int(np.isnan(answer.shares).sum())),
        *decoding_warnings.warn_few_cohorts(counts, decoding),
        *decoding_warnings.warn_frequent_unlisted_string(fitted.law, fitted.scatter),
        *decoding_warnings.warn_undetermined_totals(decoding),
        *decoding_warnings.warn_impossible_totals(decoding),
        *decoding_warnings.warn_nothing_detected(decoding),
    )
    return replace(decoding, warnings=warnings)


def _decode_bits(
    counts: BitCounts,
    reports: Reports | None,
    design: DesignMatrix,
    repeated: int,
    confidence: float,
    fdr: float,
    target: Target,
) -> Decoding:
    """Fit the reports themselves where they are at hand and worth it, else their bit counts: few candidates fixed, many as random effects."""
    selection = select(counts, design)
    chosen = design.take(selection.columns)
    num_reports = None if target == "population" else counts.num_reports
    fitted: Fit | Fitted
    seen = None if reports is None or not worth_fitting(chosen) else _only(reports, selection.counts.reports > 0)
    if must_be_fixed(selection.counts, chosen):
        fitted = fit(selection.counts, chosen) if seen is None else fit_reports(seen, chosen)
        answer = _answer(fitted, selection, design, num_reports)
    else:
        fitted = fit_bits(selection.counts, chosen) if seen is None else fit_many(seen, chosen)

        def errors(variances: Floats, shares: Floats) -> Floats:
            return np.sqrt(among_reporters(variances, shares, num_reports))

        of_both = np.array([[1, 0], [0, 1], [1, 1]])
        sums = of_both @ fitted.totals.shares
        spread = np.einsum("ij,jk,ik->i", of_both, fitted.totals.covariance, of_both)
        totals = sums, errors(spread, sums)
        answer = _answer_of(fitted, selection.columns, design, errors, totals, tested=not selection.independent)
    decoding = decoding_of(answer, counts, confidence, fdr)
    if len(selection.columns) < len(design.groups):
        decoding = replace(decoding, num_screened=len(selection.columns))
    warnings = (
        *decoding_warnings.warn_counts(counts),
        *decoding_warnings.warn_padded_candidates(design),
        *decoding_warnings.warn_merged_candidates(design, repeated),
        *decoding_warnings.warn_screening(design, selection),
        *decoding_warnings.warn_unused_reports(reports, chosen),
        *decoding_warnings.warn_undetermined_shares(int(np.isnan(answer.shares[selection.columns]).sum())),
        *decoding_warnings.warn_few_cohorts(selection.counts, decoding),
        *decoding_warnings.warn_frequent_unlisted_string(fitted.law, fitted.scatter),
        *decoding_warnings.warn_undetermined_totals(decoding),
        *decoding_warnings.warn_impossible_totals(decoding, fitted),
        *decoding_warnings.warn_nothing_detected(decoding),
    )
    return replace(decoding, warnings=warnings)


def _answer_of(
    fitted: Fitted,
    columns: NDArray[np.intp],
    design: DesignMatrix,
    errors: Callable[[Floats, Floats], Floats],
    totals: tuple[Iterable[float], Iterable[float]],
    *,
    tested: bool = True,
) -> Answer:
    """Say what the fit of some columns says about each candidate.

    errors : standard errors from variances and shares of the population      tested : whether the columns left out count as tested
    """
    solution = fitted.solution
    known = np.isfinite(solution.variances)
    variances, shares = np.where(known, solution.variances, np.nan), np.where(known, solution.shares, np.nan)
    rows = np.full((3, len(design.groups)), np.nan)
    rows[2] = 1 if tested else np.nan
    rows[:, columns] = shares, errors(variances, shares), np.where(known, fitted.p_values, 1)
    return Answer(
        groups=design.groups,
        shares=rows[0],
        std_errors=rows[1],
        p_values=rows[2],
        totals=tuple((float(share), float(error)) for share, error in zip(*totals, strict=True)),
        null_error=float(np.sqrt(np.median(variances[known]))) if known.any() else np.inf,
        law=fitted.law,
    )


def _only(reports: Reports, cohorts: NDArray[np.bool_]) -> Reports:
    """Keep the reports of some cohorts."""
    if cohorts[reports.cohorts].all():
        return reports
    kept = cohorts[reports.cohorts]
    return Reports(reports.metric, reports.cohorts[kept], reports.rows[kept], reports.periods)


def _answer(fitted: Fit, selection: Selection, design: DesignMatrix, num_reports: int | None) -> Answer:
    """Say what the fit says about each candidate, those not fitted among them, and about the totals."""
    listed = len(selection.columns)
    single = np.eye(listed + 1)
    totals = np.vstack([1 - single[-1], single[-1], np.ones(listed + 1)])  # candidates, unlisted, both
    solution = np.append(fitted.shares, fitted.unlisted)

    def errors(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        population = np.einsum("ij,jk,ik->i", sums, fitted.covariance, sums)
        if fitted.noise is None or num_reports is None:
            return np.asarray(np.sqrt(among_reporters(population, sums @ solution, num_reports)))
        people = population - np.einsum("ij,jk,ik->i", sums, fitted.noise, sums)  # their number in the cohorts fitted
        return np.asarray(np.sqrt(population - people * (selection.counts.num_reports / num_reports)))

    known = fitted.identified(single)[:listed]
    variance = np.where(known, np.diag(fitted.covariance)[:listed], np.nan)
    rows = np.full((3, len(design.groups)), np.nan)
    rows[2] = np.nan if selection.independent else 1
    rows[:, selection.columns] = (
        np.where(known, fitted.shares, np.nan),
        np.where(known, errors(single[:-1]), np.nan),
        p_values(fitted.shares, np.sqrt(variance)) if fitted.p_values is None else fitted.p_values,
    )

    sums = np.column_stack([totals @ solution, errors(totals)])
    known_totals = np.where(fitted.identified(totals)[:, None], sums, np.nan)
    if not listed:
        known_totals[0] = np.nan  # of no candidate nothing is known, and not that it is nothing
    return Answer(
        groups=design.groups,
        shares=rows[0],
        std_errors=rows[1],
        p_values=rows[2],
        totals=tuple((share, error) for share, error in known_totals.tolist()),
        null_error=float(np.sqrt(np.median(variance[known]))) if known.any() else np.inf,
        law=fitted.law,
    )


def _decode_categories(
    counts: BitCounts, candidates: Iterable[str] | DesignMatrix | None, confidence: float, fdr: float, target: Target
) -> Decoding:
    if isinstance(candidates, DesignMatrix):
        raise CandidateError(
            f"{counts.metric.name}: a {counts.metric.kind} metric has no design matrix: name categories"
        )
    asked = None if candidates is None else distinct_candidates(candidates)[0]
    decoding = decoding_of(categories.solve(counts, asked, target), counts, confidence, fdr)
    return replace(
        decoding, warnings=(*decoding_warnings.warn_counts(counts), *decoding_warnings.warn_impossible_totals(decoding))
    )
