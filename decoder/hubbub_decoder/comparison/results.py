"""Result types of a comparison: `Change` of one candidate, and `Comparison`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hubbub.metrics.metric import Metric
from hubbub.text import format_count
from hubbub.wire.json_values import json_value
from hubbub_decoder.comparison.overlap import Overlap
from hubbub_decoder.options import Target
from hubbub_decoder.result import Result
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.estimates import Finding
from hubbub_decoder.results.table_result import TableResult, columns_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


@dataclass(frozen=True, slots=True, eq=False)
class Change(Result):
    """Change of the share of one candidate, from `a` to `b`; all numbers are nan where the reports do not determine it.

    share_a, share_b : shares as `decode` estimates them in each
    change           : estimated from the changes of the counts, so it may differ a little from share_b - share_a, and is more precise
    std_error, low, high : standard error and confidence interval of the change
    p_value          : two-sided; null hypothesis: the share is the same in both
    q_value          : p_value adjusted for the number of candidates
    detected         : q_value <= fdr and p_value < 1 - confidence; so 0 is outside the interval
    indistinguishable_from : candidates with the same bits in every cohort; the change is that of the group
    """

    candidate: str
    share_a: float
    share_b: float
    change: float
    std_error: float
    low: float
    high: float
    p_value: float
    q_value: float
    detected: bool
    indistinguishable_from: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Comparison(TableResult[Change], Result):
    """Result of `compare`: changes in descending order of their size, detected ones first.

    a, b             : decodings of both samples
    changes          : of all candidates
    unlisted, no_value : changes of the totals (`candidate` is a label)
    overlap          : share of clients with the same value in both
    same_clients     : whether a client may be in both; False: s = 0 is known
    """

    metric: Metric
    a: Decoding
    b: Decoding
    confidence: float
    fdr: float
    target: Target
    changes: tuple[Change, ...]
    totals: tuple[Change, ...]
    overlap: Overlap
    same_clients: bool
    warnings: tuple[Finding, ...] = ()

    @property
    def detected(self) -> tuple[Change, ...]:
        """Changes that are detected, the largest first."""
        return tuple(change for change in self.changes if change.detected)

    @property
    def _columns(self) -> Mapping[str, str]:
        return columns_of(Change)

    @property
    def _rows(self) -> tuple[Change, ...]:
        return self.changes

    def _names(self, row: Change) -> tuple[str, ...]:
        return (row.candidate, *row.indistinguishable_from)

    def __repr__(self) -> str:
        changes = format_count(len(self.changes), "candidate")
        return f"<Comparison of {self.metric.name}: {len(self.detected):,} of {changes} changed>"

    def to_dict(self) -> dict[str, Any]:
        return self._about() | {"changes": json_value(self.changes)}

    def _about(self) -> dict[str, Any]:
        return {
            "metric": self.metric.to_dict(),
            "a": {"periods": list(self.a.periods), "num_reports": self.a.num_reports},
            "b": {"periods": list(self.b.periods), "num_reports": self.b.num_reports},
            "target": self.target,
            "confidence": self.confidence,
            "fdr": self.fdr,
            "same_clients": self.same_clients,
            "overlap": json_value(self.overlap),
            "totals": json_value(self.totals),
            "warnings": json_value(self.warnings),
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from hubbub_decoder.comparison.table import ComparisonTable

        yield from ComparisonTable(self).__rich_console__(console, options)
