"""Watches every period's reports for what no honest crowd would do: reports made up, cohorts too unequal."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from hubbub.definitions import Definitions
from hubbub.summary.oddities import Oddity, oddities
from hubbub.summary.parquet import outline_of
from hubbub_aggregator.store import Store

Odd = Mapping[tuple[str, str], tuple[Oddity, ...]]
"""What is odd, by digest and period; nothing of the periods where nothing is."""


class Watch:
    """Looks at a period when asked, again only once more of it was folded; for any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self._seen: dict[tuple[str, str], tuple[int, tuple[Oddity, ...]]] = {}

    def look(self, definitions: Definitions) -> Odd:
        """Return what is odd about the reports that were folded."""
        metrics = {metric.digest: metric for metric in definitions.versions()}
        with self._lock:
            revisions = self._store.revisions()
            self._seen = {key: seen for key, seen in self._seen.items() if key in revisions}
            for (digest, period), revision in revisions.items():
                known = self._seen.get((digest, period))
                if digest in metrics and (known is None or known[0] != revision):
                    for holding in self._store.read(digest, [period], max_reports=1):
                        if holding.summary is not None:
                            found = oddities(metrics[digest].params, outline_of(holding.summary))
                            self._seen[digest, period] = holding.revision, found
            return {key: found for key, (_, found) in self._seen.items() if found and key[0] in metrics}
