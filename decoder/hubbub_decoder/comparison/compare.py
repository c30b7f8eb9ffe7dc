"""Comparison of two samples on one page: decode both -> changes of the counts -> overlap -> fit -> tests -> comparison."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Unpack

import numpy as np

from hubbub.errors import ParameterError, SummaryError
from hubbub.metrics.metric import Metric
from hubbub.number_checks import check_number
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub_decoder.array_types import Flags, Floats
from hubbub_decoder.blas_threads import one_blas_thread
from hubbub_decoder.comparison.covariance import Sample, sampling_variance
from hubbub_decoder.comparison.fit import ChangeFit, fit_changes
from hubbub_decoder.comparison.results import Change, Comparison, Overlap
from hubbub_decoder.documents.finding import Finding, Severity
from hubbub_decoder.estimators.categories import fit_categories
from hubbub_decoder.inference.intervals import normal_interval
from hubbub_decoder.inference.multiple_testing import q_values
from hubbub_decoder.inference.null_distribution import NullDistribution
from hubbub_decoder.kinds.operations import operations_of
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.distributions import norm
from hubbub_decoder.model.evidence import Collected, Evidence, combine
from hubbub_decoder.model.repetition import CommonReports
from hubbub_decoder.options import DetectionFields, Target, read_options
from hubbub_decoder.pipeline import collect_evidence, decode_evidence
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.warnings import may_be_repeated


@one_blas_thread()
def compare(
    a: Collected | Sequence[Collected],
    b: Collected | Sequence[Collected],
    candidates: Iterable[str] | DesignMatrix | None = None,
    *,
    same_clients: bool = True,
    overlap: float | None = None,
    **options: Unpack[DetectionFields],
) -> Comparison:
    """Estimate how the share of each candidate changes from `a` to `b`.

    The two are periods, or groups of clients.

    Parameters
    ----------
    a, b
        Counts or reports of one definition, each with reports. A list is added up.
    candidates
        Strings to look for, or a design matrix of them. For a categorical metric, the categories to show (None: all).
    same_clients
        Whether clients of `a` may be in `b`. False: two groups, or two periods without a common client. Samples of the
        same periods are two groups in any case, since a client reports once in a period; but over several periods a
        client may move from one value of the metric's group to another.
    overlap
        Share in [0, 1] of the clients of the smaller sample that are in the other with the same value, if it is known.
        None: it is estimated from the reports, and taken as 0, with wider intervals, where they do not determine it.
    **options
        Keywords `confidence`, `fdr` and `target`, which `Options` describes.

    Returns
    -------
    Comparison
        Change of each candidate, with intervals and tests.

    Raises
    ------
    SummaryError
        The definitions differ in more than the value of their group, a sample has no reports, or the samples have some
        periods in common.
    ParameterError
        An argument is out of range.
    CandidateError
        The candidates cannot be tested.

    Notes
    -----
    Strings are compared by bit counts, in whatever form the reports are.
    """
    chosen = read_options(options, DetectionFields)
    first, second = (collect_evidence(collect(name, given), chosen) for name, given in (("a", a), ("b", b)))
    operations_of(first.metric).check_comparable()
    _check_pair(first.counts, second.counts, overlap, same_clients)
    known = _known_overlap(overlap, same_clients and _may_share_clients(first, second))
    names = operations_of(first.metric).rows(candidates)
    before, after = (decode_evidence(sample, names, chosen) for sample in (first, second))
    comparison = compare_decodings((first, second), (before, after), names, known)
    if not may_be_repeated(first.counts, second.counts):
        return comparison
    repeated = Finding(
        "repeated_inputs",
        "a and b hold the same counts. If they are the same reports, the changes of 0 say nothing.",
        "Pass two different samples.",
        severity=Severity.PROBLEM,
    )
    return replace(comparison, warnings=(repeated, *comparison.warnings))


def compare_decodings(
    evidence: tuple[Evidence, Evidence],
    decodings: tuple[Decoding, Decoding],
    candidates: Sequence[str] | DesignMatrix | None,
    known: Overlap | None,
) -> Comparison:
    """Comparison of two samples that are decoded already, with the decodings' confidence, false discovery rate and target.

    candidates : as they were decoded; a design matrix where they were hashed
    known      : the overlap; None: estimated from the reports
    """
    first, second = evidence
    metric = first.metric if first.metric.digest == second.metric.digest else first.metric.in_group(None)
    totals: tuple[Change, ...] = ()
    if not metric.kind.has_exclusive_values:
        found, changes = known or Overlap.unknown(), _item_rows(decodings)
    elif isinstance(candidates, DesignMatrix):
        first, second = first.held_out(), second.held_out()
        if not (first.used & second.used).any():
            raise SummaryError(
                f"{metric.name}: no cohort has reports in both a and b, so nothing can be compared. Compare larger samples."
            )
        before, after = (
            Sample(source, _expected(d, candidates)) for source, d in zip((first, second), decodings, strict=True)
        )
        fit = fit_changes(before, after, candidates, known)
        changes, found, totals = _string_changes(fit, candidates, decodings), fit.overlap, _totals(fit, decodings)
    else:
        found = known or Overlap.unknown()
        changes = _category_rows(first, second, decodings, found)
    return Comparison(
        metric=metric,
        a=decodings[0],
        b=decodings[1],
        confidence=decodings[0].confidence,
        fdr=decodings[0].fdr,
        target=decodings[0].target,
        changes=changes,
        totals=totals,
        overlap=found,
        same_clients=known is None or known.estimate > 0,
        warnings=_warnings(decodings),
    )


def collect(name: str, given: Collected | Sequence[Collected]) -> Collected:
    """Sum of the summaries of the sample `name`; raises SummaryError for anything else, and without a report."""
    parts = [given] if isinstance(given, BitCounts | PatternCounts | Reports) else given
    if not isinstance(parts, Sequence) or not all(
        isinstance(part, BitCounts | PatternCounts | Reports) for part in parts
    ):
        raise SummaryError(
            f"{name} must be BitCounts, PatternCounts, Reports or a list of them, got {type(given).__name__}: "
            "hubbub.summary.read_collected(path) reads whichever a file holds"
        )
    if not parts:
        raise SummaryError(
            f"{name} has no summary, so nothing can be compared. Pass at least one summary for a and for b."
        )
    collected = combine(list(parts))
    if collected.num_reports == 0:
        raise SummaryError(
            f"{collected.metric.name}: {name} holds no report, so no change can be estimated. Compare periods with reports."
        )
    return collected


def _check_pair(a: BitCounts, b: BitCounts, overlap: float | None, same_clients: bool) -> None:
    """Raise SummaryError for samples that cannot be compared, and for arguments out of range."""
    if a.metric.in_group(None).digest != b.metric.in_group(None).digest:
        raise SummaryError(
            f"a and b have different definitions: {a.metric.name} {a.metric.digest[:12]} and {b.metric.name} {b.metric.digest[:12]}. "
            "Only reports of one definition can be compared: decode each, and compare the shares yourself."
        )
    if not isinstance(same_clients, bool):
        raise ParameterError(f"same_clients must be True or False, got {same_clients!r}")
    if overlap is not None:
        check_number("overlap", overlap, "[0, 1]", hint="leave it out to estimate it")
    if overlap is not None and same_clients is False and overlap > 0:
        raise SummaryError(
            f"same_clients=False means that no client is in both samples, but overlap is {overlap!r}. Leave one of them out."
        )
    common = sorted({*a.periods} & {*b.periods})
    if a.metric.digest != b.metric.digest:
        if common and None in {sample.metric.group and sample.metric.group.value for sample in (a, b)}:
            raise SummaryError(
                f"{a.metric.name}: one of a and b has the reports of all groups, so those of the other count in both. Compare two values."
            )
        return
    if common and {*a.periods} != {*b.periods} and same_clients is not False:
        raise SummaryError(
            f"{a.metric.name}: a and b have {len(common)} common periods ({', '.join(common[:3])}), so reports may count in both. "
            "Remove these periods from one of them, or pass same_clients=False (--independent-clients) for two groups of clients."
        )


def _may_share_clients(a: Evidence, b: Evidence) -> bool:
    """Whether a client can have reported in both. It reports once in a period, and in several it may move between values of a group."""
    if set(a.periods) != set(b.periods) or not a.periods:
        return True
    return a.metric.digest != b.metric.digest and len(a.periods) > 1


def _known_overlap(overlap: float | None, same_clients: bool) -> Overlap | None:
    """Overlap that need not be estimated; None if it must be."""
    if overlap is not None:
        return Overlap.known(float(overlap))
    return None if same_clients else Overlap.known(0.0)


def _expected(decoding: Decoding, design: DesignMatrix) -> Floats:
    """Expected shares (M + 1,) of the candidates, in the order of the design, and of the unlisted strings."""
    means = {estimate.candidate: estimate.posterior_mean for estimate in decoding}
    shares = [means[group[0]] for group in design.groups]
    unlisted = decoding.unlisted.share
    if math.isnan(unlisted):
        unlisted = max(0.0, 1 - float(np.nansum(shares)))
    return np.asarray(np.nan_to_num([*shares, unlisted]), np.float64)


def _string_changes(fit: ChangeFit, design: DesignMatrix, decodings: Sequence[Decoding]) -> tuple[Change, ...]:
    """Tested changes of all groups of candidates."""
    result, confidence = fit.fit, decodings[0].confidence
    variances = result.variances if decodings[0].target == "population" else result.reporter_variances
    errors, d = np.sqrt(variances), result.shares
    known = np.isfinite(d) & np.isfinite(errors)
    sides = (result.tests, fit.decreases)
    one_sided, reaches = [], []
    for sign, side in zip((1, -1), sides, strict=True):
        null = side.null_distribution
        p = _tail(null, sign * d, errors)
        one_sided.append(np.where(side.retested, np.fmax(p, side.p_values), p))
        reaches.append(float(norm.isf((1 - confidence) / 2)) if null is None else null.quantile((1 - confidence) / 2))
    p = np.where(known, np.minimum(1, 2 * np.minimum(*one_sided)), np.nan)
    low, high = d - reaches[0] * errors, d + reaches[1] * errors
    low, high = _agree(d, low, high, p > 1 - confidence)
    return _rows([*design.groups], decodings, d, errors, (low, high), p)


def _tail(null: NullDistribution | None, d: Floats, errors: Floats) -> Floats:
    """P(error >= d); 0 where d > 0 has no error, and 1 where d = 0 has none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where((d == 0) & (errors == 0), 0.0, d / errors)
    tail: Floats = norm.sf(z) if null is None else null.tail(z)
    return tail


