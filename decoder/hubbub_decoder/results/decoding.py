"""`Decoding`: estimates, totals, tests and warnings of one metric; saving and display."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.metrics.metric import Metric
from hubbub.text import format_count
from hubbub.wire.json_values import json_value
from hubbub_decoder.data.candidates import distinct_candidates
from hubbub_decoder.errors import OutputError
from hubbub_decoder.options import Target
from hubbub_decoder.result import Result
from hubbub_decoder.results.estimates import Estimate, Finding, FitTest, ShareEstimate
from hubbub_decoder.results.ordinal import Numbers
from hubbub_decoder.results.table import DecodingTable
from hubbub_decoder.results.table_result import TableResult, columns_of
from hubbub_decoder.results.unlisted_strings import UnlistedString, matching_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console, ConsoleOptions, RenderResult

_COLUMNS = (
    *(
        "candidate",
        "share",
        "std_error",
        "low",
        "high",
        "selection_adjusted_low",
        "selection_adjusted_high",
        "p_value",
        "q_value",
    ),
    *("posterior_median", "credible_low", "credible_high", "posterior_mean"),
    *("simultaneous_low", "simultaneous_high", "detected", "indistinguishable_from"),
)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Decoding(TableResult[Estimate], Result):
    """Result of `decode`: estimates of one metric in descending order of share, totals, tests and warnings.

    num_reports     : number of reports N
    target          : population of the shares: "reporters" or "population" (`decode`)
    confidence      : confidence level of all intervals, in (0, 1)
    fdr             : false discovery rate of `detected`, in (0, 1)
    listed_total    : total share of the candidates; after screening, of the kept candidates only
    unlisted        : share of reports with a string (or category) that is not a candidate; after screening, screened-out candidates count
                      as unlisted
    no_value        : share of reports in which nothing was recorded; boolean metric: share of false
    detection_limit : smallest share that is detected with probability 0.9, even if no other candidate is present; nan for categories
    warnings        : findings to read before using the estimates
    periods         : first days of the reporting periods, as the summary lists them
    fit_tests       : goodness-of-fit tests; each with p < 1e-6 adds a warning
    num_kept        : number of candidates that a lasso kept; None if all candidates were estimated
    same_clients    : whether reports of different periods were taken for those of the same clients with the same values; None: of one period
    unlisted_strings : frequent strings that are not candidates, found by their bits; their shares belong to `unlisted`
    num_more_candidates : number of words that `match_unlisted` compared with them
    numbers         : mean, quantiles and distribution function of an ordinal metric, or the mean alone (estimate = "mean"); None for others
    lowest_detection_limit : detection limit below which no number of reports leads, because of unlisted strings

    A sequence of its estimates (`TableResult`): `decoding[0]` has the largest share, `decoding["a"]` is the estimate of candidate "a", or of
    the group that it is indistinguishable from.
    """

    metric: Metric
    num_reports: int
    confidence: float
    fdr: float
    estimates: tuple[Estimate, ...]
    listed_total: ShareEstimate
    unlisted: ShareEstimate
    no_value: ShareEstimate
    detection_limit: float
    warnings: tuple[Finding, ...] = ()
    periods: tuple[str, ...] = ()
    fit_tests: tuple[FitTest, ...] = ()
    num_kept: int | None = None
    lowest_detection_limit: float = 0.0
    same_clients: bool | None = None
    target: Target = "reporters"
    unlisted_strings: tuple[UnlistedString, ...] = ()
    num_more_candidates: int = 0
    numbers: Numbers | None = None

    @property
    def detected(self) -> tuple[Estimate, ...]:
        """Estimates of the detected candidates, in descending order of share."""
        return tuple(estimate for estimate in self.estimates if estimate.detected)

    @property
    def _columns(self) -> Mapping[str, str]:
        return columns_of(Estimate, *_COLUMNS)

    @property
    def _rows(self) -> tuple[Estimate, ...]:
        return self.estimates

    def _names(self, row: Estimate) -> tuple[str, ...]:
        return (row.candidate, *row.indistinguishable_from)

    def __repr__(self) -> str:
        candidates = format_count(len(self), "candidate")
        shown = f"{len(self.detected):,} of {candidates} detected" if self.metric.kind.needs_candidates else candidates
        return f"<Decoding of {self.metric.name}: {format_count(self.num_reports, 'report')}, {shown}>"

    def match_unlisted(self, words: Iterable[str]) -> Decoding:
        """Return the decoding with the words that match each unlisted string; a false match has probability at most 1/1,000.

        Raises CandidateError for anything but a non-empty collection of strings.
        """
        distinct, _ = distinct_candidates(words)
        strings = tuple(
            replace(each, matches=matching_words(each, distinct, self.metric.params)) for each in self.unlisted_strings
        )
        return replace(self, unlisted_strings=strings, num_more_candidates=len(distinct))

    def to_dict(self) -> dict[str, Any]:
        return self._about() | {"estimates": json_value(self.estimates)}

    def _about(self) -> dict[str, Any]:
        return {
            "metric": self.metric.to_dict(),
            "periods": list(self.periods),
            "same_clients": self.same_clients,
            "num_reports": self.num_reports,
            "target": self.target,
            "confidence": self.confidence,
            "fdr": self.fdr,
            "listed_total": json_value(self.listed_total),
            "unlisted": json_value(self.unlisted),
            "no_value": json_value(self.no_value),
            "num_kept": self.num_kept,
            "detection_limit": json_value(self.detection_limit),
            "lowest_detection_limit": self.lowest_detection_limit,
            "unlisted_strings": json_value(self.unlisted_strings),
            "num_more_candidates": self.num_more_candidates,
            **({} if self.numbers is None else {"numbers": json_value(self.numbers)}),
            "warnings": json_value(self.warnings),
            "fit_tests": json_value(self.fit_tests),
        }

    def plot(self, ax: Axes | None = None, *, top: int = 40) -> Axes:
        """Draw the largest estimates with their confidence intervals (`hubbub_decoder.plots.plot_intervals`), and return the axes.

        ax  : axes to draw on; None: those of a new pyplot figure, which a notebook displays
        top : largest number of candidates

        Raises ValueError for top < 1, and for the decoding of a mean, which has no shares.
        """
        from hubbub_decoder.results.plots import plot_intervals

        return plot_intervals(self, top=top, ax=ax)

    def _check_format(self, path: Path) -> None:
        if not self.metric.kind.has_shares and path.suffix.lower() != ".json":
            raise OutputError(
                f'{path} would have no rows: {self.metric.name} estimates a mean (estimate = "mean"). Use .json.'
            )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from DecodingTable(self).__rich_console__(console, options)
