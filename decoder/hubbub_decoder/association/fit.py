"""Fit of two or three parts of a joint metric: the checks of the arguments, and all estimates that tables are made of.

The steps: reports -> scores of each part (`components.py`) -> margins -> interactions and their tests -> joint shares and guess.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hubbub.errors import SummaryError
from hubbub.metrics.metric import Metric
from hubbub.summary import Reports
from hubbub_decoder.association.components import Components, Sample
from hubbub_decoder.association.dependence import Dependence, IndependenceTest, fit_dependence
from hubbub_decoder.association.joint_shares import JointShares, joint_shares
from hubbub_decoder.association.margins import MarginFit, fit_point
from hubbub_decoder.association.moments import CohortMoments, Subset, subsets
from hubbub_decoder.data.candidates import distinct_candidates
from hubbub_decoder.errors import CandidateError
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.options import Options

MAX_CELLS = {2: 2_500, 3: 1_000}
"""Largest table of two and of three parts: the information matrix has the square of the number of its cells as entries."""

MIN_REPORTS = 100


@dataclass(frozen=True, eq=False)
class PartsFit:
    """Estimates of two or three parts, in the order in which they were asked for."""

    evidence: Evidence
    options: Options
    sample: Sample
    moments: CohortMoments
    margins: tuple[MarginFit, ...]
    dependences: dict[Subset, Dependence]

    def names(self, parts: Subset) -> tuple[tuple[str, ...], ...]:
        """Names of the components of each part, candidates or categories first."""
        return tuple(self.sample.parts[part].names for part in parts)

    def test(self, parts: Subset) -> IndependenceTest:
        """Test of independence of some parts: the statistics and degrees of freedom of all of their subsets add up."""
        tests = [dependence.test for subset, dependence in self.dependences.items() if set(subset) <= set(parts)]
        if len(tests) == 1:
            return tests[0]
        return IndependenceTest.from_sum(
            sum(test.statistic for test in tests), sum(test.degrees_of_freedom for test in tests), tests[-1].kept
        )

    def joint(self, parts: Subset) -> JointShares:
        """Table of a subset of the parts."""
        of_reporters = self.options.target == "reporters"
        return joint_shares(self.sample, self.moments, self.margins, self.dependences, parts, of_reporters=of_reporters)


def fit_parts(
    reports: Reports,
    candidates: Mapping[str, Iterable[str]] | None,
    parts: Sequence[str] | None,
    options: Options,
) -> PartsFit:
    """Fit two or three parts, all of the metric by default.

    Raises SummaryError for reports and parts that cannot be associated, and CandidateError for candidates that cannot be used.
    """
    _check_reports(reports, options)
    evidence = Evidence(reports, options.same_clients)
    components = _components(evidence.metric, _choose(evidence.metric, parts), dict(candidates or {}))
    sample = Sample.from_reports(reports, components)
    indices = tuple(range(len(components)))
    moments = CohortMoments.of_sample(sample, [fit_point(sample, part) for part in indices])
    margins = tuple(map(moments.margin, indices))
    dependences = {subset: fit_dependence(moments, margins, subset) for subset in subsets(indices)}
    return PartsFit(evidence, options, sample, moments, margins, dependences)


def _check_reports(reports: object, options: Options) -> None:
    """Raise SummaryError for anything but enough reports of one joint metric that do not repeat."""
    if not isinstance(reports, Reports):
        raise SummaryError(
            f"reports must be Reports, got {type(reports).__name__}: counts of bits do not show which values came together. "
            "Retain the reports (`hubbub serve --keep-reports NAME=N`) and pull them (`hubbub pull --content reports`)."
        )
    metric = reports.metric
    if len(metric.blocks) == 1:
        raise SummaryError(
            f"{metric.name}: a {metric.kind} metric has no parts, so nothing can be associated. Use decode()."
        )
    if len(reports.periods) > 1 and options.same_clients:
        raise SummaryError(
            f"{metric.name}: the reports are of {len(reports.periods)} periods. Reports of one client repeat its permanent noise, which "
            "the test of independence would take for more clients. Pass one period, or same_clients=False if each has other clients."
        )
    if reports.num_reports < MIN_REPORTS:
        raise SummaryError(
            f"{metric.name}: only {reports.num_reports} reports. The intervals and the test use normal approximations that need "
            f"{MIN_REPORTS} at least. Wait for more reports."
        )


def _choose(metric: Metric, parts: Sequence[str] | None) -> tuple[Metric, ...]:
    """Return parts of a joint metric, all by default; raises SummaryError for another choice."""
    names = [part.name for part in metric.components]
    chosen = tuple(names if parts is None else parts)
    if not 2 <= len(chosen) == len(set(chosen)) or not set(chosen) <= set(names):
        wanted = "two" if len(names) == 2 else "two or three"
        raise SummaryError(
            f"{metric.name}: parts must be {wanted} of {', '.join(names)}, got {', '.join(map(str, chosen)) or 'none'}"
        )
    return tuple(metric.components[names.index(name)] for name in chosen)


def _components(
    metric: Metric, chosen: Sequence[Metric], candidates: Mapping[str, Iterable[str]]
) -> tuple[Components, ...]:
    names = [part.name for part in chosen]
    unknown = next((name for name in candidates if name not in names), None)
    if unknown is not None:
        raise CandidateError(
            f"{metric.name}: candidates were given for {unknown!r}, which is not one of the parts "
            f"{', '.join(names)}. Leave them out."
        )
    components = tuple(
        Components.of_part(part, distinct_candidates(candidates[part.name])[0] if part.name in candidates else None)
        for part in chosen
    )
    sizes, most = [len(of_part) for of_part in components], MAX_CELLS[len(components)]
    if math.prod(sizes) > most:
        raise CandidateError(
            f"{metric.name}: {' x '.join(map(str, sizes))} = {math.prod(sizes):,} combinations are more than {most:,}. Most of them "
            "could not be told from 0. Pass fewer candidates: those that `decode` of each part detects."
        )
    return components
