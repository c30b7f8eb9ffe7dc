"""What a decoding says: estimates, what they leave open, and how sure both are."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.metrics.metric import Metric
from hubbub.text import counted
from hubbub_decoder.data.output_files import atomic_write, check_table_path
from hubbub_decoder.results.estimates import Estimate, FitTest, ShareEstimate
from hubbub_decoder.results.table import DecodingTable, to_html

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console, ConsoleOptions, RenderResult

_FLOATS = (
    *("share", "std_error", "low", "high", "selection_adjusted_low", "selection_adjusted_high", "p_value", "q_value"),
    *("posterior_median", "credible_low", "credible_high"),
)
_COLUMNS = ("candidate", *_FLOATS, "detected", "indistinguishable_from")


@dataclass(frozen=True, slots=True, repr=False)
class Decoding:
    """Estimates of one metric, largest first.

    num_reports   : N
    confidence, fdr    : of the intervals; of what is called detected
    explained     : the candidates together; where a lasso chose, the chosen ones only
    unlisted      : strings (categories) that are no candidate; where a lasso chose, also the candidates it left out
    without_value : reports of "nothing recorded"; of a boolean: false
    detectable    : a candidate of this share would be detected 9 times in 10, even were it the only one
    warnings      : what to know before believing any of it, in words
    chosen        : how many candidates a lasso chose to be fitted; None: all were
    fit_tests     : tests of the parameters, of the hash scheme and for reports that are made up; those below 1e-6 are warned of

    Draws itself: `rich.print(decoding)`, or alone in a notebook; `save` writes CSV, JSON or Parquet. Iterates over its estimates;
    `decoding["a"]` is that of one candidate, and `"a" in decoding` asks for it.
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

    @property
    def detected(self) -> tuple[Estimate, ...]:
        """The candidates that were found."""
        return tuple(estimate for estimate in self.estimates if estimate.detected)

    def __repr__(self) -> str:
        return f"<Decoding of {self.metric.name}: {counted(self.num_reports, 'report')}, {len(self.detected):,} of {counted(len(self), 'candidate')} found>"

    def __len__(self) -> int:
        return len(self.estimates)

    def __iter__(self) -> Iterator[Estimate]:
        return iter(self.estimates)

    def __contains__(self, candidate: object) -> bool:
        return any(candidate == e.candidate or candidate in e.indistinguishable_from for e in self.estimates)

    def __getitem__(self, candidate: str) -> Estimate:
        """Return the estimate of a candidate, also by a name that sets the same bits."""
        for estimate in self.estimates:
            if candidate == estimate.candidate or candidate in estimate.indistinguishable_from:
                return estimate
        raise KeyError(candidate)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON can hold it; nan becomes None."""
        return {
            "metric": self.metric.to_dict(),
            "periods": list(self.periods),
            "num_reports": self.num_reports,
            "confidence": self.confidence,
            "fdr": self.fdr,
            "listed_total": _plain(self.listed_total),
            "unlisted": _plain(self.unlisted),
            "no_value": _plain(self.no_value),
            "num_screened": self.num_screened,
            "detection_limit": _number(self.detection_limit),
            "warnings": list(self.warnings),
            "fit_tests": [asdict(test) for test in self.fit_tests],
            "estimates": [_plain(estimate) for estimate in self.estimates],
        }

    def to_table(self) -> pa.Table:
        """Return one row a candidate as an Arrow table (`.to_pandas()` where pandas is installed)."""
        import pyarrow as pa

        floats = {name: [getattr(e, name) for e in self.estimates] for name in _FLOATS}
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
        """Write one row a candidate to a .csv or .parquet file, or everything to a .json file."""
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
            row = _plain(estimate)
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


def _plain(mass: ShareEstimate) -> dict[str, Any]:
    fields = asdict(mass)
    return {name: _number(value) if isinstance(value, float) else value for name, value in fields.items()}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
