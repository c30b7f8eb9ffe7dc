"""What to know before believing a decoding, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from hubbub.summary import BitCounts, Reports
from hubbub.summary.plausibility import TAIL, oddities, usual
from hubbub.text import counted, shown
from hubbub_decoder.data.combine import Collected
from hubbub_decoder.estimators.fit_result import FitResult
from hubbub_decoder.estimators.lasso_screening import Selection
from hubbub_decoder.estimators.reports import mixed_effects
from hubbub_decoder.inference.null_distribution import NullDistribution
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.estimates import FitTest

_FEW = 30
_FEW_COHORTS = 8
_HARDLY = 0.01
_SURE = 1e-6
_STANDARD_ERRORS = 4


def about_counts(counts: BitCounts) -> Iterator[str]:
    """Few reports, and reports that were refused."""
    n, m = counts.num_reports, len(counts.reports)
    if n < _FEW * m:
        across = "" if m == 1 else f" in {m} cohorts"
        yield f"only {counted(n, 'report')}{across}: intervals and tests lean on sums that are nearly normal"
    if counts.odd_refused:
        fewest, most = usual(counts.metric.params)
        yield (
            f"reports with fewer than {fewest} or more than {most} ones were refused, honest ones among them: at most {TAIL:.0e} of "
            f"all, so shares are off by at most {TAIL / abs(counts.metric.params.q_star - counts.metric.params.p_star):.0e}; "
            "a few clients are never heard"
        )


def about_parts(parts: Sequence[tuple[str, Collected]]) -> Iterator[str]:
    """Files, by name, that were added up and may hold the same reports."""
    before: list[tuple[str, BitCounts]] = []
    for name, part in parts if len(parts) > 1 else ():
        counts = part if isinstance(part, BitCounts) else part.bit_counts()
        for other, earlier in before:
            both = sorted({*counts.periods} & {*earlier.periods})
            known = counts.periods and earlier.periods
            same = (counts.reports == earlier.reports).all() and (counts.ones == earlier.ones).all()
            if counts.num_reports and same and (both or not known):
                yield f"{other} and {name} hold the same counts, which were added up: name each file once"
            elif both:
                yield (
                    f"{other} and {name} both hold reports of the period {both[0]}: whatever is in both was counted twice"
                )
        before.append((name, counts))


def about_candidates(design: DesignMatrix) -> Iterator[str]:
    """Candidates that look as if something were left of a table."""
    padded = [name for group in design.groups for name in group if name != name.strip()]
    if padded:
        start = "begins or ends" if len(padded) == 1 else "begin or end"
        yield f"{counted(len(padded), 'candidate')} {start} with a blank (such as {shown(repr(padded[0]))}), which the clients' strings must have as well"


def about_cohorts(counts: BitCounts, decoding: Decoding) -> Iterator[str]:
    """Too few cohorts to see how unlisted strings scatter over them."""
    used = int((counts.reports > 0).sum())
    if used < _FEW_COHORTS and not decoding.unlisted.high < _HARDLY:
        small = decoding.metric.params.num_cohorts < _FEW_COHORTS
        better = (
            f"a metric of {_FEW_COHORTS} cohorts or more avoids it" if small else "reports of more cohorts avoid it"
        )
        yield (
            f"estimated from {counted(used, 'cohort')}: so few hardly show how far unlisted strings scatter, and intervals may be "
            f"too narrow; {better}"
        )


def about_nothing_found(decoding: Decoding) -> Iterator[str]:
    """Values there are, but none of the candidates."""
    unlisted = decoding.unlisted
    if not decoding.detected and unlisted.share > _STANDARD_ERRORS * unlisted.std_error:
        scheme = decoding.metric.params.hash_scheme
        imported = "; a summary imported with a map of its own hashing needs that map" if scheme == "google-md5" else ""
        yield (
            f"nothing was found although {min(unlisted.share, 1):.0%} carry a value that is not listed: compare hash scheme, numbering of cohorts, and the "
            f"candidates' spelling, capitals and blanks with the clients'{imported}"
        )


def about_fit(tests: tuple[FitTest, ...], counts: BitCounts) -> Iterator[str]:
    """Reports that no strings give under these parameters; what a test of fit says, the watch of odd crowds does not say again."""
    failed = [test for test in tests if test.p_value < _SURE]
    said = {test.name for test in failed}
    for oddity in oddities(counts.metric.params, counts.outline()):
        if _SAME_AS.get(oddity.kind) not in said:
            yield oddity.about
    for test in failed:
        wrong, step = _MISFITS[test.name]
        chance = f"p = {test.p_value:.0e}" if test.p_value > 0 else "p < 1e-300"
        yield f"{wrong} ({chance}): {step}"


def about_merged(design: DesignMatrix, repeated: int) -> Iterator[str]:
    """Candidates given twice, and candidates that no report can tell apart."""
    if repeated:
        yield f"{counted(repeated, 'repetition')} among the candidates left out: each is tested once"
    alike = [group for group in design.groups if len(group) > 1]
    if alike:
        yield (
            f"{sum(map(len, alike)):,} candidates set the same bits as another in every cohort (such as "
            f"{' and '.join(shown(repr(name)) for name in alike[0][:2])}): each such group is one row, its share that of all of them"
        )


def about_selection(design: DesignMatrix, selection: Selection) -> Iterator[str]:
    """Candidates that were not fitted."""
    columns, fitted = len(design.groups), len(selection.columns)
    if fitted < columns:
        yield (
            f"{columns:,} candidates are more than these bit counts carry: a lasso chose {fitted:,} of them, and the others count "
            f"as unlisted: the total of the candidates is that of the chosen. {_HALVED if selection.independent else _WHOLE if fitted else _NONE}"
        )


def about_reports(reports: Reports | None, chosen: DesignMatrix) -> Iterator[str]:
    """Retained reports of which no more than their bit counts were fitted."""
    if reports is not None and not mixed_effects.within_size_limit(chosen):
        yield (
            f"the reports were retained but only their bit counts were fitted: the reports themselves say more, with {mixed_effects.MAX_CANDIDATES:,} "
            f"candidates at most, and there are {len(chosen.groups):,}; fewer candidates make errors smaller"
        )


def about_undetermined(number: int) -> Iterator[str]:
    """Candidates about which the reports say nothing."""
    if number:
        yield (
            f"the reports do not determine the shares of {counted(number, 'candidate')}: their bits are "
            "combinations of other candidates' bits, or their cohorts sent nothing"
        )


def about_totals(decoding: Decoding) -> Iterator[str]:
    """Candidates and unlisted strings that share out the values among them in any way."""
    if math.isnan(decoding.unlisted.share):
        yield (
            f"the reports do not determine which share {counted(len(decoding), 'candidate')} have together and which the strings that are not listed: so many "
            "strings hash alike that either may have sent these reports. The interval of each candidate stands; fewer candidates, more reports or more cohorts would tell"
        )


def about_errors(law: NullDistribution | None, unlisted: float) -> Iterator[str]:
    """A frequent string that nobody lists; unlisted : tau**2."""
    if law is not None and law.is_skewed:
        yield (
            f"a frequent string has no candidate: strings that are not listed scatter like one of {math.sqrt(unlisted):.0%} of the reports or more, and candidates that "
            "happen to share its bits look frequent. Intervals and tests allow for it and find less; add the frequent strings to the candidates"
        )


def about_masses(decoding: Decoding, fitted: FitResult | None = None) -> Iterator[str]:
    """Totals that no population can have, and bits that scatter more than any unlisted strings would."""
    if decoding.num_reports < _FEW * decoding.metric.params.num_cohorts:
        return
    explained, unlisted, without_value = decoding.explained, decoding.unlisted, decoding.without_value
    if explained.share + _STANDARD_ERRORS * explained.std_error < 0:
        yield f"the candidates together have a share of {explained.share:.1%}: {_WRONG}"
    if without_value.share + _STANDARD_ERRORS * without_value.std_error < 0:
        yield f"all values together have a share of {1 - without_value.share:.1%}: {_WRONG}"
    if unlisted.share + _STANDARD_ERRORS * unlisted.std_error < 0:
        yield f"strings without a candidate have a share of {unlisted.share:.1%}: {_WRONG}"
    if fitted is not None:
        largest = max(unlisted.share, 0) + _STANDARD_ERRORS * unlisted.std_error
        if fitted.unlisted_variance > largest**2 + _STANDARD_ERRORS * fitted.unlisted_variance_error:
            yield f"the bits scatter more than a share of {largest:.1%} of unlisted strings can explain: {_WRONG}"


_HALVED = (
    "Half of the cohorts chose and the other half were estimated from, which keeps the intervals true and costs precision; fewer "
    "candidates avoid it"
)
_WHOLE = (
    "The reports are of one cohort only, so the same reports chose and were estimated from: shares of the chosen tend to be too large and their "
    "intervals too narrow; fewer candidates avoid it"
)
_NONE = "More reports, or fewer candidates, would let it choose"
_WRONG = "a frequent string may have no candidate, the parameters or the hash scheme may not be those of the reports, or reports may be made up"
_COMPARE = "compare num_bits, num_hashes, prob_p, prob_q, prob_f and hash_scheme with those of the clients; if they are the same, reports are made up"
_SAME_AS = {"shape": "number of ones", "cohorts": "equal cohorts"}
"""The test of fit that looks at what an oddity looks at, once it has reports enough."""
_MISFITS = {
    "patterns": ("no strings in any shares give these patterns of bits", _COMPARE),
    "patterns of one cohort": (
        "no strings in any shares give the patterns of bits of some cohort",
        "its reports may be made up or of another definition",
    ),
    "number of ones": ("no strings in any shares give reports with so many and so few ones", _COMPARE),
    "equal cohorts": (
        "the cohorts are unequal beyond chance",
        "clients may be stuck in a cohort, or reports may be missing or made up",
    ),
    "ones by cohort": (
        "some cohorts' reports have more ones than others' beyond chance",
        "those reports may be made up or of another definition",
    ),
    "share with a value": ("reports have more ones, or fewer, than with and without a value", _COMPARE),
    "coincident hashes": (
        "hashes do not coincide as google-md5's do",
        "the clients may hash otherwise: compare hash_scheme and num_bits",
    ),
    "even bits": (
        "some bits are set more often than any hashing sets them",
        "compare num_bits and hash_scheme with those of the clients, and how bits are packed; or reports are made up",
    ),
}
