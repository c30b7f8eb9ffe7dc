"""Counters of batches by metric and result, and of other refused requests by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from threading import Lock

from hubbub.wire.problems import ProblemType
from hubbub_aggregator.store.interface import FigureStore

_ACCEPTED = ("stored", "duplicate")
_REFUSED = tuple(problem.slug for problem in ProblemType)


class OutcomeCounters:
    """Counters since the start, and the refusals not yet added to the store's permanent counters.

    All methods may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._flushing = Lock()
        self._batches: Counter[tuple[str, str]] = Counter()
        self._requests: Counter[str] = Counter()
        self._unflushed: Counter[tuple[str, str]] = Counter()

    def accepted(self, metric: str, result: str) -> None:
        """Count an accepted batch; result: `stored` or `duplicate`; metric: as for `refused`."""
        with self._lock:
            self._batches[metric, result] += 1

    def refused(self, metric: str, problem: ProblemType) -> None:
        """Count a refused batch; metric: the name of a defined metric, or "" for all others."""
        with self._lock:
            self._batches[metric, problem.slug] += 1
            self._unflushed[metric, problem.slug] += 1

    def rejected_request(self, problem: ProblemType) -> None:
        """Count a refused request that was not a batch."""
        with self._lock:
            self._requests[problem.slug] += 1

    def batches(self, metrics: Iterable[str]) -> dict[tuple[str, str], int]:
        """Return the number of batches since the start, by metric and `stored`, `duplicate` or the problem's slug.

        For these metrics: both accepted results, also if 0, and the reasons that occurred. For the metric "": all reasons.
        """
        with self._lock:
            counts = {(metric, result): self._batches[metric, result] for metric in metrics for result in _ACCEPTED}
            counts |= {("", result): self._batches["", result] for result in _REFUSED}
            known = {metric for metric, _ in counts}
            return counts | {key: count for key, count in self._batches.items() if key[0] in known and count}

    def refused_requests(self) -> dict[str, int]:
        """Return the number of other refused requests since the start, by the problem's slug."""
        with self._lock:
            return dict(self._requests)

    def flush(self, store: FigureStore) -> None:
        """Add the refusals since the last flush to the store's counters; after a failure the next flush adds them.

        All refusals counted before the call are in the store when it returns, also those that another thread was adding.
        """
        with self._flushing:
            with self._lock:
                added, self._unflushed = self._unflushed, Counter()
            if not added:
                return
            try:
                store.add_refusals(added)
            except Exception:
                with self._lock:
                    self._unflushed.update(added)
                raise
