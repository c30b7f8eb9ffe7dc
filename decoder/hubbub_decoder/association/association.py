"""Association of two parts of a joint metric: `associate`, and the result that it returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hubbub.metrics.metric import Metric
from hubbub.summary import Reports
from hubbub.wire.json_values import json_object, replace_non_finite
from hubbub_decoder.association.dependence import IndependenceTest
from hubbub_decoder.association.fit import PartsFit, fit_parts
from hubbub_decoder.association.joint_shares import JointShares
from hubbub_decoder.association.margins import MarginFit
from hubbub_decoder.blas_threads import one_blas_thread
from hubbub_decoder.model.distributions import norm
from hubbub_decoder.options import Options, Target
from hubbub_decoder.result import Result
from hubbub_decoder.results.table_result import TableResult, columns_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


@dataclass(frozen=True, slots=True, eq=False)
class Cell(Result):
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
class Association(TableResult[Cell]):
    """Joint distribution of two parts of a joint metric, and a test of their independence.

    first, second    : names of the parts        names : of their components, candidates or categories first
    margins          : shares of the components of each part
    joint            : tables over the components
    test             : of independence; it compares the components with clearly positive shares
    confidence       : level of the intervals
    """

    _columns: ClassVar[Mapping[str, str]] = columns_of(Cell)

    metric: Metric
    first: str
    second: str
    names: tuple[tuple[str, ...], tuple[str, ...]]
    num_reports: int
    confidence: float
    margins: tuple[MarginFit, MarginFit]
    joint: JointShares
    test: IndependenceTest

    @property
    def _rows(self) -> tuple[Cell, ...]:
        return self.cells

    def _names(self, row: Cell) -> tuple[tuple[str, ...], ...]:
        return ((row.first, row.second),)

    def __repr__(self) -> str:
        return (
            f"<Association of {self.first} and {self.second}: {self.num_reports:,} reports, "
            f"p-value of independence {self.test.p_value:.3g}>"
        )

    @property
    def parts(self) -> tuple[str, str]:
        """Names of the two parts."""
        return self.first, self.second

    @property
    def pairs(self) -> tuple[Association, ...]:
        """Associations of pairs of parts, which only three parts have: none."""
        return ()

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

    def to_dict(self) -> dict[str, Any]:
        return self._about() | {"cells": [json_object(cell) for cell in self.cells]}

    def _about(self) -> dict[str, Any]:
        fields: dict[str, Any] = replace_non_finite({
            "metric": self.metric.name,
            "digest": self.metric.digest,
            "parts": list(self.parts),
            "num_reports": self.num_reports,
            "confidence": self.confidence,
            "independence": independence_dict(self.test, self.names),
            "total_variation_from_independence": self.total_variation,
            "margins": {
                part: margin_dict(names, fit)
                for part, names, fit in zip(self.parts, self.names, self.margins, strict=True)
            },
        })  # fmt: skip
        return fields

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from hubbub_decoder.association.output import AssociationTable

        yield from AssociationTable(self).__rich_console__(console, options)


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
    options = Options(confidence, target=target, same_clients=same_clients)
    fit = fit_parts(reports, candidates, parts, 2, options)
    return pair_association(fit, (0, 1))


def pair_association(fit: PartsFit, parts: tuple[int, int]) -> Association:
    """Association of two of the parts of a fit."""
    first, second = (fit.sample.parts[part].metric.name for part in parts)
    of_first, of_second = fit.names(parts)
    margins = fit.margins[parts[0]], fit.margins[parts[1]]
    return Association(
        fit.evidence.metric,
        first,
        second,
        (of_first, of_second),
        fit.evidence.num_reports,
        fit.options.confidence,
        margins,
        fit.joint(parts),
        fit.dependences[parts].test,
    )


def margin_dict(names: Sequence[str], fit: MarginFit) -> list[dict[str, Any]]:
    """Shares of the components of a part as JSON values."""
    return [
        {"value": name, "share": share, "std_error": error}
        for name, share, error in zip(names, fit.shares.tolist(), fit.std_errors.tolist(), strict=True)
    ]


def independence_dict(test: IndependenceTest, names: Sequence[Sequence[str]]) -> dict[str, Any]:
    """A test of independence as JSON values, with the names of the components that it compares."""
    return {
        "statistic": test.statistic,
        "degrees_of_freedom": test.degrees_of_freedom,
        "p_value": test.p_value,
        "components": [[of_part[i] for i in kept] for of_part, kept in zip(names, test.kept, strict=True)],
    }
