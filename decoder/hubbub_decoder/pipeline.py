"""The decoder's pipeline on one page: summary + candidates -> design matrix -> screening -> fit -> inference -> decoding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Unpack

from hubbub.errors import SummaryError
from hubbub.summary import PatternCounts
from hubbub_decoder.blas_threads import one_blas_thread
from hubbub_decoder.inference.goodness_of_fit import run_fit_tests
from hubbub_decoder.kinds.operations import operations_of
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.evidence import Collected, Evidence
from hubbub_decoder.options import (
    ALL_CANDIDATES,
    DecodingMethod,
    OptionFields,
    Options,
    Progress,
    StringOptions,
    ignore_progress,
    read_options,
)
from hubbub_decoder.results import warnings
from hubbub_decoder.results.decoding import Decoding


@one_blas_thread()
def decode(
    summary: Collected,
    candidates: Iterable[str] | DesignMatrix | None = None,
    *,
    method: DecodingMethod = "auto",
    weights: Mapping[str, float] | None = None,
    fabricated: float = 0.0,
    progress: Progress = ignore_progress,
    **options: Unpack[OptionFields],
) -> Decoding:
    """Estimate the share of the reports that carry each candidate.

    Parameters
    ----------
    summary
        BitCounts, PatternCounts or Reports, with at least one report. PatternCounts (k <= 16) and Reports have smaller
        errors.
    candidates
        Strings to look for, or a design matrix of them. For a categorical metric, the categories to show (None: all).
    method
        For a string metric. "auto": all candidates are estimated (up to 100,000 of bit counts). "lasso": a lasso on the bits of half of the
        cohorts chooses candidates, and only these are estimated, from the other half.
    weights
        Weights of candidates of a string metric that were known before the reports, such as frequencies in an earlier
        list. Only their order counts, and the reports decide whether it means anything. Intervals and false
        discoveries hold with a wrong list.
    fabricated
        Share of the received reports that may be forged, in [0, 1), as `Options` describes it.
    progress
        Function that is called at the start of each stage.
    **options
        Keywords `confidence`, `fdr`, `target` and `same_clients`, which `Options` describes.

    Returns
    -------
    Decoding
        Estimates in descending order of share, totals, tests and warnings.

    Raises
    ------
    SummaryError
        There are no reports, or they do not fit the metric.
    ParameterError
        An argument is out of range, or `method` or `weights` is given for a metric that has no candidates.
    CandidateError
        The candidates cannot be tested.

    Notes
    -----
    For a metric with `discover`, only the held-out group reports whole strings, so the decoding is one of its reports.
    The group is a sample of the reporters, and the intervals of the shares among the reporters contain its sampling
    error.

    BLAS is limited to one thread in the whole process until `decode` returns. Large models use the idle cores.

    Examples
    --------
    >>> from hubbub.metrics.metric import Metric
    >>> from hubbub.summary import BitCounts
    >>> from hubbub import UnaryResponse
    >>> os = Metric.categorical("os", ("linux", "macos"), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0))
    >>> decoding = decode(BitCounts(os, [1000], [[500, 400]]))  # (1/2 - 1/4) / (3/4 - 1/4)
    >>> [(e.candidate, round(e.share, 3), round(e.std_error, 3)) for e in decoding.estimates]
    [('linux', 0.5, 0.027), ('macos', 0.3, 0.027)]
    """
    chosen = replace(read_options(options, OptionFields), fabricated=fabricated)
    evidence = collect_evidence(summary, chosen)
    return decode_evidence(evidence, candidates, chosen, StringOptions(method, weights), progress)


def decode_evidence(
    evidence: Evidence,
    candidates: Iterable[str] | DesignMatrix | None,
    options: Options,
    strings: StringOptions = ALL_CANDIDATES,
    progress: Progress = ignore_progress,
) -> Decoding:
    """Decode evidence: the steps of `decode`, from counts to shares with intervals, tests and warnings."""
    strings.check_metric(evidence.metric)
    if options.fabricated or (strings.method == "lasso" and isinstance(evidence.source, PatternCounts)):
        evidence = evidence.as_bit_counts()
    progress("testing the goodness of fit", 0.0)
    tests = run_fit_tests(evidence.collected)
    decoding = operations_of(evidence.metric).decode(evidence, candidates, options, strings, progress)
    failed = warnings.failed_fit_tests(tests, evidence.counts)
    return replace(decoding, fit_tests=tests, warnings=(*decoding.warnings, *failed))


def collect_evidence(summary: Collected, options: Options) -> Evidence:
    """Evidence in the form that is fitted; raises SummaryError for a joint metric, and without a report."""
    evidence = Evidence(summary, options.same_clients)
    operations_of(evidence.metric).check_decodable()
    if evidence.num_reports == 0:
        raise SummaryError(
            f"{evidence.metric.name}: the summary holds no report, so no share can be estimated. Decode it when reports have arrived."
        )
    return evidence.as_fitted()
