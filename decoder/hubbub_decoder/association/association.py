"""Associations of two parts of a joint metric: `associate`, and the result that it returns.

The steps: reports -> scores of each part (`components.py`) -> margins -> dependence and its test -> joint shares and guess.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hubbub.errors import SummaryError
from hubbub.metrics.metric import Kind, Metric
from hubbub.summary import Reports
from hubbub.wire.json_values import replace_non_finite
from hubbub_decoder.association.components import Components, Sample
from hubbub_decoder.association.dependence import IndependenceTest, fit_dependence
from hubbub_decoder.association.joint_shares import JointShares, joint_shares
from hubbub_decoder.association.margins import MarginFit, fit_point
from hubbub_decoder.association.moments import CohortMoments
from hubbub_decoder.blas_threads import one_blas_thread
from hubbub_decoder.data.candidates import distinct_candidates
from hubbub_decoder.data.output_files import write_table
from hubbub_decoder.errors import CandidateError
from hubbub_decoder.inference.intervals import Target
from hubbub_decoder.model.distributions import norm

MAX_CELLS = 2_500
"""Largest table: the information matrix has the square of the number of its cells as entries."""

MIN_REPORTS = 100


@dataclass(frozen=True, slots=True)
class Cell:
    """One pair of values.

    share, std_error, low, high : joint share with its standard error and confidence interval; may be negative
    guess        : best guess of the share, non-negative; the guesses add up to 1
    conditional, conditional_low, conditional_high : share of `second` among the reports with `first`; nan where that has no
                   positive share, and the interval where its share is below z standard errors
    """

    first: str
    second: str
    share: float
    std_error: float
    low: float
    high: float
    guess: float
    conditional: float
    conditional_low: float
    conditional_high: float


@dataclass(frozen=True, eq=False)
class Association:
    """Joint distribution of two parts of a joint metric, and a test of their independence.

    first, second    : names of the parts        names : of their components, candidates or categories first
    margins          : shares of the components of each part
    joint            : tables over the components
    test             : of independence; it compares the components with clearly positive shares
    confidence       : level of the intervals
    """

    metric: Metric
    first: str
    second: str
    names: tuple[tuple[str, ...], tuple[str, ...]]
    num_reports: int
    confidence: float
    margins: tuple[MarginFit, MarginFit]
    joint: JointShares
    test: IndependenceTest

    def __repr__(self) -> str:
        return (
            f"<Association of {self.first} and {self.second}: {self.num_reports:,} reports, "
            f"p-value of independence {self.test.p_value:.3g}>"
        )

    @property
    def total_variation(self) -> float:
        """Total variation of the guess from the product of its margins: 0 for independent parts."""
        guess = self.joint.guess
        return float(np.abs(guess - np.outer(guess.sum(axis=1), guess.sum(axis=0))).sum() / 2)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All pairs of components, row by row."""
        joint, z = self.joint, float(norm.ppf((1 + self.confidence) / 2))
        of_first, (conditional_low, conditional_high) = joint.given[0].shares, joint.given[0].interval(z)
        return tuple(
            Cell(
                first=first,
                second=second,
                share=float(joint.shares[i, j]),
                std_error=float(joint.std_errors[i, j]),
                low=float(joint.shares[i, j] - z * joint.std_errors[i, j]),
                high=float(joint.shares[i, j] + z * joint.std_errors[i, j]),
                guess=float(joint.guess[i, j]),
                conditional=float(of_first[i, j]),
                conditional_low=float(conditional_low[i, j]),
                conditional_high=float(conditional_high[i, j]),
            )
            for i, first in enumerate(self.names[0])
            for j, second in enumerate(self.names[1])
        )

    def __getitem__(self, pair: tuple[str, str]) -> Cell:
        """Return the cell of a pair of values."""
        return next(cell for cell in self.cells if (cell.first, cell.second) == pair)

    def to_dict(self) -> dict[str, Any]:
        """Return the association as JSON values; undetermined numbers are null."""
        margins = {
            part: [
                {"value": name, "share": share, "std_error": error}
                for name, share, error in zip(names, fit.shares.tolist(), fit.std_errors.tolist(), strict=True)
            ]
            for part, names, fit in zip((self.first, self.second), self.names, self.margins, strict=True)
        }
        tested = [[names[i] for i in kept] for names, kept in zip(self.names, self.test.kept, strict=True)]
        cells = [{name: _number(getattr(cell, name)) for name in cell.__slots__} for cell in self.cells]
        fields: dict[str, Any] = replace_non_finite({
            "metric": self.metric.name,
            "digest": self.metric.digest,
            "parts": [self.first, self.second],
            "num_reports": self.num_reports,
            "confidence": self.confidence,
            "independence": {
                "statistic": self.test.statistic,
                "degrees_of_freedom": self.test.degrees_of_freedom,
                "p_value": self.test.p_value,
                "components": tested,
            },
            "total_variation_from_independence": self.total_variation,
            "margins": margins,
            "cells": cells,
        })  # fmt: skip
        return fields

    def save(self, path: str | Path) -> None:
        """Write one row per pair to a .csv file, or all fields to a .json file.

        Raises OutputError for another suffix, or if the file cannot be written.
        """
        columns = Cell.__slots__
        write_table(path, columns, ([getattr(cell, name) for name in columns] for cell in self.cells), self.to_dict())


