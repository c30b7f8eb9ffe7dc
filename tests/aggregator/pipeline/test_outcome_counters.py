"""Counters of batches: by metric and outcome, and the refusals that are added to the store."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from hubbub.wire.problems import ProblemType
from hubbub_aggregator.pipeline.outcome_counters import OutcomeCounters

if TYPE_CHECKING:
    from hubbub_aggregator.store.sql_store import SqlStore


def counted() -> OutcomeCounters:
    counters = OutcomeCounters()
    for result in ("stored", "stored", "duplicate"):
        counters.accepted("homepage", result)
    counters.accepted("retired", "stored")
    counters.refused("homepage", ProblemType.MALFORMED)
    counters.refused("", ProblemType.MALFORMED)
    return counters


def test_batches_are_counted_by_metric_and_outcome() -> None:
    """The accepted results of a metric are there also if they are 0, and a metric that is not asked about is not."""
    found = counted().batches(["homepage", "carrier"])
    slug = ProblemType.MALFORMED.slug
    assert {key: number for key, number in found.items() if number} == {
        ("homepage", "stored"): 2,
        ("homepage", "duplicate"): 1,
        ("homepage", slug): 1,
        ("", slug): 1,
    }
    assert {result for metric, result in found if metric == "carrier"} == {"stored", "duplicate"}


class FailingStore:
    def add_refusals(self, _added: Mapping[tuple[str, str], int]) -> None:
        raise OSError("no space left")


def test_refusals_are_added_to_the_store_once_also_after_a_failure(sqlite_store: SqlStore) -> None:
    counters, failing, slug = counted(), FailingStore(), ProblemType.MALFORMED.slug
    broken: Any = failing
    with pytest.raises(OSError, match="no space left"):
        counters.flush(broken)
    for _ in range(2):
        counters.flush(sqlite_store)
    assert sqlite_store.refusals() == {("homepage", slug): 1, ("", slug): 1}


class SlowStore:
    """A store whose first addition ends when it is let go."""

    def __init__(self) -> None:
        self.called, self.let_go = Event(), Event()
        self.added: list[tuple[str, str]] = []

    def add_refusals(self, added: Mapping[tuple[str, str], int]) -> None:
        self.called.set()
        assert self.let_go.wait(60)
        self.added += added


def test_flush_waits_for_refusals_that_another_thread_adds() -> None:
    """A page flushes before it reads; it would otherwise miss the refusals that the service adds at that moment."""
    counters, store = counted(), SlowStore()
    slow: Any = store
    with ThreadPoolExecutor(2) as threads:
        background = threads.submit(counters.flush, slow)
        assert store.called.wait(60)

        def read_a_page() -> int:
            counters.flush(slow)
            return len(store.added)

        page = threads.submit(read_a_page)
        try:
            with pytest.raises(TimeoutError):
                page.result(timeout=0.2)
        finally:
            store.let_go.set()
        background.result()
        assert page.result() == 2
