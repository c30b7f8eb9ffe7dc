"""Gateway that reports for many flights over HTTP; each flight is a client with its own secret.

Every value passes through the client's encoder. The gateway sends batches of several thousand reports, and repeats a batch without a
response with the same bytes and the same id.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import date
from multiprocessing import get_context

import urllib3

from hubbub.encoding.encoder import Encoder
from hubbub.encoding.secret import Secret
from hubbub.errors import HubbubError
from hubbub.metrics.kinds import Value
from hubbub.metrics.metric import Metric
from hubbub.metrics.periods import Period
from hubbub.wire.batch import CONTENT_TYPE, Batch, Report
from hubbub_decoder.demo.flights import Flight, definitions

FLIGHTS_PER_BATCH = 4_000
_RETRY = urllib3.Retry(
    total=8, status_forcelist=(429, 503), allowed_methods=None, backoff_factor=0.2, raise_on_status=False, redirect=0
)


class DeliveryError(HubbubError):
    """The aggregator did not store a batch."""


def send_all_reports(
    url: str, population: Sequence[Flight], today: date, workers: int, progress: Callable[[int], None]
) -> None:
    """Send one report per flight and metric, encoded in `workers` processes.

    progress : called with the number of flights of each finished batch
    """
    groups = [population[start : start + FLIGHTS_PER_BATCH] for start in range(0, len(population), FLIGHTS_PER_BATCH)]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(send_reports, url, group, today) for group in groups]
        try:
            for done in as_completed(running):
                progress(done.result())
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def send_reports(url: str, flights: Sequence[Flight], today: date) -> int:
    """Encode the values of some flights, send one batch per metric, and return the number of flights."""
    metrics = list(definitions().values())
    reports_by_metric: list[list[Report]] = [[] for _ in metrics]
    for flight in flights:
        for reports, report in zip(reports_by_metric, encode_reports(metrics, flight, Secret.generate()), strict=True):
            reports.append(report)
    with urllib3.PoolManager(retries=_RETRY, timeout=urllib3.Timeout(60)) as http:
        for metric, reports in zip(metrics, reports_by_metric, strict=True):
            send_batch(http, url, Batch.from_reports(metric, Period.containing(metric.period, today), reports))
    return len(flights)


def encode_reports(metrics: Sequence[Metric], values: Sequence[Value], secret: Secret) -> Iterator[Report]:
    """Yield one report per metric for the values of one client, all under the client's secret."""
    for metric, value in zip(metrics, values, strict=True):
        yield Encoder(metric, secret).encode(value)


def send_batch(http: urllib3.PoolManager, url: str, batch: Batch) -> None:
    """Send a batch until the aggregator confirms that it is stored; raises DeliveryError otherwise."""
    body = batch.to_json()
    try:
        response = http.request("POST", f"{url}/v1/reports", body=body, headers={"Content-Type": CONTENT_TYPE})
    except urllib3.exceptions.HTTPError as problem:
        raise DeliveryError(
            f"{url} did not respond ({type(problem).__name__}). Check that the aggregator is still running."
        ) from None
    if response.status not in (200, 202) or json.loads(response.data).get("batch_id") != str(batch.batch_id):
        raise DeliveryError(
            f"{url} did not confirm a batch of metric {batch.metric}: status {response.status}, {response.data[:300]!r}. "
            "Check that the url is an aggregator's that collects this metric, and read its log."
        )
