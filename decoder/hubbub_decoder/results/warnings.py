"""Findings about a decoding. Each function yields the findings of its name, zero or more, for `Decoding.warnings`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from hubbub.summary import BitCounts, Reports
from hubbub.summary.plausibility import TAIL_PROBABILITY, find_implausible, plausible_ones
from hubbub.text import escape_untrusted, format_count
from hubbub_decoder.documents.document import UNLISTED_STRINGS
from hubbub_decoder.documents.finding import Finding, Severity
from hubbub_decoder.estimators.fit_result import FitResult
from hubbub_decoder.estimators.lasso_screening import MAX_CANDIDATES, Selection
from hubbub_decoder.estimators.reports import mixed_effects
from hubbub_decoder.inference.goodness_of_fit import FitTest
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.distributions import norm
from hubbub_decoder.model.evidence import Collected
from hubbub_decoder.results.build import MAX_TOTAL_ERROR
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.diagnosis import FAILED_FIT_TEST

MIN_REPORTS_PER_COHORT = 30
MIN_COHORTS = 8
_MIN_UNLISTED_SHARE = 0.01
MAX_P_VALUE = 1e-6
_STANDARD_ERRORS = 4
_FALSE_ALARM = 0.01  # largest share of decodings in which a kind of warning is wrong
_LARGE_PART = 0.5


def incomplete_reports(counts: BitCounts) -> Iterator[Finding]:
    """What is missing from the reports of any kind: there are few, or some were rejected or left out."""
    yield from few_reports(counts)
    yield from rejected_reports(counts)
    yield from dropped_rows(counts)


def few_reports(counts: BitCounts) -> Iterator[Finding]:
    """Too few reports for a normal approximation."""
    n, m = counts.num_reports, len(counts.reports)
    if n < MIN_REPORTS_PER_COHORT * m:
        across = "" if m == 1 else f" in {m} cohorts"
        yield Finding(
            "few_reports",
            f"Only {format_count(n, 'report')}{across}. Intervals and p-values use a normal approximation that needs about "
            f"{MIN_REPORTS_PER_COHORT} reports per cohort.",
            f"Decode at least {format_count(MIN_REPORTS_PER_COHORT * m, 'report')} of this metric.",
        )


def rejected_reports(counts: BitCounts) -> Iterator[Finding]:
    """Reports that the aggregator rejected because of their number of ones."""
    params = counts.metric.params
    fewest, most = plausible_ones(params.blocks)
    if counts.implausible_rejected and fewest < most:  # else no genuine report was rejected
        yield Finding(
            "rejected_reports",
            f"The aggregator rejected reports with fewer than {fewest} or more than {most} ones. Honest clients send such reports with "
            f"probability below {TAIL_PROBABILITY:.0e}, so shares are biased by at most {TAIL_PROBABILITY / abs(params.mechanism.q_star - params.mechanism.p_star):.0e}.",
            "To count these reports, run the aggregator without --reject-implausible.",
            severity=Severity.NOTE,
        )


def dropped_rows(collected: Collected) -> Iterator[Finding]:
    """Rows of another collector's file that are no reports."""
    rows = sum(collected.dropped_rows.values())
    if rows:
        yield Finding(
            "dropped_rows",
            f"{format_count(rows, 'row')} of the imported file {'was' if rows == 1 else 'were'} left out as invalid, {rows / (rows + collected.num_reports):.1%} of all: "
            f"{rows_by_reason(collected.dropped_rows)}. Shares are of the reports that are left.",
            "If the rows of some clients are invalid more often than others, repair the file.",
            severity=Severity.NOTE,
        )


def rows_by_reason(dropped: Mapping[str, int]) -> str:
    """Return the numbers of rows in words.

    >>> rows_by_reason({"invalid bits": 2, "other columns": 1}), rows_by_reason({})
    ('2 rows with invalid bits, 1 row with other columns', 'no rows')
    """
    parts = (f"{format_count(rows, 'row')} with {escape_untrusted(reason)}" for reason, rows in dropped.items())
    return ", ".join(parts) or "no rows"


