"""The decoder's pipeline on one page: summary + candidates -> design matrix -> screening -> fit -> inference -> decoding."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from hubbub.errors import SummaryError
from hubbub.metric import Kind
from hubbub.summary import BitCounts, PatternCounts
from hubbub_decoder import closed_form, doubts
from hubbub_decoder.answer import Answer, decoding_of
from hubbub_decoder.candidates import distinct_candidates
from hubbub_decoder.decoding import Decoding
from hubbub_decoder.design_matrix import DesignMatrix, design_matrix
from hubbub_decoder.errors import CandidateError
from hubbub_decoder.fit import Fit, fit
from hubbub_decoder.inference import among_reporters, p_values
from hubbub_decoder.screening import Selection, select


def decode(
    summary: BitCounts | PatternCounts,
    candidates: Iterable[str] | None = None,
    *,
    level: float = 0.95,
    fdr: float = 0.05,
) -> Decoding:
    """Estimate which share of those who reported has each candidate.

    summary    : bit or pattern counts with at least one report; of patterns the bit counts are used
    candidates : for a string metric, the strings to look for; otherwise all categories, or those of them to show
    level      : of the intervals, in (0, 1)
    fdr        : the share of false ones expected among the detected, in (0, 1)

    Raises SummaryError without reports, CandidateError for candidates that cannot be tested.

    >>> from hubbub.metric import Metric
    >>> os = Metric.categorical("os", ("linux", "macos"), prob_p=0.25, prob_q=0.75, prob_f=0)
    >>> decoding = decode(BitCounts(os, [1000], [[500, 400]]))  # (1/2 - 1/4) / (3/4 - 1/4)
    >>> [(e.candidate, round(e.share, 3), round(e.std_error, 3)) for e in decoding.estimates]
    [('linux', 0.5, 0.027), ('macos', 0.3, 0.027)]
    """
    for name, value in (("level", level), ("fdr", fdr)):
        if not 0 < value < 1:
            raise SummaryError(f"{name} must be in (0, 1), got {value}")
    counts = summary.bit_counts() if isinstance(summary, PatternCounts) else summary
    if counts.num_reports == 0:
        raise SummaryError(f"{counts.metric.name}: the summary holds no report: there is nothing to decode yet")
    if counts.metric.kind is Kind.STRING:
        return _decode_strings(counts, candidates, level, fdr)
    return _decode_categories(counts, candidates, level, fdr)


def _decode_strings(counts: BitCounts, candidates: Iterable[str] | None, level: float, fdr: float) -> Decoding:
    if candidates is None:
        raise CandidateError(
            f"{counts.metric.name}: a string metric is decoded for the strings you name: give candidates"
        )
    names, repeated = distinct_candidates(candidates)
    design = design_matrix(names, counts.metric.params)
    selection = select(counts, design)
    fitted = fit(selection.counts, design.take(selection.columns))
    answer = _answer(fitted, selection, design, counts.num_reports)
    decoding = decoding_of(answer, counts, level, fdr)
    warnings = (
        *doubts.about_counts(counts),
        *doubts.about_candidates(design, repeated, selection, int(np.isnan(answer.shares[selection.columns]).sum())),
        *doubts.about_masses(decoding, fitted),
    )
    return replace(decoding, warnings=warnings)


def _answer(fitted: Fit, selection: Selection, design: DesignMatrix, num_reports: int) -> Answer:
    """Say what the fit says about each candidate, those not fitted among them, and about the totals."""
    listed = len(selection.columns)
    single = np.eye(listed + 1)
    totals = np.vstack([1 - single[-1], single[-1], np.ones(listed + 1)])  # candidates, unlisted, both
    solution = np.append(fitted.shares, fitted.unlisted)

    known = fitted.identified(single)[:listed]
    variance = np.where(known, np.diag(fitted.covariance)[:listed], np.nan)
    rows = np.full((3, len(design.groups)), np.nan)
    rows[2] = np.nan if selection.independent else 1
    rows[:, selection.columns] = (
        np.where(known, fitted.shares, np.nan),
        np.sqrt(among_reporters(variance, fitted.shares, num_reports)),
        p_values(fitted.shares, np.sqrt(variance)),
    )

    total_variance = np.einsum("ij,jk,ik->i", totals, fitted.covariance, totals)
    errors = np.sqrt(among_reporters(total_variance, totals @ solution, num_reports))
    known_totals = np.where(fitted.identified(totals)[:, None], np.column_stack([totals @ solution, errors]), np.nan)
    return Answer(
        groups=design.groups,
        shares=rows[0],
        std_errors=rows[1],
        p_values=rows[2],
        totals=tuple((share, error) for share, error in known_totals.tolist()),
        null_error=float(np.sqrt(np.median(variance[known]))) if known.any() else np.inf,
    )


def _decode_categories(counts: BitCounts, candidates: Iterable[str] | None, level: float, fdr: float) -> Decoding:
    asked = None if candidates is None else distinct_candidates(candidates)[0]
    decoding = decoding_of(closed_form.solve(counts, asked), counts, level, fdr)
    return replace(decoding, warnings=(*doubts.about_counts(counts), *doubts.about_masses(decoding)))
