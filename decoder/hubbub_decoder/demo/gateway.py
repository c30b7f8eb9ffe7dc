"""People -> reports -> batches -> HTTP: a gateway that reports for many people, each with a secret of their own.

What leaves a person here leaves through the client's own encoder; the gateway batches reports by the thousand, and sends a
batch that got no answer again, the same bytes under the same id.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import date
from multiprocessing import get_context

import urllib3

from hubbub.encoding.bloom import Value
from hubbub.encoding.encoder import Encoder
from hubbub.encoding.secret import Secret
from hubbub.errors import HubbubError
from hubbub.metrics.metric import Metric
from hubbub.metrics.periods import Period
from hubbub.wire.batch import CONTENT_TYPE, Batch
from hubbub.wire.report import Report
from hubbub_decoder.demo.flights import Flight, definitions

FLIGHTS_PER_BATCH = 4_000
_RETRY = urllib3.Retry(
    total=8, status_forcelist=(429, 503), allowed_methods=None, backoff_factor=0.2, raise_on_status=False, redirect=0
)


class DeliveryError(HubbubError):
    """A batch that the aggregator did not take."""


def send_all_reports(
    url: str, population: Sequence[Flight], today: date, workers: int, told: Callable[[int], None]
) -> None:
    """Let every person report once to each metric; `told` hears how many more have."""
    crowds = [population[start : start + FLIGHTS_PER_BATCH] for start in range(0, len(population), FLIGHTS_PER_BATCH)]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(report, url, crowd, today) for crowd in crowds]
        try:
            for done in as_completed(running):
                told(done.result())
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def report(url: str, crowd: Sequence[Flight], today: date) -> int:
    """Encode what these people answer, send one batch a metric, and return how many people that were."""
    metrics = list(definitions().values())
    said: list[list[Report]] = [[] for _ in metrics]
    for person in crowd:
        for reports, spoken in zip(said, encode_reports(metrics, person, Secret.generate()), strict=True):
            reports.append(spoken)
    with urllib3.PoolManager(retries=_RETRY, timeout=urllib3.Timeout(60)) as http:
        for metric, reports in zip(metrics, said, strict=True):
            send(http, url, Batch.from_reports(metric, Period.containing(metric.period, today), reports))
    return len(crowd)


def encode_reports(metrics: Sequence[Metric], answers: Sequence[Value], secret: Secret) -> Iterator[Report]:
    """Yield one person's report to each metric, all under that person's one secret."""
    for metric, answer in zip(metrics, answers, strict=True):
        yield Encoder(metric, secret).encode(answer)


def send(http: urllib3.PoolManager, url: str, batch: Batch) -> None:
    """Send a batch until the aggregator says that it is stored."""
    body = batch.to_json()
    try:
        answer = http.request("POST", f"{url}/v1/reports", body=body, headers={"Content-Type": CONTENT_TYPE})
    except urllib3.exceptions.HTTPError as problem:
        raise DeliveryError(
            f"{url} does not answer ({type(problem).__name__}): is the aggregator still running?"
        ) from None
    if answer.status not in (200, 202) or json.loads(answer.data).get("batch_id") != str(batch.batch_id):
        raise DeliveryError(f"{url} answered {answer.status} to a batch of {batch.metric}: {answer.data[:300]!r}")
