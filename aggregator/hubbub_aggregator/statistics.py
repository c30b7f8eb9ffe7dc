"""What `/metrics` shows, each number once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hubbub_aggregator.exposition import metric
from hubbub_aggregator.taking import Service
from hubbub_aggregator.writer import GroupWriter


def statistics(service: Service, writer: GroupWriter) -> Iterator[str]:
    """Yield the lines of the answer; reads the store."""
    verdicts = [({"verdict": verdict}, count) for verdict, count in sorted(service.tally.verdicts().items())]
    yield from metric("hubbub_batches_total", "counter", "Batches answered since the start, by verdict.", verdicts)
    service.tally.flush(service.store)
    refused = [
        ({"metric": name, "reason": reason}, count)
        for (name, reason), count in sorted(service.store.refusals().items())
    ]
    yield from metric(
        "hubbub_refused_batches_total", "counter", "Batches refused, ever; metric empty: unknown.", refused
    )
    yield from metric("hubbub_queue_bytes", "gauge", "Batches waiting for their commit.", [({}, writer.waiting)])
    yield from metric("hubbub_queue_limit_bytes", "gauge", "Beyond it batches are refused: 503.", [({}, writer.room)])
    yield from writer.commits.lines("hubbub_commit_seconds", "How long commits took.")
    waiting = service.store.segments_waiting()
    yield from metric("hubbub_segments_waiting", "gauge", "Segments not folded yet.", [({}, waiting)])
    odd = Counter(
        (version.name, oddity.kind)
        for (digest, _), found in service.watch.look(service.definitions).items()
        for version in service.definitions.versions()
        if version.digest == digest
        for oddity in found
    )
    samples = [({"metric": name, "oddity": kind}, count) for (name, kind), count in sorted(odd.items())]
    yield from metric("hubbub_odd_periods", "gauge", "Periods whose reports no honest crowd would send.", samples)
    taken = int(service.collecting.last_reload_ok)
    yield from metric("hubbub_definitions_reload_ok", "gauge", "0: the last SIGHUP changed nothing.", [({}, taken)])
    if service.disk.free is not None:
        yield from metric("hubbub_disk_free_bytes", "gauge", "Room where the database is.", [({}, service.disk.free)])