def forged_reports_unknown(decoding: Decoding) -> Iterator[Finding]:
    """Detected candidates without a number of forged reports."""
    unknown = sum(estimate.forged_reports_needed is None for estimate in decoding.detected)
    if unknown:
        yield Finding(
            "forged_reports_unknown",
            f"No number of forged reports for {unknown:,} of {format_count(len(decoding.detected), 'detected candidate')}: in fewer "
            "than 16 cohorts, or with so many strings for the bits, forged reports change how those of others are weighted.",
            "Pass fewer candidates, or use a metric with more cohorts or bits (num_cohorts, num_bits).",
            severity=Severity.NOTE,
        )


def repeated_inputs(parts: Sequence[tuple[str, Collected]]) -> Iterator[Finding]:
    """Files, given with their names, that may hold the same reports."""
    earlier_parts: list[tuple[str, BitCounts]] = []
    for name, part in parts if len(parts) > 1 else ():
        counts = part.bit_counts()
        for earlier_name, earlier in earlier_parts:
            if counts.metric.digest != earlier.metric.digest:
                continue  # values of a group: no report has two
            shared_periods = sorted({*counts.periods} & {*earlier.periods})
            if counts.num_reports and may_be_repeated(earlier, counts):
                yield Finding(
                    "repeated_inputs",
                    f"{earlier_name} and {name} hold the same counts, and both were added. Every report counts twice, so intervals are too narrow.",
                    "Name each file once.",
                    severity=Severity.PROBLEM,
                )
            elif shared_periods:
                yield Finding(
                    "repeated_inputs",
                    f"{earlier_name} and {name} both hold reports of the period {shared_periods[0]}. Reports that are in both files count twice.",
                    "Use one file for each period.",
                )
        earlier_parts.append((name, counts))


def may_be_repeated(first: BitCounts, second: BitCounts) -> bool:
    """Whether two summaries may hold the same reports: they have equal counts, and neither a period nor a value of a group tells them apart."""
    periods_known = first.periods and second.periods
    return (
        first.metric.digest == second.metric.digest
        and (not periods_known or not {*first.periods}.isdisjoint(second.periods))
        and np.array_equal(first.reports, second.reports)
        and np.array_equal(first.ones, second.ones)
    )


def padded_candidates(design: DesignMatrix) -> Iterator[Finding]:
    """Candidates that begin or end with white space."""
    padded = [name for group in design.groups for name in group if name != name.strip()]
    if padded:
        verbs = "begins or ends" if len(padded) == 1 else "begin or end"
        yield Finding(
            "padded_candidates",
            f"{format_count(len(padded), 'candidate')} {verbs} with white space (such as {escape_untrusted(repr(padded[0]))}). Such a candidate matches "
            "only reports of a string with the same white space.",
            "Remove it unless the clients' strings contain it.",
        )


def few_cohorts(counts: BitCounts, decoding: Decoding) -> Iterator[Finding]:
    """Too few cohorts to estimate the variance of unlisted strings, if there are such strings (at a level of 1 %)."""
    used, unlisted = int((counts.reports > 0).sum()), decoding.unlisted
    if used < MIN_COHORTS and unlisted.share > max(_MIN_UNLISTED_SHARE, norm.isf(_FALSE_ALARM) * unlisted.std_error):
        needed = MIN_COHORTS if decoding.num_kept is None else 2 * MIN_COHORTS  # screening uses half of the cohorts
        remedy = (
            f"Use a metric with {needed} or more cohorts (num_cohorts)."
            if decoding.metric.params.num_cohorts < needed
            else f"Decode reports of {needed} or more cohorts."
        )
        yield Finding(
            "few_cohorts",
            f"Shares were estimated from only {format_count(used, 'cohort')}. The variance caused by unlisted strings is poorly estimated, "
            "so intervals may be too narrow.",
            remedy,
        )


