"""Warnings about a decoding: sentences that state the finding with its number, its meaning and the remedy.

Each function yields zero or more warnings for `Decoding.warnings`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import ParamSpec

import numpy as np

from hubbub.summary import BitCounts, Reports
from hubbub.summary.plausibility import TAIL_PROBABILITY, find_implausible, plausible_ones
from hubbub.text import escape_untrusted, format_count
from hubbub_decoder.estimators.fit_result import FitResult
from hubbub_decoder.estimators.lasso_screening import MAX_CANDIDATES, Selection
from hubbub_decoder.estimators.reports import mixed_effects
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.distributions import norm
from hubbub_decoder.model.evidence import Collected
from hubbub_decoder.results.build import MAX_TOTAL_ERROR
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.estimates import FitTest

_P = ParamSpec("_P")

MIN_REPORTS_PER_COHORT = 30
MIN_COHORTS = 8
_MIN_UNLISTED_SHARE = 0.01
MAX_P_VALUE = 1e-6
_STANDARD_ERRORS = 4
_FALSE_ALARM = 0.01  # largest share of decodings in which a kind of warning is wrong
_LARGE_PART = 0.5


class DecodingWarning(str):
    """Sentence of `Decoding.warnings`, with a stable name of its kind."""

    __slots__ = ("kind",)
    kind: str

    def __new__(cls, text: str, kind: str) -> DecodingWarning:
        warning = super().__new__(cls, text)
        warning.kind = kind
        return warning

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # a str has one argument
        return str(self), self.kind


def _of_kind(kind: str) -> Callable[[Callable[_P, Iterator[str]]], Callable[_P, Iterator[str]]]:
    """Decorator that gives the warnings of a function their kind."""

    def decorate(function: Callable[_P, Iterator[str]]) -> Callable[_P, Iterator[str]]:
        @wraps(function)
        def warnings(*args: _P.args, **kwargs: _P.kwargs) -> Iterator[str]:
            for text in function(*args, **kwargs):
                yield DecodingWarning(text, kind)

        return warnings

    return decorate


@_of_kind("few_reports")
def warn_counts(counts: BitCounts) -> Iterator[str]:
    """Warn about too few reports for a normal approximation, and about reports that the aggregator rejected."""
    n, m = counts.num_reports, len(counts.reports)
    if n < MIN_REPORTS_PER_COHORT * m:
        across = "" if m == 1 else f" in {m} cohorts"
        yield (
            f"Only {format_count(n, 'report')}{across}. Intervals and p-values use a normal approximation that needs about "
            f"{MIN_REPORTS_PER_COHORT} reports per cohort. Decode at least {format_count(MIN_REPORTS_PER_COHORT * m, 'report')} of this metric."
        )
    if counts.implausible_rejected:
        params = counts.metric.params
        fewest, most = plausible_ones(params)
        yield (
            f"The aggregator rejected reports with fewer than {fewest} or more than {most} ones. Honest clients send such reports with "
            f"probability below {TAIL_PROBABILITY:.0e}, so shares are biased by at most {TAIL_PROBABILITY / abs(params.mechanism.q_star - params.mechanism.p_star):.0e}. "
            "To count these reports, run the aggregator without --reject-implausible."
        )


@_of_kind("repeated_inputs")
def warn_repeated_inputs(parts: Sequence[tuple[str, Collected]]) -> Iterator[str]:
    """Warn about files, given with their names, that may hold the same reports."""
    earlier_parts: list[tuple[str, BitCounts]] = []
    for name, part in parts if len(parts) > 1 else ():
        counts = part.bit_counts()
        for earlier_name, earlier in earlier_parts:
            shared_periods = sorted({*counts.periods} & {*earlier.periods})
            periods_known = counts.periods and earlier.periods
            equal = (counts.reports == earlier.reports).all() and (counts.ones == earlier.ones).all()
            if counts.num_reports and equal and (shared_periods or not periods_known):
                yield (
                    f"{earlier_name} and {name} hold the same counts, and both were added. Every report counts twice, so intervals are "
                    "too narrow. Name each file once."
                )
            elif shared_periods:
                yield (
                    f"{earlier_name} and {name} both hold reports of the period {shared_periods[0]}. Reports that are in both files "
                    "count twice. Use one file for each period."
                )
        earlier_parts.append((name, counts))


@_of_kind("padded_candidates")
def warn_padded_candidates(design: DesignMatrix) -> Iterator[str]:
    """Warn about candidates that begin or end with white space."""
    padded = [name for group in design.groups for name in group if name != name.strip()]
    if padded:
        verbs = "begins or ends" if len(padded) == 1 else "begin or end"
        yield (
            f"{format_count(len(padded), 'candidate')} {verbs} with white space (such as {escape_untrusted(repr(padded[0]))}). Such a candidate matches "
            "only reports of a string with the same white space. Remove it unless the clients' strings contain it."
        )


@_of_kind("few_cohorts")
def warn_few_cohorts(counts: BitCounts, decoding: Decoding) -> Iterator[str]:
    """Warn about too few cohorts to estimate the variance of unlisted strings, if there are such strings (at a level of 1 %)."""
    used, unlisted = int((counts.reports > 0).sum()), decoding.unlisted
    if used < MIN_COHORTS and unlisted.share > max(_MIN_UNLISTED_SHARE, norm.isf(_FALSE_ALARM) * unlisted.std_error):
        needed = MIN_COHORTS if decoding.num_kept is None else 2 * MIN_COHORTS  # screening uses half of the cohorts
        remedy = (
            f"Use a metric with {needed} or more cohorts (num_cohorts)."
            if decoding.metric.params.num_cohorts < needed
            else f"Decode reports of {needed} or more cohorts."
        )
        yield (
            f"Shares were estimated from only {format_count(used, 'cohort')}. The variance caused by unlisted strings is poorly estimated, "
            f"so intervals may be too narrow. {remedy}"
        )


@_of_kind("nothing_detected")
def warn_nothing_detected(decoding: Decoding) -> Iterator[str]:
    """Warn when no candidate is detected and more reports carry unlisted strings than candidates.

    The latter is tested at a level of 1 %: the standard error of the difference is at most the sum of both.
    """
    unlisted, listed = decoding.unlisted, decoding.listed_total
    error = norm.isf(_FALSE_ALARM) * (unlisted.std_error + listed.std_error)
    if not decoding.detected and unlisted.share - listed.share > error:
        scheme = decoding.metric.params.hash_scheme
        imported = " For imported data with its own hashing, pass the map (--map)." if scheme == "google-md5" else ""
        yield (
            f"No candidate was detected, although {min(unlisted.share, 1):.0%} of the reports carry an unlisted string. The frequent "
            "strings may be missing from the list, or the candidates may be encoded differently from the clients' strings. Add frequent "
            "strings to the candidates. Compare hash scheme, cohort numbering, spelling, upper and lower case, and white space with the "
            f"clients'.{imported}"
        )


@_of_kind("failed_fit_test")
def warn_failed_fit_tests(tests: tuple[FitTest, ...], counts: BitCounts) -> Iterator[str]:
    """Warn about goodness-of-fit tests with p < 1e-6, and about implausible reports that no such test covers."""
    failed = [test for test in tests if test.p_value < MAX_P_VALUE]
    failed_names = {test.name for test in failed}
    for found in find_implausible(counts.metric.params, counts.count_profile()):
        if _EQUIVALENT_TESTS.get(found.kind) not in failed_names:
            yield found.description
    for test in failed:
        finding, remedy = _FAILURES[test.name]
        p_value = f"p = {test.p_value:.0e}" if test.p_value > 0 else "p < 1e-300"
        yield f"{finding} ({p_value}). Estimates of this metric may be wrong. {remedy}"


@_of_kind("merged_candidates")
def warn_merged_candidates(design: DesignMatrix, repeated: int) -> Iterator[str]:
    """Warn about candidates that were given twice, and about candidates with equal bits in every cohort."""
    if repeated:
        yield (
            f"{format_count(repeated, 'candidate')} repeated an earlier one and {'was' if repeated == 1 else 'were'} ignored. Each string is "
            "tested once. Remove duplicates from the list to avoid this warning."
        )
    equal_groups = [group for group in design.groups if len(group) > 1]
    if equal_groups:
        yield (
            f"{sum(map(len, equal_groups)):,} candidates set the same bits as another one in every cohort (such as "
            f"{' and '.join(escape_untrusted(repr(name)) for name in equal_groups[0][:2])}). Each group of them is one row with the share of the "
            "whole group. To separate them, use a metric with more bits or more cohorts."
        )


def warn_separators(design: DesignMatrix) -> Iterator[str]:
    """Warn about candidates with a tab or line break inside, and about a list of which every candidate is in quotation marks."""
    names = [name for group in design.groups for name in group]
    broken = [name for name in names if not {"\t", "\r", "\n"}.isdisjoint(name)]
    if broken:
        yield (
            f"{format_count(len(broken), 'candidate')} {'contains' if len(broken) == 1 else 'contain'} a tab or a line break (such as "
            f"{escape_untrusted(repr(broken[0]))}). Candidate files are split at LF only. If these are several candidates, write one per line."
        )
    if len(names) > 1 and all(len(name) > 1 and name[0] == name[-1] == '"' for name in names):
        yield (
            f"All {len(names):,} candidates are in quotation marks (such as {escape_untrusted(repr(names[0]))}), which count as part of the "
            "string. Remove them, or use a .csv file with the header candidate."
        )


@_of_kind("header_line")
def warn_header_line(design: DesignMatrix, decoding: Decoding) -> Iterator[str]:
    """Warn when the first candidate looks like the header line of a file and was not detected."""
    first = design.groups[0][0]
    cells = re.split("[,;\t]", first.lower())
    if (
        len(decoding) > 1
        and not _HEADERS.isdisjoint(cell.strip(' "') for cell in cells)
        and not decoding[first].detected
    ):
        yield (
            f"The first candidate, {escape_untrusted(repr(first))}, looks like the header line of a file. It was tested like every "
            "other candidate, and was not detected. If it is a header, delete the line, or use a .csv file with the header candidate."
        )


@_of_kind("screening")
def warn_screening(design: DesignMatrix, selection: Selection, *, few_cohorts: bool = False) -> Iterator[str]:
    """Warn when a lasso left candidates out; few_cohorts : whether there are too few to call the intervals valid."""
    columns, kept = len(design.groups), len(selection.columns)
    if kept < columns:
        method = (
            _KEPT_BY_OTHER_COHORTS if selection.independent else _KEPT_BY_SAME_REPORTS if kept else _NONE_KEPT
        ).format(kept=f"{kept:,}", intervals="" if few_cohorts else ", so intervals stay valid but are wider")
        yield (
            f"{columns - kept:,} of {columns:,} candidates were left out. {method} The other candidates count as unlisted. "
            f'Up to {MAX_CANDIDATES:,} candidates of bit counts are all estimated, with method "auto". Pass no more than that to avoid this.'
        )


@_of_kind("unused_reports")
def warn_unused_reports(reports: Reports | None, kept: DesignMatrix) -> Iterator[str]:
    """Warn when the decoder used the bit counts of individual reports instead of the reports."""
    if reports is not None and not mixed_effects.within_size_limit(kept):
        yield (
            f"Only the bit counts of these reports were used, because there are {len(kept.groups):,} candidates. Decoding from the "
            f"individual reports gives smaller errors, but is limited to {mixed_effects.MAX_CANDIDATES:,} candidates. Pass fewer candidates."
        )


@_of_kind("undetermined_shares")
def warn_undetermined_shares(number: int) -> Iterator[str]:
    """Warn about candidates with undetermined shares; number is their count."""
    if number:
        yield (
            f"The shares of {format_count(number, 'candidate')} are not determined. Their bits are combinations of other candidates' bits, or "
            "their cohorts have no reports. Pass fewer candidates, or decode reports of more cohorts."
        )


@_of_kind("undetermined_totals")
def warn_undetermined_totals(decoding: Decoding, fit: FitResult) -> Iterator[str]:
    """Warn when listed total and unlisted share cannot be separated; more reports are advised only where they can separate them."""
    if math.isnan(decoding.unlisted.share):
        of_bits = math.isnan(fit.totals[0]) or (
            fit.crowding is not None and not fit.crowding.total_error <= MAX_TOTAL_ERROR
        )
        remedy = (
            "More reports do not change this. Pass fewer candidates, or use a metric with more cohorts or bits (num_cohorts, num_bits)."
            if of_bits
            else "Pass fewer candidates, or decode more reports or more cohorts."
        )
        yield (
            f"The listed total of {format_count(len(decoding), 'candidate')} and the unlisted share cannot be separated: the candidates' bits are "
            f"nearly a combination of those of random strings. Totals and posterior shares are null. Each candidate's own estimate is still valid. {remedy}"
        )


@_of_kind("unsubtracted_candidates")
def warn_unsubtracted_candidates(decoding: Decoding, fit: FitResult) -> Iterator[str]:
    """Warn when no candidate was subtracted from the others, and they cause more than half of the observations' variance."""
    crowding = fit.crowding
    if crowding is None or not (crowding.few_cohorts or crowding.unsettled) or not np.isfinite(fit.shares).any():
        return
    if crowding.part > _LARGE_PART:
        number, used = (
            format_count(len(decoding), "candidate"),
            format_count(crowding.cohorts, "cohort"),
        )
        reason = (
            f"{used} are too few to subtract {number} from each other"
            if crowding.few_cohorts
            else f"The estimation of {number} did not settle, because the bits of {used} cannot tell them apart"
        )
        yield (
            f"{reason}. So each candidate was estimated with all other strings as noise. Its interval is valid but wide: {crowding.part:.0%} of its "
            "variance comes from the other strings, and more reports do not lower that part. Use a metric with more cohorts or bits "
            "(num_cohorts, num_bits), or pass fewer candidates."
        )


