"""Counts of the aggregator's answers: accepted and refused batches by metric and reason, and other refused requests."""

from __future__ import annotations

from collections import Counter
from threading import Lock

from hubbub.refusals import Refusal
from hubbub_aggregator.store import Store

_RESULTS = ("stored", "duplicate", *(refusal.slug for refusal in Refusal))


class Tally:
    """Counters since the start, and the refusals that are still to be added to the store's permanent counters.

    All methods may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._batches: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()
        self._unflushed: Counter[tuple[str, str]] = Counter()

    def took(self, result: str) -> None:
        """Count a batch that was stored, or that the store already had."""
        with self._lock:
            self._batches[result] += 1

    def refused(self, metric: str, refusal: Refusal) -> None:
        """Count a refused batch; metric: the name of a defined metric, or "" (undefined names are not kept)."""
        with self._lock:
            self._batches[refusal.slug] += 1
            self._unflushed[metric, refusal.slug] += 1

    def turned_away(self, refusal: Refusal) -> None:
        """Count a refused request that was not a batch."""
        with self._lock:
            self._requests[refusal.slug] += 1

    def verdicts(self) -> dict[str, int]:
        """Return the number of batches since the start, by `stored`, `duplicate` or the problem's slug."""
        with self._lock:
            return {result: self._batches[result] for result in _RESULTS}

    def refused_requests(self) -> dict[str, int]:
        """Return the number of other refused requests since the start, by the problem's slug."""
        with self._lock:
            return dict(self._requests)

    def flush(self, store: Store) -> None:
        """Add the refusals since the last flush to the store's counters; if that fails they wait for the next flush."""
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