def nothing_detected(decoding: Decoding) -> Iterator[Finding]:
    """No candidate is detected, and more reports carry unlisted strings than candidates.

    The latter is tested at a level of 1 %: the standard error of the difference is at most the sum of both.
    """
    unlisted, listed = decoding.unlisted, decoding.listed_total
    error = norm.isf(_FALSE_ALARM) * (unlisted.std_error + listed.std_error)
    if not decoding.detected and unlisted.share - listed.share > error:
        imported = (
            ""
            if decoding.metric.params.scheme.is_collectable
            else " For imported data with its own hashing, pass the map to `hubbub decode --map`."
        )
        yield Finding(
            "nothing_detected",
            f"No candidate was detected, although {min(unlisted.share, 1):.0%} of the reports carry an unlisted string. The frequent "
            "strings may be missing from the list, or the candidates may be encoded differently from the clients' strings.",
            "Add frequent strings to the candidates. Compare hash scheme, cohort numbering, spelling, upper and lower case, and white "
            f"space with the clients'.{imported}",
        )


def failed_fit_tests(tests: tuple[FitTest, ...], counts: BitCounts) -> Iterator[Finding]:
    """Goodness-of-fit tests with p < 1e-6, and implausible reports that no such test covers."""
    failed = [test for test in tests if test.p_value < MAX_P_VALUE]
    failed_names = {test.name for test in failed}
    for found in find_implausible(counts.metric.blocks, counts.count_profile()):
        if _EQUIVALENT_TESTS.get(found.kind) not in failed_names:
            yield Finding(FAILED_FIT_TEST, found.description, severity=Severity.PROBLEM)
    for test in failed:
        failure, remedy = FAILURES[test.name]
        p_value = f"p = {test.p_value:.0e}" if test.p_value > 0 else "p < 1e-300"
        yield Finding(
            FAILED_FIT_TEST,
            f"{failure} ({p_value}). Estimates of this metric may be wrong.",
            remedy,
            severity=Severity.PROBLEM,
        )


def repeated_candidates(number: int) -> Iterator[Finding]:
    """Candidates that were given twice; number is their count."""
    if number:
        yield Finding(
            "repeated_candidates",
            f"{format_count(number, 'candidate')} repeated an earlier one and {'was' if number == 1 else 'were'} ignored. Each string is tested once.",
            "Remove duplicates from the list to avoid this warning.",
            severity=Severity.NOTE,
        )


def merged_candidates(design: DesignMatrix) -> Iterator[Finding]:
    """Candidates with equal bits in every cohort."""
    equal_groups = [group for group in design.groups if len(group) > 1]
    if equal_groups:
        yield Finding(
            "merged_candidates",
            f"{sum(map(len, equal_groups)):,} candidates set the same bits as another one in every cohort (such as "
            f"{' and '.join(escape_untrusted(repr(name)) for name in equal_groups[0][:2])}). Each group of them is one row with the share of the whole group.",
            "To separate them, use a metric with more bits or more cohorts.",
            severity=Severity.NOTE,
        )


def unsplit_candidates(design: DesignMatrix) -> Iterator[Finding]:
    """Candidates with a tab or a line break inside."""
    unsplit = [name for group in design.groups for name in group if not {"\t", "\r", "\n"}.isdisjoint(name)]
    if unsplit:
        yield Finding(
            "unsplit_candidates",
            f"{format_count(len(unsplit), 'candidate')} {'contains' if len(unsplit) == 1 else 'contain'} a tab or a line break (such as "
            f"{escape_untrusted(repr(unsplit[0]))}). Candidate files are split at LF only.",
            "If these are several candidates, write one per line.",
        )


def quoted_candidates(design: DesignMatrix) -> Iterator[Finding]:
    """A list of which every candidate is in quotation marks."""
    names = [name for group in design.groups for name in group]
    if len(names) > 1 and all(len(name) > 1 and name[0] == name[-1] == '"' for name in names):
        yield Finding(
            "quoted_candidates",
            f"All {len(names):,} candidates are in quotation marks (such as {escape_untrusted(repr(names[0]))}), which count as part of the string.",
            "Remove them, or use a .csv file with the header candidate.",
        )


