"""What `/metrics` shows, each number once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version

from hubbub_aggregator.exposition import metric
from hubbub_aggregator.store import StoreError
from hubbub_aggregator.taking import Service
from hubbub_aggregator.writer import GroupWriter


def statistics(service: Service, writer: GroupWriter) -> Iterator[str]:
    """Yield the lines of the answer: what memory has, then what the store has, unless it cannot be read just now."""
    running = [({"version": version("hubbub")}, 1)]
    yield from metric("hubbub_build_info", "gauge", "What is running.", running)
    verdicts = [({"verdict": verdict}, count) for verdict, count in sorted(service.tally.verdicts().items())]
    yield from metric("hubbub_batches_total", "counter", "Batches answered since the start, by verdict.", verdicts)
    others = [({"reason": reason}, count) for reason, count in sorted(service.tally.refused_requests().items())]
    yield from metric("hubbub_refused_requests_total", "counter", "Other requests refused since the start.", others)
    yield from metric("hubbub_queue_bytes", "gauge", "Batches waiting for their commit.", [({}, writer.waiting)])
    yield from metric("hubbub_queue_limit_bytes", "gauge", "Beyond it batches are refused: 503.", [({}, writer.room)])
    yield from writer.commits.lines("hubbub_commit_seconds", "How long commits took.")
    failures = [({"job": job}, count) for job, count in service.troubles.failures().items()]
    yield from metric("hubbub_job_failures_total", "counter", "Failures since the start; the log says why.", failures)
    failing = [({"job": job}, count) for job, count in service.troubles.failing().items()]
    yield from metric("hubbub_job_failing", "gauge", "Workers in which it failed the last time.", failing)
    collected = [({"metric": each.name, "digest": each.digest}, 1) for each in service.definitions.versions()]
    yield from metric("hubbub_definition_info", "gauge", "What is collected under.", collected)
    taken = int(service.collecting.last_reload_ok)
    yield from metric("hubbub_definitions_reload_ok", "gauge", "0: the last SIGHUP changed nothing.", [({}, taken)])
    if service.disk.free is not None:
        yield from metric("hubbub_disk_free_bytes", "gauge", "Room where the database is.", [({}, service.disk.free)])
    try:
        stored = list(_stored(service))
    except StoreError:
        stored = []
    yield from metric(
        "hubbub_store_up",
        "gauge",
        "0: the database could not be read; what it has is missing here.",
        [({}, int(bool(stored)))],
    )
    yield from stored


def _stored(service: Service) -> Iterator[str]:
    service.tally.flush(service.store)
    refused = [
        ({"metric": name, "reason": reason}, count)
        for (name, reason), count in sorted(service.store.refusals().items())
    ]
    yield from metric(
        "hubbub_refused_batches_total", "counter", "Batches refused, ever; metric empty: unknown.", refused
    )
    waiting = service.store.segments_waiting()
    yield from metric("hubbub_segments_waiting", "gauge", "Segments not folded yet.", [({}, waiting)])
    odd = Counter(
        (each.name, oddity.kind)
        for (digest, _), found in service.watch.look(service.definitions).items()
        for each in service.definitions.versions()
        if each.digest == digest
        for oddity in found
    )
    samples = [({"metric": name, "oddity": kind}, count) for (name, kind), count in sorted(odd.items())]
    yield from metric("hubbub_odd_periods", "gauge", "Periods whose reports no honest crowd would send.", samples)
