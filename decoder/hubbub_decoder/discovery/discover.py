"""`discover`: frequent strings of a metric without a list of candidates, by prefix extension."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from hubbub.errors import SummaryError
from hubbub.metrics.discovery import END, Discovery
from hubbub.metrics.kinds import StringKind
from hubbub.metrics.metric import Metric
from hubbub.number_checks import check_integer
from hubbub.summary import BitCounts
from hubbub.text import escape_untrusted, format_count
from hubbub_decoder.blas_threads import one_blas_thread
from hubbub_decoder.discovery.extensions import Prefixes
from hubbub_decoder.discovery.search import num_stages, search_prefixes
from hubbub_decoder.documents.document import Document, Table
from hubbub_decoder.model.distributions import norm
from hubbub_decoder.model.evidence import Collected
from hubbub_decoder.options import OptionFields, Progress, ignore_progress, read_options
from hubbub_decoder.pipeline import collect_evidence, decode_evidence
from hubbub_decoder.results.decoding import ESTIMATE_COLUMNS, Decoding, headline
from hubbub_decoder.results.estimates import Estimate
from hubbub_decoder.results.loadable import Loadable
from hubbub_decoder.results.table_result import TableResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DEFAULT_BEAM = 1000
MAX_CANDIDATES = 1_000_000
MIN_WHOLE_LOG_ODDS = math.log(0.05 / 0.95)  # of a string that is tested
_MIN_TRUNCATED_LOG_ODDS = math.log(0.95 / 0.05)  # of a prefix that is listed without a test
_TRUNCATED_LEVEL = 0.05


@dataclass(frozen=True, slots=True, repr=False)
class Discoveries(TableResult[Estimate], Loadable):
    """Result of `discover`: a sequence of the estimates of all strings of the search (`TableResult`).

    Attributes
    ----------
    decoding
        Estimates and tests of the whole strings of the search, from the held-out group. None: the search found no
        string.
    truncated
        First `longest` + 1 symbols of longer strings, present with a probability above .95 after the search, without a
        test. A value of just these symbols is tested. It is not listed here if the test confirms it and its share
        leaves none for longer strings.
    num_reports
        Number of reports of all groups. `decoding.num_reports` is that of the held-out group. None: a file of an
        earlier release does not have it.
    """

    decoding: Decoding | None
    truncated: tuple[str, ...] = ()
    num_reports: int | None = None

    @property
    def detected(self) -> tuple[Estimate, ...]:
        """Estimates of the strings that the held-out group confirms, in descending order of share."""
        return () if self.decoding is None else self.decoding.detected

    @property
    def _columns(self) -> Mapping[str, str]:
        return ESTIMATE_COLUMNS

    @property
    def _rows(self) -> tuple[Estimate, ...]:
        return () if self.decoding is None else self.decoding.estimates

    def _names(self, row: Estimate) -> tuple[str, ...]:
        return row.group

    def to_dict(self) -> dict[str, Any]:
        return {
            "decoding": None if self.decoding is None else self.decoding.to_dict(),
            "truncated": list(self.truncated),
            "num_reports": self.num_reports,
        }

    def _about(self) -> dict[str, Any]:
        about = None if self.decoding is None else self.decoding._about()
        return {"decoding": about, "truncated": list(self.truncated), "num_reports": self.num_reports}

    def __repr__(self) -> str:
        name = "" if self.decoding is None else f" of {self.decoding.metric.name}"
        found = format_count(len(self), "string")
        return f"<Discoveries{name}: {len(self.detected):,} of {found} detected>"

    def document(self, *, everything: bool = False, top: int | None = None) -> Document:
        if self.decoding is None:
            nothing = "No string was found. Frequent strings are found with more reports or a larger epsilon."
            return Document("", Table((), ()), (nothing, *self._truncated_line()))
        shown = self.decoding.document(everything=everything, top=top)
        line = headline(self.decoding, self.num_reports)
        return replace(shown, headline=line, lines=(*shown.lines, *self._truncated_line()))

    def _truncated_line(self) -> Iterator[str]:
        if self.truncated:
            number, most = format_count(len(self.truncated), "string"), 5
            shown = ", ".join(map(escape_untrusted, self.truncated[:most]))
            more = ", ..." if len(self.truncated) > most else ""
            yield f"{number} longer than `longest`, found in part and not tested: {shown}{more}"

    def plot(self, ax: Axes | Figure | None = None, *, top: int | None = None) -> Axes:
        """Draw the largest estimates, as `Decoding.plot` does.

        Parameters
        ----------
        ax
            Axes to draw on, or an empty figure, which gets the size that the plot needs. None: a new pyplot figure,
            which a notebook displays.
        top
            Largest number of strings, the largest shares. None: 40.

        Returns
        -------
        Axes
            The axes with the plot.

        Raises
        ------
        ParameterError
            `top` is below 1.
        SummaryError
            No string was found.
        """
        if self.decoding is None:
            raise SummaryError(
                "The search found no string, so there is nothing to draw: collect more reports, or use a larger epsilon."
            )
        return self.decoding.plot(ax, top=top)


@one_blas_thread()
def discover(
    summary: Collected,
    *,
    beam: int = DEFAULT_BEAM,
    max_candidates: int = MAX_CANDIDATES,
    progress: Progress = ignore_progress,
    **options: Unpack[OptionFields],
) -> Discoveries:
    """Find the frequent strings of a metric with `discover`, without a list.

    Parameters
    ----------
    summary
        Counts or reports of the metric.
    beam
        Number of prefixes that are kept after each group.
    max_candidates
        Largest number of prefixes that are compared in a group after the first. Each takes about 200 bytes of memory.
    progress
        Function that is called at the start of each stage.
    **options
        Keywords `confidence`, `fdr`, `target` and `same_clients`, which `Options` describes.

    Returns
    -------
    Discoveries
        Estimates of the strings that the search found.

    Raises
    ------
    DefinitionError
        The metric is not a string metric.
    SummaryError
        The metric has no `discover`, or there are no reports.
    ParameterError
        An argument is out of range.

    Notes
    -----
    Prefixes are extended group by group. The whole strings that remain are candidates of `decode`, which has reports
    of the held-out group only. The search did not see these reports, so intervals and the false discovery rate hold as
    for a given list.
    """
    chosen = read_options(options, OptionFields)
    metric = summary.metric
    discovery = discovery_of(metric)
    for name, number in (("beam", beam), ("max_candidates", max_candidates)):
        check_integer(name, number, 1, hint="leave it out for the default")
    counts = summary.bit_counts()
    searched = counts if chosen.same_clients else BitCounts(metric, counts.reports, counts.ones)
    kept = search_prefixes(searched, discovery, beam=beam, max_candidates=max_candidates, progress=progress)
    ended, cut = kept.probable(MIN_WHOLE_LOG_ODDS, whole=True), kept.probable(_MIN_TRUNCATED_LOG_ODDS, whole=False)
    values = (fragment.removesuffix(END) for fragment in (*ended.fragments, *cut.fragments))
    strings = [value.decode() for value in values if _is_utf8(value)]
    if not strings:
        return Discoveries(None, tuple(_truncated(cut, {})), counts.num_reports)
    progress("decoding the strings", 1 - 1 / num_stages(discovery))
    decoding = decode_evidence(collect_evidence(counts, chosen), strings, chosen)
    truncated = _truncated(cut, {estimate.candidate: estimate for estimate in decoding.detected})
    return Discoveries(decoding, tuple(truncated), counts.num_reports)


def discovery_of(metric: Metric) -> Discovery:
    """Groups of a metric whose strings can be found. Raises DefinitionError for another kind, SummaryError without `discover`."""
    discovery = metric.require(StringKind, "discover").discover
    if discovery is None:
        raise SummaryError(
            f"{metric.name}: the definition has no discover table, so clients report whole strings only. Use decode with candidates."
        )
    return discovery


def _truncated(cut: Prefixes, detected: Mapping[str, Estimate]) -> Iterator[str]:
    """Yield the prefixes whose share is above that of the detected value that they are, if there is one."""
    threshold = norm.isf(_TRUNCATED_LEVEL)
    for fragment, mean, variance in zip(cut.fragments, cut.estimates.means, cut.estimates.variances, strict=True):
        text = fragment.decode(errors="replace")
        value = detected.get(text)
        if value is None or mean - value.share > threshold * math.sqrt(variance + value.std_error**2):
            yield text


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
