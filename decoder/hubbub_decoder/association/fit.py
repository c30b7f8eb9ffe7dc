"""Fit of two or three parts of a joint metric: the checks of the arguments, and all estimates that tables are made of.

The steps: reports -> scores of each part (`components.py`) -> margins -> interactions and their tests -> joint shares and guess.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hubbub.errors import SummaryError
from hubbub.metrics.metric import Kind, Metric
from hubbub.summary import Reports
from hubbub_decoder.association.components import Components, Sample
from hubbub_decoder.association.dependence import Dependence, fit_dependence
from hubbub_decoder.association.joint_shares import JointShares, joint_shares
from hubbub_decoder.association.margins import MarginFit, fit_point
from hubbub_decoder.association.moments import CohortMoments, Subset, subsets
from hubbub_decoder.data.candidates import distinct_candidates
from hubbub_decoder.errors import CandidateError

MAX_CELLS = {2: 2_500, 3: 1_000}
"""Largest table of two and of three parts: the information matrix has the square of the number of its cells as entries."""

MIN_REPORTS = 100


@dataclass(frozen=True, eq=False)
class PartsFit:
    """Estimates of two or three parts, in the order in which they were asked for."""

    sample: Sample
    moments: CohortMoments
    margins: tuple[MarginFit, ...]
    dependences: dict[Subset, Dependence]
    of_reporters: bool

    @classmethod
    def of_reports(
        cls,
        reports: Reports,
        chosen: Sequence[Metric],
        candidates: Mapping[str, Iterable[str]] | None,
        of_reporters: bool,
    ) -> PartsFit:
        """Fit the chosen parts; raises CandidateError for candidates that cannot be used."""
        components = _components(reports.metric, chosen, dict(candidates or {}))
        sample = Sample.from_reports(reports, components)
        parts = tuple(range(len(chosen)))
        moments = CohortMoments.of_sample(sample, [fit_point(sample, part) for part in parts])
        margins = tuple(map(moments.margin, parts))
        dependences = {subset: fit_dependence(moments, margins, subset) for subset in subsets(parts)}
        return cls(sample, moments, margins, dependences, of_reporters)

    def names(self, parts: Subset) -> tuple[tuple[str, ...], ...]:
        """Names of the components of each part, candidates or categories first."""
        return tuple(self.sample.parts[part].names for part in parts)

    def joint(self, parts: Subset) -> JointShares:
        """Table of a subset of the parts."""
        return joint_shares(
            self.sample, self.moments, self.margins, self.dependences, parts, of_reporters=self.of_reporters
        )


def check_arguments(
    reports: object, parts: Sequence[str] | None, number: int, confidence: float, target: str, same_clients: bool
) -> tuple[Metric, ...]:
    """Return `number` parts, the first ones by default; raises SummaryError for arguments that cannot be used."""
    if not isinstance(reports, Reports):
        raise SummaryError(
            f"reports must be Reports, got {type(reports).__name__}: counts of bits do not show which values came together. "
            "Retain the reports (`hubbub serve --keep-reports NAME=N`) and pull them (`hubbub pull --reports`)."
        )
    metric = reports.metric
    if metric.kind is not Kind.JOINT:
        raise SummaryError(
            f"{metric.name}: a {metric.kind} metric has no parts, so nothing can be associated. Use decode()."
        )
    names = [part.name for part in metric.parts]
    chosen = tuple(parts) if parts is not None else tuple(names[:number])
    if len(chosen) != number or len(set(chosen)) != number or not set(chosen) <= set(names):
        wanted = {2: "two", 3: "three"}[number]
        raise SummaryError(
            f"{metric.name}: parts must be {wanted} of {', '.join(names)}, got {', '.join(map(str, chosen)) or 'none'}"
        )
    if not 0 < confidence < 1:
        raise SummaryError(f"confidence must be a number in (0, 1), got {confidence!r}")
    if target not in ("reporters", "population"):
        raise SummaryError(f'target must be "reporters" or "population", got {target!r}')
    if len(reports.periods) > 1 and same_clients:
        raise SummaryError(
            f"{metric.name}: the reports are of {len(reports.periods)} periods. Reports of one client repeat its permanent noise, which "
            "the test of independence would take for more clients. Pass one period, or same_clients=False if each has other clients."
        )
    if reports.num_reports < MIN_REPORTS:
        raise SummaryError(
            f"{metric.name}: only {reports.num_reports} reports. The intervals and the test use normal approximations that need "
            f"{MIN_REPORTS} at least. Wait for more reports."
        )
    return tuple(metric.parts[names.index(name)] for name in chosen)


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
    sizes, most = [len(each) for each in components], MAX_CELLS[len(components)]
    if math.prod(sizes) > most:
        raise CandidateError(
            f"{metric.name}: {' x '.join(map(str, sizes))} = {math.prod(sizes):,} combinations are more than {most:,}. Most of them "
            "could not be told from 0. Pass fewer candidates: those that `decode` of each part detects."
        )
    return components
