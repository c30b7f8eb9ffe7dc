"""`Decoding`: estimates, totals, tests and warnings of one metric; saving and display."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.metrics.metric import Metric
from hubbub.text import format_count
from hubbub_decoder.data.output_files import atomic_write, check_table_path
from hubbub_decoder.results.estimates import Estimate, FitTest, ShareEstimate
from hubbub_decoder.results.table import DecodingTable, to_html

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console, ConsoleOptions, RenderResult

_FLOAT_COLUMNS = (
    *("share", "std_error", "low", "high", "selection_adjusted_low", "selection_adjusted_high", "p_value", "q_value"),
    *("posterior_median", "credible_low", "credible_high", "posterior_mean"),
)
_COLUMNS = ("candidate", *_FLOAT_COLUMNS, "detected", "indistinguishable_from")


@dataclass(frozen=True, slots=True, repr=False)
class Decoding:
    """Result of `decode`: estimates of one metric in descending order of share, totals, tests and warnings.

    num_reports     : number of reports N
    confidence      : confidence level of all intervals, in (0, 1)
    fdr             : false discovery rate of `detected`, in (0, 1)
    listed_total    : total share of the candidates; after screening, of the kept candidates only
    unlisted        : share of reports with a string (or category) that is not a candidate; after screening, screened-out candidates count
                      as unlisted
    no_value        : share of reports in which nothing was recorded; boolean metric: share of false
    detection_limit : smallest share that is detected with probability 0.9, even if no other candidate is present
    warnings        : sentences to read before using the estimates
    periods         : first days of the reporting periods, as the summary lists them
    fit_tests       : goodness-of-fit tests; each with p < 1e-6 adds a warning
    num_screened    : number of candidates that a lasso kept; None if all candidates were estimated
    same_clients    : whether reports of different periods were taken for those of the same clients with the same values; None: of one period
    lowest_detection_limit : detection limit below which no number of reports leads, because of unlisted strings

    Iterates over its estimates; `decoding["a"]` is the estimate of candidate "a", and `"a" in decoding` tests for it.
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
    warnings: tuple[str, ...] = ()
    periods: tuple[str, ...] = ()
    fit_tests: tuple[FitTest, ...] = ()
    num_screened: int | None = None
    lowest_detection_limit: float = 0.0
    same_clients: bool | None = None

    @property
    def detected(self) -> tuple[Estimate, ...]:
        """Estimates of the detected candidates, in descending order of share."""
        return tuple(estimate for estimate in self.estimates if estimate.detected)

    def __repr__(self) -> str:
        return f"<Decoding of {self.metric.name}: {format_count(self.num_reports, 'report')}, {len(self.detected):,} of {format_count(len(self), 'candidate')} detected>"

    def __len__(self) -> int:
        return len(self.estimates)

    def __iter__(self) -> Iterator[Estimate]:
        return iter(self.estimates)

    def __contains__(self, candidate: object) -> bool:
        return any(candidate == e.candidate or candidate in e.indistinguishable_from for e in self.estimates)

    def __getitem__(self, candidate: str) -> Estimate:
        """Return the estimate of a candidate, or of the group that it is indistinguishable from; KeyError if it was not given."""
        for estimate in self.estimates:
            if candidate == estimate.candidate or candidate in estimate.indistinguishable_from:
                return estimate
        raise KeyError(candidate)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON-compatible values; nan and infinity become None."""
        return {
            "metric": self.metric.to_dict(),
            "periods": list(self.periods),
            "same_clients": self.same_clients,
            "num_reports": self.num_reports,
            "confidence": self.confidence,
            "fdr": self.fdr,
            "listed_total": _json_fields(self.listed_total),
            "unlisted": _json_fields(self.unlisted),
            "no_value": _json_fields(self.no_value),
            "num_screened": self.num_screened,
            "detection_limit": _finite_or_none(self.detection_limit),
            "lowest_detection_limit": self.lowest_detection_limit,
            "warnings": list(self.warnings),
            "fit_tests": [asdict(test) for test in self.fit_tests],
            "estimates": [_json_fields(estimate) for estimate in self.estimates],
        }

    def to_table(self) -> pa.Table:
        """Return an Arrow table with one row per candidate (`.to_pandas()` if pandas is installed)."""
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

    def save(self, path: str | Path) -> None:
        """Write one row per candidate to a .csv or .parquet file, or all fields to a .json file.

        Raises OutputError for another suffix, or if the file cannot be written.
        """
        path = Path(path)
        check_table_path(path)
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
        import csv

        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(_COLUMNS)
        for estimate in self.estimates:
            row = _json_fields(estimate)
            writer.writerow(
                [" ".join(row[name]) if name == "indistinguishable_from" else row[name] for name in _COLUMNS]
            )
        return text.getvalue().encode()

    def _parquet(self) -> bytes:
        import pyarrow.parquet as pq

        about = {key: value for key, value in self.to_dict().items() if key != "estimates"}
        sink = io.BytesIO()
        pq.write_table(self.to_table().replace_schema_metadata({"hubbub-decoding": json.dumps(about)}), sink)
        return sink.getvalue()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from DecodingTable(self).__rich_console__(console, options)

    def _repr_html_(self) -> str:
        return to_html(self)


def _json_fields(estimate: ShareEstimate) -> dict[str, Any]:
    fields = asdict(estimate)
    return {name: _finite_or_none(value) if isinstance(value, float) else value for name, value in fields.items()}


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
