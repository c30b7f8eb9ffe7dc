"""What was counted and published: each acknowledged report once, one figure everywhere, and nothing of a person."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from hubbub import Batch, Metric
from hubbub.summary import Summary, read_summary
from hubbub_decoder import decode
from tests.system.year.definitions import CANDIDATES
from tests.system.year.deployment import Deployment

Key = tuple[str, str, str]
"""Digest, value of the group or "", and first day of a period."""
IDENTIFIER = re.compile(
    rb"only-[\w-]+\.example|\w+-account\d+@example\.org|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)


def collection_of(metric: Metric) -> tuple[str, str]:
    """Return the digest of a definition, which is the same for all values of its group, and the value of the group."""
    if metric.group is None or metric.group.value is None:
        return metric.digest, ""
    return metric.in_group(None).digest, metric.group.value


def counts_of(metric: Metric, batches: list[Batch]) -> np.ndarray[Any, Any]:
    """(m, 1 + k): reports and ones of each cohort, from the bytes that were sent."""
    counts = np.zeros((metric.num_cohorts, 1 + metric.num_bits), np.int64)
    for batch in batches:
        rows = np.frombuffer(batch.rows, np.uint8).reshape(len(batch), -1)
        bits = np.unpackbits(rows, axis=1, bitorder="little")[:, : metric.num_bits]
        for cohort, ones in zip(batch.cohorts, bits, strict=True):
            counts[cohort, 0] += 1
            counts[cohort, 1:] += ones
    return counts


def counted(summary: Summary) -> np.ndarray[Any, Any]:
    """(m, 1 + k): reports and ones of each cohort of a summary."""
    bits = summary.bit_counts()
    return np.column_stack([bits.reports, bits.ones])


def summaries_of(directory: Path) -> dict[Key, Summary]:
    """Return the downloaded summaries by metric, group and period."""
    found = dict[Key, Summary]()
    for path in directory.rglob("*.parquet"):
        summary = read_summary(path)
        (period,) = summary.periods
        found[*collection_of(summary.metric), period] = summary
    return found


def count_faults(deployment: Deployment) -> Iterator[str]:
    """Yield periods whose counts are not those of the stored batches, each once."""
    service = deployment.service
    requests = [request for request in service.requests if not service.is_lost(request)]
    answers = Counter(request.batch.batch_id for request in requests if request.stored)
    if service.storage.segments is None:
        yield from (f"batch {batch_id} was stored {times} times" for batch_id, times in answers.items() if times > 1)
    known = {request.batch.batch_id for request in requests if request.is_known}
    yield from (f"batch {batch_id} was known before it was stored" for batch_id in known - answers.keys())
    sent: dict[Key, list[Batch]] = {}
    for batch in (request.batch for request in service.counted()):
        for group in {batch.group, ""}:
            sent.setdefault((batch.digest, group, batch.period), []).append(batch)
    directory = deployment.directory / "fresh"
    deployment.analyst.pull(directory, "--open")
    before, found = summaries_of(deployment.before), summaries_of(directory)
    for key, summary in found.items():
        expected = counts_of(summary.metric, sent.get(key, []))
        expected += counted(before[key]) if key in before else 0
        if not np.array_equal(counted(summary), expected):
            yield f"{key} has {summary.num_reports} reports, of {len(sent.get(key, []))} stored batches"
    yield from (f"{key} was stored, and has no summary" for key in {*sent, *before} - {*found})


def published(deployment: Deployment) -> Iterator[tuple[str, Key, dict[str, Any]]]:
    """Yield the name of each metric with the key and the document of each of its periods on the site."""
    for path in sorted((deployment.analyst.site / "v1").glob("*.json")):
        document = json.loads(path.read_text())
        for period in document.get("periods", ()):
            yield document["metric"], (period["digest"], period["group"] or "", period["period"]), period


def _candidates(metric: Metric) -> Sequence[str] | None:
    return None if metric.kind.named_values else CANDIDATES.get(metric.name)


def agreement_faults(deployment: Deployment) -> Iterator[str]:
    """Yield periods of which the site, the store and a fresh decoding of the summary have other figures."""
    summaries = summaries_of(deployment.analyst.summaries)
    with closing(
        sqlite3.connect(deployment.analyst.site.with_name("site.files") / "private" / "results.sqlite")
    ) as store:
        for name, key, period in published(deployment):
            on_site = [(e["share"], e["low"], e["high"]) for e in period["estimates"]]
            stored = store.execute(
                "SELECT share, low, high FROM estimates WHERE digest = ? AND group_value = ? AND period = ? ORDER BY position",
                key,
            ).fetchall()
            fresh = [
                tuple(None if math.isnan(x) else x for x in (e.share, e.low, e.high))
                for e in decode(summaries[key], _candidates(summaries[key].metric))
            ]
            if not on_site == stored == fresh:
                yield f"{name} of {key}: the site, the store and a fresh decoding differ"
            if period["num_reports"] != summaries[key].num_reports:
                yield f"{name} of {key}: the site has {period['num_reports']} reports, the summary {summaries[key].num_reports}"
            if not summaries[key].closed:
                yield f"{name} of {key} is published, and was not closed"


def leaks(deployment: Deployment) -> Iterator[str]:
    """Yield places that have what belongs to one person: an answer that only they gave, or the id of a batch."""
    private = {person.private_answer for person in deployment.people}
    for subject in (subject for server in deployment.servers for subject in server.subjects):
        private |= {subject.identity, subject.own_answers[0]}
    batches = {str(request.batch.batch_id) for request in deployment.service.requests}
    storage = deployment.service.storage
    said = [text for texts in deployment.analyst.said.values() for text in texts]
    for where, content, secrets in [
        *((path.name, path.read_bytes(), private | batches) for path in _files(deployment.analyst.directory)),
        *((path.name, path.read_bytes(), private) for path in _files(deployment.directory / "people")),
        *((where, content, private) for where, content in storage.content()),
        ("a message", "\n".join(deployment.messages.examples.values()).encode(), private | batches),
        ("a command's output", "\n".join(said).encode(), private | batches),
    ]:
        yield from (f"{where} has {secret}" for secret in secrets & _identifiers(content))
    if kept := storage.kept_ids():
        yield f"the service has {kept} ids of batches of closed periods"


def _identifiers(content: bytes) -> set[str]:
    """Return all parts of a file that may be an answer of one person or the id of a batch, in plain text."""
    return {found.decode() for found in IDENTIFIER.findall(content)}


def _files(directory: Path) -> Iterator[Path]:
    return (path for path in directory.rglob("*") if path.is_file())