def header_line(design: DesignMatrix, decoding: Decoding) -> Iterator[Finding]:
    """The first candidate looks like the header line of a file and was not detected."""
    first = design.groups[0][0]
    cells = re.split("[,;\t]", first.lower())
    if (
        len(decoding) > 1
        and not _HEADERS.isdisjoint(cell.strip(' "') for cell in cells)
        and not decoding[first].detected
    ):
        yield Finding(
            "header_line",
            f"The first candidate, {escape_untrusted(repr(first))}, looks like the header line of a file. It was tested like every "
            "other candidate, and was not detected.",
            "If it is a header, delete the line, or use a .csv file with the header candidate.",
        )


def screened_candidates(design: DesignMatrix, selection: Selection) -> Iterator[Finding]:
    """Candidates that a lasso left out; with few cohorts, the intervals of the others are not called valid."""
    columns, kept = len(design.groups), len(selection.columns)
    if kept < columns:
        method = (
            _KEPT_BY_OTHER_COHORTS if selection.independent else _KEPT_BY_SAME_REPORTS if kept else _NONE_KEPT
        ).format(
            kept=f"{kept:,}",
            intervals="" if selection.evidence.num_used < MIN_COHORTS else ", so intervals stay valid but are wider",
        )
        yield Finding(
            "screened_candidates",
            f"{columns - kept:,} of {columns:,} candidates were left out. {method} The other candidates count as unlisted.",
            f'Up to {MAX_CANDIDATES:,} candidates of bit counts are all estimated, with method "auto". Pass no more than that to avoid this.',
            severity=Severity.NOTE if selection.independent or not kept else Severity.WARNING,
        )


def unused_reports(reports: Reports | None, kept: DesignMatrix) -> Iterator[Finding]:
    """Individual reports of which the decoder used the bit counts only."""
    if reports is not None and not mixed_effects.within_size_limit(kept):
        yield Finding(
            "unused_reports",
            f"Only the bit counts of these reports were used, because there are {len(kept.groups):,} candidates. Decoding from the "
            f"individual reports gives smaller errors, but is limited to {mixed_effects.MAX_CANDIDATES:,} candidates.",
            "Pass fewer candidates.",
            severity=Severity.NOTE,
        )


def undetermined_shares(number: int) -> Iterator[Finding]:
    """Candidates with undetermined shares; number is their count."""
    if number:
        yield Finding(
            "undetermined_shares",
            f"The shares of {format_count(number, 'candidate')} are not determined. Their bits are combinations of other candidates' bits, or "
            "their cohorts have no reports.",
            "Pass fewer candidates, or decode reports of more cohorts.",
        )


def undetermined_totals(decoding: Decoding, fit: FitResult) -> Iterator[Finding]:
    """Listed total and unlisted share that cannot be separated; more reports are advised only where they can separate them."""
    if math.isnan(decoding.listed_total.share + decoding.unlisted.share) and not decoding.fabricated:
        crowding = fit.nuisance.crowding
        of_bits = math.isnan(fit.totals[0]) or (crowding is not None and not crowding.total_error <= MAX_TOTAL_ERROR)
        remedy = (
            "More reports do not change this. Pass fewer candidates, or use a metric with more cohorts or bits (num_cohorts, num_bits)."
            if of_bits
            else "Pass fewer candidates, or decode more reports or more cohorts."
        )
        yield Finding(
            "undetermined_totals",
            f"The listed total of {format_count(len(decoding), 'candidate')} and the unlisted share cannot be separated: the candidates' bits are "
            "nearly a combination of those of random strings. Totals and posterior shares are null. Each candidate's own estimate is still valid.",
            remedy,
        )


def unsubtracted_candidates(decoding: Decoding, fit: FitResult) -> Iterator[Finding]:
    """No candidate was subtracted from the others, and they cause more than half of the observations' variance."""
    crowding = fit.nuisance.crowding
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
        yield Finding(
            "unsubtracted_candidates",
            f"{reason}. So each candidate was estimated with all other strings as noise. Its interval is valid but wide: {crowding.part:.0%} of its "
            "variance comes from the other strings, and more reports do not lower that part.",
            "Use a metric with more cohorts or bits (num_cohorts, num_bits), or pass fewer candidates.",
        )


