"""`discover`: frequent strings of a metric without a list of candidates, by prefix extension."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hubbub.errors import SummaryError
from hubbub.metrics.discovery import END
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub_decoder.blas_threads import one_blas_thread
from hubbub_decoder.discovery.search import search_prefixes
from hubbub_decoder.options import Options, Target
from hubbub_decoder.pipeline import collect_evidence, decode_evidence
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.estimates import Estimate

DEFAULT_BEAM = 1000
MAX_CANDIDATES = 1_000_000
MIN_WHOLE_LOG_ODDS = math.log(0.05 / 0.95)  # of a string that is tested


@dataclass(frozen=True, slots=True)
class Discoveries:
    """Result of `discover`.

    decoding  : estimates and tests of the whole strings of the search, from the held-out group; None if the search found none
    truncated : probable prefixes of strings that are longer than `longest`, which cannot be tested
    """

    decoding: Decoding | None
    truncated: tuple[str, ...] = ()

    @property
    def detected(self) -> tuple[Estimate, ...]:
        """Estimates of the strings that the held-out group confirms, in descending order of share."""
        return () if self.decoding is None else self.decoding.detected

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "decoding": None if self.decoding is None else self.decoding.to_dict(),
            "truncated": list(self.truncated),
        }


@one_blas_thread()
def discover(
    summary: BitCounts | PatternCounts | Reports,
    *,
    confidence: float = 0.95,
    fdr: float = 0.05,
    target: Target = "reporters",
    same_clients: bool = True,
    beam: int = DEFAULT_BEAM,
    max_candidates: int = MAX_CANDIDATES,
    progress: Callable[[int, int], None] = lambda _length, _candidates: None,
) -> Discoveries:
    """Find the frequent strings of a metric with `discover`, without a list.

    Prefixes are extended group by group (`search.py`). The whole strings that remain are candidates of `decode`, which has reports of the
    held-out group only. The search did not see these reports, so intervals and the false discovery rate hold as for a given list.

    beam           : number of prefixes that are kept after each group
    max_candidates : prefixes that are compared in a group after the first; their memory is about 200 bytes for each
    progress       : called with each group's prefix length and number of candidates
    The other parameters are those of `decode`.

    Raises SummaryError for a metric without `discover`, and as `decode`.
    """
    options = Options(confidence, fdr, target, same_clients)
    metric = summary.metric
    if metric.discover is None:
        raise SummaryError(
            f"{metric.name}: the definition has no discover table, so clients report whole strings only. Use decode with candidates."
        )
    for name, number in (("beam", beam), ("max_candidates", max_candidates)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise SummaryError(f"{name} must be an integer >= 1, got {number!r}")
    counts = summary.bit_counts()
    searched = counts if same_clients else BitCounts(metric, counts.reports, counts.ones)
    kept = search_prefixes(searched, metric.discover, beam=beam, max_candidates=max_candidates, progress=progress)
    truncated = tuple(prefix.decode(errors="replace") for prefix in kept.probable(0.0, whole=False))
    ended = (fragment.removesuffix(END) for fragment in kept.probable(MIN_WHOLE_LOG_ODDS, whole=True))
    strings = [string.decode() for string in ended if _is_utf8(string)]
    if not strings:
        return Discoveries(None, truncated)
    return Discoveries(decode_evidence(collect_evidence(counts, options), strings, options), truncated)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