@one_blas_thread()
def associate(
    reports: Reports,
    candidates: Mapping[str, Iterable[str]] | None = None,
    *,
    parts: Sequence[str] | None = None,
    confidence: float = 0.95,
    target: Target = "reporters",
    same_clients: bool = True,
) -> Association:
    """Estimate the joint distribution of two parts of a joint metric and test whether they are independent.

    reports    : retained reports of a joint metric, at least 100
    candidates : strings to look for in each string part, by the part's name; all others are "unlisted"
    parts      : names of two parts; None: the first two
    confidence : level of the intervals, in (0, 1)
    target     : "reporters": shares among the reporters; "population": of the population of which they are a random sample
    same_clients : of several periods, whether the same clients report in each. Their permanent noise then repeats, so several
                 periods are refused. False: each period has other clients

    Raises SummaryError for other reports and arguments out of range, CandidateError for candidates that cannot be used.
    """
    first, second = _check(reports, parts, confidence, target, same_clients)
    given = dict(candidates or {})
    unknown = next((name for name in given if name not in (first.name, second.name)), None)
    if unknown is not None:
        raise CandidateError(
            f"{reports.metric.name}: candidates were given for {unknown!r}, which is not one of the two parts "
            f"{first.name} and {second.name}. Leave them out."
        )
    components = tuple(
        Components.of_part(part, distinct_candidates(given[part.name])[0] if part.name in given else None)
        for part in (first, second)
    )
    cells = math.prod(map(len, components))
    if cells > MAX_CELLS:
        raise CandidateError(
            f"{reports.metric.name}: {len(components[0])} x {len(components[1])} = {cells:,} pairs are more than {MAX_CELLS:,}. Most of them "
            "could not be told from 0. Pass fewer candidates: those that `decode` of each part detects."
        )
    sample = Sample.from_reports(reports, components)
    moments = CohortMoments.of_sample(sample, (fit_point(sample, 0), fit_point(sample, 1)))
    margins = (moments.margin(0), moments.margin(1))
    dependence = fit_dependence(moments, margins)
    joint = joint_shares(sample, moments, margins, {(0, 1): dependence}, of_reporters=target == "reporters")
    return Association(
        reports.metric,
        first.name,
        second.name,
        (components[0].names, components[1].names),
        reports.num_reports,
        confidence,
        margins,
        joint,
        dependence.test,
    )


def _check(
    reports: object, parts: Sequence[str] | None, confidence: float, target: str, same_clients: bool
) -> tuple[Metric, Metric]:
    """Return the two parts; raises SummaryError for arguments that cannot be used."""
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
    chosen = tuple(parts) if parts is not None else tuple(names[:2])
    if len(chosen) != 2 or len(set(chosen)) != 2 or not set(chosen) <= set(names):
        raise SummaryError(
            f"{metric.name}: parts must be two of {', '.join(names)}, got {', '.join(map(str, chosen)) or 'none'}"
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
    return tuple(metric.parts[names.index(name)] for name in chosen)  # type: ignore[return-value]


def _number(value: str | float) -> str | float | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value