def unlisted_strings(decoding: Decoding) -> Iterator[Finding]:
    """Frequent unlisted strings that have a row of their own."""
    for string in decoding.unlisted_strings:
        one = string.num_strings == 1
        missing = (
            f"A string with {string.share:.1%} of the reports is not in the candidate list"
            if one
            else f"Two strings with {string.share:.1%} of the reports together are not in the candidate list"
        )
        owner, verb = ("Its", "it widens") if one else ("Their", "they widen")
        meaning = (
            f"{owner} share is estimated on its own and does not widen the intervals of the candidates."
            if string.separated
            else f"{owner} bits are not certain in all cohorts, so {verb} the intervals of the candidates."
        )
        words = "which word it is" if one else "which words they are"
        yield Finding(
            UNLISTED_STRINGS,
            f"{missing}. {meaning}",
            f"To find out {words}, compare a list of words, and add the {'match' if one else 'matches'} to the candidates.",
            severity=Severity.NOTE if string.separated else Severity.WARNING,
        )


def impossible_totals(decoding: Decoding, fitted: FitResult | None = None) -> Iterator[Finding]:
    """Totals below 0 or above 100 %, and bits that vary more than the unlisted share permits."""
    if decoding.num_reports < MIN_REPORTS_PER_COHORT * decoding.metric.params.num_cohorts:
        return
    reason, remedy = _MISMATCH if decoding.metric.kind.needs_candidates else _MISMATCH_OF_KNOWN_VALUES
    kind, share = decoding.metric.kind, (".1%", 1, "100%")
    of_items = (".3g", len(kind.named_values), str(len(kind.named_values)))
    totals = (
        ("the listed total", decoding.listed_total, share)
        if kind.has_exclusive_values
        else (f"the mean number of {kind.value_nouns} of a client", decoding.listed_total, of_items),
        ("the share of reports without a value", decoding.no_value, share),
        ("the unlisted share", decoding.unlisted, share),
    )
    for name, total, (form, most, shown_most) in totals:
        reach = _STANDARD_ERRORS * total.std_error
        above = f"above {shown_most}" if total.share - reach > most else None
        side = "below 0" if total.share + reach < 0 else above
        if side is not None:
            text = f"The estimate of {name} is {total.share:{form}}, which is {side} by more than {_STANDARD_ERRORS} standard errors."
            yield Finding("impossible_totals", f"{text} {reason}", remedy, severity=Severity.PROBLEM)
    if fitted is not None and not decoding.fabricated:
        largest = max(decoding.unlisted.share, 0) + _STANDARD_ERRORS * decoding.unlisted.std_error
        variance, error = fitted.nuisance.unlisted_variance, fitted.nuisance.unlisted_variance_error
        if variance > largest**2 + _STANDARD_ERRORS * error:
            text = f"The bits vary more than an unlisted share of {largest:.1%} can explain."
            yield Finding("impossible_totals", f"{text} {reason}", remedy, severity=Severity.PROBLEM)


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
    "A frequent string may be missing from the candidates, the parameters or hash scheme may differ from the clients', or reports may be fabricated.",
    "Add frequent strings, and compare the definition with the clients'.",
)
_MISMATCH_OF_KNOWN_VALUES = (
    "The parameters may differ from the clients', or reports may be fabricated.",
    "Compare the definition with the clients'.",
)
_COMPARE_DEFINITION = "Compare num_bits, num_hashes, hash_scheme and the probabilities of the definition with the clients'; if they are equal, reports are fabricated."
_EQUIVALENT_TESTS = {"shape": "number_of_ones", "cohorts": "equal_cohorts"}
"""The goodness-of-fit test that covers the same deviation as a kind of implausible report."""
FAILURES = {
    "patterns": ("No set of values explains the reported bit patterns", _COMPARE_DEFINITION),
    "patterns_of_one_cohort": (
        "No set of values explains the bit patterns of at least one cohort",
        "Its reports may be fabricated, or of another definition: compare the clients' definitions.",
    ),
    "number_of_ones": ("No set of values explains the numbers of ones in the reports", _COMPARE_DEFINITION),
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
"""Failure and remedy of each goodness-of-fit test."""
