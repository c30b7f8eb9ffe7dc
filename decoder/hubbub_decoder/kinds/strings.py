"""String metrics: candidates -> design matrix -> screening -> fit -> inference -> decoding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import TypeVar

import numpy as np

from hubbub.errors import SummaryError
from hubbub.metrics.kinds import BlockKind, StringKind, Value
from hubbub.metrics.metric import Metric
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub.text import format_count, with_article
from hubbub_decoder.blas_threads import idle_blas_threads
from hubbub_decoder.data.candidates import distinct_candidates
from hubbub_decoder.data.populations import distribution_shares, draw_population
from hubbub_decoder.data.weights import group_weights, weight_strata
from hubbub_decoder.documents.finding import Finding
from hubbub_decoder.errors import CandidateError
from hubbub_decoder.estimators.counts import fit_bits, fit_patterns, is_crowded
from hubbub_decoder.estimators.fit_result import FitResult
from hubbub_decoder.estimators.lasso_screening import Selection, select_candidates
from hubbub_decoder.estimators.least_squares import fit_least_squares, use_fixed_effects
from hubbub_decoder.estimators.noise_cumulants import bit_noise_cumulants, pattern_noise_cumulants
from hubbub_decoder.estimators.reports.mixed_effects import fit_reports_mixed, within_size_limit
from hubbub_decoder.estimators.reports.one_step import fit_reports_one_step
from hubbub_decoder.estimators.unlisted_strings import UnlistedFit, fit_with_unlisted_strings
from hubbub_decoder.inference.intervals import unlisted_std_error
from hubbub_decoder.kinds.operations import Candidates, KindOperations, Positions
from hubbub_decoder.model.design_matrix import DesignMatrix, design_matrix
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.model.pattern_likelihood import count_filters, supports_pattern_likelihood
from hubbub_decoder.model.random_string import RandomFilters
from hubbub_decoder.model.vectorized_hashing import bit_positions, discovery_positions
from hubbub_decoder.options import ALL_CANDIDATES, Options, Progress, StringOptions, ignore_progress
from hubbub_decoder.results import warnings
from hubbub_decoder.results.build import build_decoding
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.diagnosis import Residuals
from hubbub_decoder.results.residuals import evidence_residuals
from hubbub_decoder.results.suggestions import Suggestion, other_spellings
from hubbub_decoder.results.unlisted_strings import build_unlisted_string, matching_words

_HASHING, _FITTING, _FITTING_AGAIN, _TESTING = 0.01, 0.05, 0.6, 0.8
"""Usual shares of the time before each stage, measured with 20,000 and 100,000 candidates."""
_MIN_AUDITED, _MAX_AUDITED = 8, 4_096
_MAX_FALSE_SUGGESTION = 1e-3  # probability of a suggestion if no spelling of a candidate was reported


K = TypeVar("K", bound=BlockKind)


class HashedOperations(KindOperations[K]):
    """Operations of a kind whose values are hashed, so that the analyst lists candidates."""

    def reason_to_skip(self, *, has_candidates: bool) -> str | None:
        return None if has_candidates else f"no candidates: add {self.metric.name}.txt to the directory of --candidates"

    def rows(self, candidates: Candidates) -> DesignMatrix:
        return hash_candidates(self.metric, candidates)[0]

    def draw(
        self, distribution: str, num_values: int | None, num_reports: int, rng: np.random.Generator
    ) -> dict[str, int]:
        return draw_population(distribution_shares(distribution, num_values or 100), num_reports, rng)


class StringOperations(HashedOperations[StringKind], of=StringKind):
    """Operations of a string metric."""

    def decode(
        self,
        evidence: Evidence,
        candidates: Candidates,
        options: Options,
        strings: StringOptions,
        progress: Progress,
    ) -> Decoding:
        progress("hashing the candidates", _HASHING)
        design, repeated = hash_candidates(self.metric, candidates)
        decoding = self._decode_design(evidence, design, repeated, options, strings, progress)
        return replace(decoding, suggestions=self._suggestions(evidence, design, decoding, options))

    def _suggestions(
        self, evidence: Evidence, design: DesignMatrix, decoding: Decoding, options: Options
    ) -> tuple[Suggestion, ...]:
        """Other spellings of candidates that have the bits of an unlisted string; if no candidate is detected, those that would be.

        A false one has probability at most 1/1,000 for each unlisted string, and at most 1/1,000 for the detected ones together.
        """
        nothing_detected = any(warnings.nothing_detected(decoding))
        if not decoding.unlisted_strings and not nothing_detected:
            return ()
        spellings = other_spellings([name for group in design.groups for name in group])
        if not spellings:
            return ()
        if nothing_detected:
            other, strictly = (
                hash_candidates(self.metric, list(spellings))[0],
                replace(options, fdr=_MAX_FALSE_SUGGESTION),
            )
            spelled = self._decode_design(evidence, other, 0, strictly, ALL_CANDIDATES, ignore_progress)
            found = [estimate.candidate for estimate in spelled.detected]
        else:
            words = list(spellings)
            found = [
                word
                for string in decoding.unlisted_strings
                for word in matching_words(string, words, self.metric.params)
            ]
        return tuple(spellings[word] for word in dict.fromkeys(found))

    def _decode_design(
        self,
        evidence: Evidence,
        design: DesignMatrix,
        repeated: int,
        options: Options,
        strings: StringOptions,
        progress: Progress,
    ) -> Decoding:
        whole = _whole_values(evidence)
        if strings.weights is not None:
            design = replace(design, strata=weight_strata(group_weights(strings.weights, design.groups)))
        selection = select_candidates(whole, design, method=strings.method, keep_all=_is_pattern_fit(whole))
        with idle_blas_threads(_largest_dimension(selection, design)):
            fit, unlisted = _fit(selection, design, progress)
        progress("testing the candidates", _TESTING)
        decoding = build_decoding(fit, design.groups, whole, options, design.strata)
        decoding = _with_collisions(decoding, selection.evidence)
        decoding = replace(
            decoding,
            lowest_detection_limit=_lowest_detection_limit(whole, fit, decoding),
            unlisted_strings=()
            if options.fabricated
            else tuple(build_unlisted_string(string, whole.params.num_bits, options) for string in unlisted),
            num_kept=None if len(selection.columns) == len(design.groups) else len(selection.columns),
        )
        residuals = evidence_residuals(whole, decoding, design)
        return replace(
            decoding,
            residuals=None if residuals is None else Residuals.of_array(residuals),
            warnings=_warnings(evidence, whole, design, repeated, selection, fit, decoding),
        )

    def other_command(self) -> str:
        return "" if self.kind.discover is None else "hubbub discover"

    def reason_to_skip(self, *, has_candidates: bool) -> str | None:
        if other := self.other_command():
            return f"the strings of a metric with `discover` are found by `{other}`"
        return super().reason_to_skip(has_candidates=has_candidates)

    def positions(self, values: Sequence[str]) -> Positions:
        if self.kind.discover is None:
            return bit_positions(values, self.metric.params)
        return discovery_positions(values, self.metric.params, self.kind.discover)

    def audited_values(self) -> list[Value]:
        """With `discover`, the first strings differ in their first symbol, so that their fragments differ in every group."""
        discover, params = self.kind.discover, self.metric.params
        strings: list[Value] = []
        # the last one collects the missing positions of coincident hashes
        covered = np.zeros(params.num_bits + 1, bool)
        for number in range(1, _MAX_AUDITED + 1):
            string = f"v{number}" if discover is None else f"{number}v"
            bits = self.positions([string]).ravel()
            if len(strings) < _MIN_AUDITED or not covered[bits].all():
                strings.append(string)
                covered[bits] = True
            if covered[:-1].all() and len(strings) >= _MIN_AUDITED:
                break
        return [*strings, None]


def _whole_values(evidence: Evidence) -> Evidence:
    """Evidence of the clients that report whole values, of which there must be some."""
    whole = evidence.held_out()
    if whole.num_reports == 0:
        raise SummaryError(
            f"{whole.metric.name}: the held-out group has no report, and the others report prefixes only. Decode when more reports have arrived."
        )
    return whole


def hash_candidates(metric: Metric, candidates: Candidates) -> tuple[DesignMatrix, int]:
    """Design matrix of the candidates and the number of repetitions among them."""
    if candidates is None:
        finds = " Without a list, `hubbub discover` finds frequent strings."
        without = finds if metric.kind.has_held_out_group else ""
        raise CandidateError(
            f"{metric.name}: {with_article(metric.kind.word)} metric can only be decoded for given strings. Pass candidates (--candidates FILE).{without}"
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


def _fit(selection: Selection, design: DesignMatrix, progress: Progress) -> tuple[FitResult, tuple[UnlistedFit, ...]]:
    """Fit the selected candidates, and search for frequent unlisted strings."""
    fits = count(1)

    def fit_again(columns: DesignMatrix) -> FitResult:
        number = next(fits)
        again = f", fit {number} with unlisted strings" if number > 1 else ""
        progress(
            f"estimating {format_count(len(columns.groups), 'share')}{again}",
            _FITTING if number == 1 else _FITTING_AGAIN,
        )
        return fit_columns(selection.evidence, columns)

    fit, unlisted = fit_with_unlisted_strings(selection.evidence, design.take(selection.columns), fit_again)
    left_out = math.nan if selection.independent else 1.0
    return fit.expand(selection.columns, len(design.groups), p_value=left_out), unlisted


def fit_columns(evidence: Evidence, kept: DesignMatrix) -> FitResult:
    """Fit the columns by the most precise estimator for this evidence and this number of columns.

    evidence                      | few candidates: fixed effects | many candidates: random effects, empirical Bayes
    PatternCounts (k <= 16)       |                         fit_patterns
    Reports (<= 1,500 candidates) | fit_reports_one_step          | fit_reports_mixed
    otherwise, their bit counts   | fit_least_squares             | fit_bits
    """
    if _is_pattern_fit(evidence):
        fit = fit_patterns(evidence, kept)
        return replace(fit, cumulants=pattern_noise_cumulants(evidence, kept, fit))
    fixed = use_fixed_effects(evidence, kept)
    if isinstance(evidence.source, Reports) and within_size_limit(kept) and not is_crowded(evidence, kept):
        return fit_reports_one_step(evidence, kept) if fixed else fit_reports_mixed(evidence, kept)
    fit = fit_least_squares(evidence, kept) if fixed else fit_bits(evidence, kept)
    return replace(fit, cumulants=bit_noise_cumulants(evidence, kept, fit))


def _lowest_detection_limit(evidence: Evidence, fit: FitResult, decoding: Decoding) -> float:
    """Detection limit with infinitely many reports, for tau**2 two standard errors below its estimate; 0 if that is below 0.

    Bit counts of a cohort have at most k independent numbers about the unlisted strings; patterns and reports have one for each filter.
    """
    params = evidence.params
    if isinstance(evidence.source, BitCounts):
        dimensions = params.num_bits - (params.hash_scheme != "google-md5")
    else:
        dimensions = count_filters(params) - 2  # without "no value", and the probabilities sum to 1
    surely = fit.nuisance.unlisted_variance - 2 * fit.nuisance.unlisted_variance_error
    error = unlisted_std_error(surely, evidence.num_used, dimensions)
    if not error or math.inf in (fit.null_error, decoding.detection_limit):
        return 0.0
    return decoding.detection_limit * min(error / fit.null_error, 1)


def _with_collisions(decoding: Decoding, tested: Evidence) -> Decoding:
    """Decoding with the probability that a random string has a candidate's bits in all cohorts, and an infinite limit if it is large.

    No test can tell such a string from the candidate. So a detection needs a larger p-value than this to say that the candidate was reported.

    tested : evidence of the cohorts that the tests use
    """
    probability = RandomFilters.from_params(tested.params).collision_probability(tested.num_used)
    decoding = replace(decoding, collision_probability=probability)
    return replace(decoding, detection_limit=math.inf) if decoding.is_ambiguous else decoding


def _largest_dimension(selection: Selection, design: DesignMatrix) -> int:
    """Largest dimension of a dense matrix in the fit: the number of shares; message passing has none."""
    evidence, kept = selection.evidence, design.take(selection.columns)
    has_matrix = isinstance(evidence.source, Reports) or use_fixed_effects(evidence, kept)
    return len(selection.columns) if has_matrix and not _is_pattern_fit(evidence) else 0


def _is_pattern_fit(evidence: Evidence) -> bool:
    """Whether the evidence is fitted as pattern counts."""
    return isinstance(evidence.source, PatternCounts) and supports_pattern_likelihood(evidence.params)


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
        *warnings.incomplete_reports(evidence.counts),
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
        *warnings.forged_reports_unknown(decoding),
    )
