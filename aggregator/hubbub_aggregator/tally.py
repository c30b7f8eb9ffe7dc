"""What was answered: to batches by verdict since the start, and what of them was refused, by metric and reason, for ever; other refusals."""

from __future__ import annotations

from collections import Counter
from threading import Lock

from hubbub.refusals import Refusal
from hubbub_aggregator.shared_numbers import SharedNumbers
from hubbub_aggregator.store import Store

_VERDICTS = ("stored", "duplicate", *(refusal.slug for refusal in Refusal))
_TURNED_AWAY = {refusal: f"turned away: {refusal.slug}" for refusal in Refusal}


class Tally:
    """Counts in memory, and what of it is still to be added to the store's counters; for any thread.

    numbers : has the NAMES
    """

    NAMES = (*_VERDICTS, *_TURNED_AWAY.values())

    def __init__(self, numbers: SharedNumbers) -> None:
        self._lock = Lock()
        self._numbers = numbers
        self._waiting: Counter[tuple[str, str]] = Counter()

    def took(self, verdict: str) -> None:
        """Count a batch that was stored, or was already."""
        with self._lock:
            self._numbers.add(verdict)

    def refused(self, metric: str, refusal: Refusal) -> None:
        """Count a refusal; metric: a name that is defined here, or empty (a name that somebody made up is not kept)."""
        with self._lock:
            self._numbers.add(refusal.slug)
            self._waiting[metric, refusal.slug] += 1

    def turned_away(self, refusal: Refusal) -> None:
        """Count a request that was no batch, and was refused."""
        with self._lock:
            self._numbers.add(_TURNED_AWAY[refusal])

    def verdicts(self) -> dict[str, int]:
        """Return the answers to batches of all workers since the start, by `stored`, `duplicate` or the refusal's slug."""
        return {verdict: int(self._numbers[verdict]) for verdict in _VERDICTS}

    def refused_requests(self) -> dict[str, int]:
        """Return how often other requests were refused by all workers since the start, by the refusal's slug."""
        return {refusal.slug: int(count) for refusal, name in _TURNED_AWAY.items() if (count := self._numbers[name])}

    def flush(self, store: Store) -> None:
        """Add what was refused since the last time to the store's counters; if that fails it waits for the next."""
        with self._lock:
            added, self._waiting = self._waiting, Counter()
        if not added:
            return
        try:
            store.add_refusals(added)
        except Exception:
            with self._lock:
                self._waiting.update(added)
            raise