def _agree(d: Floats, low: Floats, high: Floats, kept: Flags) -> tuple[Floats, Floats]:
    """Intervals, widened to reach 0 where the test across cohorts does not reject 0."""
    reach = np.where(d > 0, d - low, high - d)
    factor = np.where(kept & ((low > 0) | (high < 0)), np.abs(d) / np.where(reach > 0, reach, 1), 1)
    return d - factor * (d - low), d + factor * (high - d)


def _category_rows(
    first: Evidence,
    second: Evidence,
    decodings: Sequence[Decoding],
    overlap: Overlap,
) -> tuple[Change, ...]:
    """Tested changes of all categories shown."""
    metric: Metric = first.metric
    names = [name for name in metric.kind.estimated_values if name in decodings[0]]
    pair = [
        Sample(evidence, np.array([decoding[name].share for name in names]))
        for evidence, decoding in zip((first, second), decodings, strict=True)
    ]
    d, variances = category_changes(pair[0], pair[1], names, overlap, decodings[0].target)
    return _normal_rows([(name,) for name in names], decodings, d, np.sqrt(variances))


def _item_rows(decodings: Sequence[Decoding]) -> tuple[Change, ...]:
    """Tested changes of all items of sets: differences of both decodings, with the sum of their variances.

    What both samples have in common, the noise that the same clients repeat and the buckets of unlisted items, has a positive covariance. It is
    not taken off, which is conservative.
    """
    groups = [estimate.group for estimate in decodings[0]]
    share, error = (
        np.array([[getattr(decoding[group[0]], field) for group in groups] for decoding in decodings])
        for field in ("share", "std_error")
    )
    return _normal_rows(groups, decodings, share[1] - share[0], np.sqrt((error**2).sum(axis=0)))


