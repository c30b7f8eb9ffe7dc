"""Prometheus metrics of the aggregator (`GET /metrics`), collected when scraped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from hubbub.text import DISTRIBUTION
from hubbub_aggregator.api.dependencies import Service
from hubbub_aggregator.errors import StoppedError, StoreError
from hubbub_aggregator.pipeline.group_commit import GroupCommit

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

Samples = Iterable[tuple[Mapping[str, str], float]]


class ServiceCollector:
    """Collector of the service's metrics: those in memory, then those in the store unless it cannot be read."""

    def __init__(self, service: Service, writer: GroupCommit) -> None:
        self._service = service
        self._writer = writer

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families of one scrape."""
        yield from self._from_memory()
        try:
            stored = list(self._from_store())
        except StoppedError:
            raise
        except StoreError:
            stored = []
        yield _gauge(
            "hubbub_store_up", "0: the database could not be read, so its metrics are missing.", [({}, bool(stored))]
        )
        yield from stored

    def _from_memory(self) -> Iterator[Metric]:
        service, writer = self._service, self._writer
        yield _gauge("hubbub_build_info", "The running version.", [({"version": version(DISTRIBUTION)}, 1)])
        batches = service.outcomes.batches(service.definitions).items()
        yield _counter(
            "hubbub_batches",
            "Batches since the start, by result; metric empty: undefined.",
            [({"metric": name, "result": result}, count) for (name, result), count in batches],
        )
        yield _counter(
            "hubbub_refused_requests",
            "Requests other than batches that were refused since the start.",
            _by_label("reason", service.outcomes.refused_requests()),
        )
        yield _gauge("hubbub_queue_bytes", "Bytes of batches that wait for their commit.", [({}, writer.queued_bytes)])
        yield _gauge(
            "hubbub_queue_limit_bytes",
            "Limit of hubbub_queue_bytes; beyond it batches are refused (503).",
            [({}, service.settings.max_queue_bytes)],
        )
        yield from writer.commits.collect()
        jobs = service.job_health
        yield _counter(
            "hubbub_job_failures",
            "Failures of background jobs since the start; the log has the causes.",
            _by_label("job", jobs.failures()),
        )
        yield _gauge("hubbub_job_failing", "1: the last run of the job failed.", _by_label("job", jobs.failing()))
        definitions = [
            ({"metric": metric.name, "digest": metric.digest}, 1) for metric in service.definitions.versions()
        ]
        yield _gauge("hubbub_definition_info", "Metric definitions in force.", definitions)
        reloaded = service.active_definitions.last_reload_ok
        yield _gauge(
            "hubbub_definitions_reload_ok",
            "0: the last reload (SIGHUP) failed and the earlier definitions stay in force.",
            [({}, reloaded)],
        )
        yield _gauge(
            "hubbub_clock_credible",
            "0: the clock jumped; closing, purging and dropping are paused (`hubbub db accept-clock`).",
            [({}, service.clock.reading().may_delete)],
        )
        yield _gauge(
            "hubbub_last_fold_timestamp_seconds",
            "End of the last successful round of folding; 0: none since the start.",
            [({}, service.progress.last_fold)],
        )
        yield _gauge(
            "hubbub_oldest_segment_age_seconds",
            "Time since the first round of folding that left the oldest segment unfolded; 0: none is left.",
            [({}, service.progress.oldest_segment_age())],
        )
        if service.disk.free is not None:
            yield _gauge("hubbub_disk_free_bytes", "Free space on the database's disk.", [({}, service.disk.free)])

    def _from_store(self) -> Iterator[Metric]:
        service = self._service
        service.outcomes.flush(service.periods)
        refused = [({"metric": name, "reason": reason}, n) for (name, reason), n in service.periods.refusals().items()]
        yield _counter(
            "hubbub_refused_batches",
            "Batches refused since the database was created; metric empty: undefined.",
            refused,
        )
        yield _gauge(
            "hubbub_segments_waiting", "Segments that are not folded yet.", [({}, service.periods.segments_waiting())]
        )
        yield _gauge(
            "hubbub_last_backup_timestamp_seconds",
            "Start of the last complete `hubbub db backup`; 0: none.",
            [({}, service.periods.last_backup() or 0)],
        )
        names = {metric.digest: metric.name for metric in service.definitions.collections()}
        implausible = Counter[tuple[str, str]]()
        for (digest, kind), periods in service.periods.implausible_periods().items():
            if digest in names:
                implausible[names[digest], kind] += periods
        yield _gauge(
            "hubbub_implausible_periods",
            "Periods whose reports fail a plausibility test.",
            [({"metric": name, "kind": kind}, count) for (name, kind), count in implausible.items()],
        )


def prometheus_text(service: Service, writer: GroupCommit) -> bytes:
    """Return the metrics of the service and of its process in the Prometheus text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ServiceCollector(service, writer))
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    return generate_latest(registry)


def _by_label(label: str, values: Mapping[str, float]) -> Samples:
    return [({label: key}, value) for key, value in values.items()]


def _gauge(name: str, help_text: str, samples: Samples) -> Metric:
    family = GaugeMetricFamily(name, help_text)
    return _add_samples(family, "", samples)


def _counter(name: str, help_text: str, samples: Samples) -> Metric:
    family = CounterMetricFamily(name, help_text)
    return _add_samples(family, "_total", samples)


def _add_samples(family: Metric, suffix: str, samples: Samples) -> Metric:
    for labels, value in sorted(samples, key=lambda sample: sorted(sample[0].items())):
        family.add_sample(family.name + suffix, dict(labels), float(value))
    return family