@_of_kind("unlisted_strings")
def warn_unlisted_strings(decoding: Decoding) -> Iterator[str]:
    """Warn about the frequent unlisted strings that have a row of their own."""
    for string in decoding.unlisted_strings:
        one = string.num_strings == 1
        finding = (
            f"A string with {string.share:.1%} of the reports is not in the candidate list"
            if one
            else f"Two strings with {string.share:.1%} of the reports together are not in the candidate list"
        )
        owner, verb = ("Its", "it widens") if one else ("Their", "they widen")
        meaning = (
            f"{owner} share has a row in the table and does not widen the intervals of the candidates."
            if string.separated
            else f"{owner} bits are not certain in all cohorts, so {verb} the intervals of the candidates."
        )
        words = "which word it is" if one else "which words they are"
        yield (
            f"{finding}. {meaning} To find out {words}, pass a list of words (--more-candidates FILE, or Decoding.match_unlisted), "
            f"and add the {'match' if one else 'matches'} to the candidates."
        )


@_of_kind("impossible_totals")
def warn_impossible_totals(decoding: Decoding, fitted: FitResult | None = None) -> Iterator[str]:
    """Warn about totals below 0 or above 100 %, and about bits that vary more than the unlisted share permits."""
    if decoding.num_reports < MIN_REPORTS_PER_COHORT * decoding.metric.params.num_cohorts:
        return
    totals = (
        ("the listed total", decoding.listed_total),
        ("the share of reports without a value", decoding.no_value),
        ("the unlisted share", decoding.unlisted),
    )
    for name, total in totals:
        reach = _STANDARD_ERRORS * total.std_error
        side = "below 0" if total.share + reach < 0 else "above 100%" if total.share - reach > 1 else None
        if side is not None:
            yield f"The estimate of {name} is {total.share:.1%}, which is {side} by more than {_STANDARD_ERRORS} standard errors. {_MISMATCH}"
    if fitted is not None:
        largest = max(decoding.unlisted.share, 0) + _STANDARD_ERRORS * decoding.unlisted.std_error
        if fitted.unlisted_variance > largest**2 + _STANDARD_ERRORS * fitted.unlisted_variance_error:
            yield f"The bits vary more than an unlisted share of {largest:.1%} can explain. {_MISMATCH}"