def _normal_rows(
    groups: Sequence[tuple[str, ...]], decodings: Sequence[Decoding], d: Floats, errors: Floats
) -> tuple[Change, ...]:
    """Tested changes with normal errors."""
    p = np.minimum(1, 2 * _tail(None, np.abs(d), errors))
    reach = float(norm.isf((1 - decodings[0].confidence) / 2)) * errors
    return _rows(groups, decodings, d, errors, (d - reach, d + reach), p)


def category_changes(
    before: Sample, after: Sample, selected: Sequence[str], overlap: Overlap, target: Target
) -> tuple[Floats, Floats]:
    """Changes (a,) of the shares of the selected categories, one bit each and no hashing, and their variances (a,).

        d_i = x_Bi - x_Ai        Var d_i among the reporters = Var x_Ai + Var x_Bi - 2 s min(N_A, N_B) / (n_A n_B) R G_i / (q* - p*)**2

    Each category has its own share, so no residual shows s: unless it is known, s = 0, which is conservative.
    docs/explanation/mathematics.md, section 19.

    before, after : with the expected shares (a,) of the selected categories
    """
    evidence, params = (before.evidence, after.evidence), before.evidence.params
    fits = [fit_categories(sample, selected) for sample in evidence]
    variances = fits[0].reporter_variances + fits[1].reporter_variances
    if target == "population":
        variances = variances + sampling_variance(before, after, overlap.low)
    x = [np.clip(fit.shares, 0, 1) for fit in fits]
    pairs = CommonReports.from_periods(evidence[0].metric, evidence[0].periods, evidence[1].periods).per_response
    # A client that moved to or from the category has another response.
    permanent = params.mechanism.noise_variances(np.minimum(*x))[1]
    clients = min(sample.num_clients for sample in evidence)
    reports = evidence[0].num_reports * evidence[1].num_reports
    common = 2 * clients * pairs * permanent / (reports * (params.mechanism.q_star - params.mechanism.p_star) ** 2)
    return fits[1].shares - fits[0].shares, np.maximum(variances - overlap.low * common, 0)


