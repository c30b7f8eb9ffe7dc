"""`Decoding`: estimates, totals, tests and warnings of one metric; saving and display."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from hubbub.metrics.kinds import MeanKind
from hubbub.metrics.metric import Metric
from hubbub.text import format_count
from hubbub_decoder.data.candidates import distinct_candidates
from hubbub_decoder.data.csv_cells import csv_bytes
from hubbub_decoder.data.output_files import atomic_write, check_table_path
from hubbub_decoder.errors import OutputError
from hubbub_decoder.options import Target
from hubbub_decoder.result import Result
from hubbub_decoder.results.estimates import Estimate, Finding, FitTest, ShareEstimate
from hubbub_decoder.results.ordinal import Numbers
from hubbub_decoder.results.table import DecodingTable, to_html
from hubbub_decoder.results.unlisted_strings import UnlistedString, matching_words

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from matplotlib.axes import Axes
    from rich.console import Console, ConsoleOptions, RenderResult

_FLOAT_COLUMNS = (
    *("share", "std_error", "low", "high", "selection_adjusted_low", "selection_adjusted_high", "p_value", "q_value"),
    *("posterior_median", "credible_low", "credible_high", "posterior_mean"),
    *("simultaneous_low", "simultaneous_high"),
)
_COLUMNS = ("candidate", *_FLOAT_COLUMNS, "detected", "indistinguishable_from")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Decoding(Result):
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

    A sequence of its estimates: `decoding[0]` has the largest share, and `decoding[:10]` is a tuple of ten estimates.
    `decoding["a"]` is the estimate of candidate "a", and `"a" in decoding` tests for it.
    Displays itself as a table with `rich.print(decoding)` or in a notebook; `save` writes CSV, JSON or Parquet.
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

    def __repr__(self) -> str:
        candidates = format_count(len(self), "candidate")
        shown = f"{len(self.detected):,} of {candidates} detected" if self.metric.kind.needs_candidates else candidates
        return f"<Decoding of {self.metric.name}: {format_count(self.num_reports, 'report')}, {shown}>"

    def __len__(self) -> int:
        return len(self.estimates)

    def __iter__(self) -> Iterator[Estimate]:
        return iter(self.estimates)

    def __contains__(self, candidate: object) -> bool:
        """Whether a string was a candidate, or an estimate is one of this decoding."""
        if isinstance(candidate, Estimate):
            return candidate in self.estimates
        return any(candidate == e.candidate or candidate in e.indistinguishable_from for e in self.estimates)

    @overload
    def __getitem__(self, key: str | SupportsIndex) -> Estimate: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Estimate, ...]: ...
    def __getitem__(self, key: str | SupportsIndex | slice) -> Estimate | tuple[Estimate, ...]:
        """Return the estimate of a candidate (or of the group that it is indistinguishable from), or estimates by position.

        Raises KeyError for a string that was not a candidate, and IndexError for a position out of range.
        """
        if not isinstance(key, str):
            return self.estimates[key]
        for estimate in self.estimates:
            if key == estimate.candidate or key in estimate.indistinguishable_from:
                return estimate
        raise KeyError(key)

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
        """Return all fields as JSON-compatible values; nan and infinity become None."""
        return {
            "metric": self.metric.to_dict(),
            "periods": list(self.periods),
            "same_clients": self.same_clients,
            "num_reports": self.num_reports,
            "target": self.target,
            "confidence": self.confidence,
            "fdr": self.fdr,
            "listed_total": json_fields(self.listed_total),
            "unlisted": json_fields(self.unlisted),
            "no_value": json_fields(self.no_value),
            "num_kept": self.num_kept,
            "detection_limit": _finite_or_none(self.detection_limit),
            "lowest_detection_limit": self.lowest_detection_limit,
            "unlisted_strings": [json_fields(string) for string in self.unlisted_strings],
            "num_more_candidates": self.num_more_candidates,
            **({} if self.numbers is None else {"numbers": json_fields(self.numbers)}),
            "warnings": [asdict(warning) for warning in self.warnings],
            "fit_tests": [asdict(test) for test in self.fit_tests],
            "estimates": [json_fields(estimate) for estimate in self.estimates],
        }

    def to_table(self) -> pa.Table:
        """Return an Arrow table with one row per candidate."""
        import pyarrow as pa

        floats = {name: [getattr(e, name) for e in self.estimates] for name in _FLOAT_COLUMNS}
        return pa.table(
            {
                "candidate": pa.array([e.candidate for e in self.estimates], pa.string()),
                **{name: pa.array(values, pa.float64()) for name, values in floats.items()},
                "detected": pa.array([e.detected for e in self.estimates], pa.bool_()),
                "indistinguishable_from": pa.array(
                    [list(e.indistinguishable_from) for e in self.estimates], pa.list_(pa.string())
                ),
            }
        )

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas DataFrame with one row per candidate, in descending order of share.

        Raises ModuleNotFoundError if pandas is not installed; hubbub does not require it.
        """
        _require("pandas", "to_pandas")
        return self.to_table().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Return a polars DataFrame with one row per candidate, in descending order of share.

        Raises ModuleNotFoundError if polars is not installed; hubbub does not require it.
        """
        polars = _require("polars", "to_polars")
        frame: pl.DataFrame = polars.from_arrow(self.to_table())
        return frame

    def plot(self, ax: Axes | None = None, *, top: int = 40) -> Axes:
        """Draw the largest estimates with their confidence intervals (`hubbub_decoder.plots.plot_intervals`), and return the axes.

        ax  : axes to draw on; None: those of a new pyplot figure, which a notebook displays
        top : largest number of candidates

        Raises ValueError for top < 1, and for the decoding of a mean, which has no shares.
        """
        from hubbub_decoder.results.plots import plot_intervals

        return plot_intervals(self, top=top, ax=ax)

    def save(self, path: str | Path) -> None:
        """Write one row per candidate to a .csv or .parquet file, or all fields to a .json file.

        In CSV, a number that is not known is an empty cell, and `indistinguishable_from` is a JSON list of strings, empty without any.
        A candidate that a spreadsheet program would run as a formula has an apostrophe in front, which `read_candidates` removes.

        Raises OutputError for another suffix, or if the file cannot be written.
        """
        path = Path(path)
        check_table_path(path)
        is_mean = isinstance(self.metric.kind, MeanKind)
        if is_mean and path.suffix.lower() != ".json":
            raise OutputError(
                f'{path} would have no rows: {self.metric.name} estimates a mean (estimate = "mean"). Use .json.'
            )
        match path.suffix.lower():
            case ".json":
                data = (json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n").encode()
            case ".csv":
                data = self._csv()
            case _:
                data = self._parquet()
        with atomic_write(path) as file:
            file.write(data)

    def _csv(self) -> bytes:
        rows = []
        for estimate in self.estimates:
            others = list(estimate.indistinguishable_from)
            row = json_fields(estimate) | {
                "indistinguishable_from": json.dumps(others, ensure_ascii=False) if others else None
            }
            rows.append([row[name] for name in _COLUMNS])
        return csv_bytes(_COLUMNS, rows)

    def _parquet(self) -> bytes:
        import pyarrow.parquet as pq

        about = {key: value for key, value in self.to_dict().items() if key != "estimates"}
        sink = io.BytesIO()
        pq.write_table(self.to_table().replace_schema_metadata({"hubbub-decoding": json.dumps(about)}), sink)
        return sink.getvalue()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from DecodingTable(self).__rich_console__(console, options)

    def _repr_html_(self) -> str:
        return to_html(DecodingTable(self))


def _require(package: str, method: str) -> Any:
    """Return an optional package; raises ModuleNotFoundError with the command that installs it."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        message = (
            f"Decoding.{method} needs {package}, which is not installed: run pip install {package}, or use to_table."
        )
        raise ModuleNotFoundError(message, name=package) from None


def json_fields(result: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as JSON values; nan and infinity become None."""
    return {field.name: _json_value(getattr(result, field.name)) for field in fields(result)}


def _json_value(value: Any) -> Any:
    """Return nested values as JSON values, with None in place of nan and infinities."""
    if isinstance(value, float):
        return _finite_or_none(value)
    if isinstance(value, list | tuple):
        return [_json_value(each) for each in value]
    if isinstance(value, dict):
        return {name: _json_value(each) for name, each in value.items()}
    return json_fields(value) if is_dataclass(value) else value


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
