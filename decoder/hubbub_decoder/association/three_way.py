"""Association of the three parts of a joint metric: `associate_three`, and the result that it returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hubbub.metrics.metric import Metric
from hubbub.summary import Reports
from hubbub.wire.json_values import json_object, replace_non_finite
from hubbub_decoder.association.association import (
    Association,
    independence_dict,
    margin_dict,
    pair_association,
)
from hubbub_decoder.association.dependence import IndependenceTest
from hubbub_decoder.association.fit import fit_parts
from hubbub_decoder.association.joint_shares import JointShares
from hubbub_decoder.association.margins import MarginFit, outer
from hubbub_decoder.blas_threads import one_blas_thread
from hubbub_decoder.model.distributions import norm
from hubbub_decoder.options import Options, Target
from hubbub_decoder.result import Result
from hubbub_decoder.results.table_result import TableResult, columns_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

PAIRS = ((0, 1), (0, 2), (1, 2))


@dataclass(frozen=True, slots=True, eq=False)
class ThreeWayCell(Result):
    """One combination of three values.

    share, std_error, low, high : joint share with its standard error and confidence interval; may be negative
    guess       : best guess of the share, non-negative; the guesses add up to 1
    given_first, given_first_low, given_first_high : share of `second` with `third` among the reports with `first`
    given_two, given_two_low, given_two_high       : share of `third` among the reports with `first` and `second`

    A conditional share is nan where the condition has no positive share, its interval where that is below z standard errors.
    """

    first: str
    second: str
    third: str
    share: float
    std_error: float
    low: float
    high: float
    guess: float
    given_first: float
    given_first_low: float
    given_first_high: float
    given_two: float
    given_two_low: float
    given_two_high: float


@dataclass(frozen=True, eq=False)
class ThreeWayAssociation(TableResult[ThreeWayCell]):
    """Joint distribution of three parts of a joint metric, with tests of their independence.

    parts      : names of the parts        names : of their components, candidates or categories first
    pairs      : associations of the first and second, first and third, second and third part. The hypothesis of the test of each:
                 these two parts are independent, whatever the other
    joint      : tables over the components
    test       : of mutual independence. The hypothesis: every joint share is the product of three margins
    confidence : level of the intervals
    """

    _columns: ClassVar[Mapping[str, str]] = columns_of(ThreeWayCell)

    metric: Metric
    parts: tuple[str, str, str]
    names: tuple[tuple[str, ...], ...]
    num_reports: int
    confidence: float
    pairs: tuple[Association, Association, Association]
    joint: JointShares
    test: IndependenceTest

    @property
    def _rows(self) -> tuple[ThreeWayCell, ...]:
        return self.cells

    def _names(self, row: ThreeWayCell) -> tuple[tuple[str, ...], ...]:
        return ((row.first, row.second, row.third),)

    def __repr__(self) -> str:
        return (
            f"<ThreeWayAssociation of {', '.join(self.parts)}: {self.num_reports:,} reports, "
            f"p-value of mutual independence {self.test.p_value:.3g}>"
        )

    @property
    def margins(self) -> tuple[MarginFit, MarginFit, MarginFit]:
        """Shares of the components of each part."""
        return (self.pairs[0].margins[0], *self.pairs[2].margins)

    @property
    def total_variation(self) -> float:
        """Total variation of the guess from the product of its margins: 0 for mutually independent parts."""
        guess = self.joint.guess
        product = outer([guess.sum(axis=tuple({0, 1, 2} - {axis})) for axis in range(3)])
        return float(np.abs(guess - product).sum() / 2)

    @property
    def cells(self) -> tuple[ThreeWayCell, ...]:
        """All combinations of components, the last part fastest."""
        joint, z = self.joint, float(norm.ppf((1 + self.confidence) / 2))
        half = z * joint.std_errors
        given = [table for ratio in joint.given for table in (ratio.shares, *ratio.interval(z))]
        tables = (joint.shares, joint.std_errors, joint.shares - half, joint.shares + half, joint.guess, *given)
        numbers = np.stack(tables, axis=-1).reshape(-1, len(tables)).tolist()
        values = ((a, b, c) for a in self.names[0] for b in self.names[1] for c in self.names[2])
        return tuple(ThreeWayCell(*value, *row) for value, row in zip(values, numbers, strict=True))

    def to_dict(self) -> dict[str, Any]:
        return self._about() | {"cells": [json_object(cell) for cell in self.cells]}

    def _about(self) -> dict[str, Any]:
        fields: dict[str, Any] = replace_non_finite({
            "metric": self.metric.name,
            "digest": self.metric.digest,
            "parts": list(self.parts),
            "num_reports": self.num_reports,
            "confidence": self.confidence,
            "mutual_independence": independence_dict(self.test, self.names),
            "total_variation_from_independence": self.total_variation,
            "margins": {
                part: margin_dict(names, fit) for part, names, fit in zip(self.parts, self.names, self.margins, strict=True)
            },
            "pairs": [pair.to_dict() for pair in self.pairs],
        })  # fmt: skip
        return fields

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from hubbub_decoder.association.output import AssociationTable

        yield from AssociationTable(self).__rich_console__(console, options)


@one_blas_thread()
def associate_three(
    reports: Reports,
    candidates: Mapping[str, Iterable[str]] | None = None,
    *,
    parts: Sequence[str] | None = None,
    confidence: float = 0.95,
    target: Target = "reporters",
    same_clients: bool = True,
) -> ThreeWayAssociation:
    """Estimate the joint distribution of the three parts of a joint metric and test whether they are independent.

    parts : names of the three parts, which orders the conditional shares; None: the order of the definition

    The other arguments and the errors are those of `associate`. A table has at most 1,000 combinations.
    """
    options = Options(confidence, target=target, same_clients=same_clients)
    fit = fit_parts(reports, candidates, parts, 3, options)
    first, second, third = (pair_association(fit, pair) for pair in PAIRS)
    return ThreeWayAssociation(
        reports.metric,
        (first.first, first.second, third.second),
        fit.names((0, 1, 2)),
        reports.num_reports,
        options.confidence,
        (first, second, third),
        fit.joint((0, 1, 2)),
        fit.test,
    )