_HEADERS = {"candidate", "candidates", "value", "values", "string", "strings", "name", "names"}
_KEPT_BY_OTHER_COHORTS = (
    "A lasso on half of the cohorts kept {kept}; shares were estimated from the other half{intervals}."
)
_KEPT_BY_SAME_REPORTS = (
    "A lasso kept {kept}. There is only one cohort, so shares were estimated from the same reports: kept candidates tend to have "
    "too large shares and too narrow intervals."
)
_NONE_KEPT = "A lasso kept none of them. More reports would let it keep some."
_MISMATCH = (
    "A frequent string may be missing from the candidates, the parameters or hash scheme may differ from the clients', or reports may "
    "be fabricated. Add frequent strings, and compare the definition with the clients'."
)
_COMPARE_DEFINITION = "Compare num_bits, num_hashes, prob_p, prob_q, prob_f (or permanent_p and permanent_q) and hash_scheme with the clients'; if they are equal, reports are fabricated."
_EQUIVALENT_TESTS = {"shape": "number_of_ones", "cohorts": "equal_cohorts"}
"""The goodness-of-fit test that covers the same deviation as a kind of implausible report."""
_FAILURES = {
    "patterns": ("No set of strings explains the reported bit patterns", _COMPARE_DEFINITION),
    "patterns_of_one_cohort": (
        "No set of strings explains the bit patterns of at least one cohort",
        "Its reports may be fabricated, or of another definition: compare the clients' definitions.",
    ),
    "number_of_ones": ("No set of strings explains the numbers of ones in the reports", _COMPARE_DEFINITION),
    "thresholds": (
        "More numbers reach high thresholds than low ones, in cohorts that differ by more than chance",
        "Check whether clients report 1 for a number at or above their threshold, and cohorts in ascending order of thresholds.",
    ),
    "equal_cohorts": (
        "The cohorts differ in size by more than chance",
        "Check whether clients keep a fixed cohort, whether reports are missing, or whether reports are fabricated.",
    ),
    "ones_by_cohort": (
        "Reports of some cohorts have more ones than those of others, by more than chance",
        "Those reports may be fabricated, or of another definition: compare the clients' definitions.",
    ),
    "share_with_value": (
        "The reports have more or fewer ones than any share of reports with a value explains",
        _COMPARE_DEFINITION,
    ),
    "coincident_hashes": (
        "The two hashes of a string coincide more or less often than those of google-md5",
        "The clients may use another hash function: compare hash_scheme and num_bits.",
    ),
    "even_bits": (
        "Some bits are set more often than uniform hashing allows",
        "Compare num_bits, hash_scheme and the order of the packed bits with the clients'; if they are equal, reports are fabricated.",
    ),
}
"""Finding and remedy of each goodness-of-fit test."""
