"""What the decoding process is asked for, and its answer."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from hubbub.metrics.group import PERIOD
from hubbub.privacy.central import RELEASE_DELTA, release_epsilon
from hubbub.privacy.pricing import shown_epsilon
from hubbub.summary import read_collected
from hubbub.wire.json_values import from_json_value, json_value
from hubbub_decoder.batch_decoding.tasks import releases
from hubbub_decoder.comparison.compare import compare
from hubbub_decoder.comparison.results import Comparison
from hubbub_decoder.comparison.trends import Trends, decode_each
from hubbub_decoder.data.candidates import read_candidates
from hubbub_decoder.data.events import Event
from hubbub_decoder.data.output_files import draw_figure
from hubbub_decoder.model.evidence import Collected, Evidence, combine
from hubbub_decoder.model.group_counts import GroupFiles
from hubbub_decoder.options import Options
from hubbub_decoder.pipeline import decode
from hubbub_decoder.report.about import provenance_rows
from hubbub_decoder.report.comparison_page import render_comparison
from hubbub_decoder.report.decoding_page import render_decoding
from hubbub_decoder.report.highlights import Highlights
from hubbub_decoder.report.metric_page import PeriodRow, render_metric
from hubbub_decoder.report.rendering import served_scripts
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.residuals import bit_residuals

_KEPT_RESULTS = 4


class Show(StrEnum):
    """What is estimated: shares over all periods, in each period, for each value of a group, their change, or the highlights of the shares."""

    SUM = "sum"
    PERIODS = "periods"
    GROUPS = "groups"
    CHANGE = "change"
    HIGHLIGHTS = "highlights"


@dataclass(frozen=True, slots=True)
class Job:
    """One question.

    samples    : paths of summaries; those of a sample are added up. CHANGE has two samples, PERIODS and GROUPS one or more, the others one
    candidates : paths of files, whose strings count together; none if the metric needs none
    inputs     : `content_hash` of all these files, and of those of the groups
    suffix     : format of the answer: .html, .csv, .json, .parquet, .png or .svg
    page       : what `view.html.j2` lets the reader choose, of .html
    groups     : files that have to show that the sums over groups among the samples have all values
    events     : that the page of PERIODS marks
    """

    show: Show
    samples: tuple[tuple[str, ...], ...]
    candidates: tuple[str, ...]
    inputs: tuple[str, ...]
    options: Options
    suffix: str
    page: dict[str, Any] | None = None
    groups: tuple[GroupFiles, ...] = ()
    events: tuple[Event, ...] = ()

    @property
    def key(self) -> str:
        """SHA-256, in hex, of all that the answer depends on."""
        return hashlib.sha256(json.dumps([releases(), self.to_json()]).encode()).hexdigest()

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps({field.name: json_value(getattr(self, field.name)) for field in fields(self)})

    @classmethod
    def from_json(cls, line: bytes) -> Job:
        """Job of a line of `to_json`."""
        read: Job = from_json_value(cls, json.loads(line))
        return read

    def answer(self) -> bytes:
        """Content of the page or file; raises HubbubError for what cannot be estimated or drawn, and for an incomplete group."""
        for group in self.groups:
            group.check()
        if self.show is Show.HIGHLIGHTS:
            return json.dumps(json_value(self._highlights())).encode()
        result, summary = _result(self.show, self.samples, self.candidates, self.inputs, self.options)
        if self.suffix == ".html":
            return self._page(result, summary).encode()
        if self.suffix in (".png", ".svg"):
            return _figure(result, self.suffix)
        return result.to_bytes(self.suffix)

    def _highlights(self) -> Highlights:
        summary = combine([read_collected(path) for path in self.samples[0]])
        if summary.num_reports == 0:
            return Highlights.of_nothing()
        return Highlights.of(decode(summary, _strings(self.candidates), **asdict(self.options)))

    def _page(self, result: Decoding | Trends | Comparison, summary: Collected | None) -> str:
        shared: dict[str, Any] = {"path": [("All metrics", "../")], "view": self.page}
        scripts, files = served_scripts("../"), [Path(path) for sample in self.samples for path in sample]
        candidates = list(map(Path, self.candidates))
        match result:
            case Decoding():
                shared["provenance"] = [*_central(summary), *provenance_rows(result, files, candidates)]
                residuals = None if summary is None else bit_residuals(summary, result)
                return render_decoding(result, scripts, residuals=residuals, **shared)
            case Trends():
                shared["provenance"] = provenance_rows(result.decodings[0], files, candidates)
                labelled = zip(result.decodings, result.labels, strict=True)
                rows = [PeriodRow.from_decoding(decoding, label=label) for decoding, label in labelled]
                documents = [decoding.to_dict() for decoding in result.decodings]
                more: dict[str, Any] = {"compared": result, "by": result.by, "events": self.events}
                return render_metric(result.metric, rows, documents, scripts, **more, **shared)
            case Comparison():
                shared["provenance"] = provenance_rows(result.b, files, candidates)
                return render_comparison(result, scripts, **shared)


@lru_cache(_KEPT_RESULTS)  # the downloads of a page follow it
def _result(
    show: Show,
    samples: tuple[tuple[str, ...], ...],
    candidates: tuple[str, ...],
    _inputs: tuple[str, ...],
    options: Options,
) -> tuple[Decoding | Trends | Comparison, Collected | None]:
    """Result, and the counts of a decoding."""
    strings = _strings(candidates)
    read = [[read_collected(path) for path in sample] for sample in samples]
    chosen = asdict(options)
    fabricated = chosen.pop("fabricated")
    match show:
        case Show.PERIODS | Show.GROUPS:
            parts = [combine(files) for files in read]
            group = parts[0].metric.group
            by = PERIOD if show is Show.PERIODS or group is None else group.name
            return decode_each(parts, strings, by=by, **chosen), None
        case Show.CHANGE:
            before, after = read
            return compare(before, after, strings, **chosen), None
        case _:
            summary = combine(read[0])
            return decode(summary, strings, fabricated=fabricated, **chosen), summary


def _strings(candidates: Sequence[str]) -> list[str] | None:
    return list(dict.fromkeys(chain.from_iterable(map(read_candidates, candidates)))) if candidates else None


def _central(summary: Collected | None) -> Sequence[tuple[str, str]]:
    """Row with the central epsilon of the counts of one period."""
    counts = None if summary is None else Evidence(summary).counts
    if counts is None or len(counts.periods) != 1:
        return ()
    smallest = min(counts.reports[counts.reports > 0].tolist())
    shown = shown_epsilon(release_epsilon(counts.metric, smallest))
    return [
        (
            "Central epsilon of these counts",
            f"{shown}, with delta {RELEASE_DELTA:g}, if no other counts of the period are read",
        )
    ]


def _figure(result: Decoding | Trends | Comparison, suffix: str) -> bytes:
    from matplotlib.figure import Figure

    from hubbub_decoder.results.diagnostic_plots import plot_numbers

    figure = Figure()
    if isinstance(result, Decoding) and result.numbers is not None:
        plot_numbers(result, figure)
    else:
        result.plot(figure)
    file = io.BytesIO()
    draw_figure(figure, file, suffix)
    return file.getvalue()