def _rows(
    groups: Sequence[tuple[str, ...]],
    decodings: Sequence[Decoding],
    changes: Floats,
    errors: Floats,
    interval: tuple[Floats, Floats],
    p: Floats,
) -> tuple[Change, ...]:
    """Tested changes of groups of candidates; p is nan where nothing is known."""
    known, fdr, confidence = np.isfinite(p), decodings[0].fdr, decodings[0].confidence
    q = np.full(len(p), np.nan)
    q[known] = q_values(p[known], fdr)
    shares = [{estimate.candidate: estimate.share for estimate in decoding} for decoding in decodings]
    rows = [
        Change(
            candidate=group[0],
            share_a=shares[0][group[0]],
            share_b=shares[1][group[0]],
            change=float(changes[i]),
            std_error=float(errors[i]),
            low=float(interval[0][i]),
            high=float(interval[1][i]),
            p_value=float(p[i]),
            q_value=math.nan,
            detected=None,
            indistinguishable_from=group[1:],
        )
        for i, group in enumerate(groups)
    ]
    return detect_changes(rows, q.tolist(), fdr, confidence)


def detect_changes(changes: Sequence[Change], q: Sequence[float], fdr: float, confidence: float) -> tuple[Change, ...]:
    """Changes with their q-values: detected ones first, then by size; what is not determined comes last."""
    rows = [
        replace(
            change,
            q_value=value,
            detected=None if math.isnan(value) else value <= fdr and change.p_value < 1 - confidence,
        )
        for change, value in zip(changes, q, strict=True)
    ]
    return tuple(sorted(rows, key=lambda row: (not row.detected, math.isnan(row.change), -abs(row.change))))


def _totals(fit: ChangeFit, decodings: Sequence[Decoding]) -> tuple[Change, ...]:
    """Changes of the share of all candidates, of the unlisted strings and of "no value"."""
    result, confidence = fit.fit, decodings[0].confidence
    variances = result.total_variances if decodings[0].target == "population" else result.total_reporter_variances
    sizes = result.totals * np.array([1, 1, -1])  # "no value" is the rest to 1
    names = ("listed_total", "unlisted", "no_value")
    rows = []
    for name, change, error in zip(names, sizes.tolist(), np.sqrt(variances).tolist(), strict=True):
        low, high = normal_interval(change, error, confidence)
        p = min(1.0, 2 * float(norm.sf(abs(change) / error))) if error > 0 else math.nan
        shares = [getattr(decoding, name).share for decoding in decodings]
        rows.append(Change(name, shares[0], shares[1], change, error, low, high, p, math.nan, detected=None))
    return tuple(rows)


def _warnings(decodings: Sequence[Decoding]) -> tuple[Finding, ...]:
    """Warnings of both decodings, each with the name of its sample; one that both have is listed once."""
    first, second = (decoding.warnings for decoding in decodings)
    named = (
        *(("a and b", warning) for warning in first if warning in second),
        *(("a", warning) for warning in first if warning not in second),
        *(("b", warning) for warning in second if warning not in first),
    )
    return tuple(replace(warning, text=f"{name}: {warning.text}") for name, warning in named)
