"""Gateway of the demo: it sends only encoded reports, and repeats batches with the same id."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from hubbub_decoder.demo.aggregator_process import ServiceError, running_aggregator
from hubbub_decoder.demo.flights import Flight
from hubbub_decoder.demo.gateway import DeliveryError, send_reports

TODAY = date(2013, 7, 4)
FLIGHTS = [Flight("BOS", "B6", from_jfk=True), Flight("LAX", "UA", from_jfk=False)]


class RecordingHandler(BaseHTTPRequestHandler):
    """Responds with the given statuses and records the request bodies."""

    statuses: ClassVar[list[int]] = []
    echo: ClassVar[bool] = True
    bodies: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.bodies.append(body)
        content = {"batch_id": json.loads(body)["batch_id"] if self.echo else "welcome to our wireless network"}
        response = json.dumps(content).encode()
        self.send_response(self.statuses.pop(0) if self.statuses else 202)
        self.send_header("Content-Length", str(len(response)))
        self.end_headers()
        self.wfile.write(response)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (its name in the base class)
        pass


@pytest.fixture
def url() -> Iterator[str]:
    RecordingHandler.statuses, RecordingHandler.echo, RecordingHandler.bodies = [], True, []
    with ThreadingHTTPServer(("127.0.0.1", 0), RecordingHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_sends_one_batch_per_metric_without_values(url: str) -> None:
    assert send_reports(url, FLIGHTS, TODAY) == 2
    batches = [json.loads(body) for body in RecordingHandler.bodies]
    assert [batch["metric"] for batch in batches] == ["destination", "carrier", "from_jfk"]
    assert all(set(batch) == {"batch_id", "metric", "digest", "period", "cohorts", "bits"} for batch in batches)
    assert all(len(batch["cohorts"]) == 2 for batch in batches)


def test_repeats_a_rejected_batch_with_the_same_bytes_and_id(url: str) -> None:
    RecordingHandler.statuses = [503, 429, 202]
    send_reports(url, FLIGHTS, TODAY)
    first, second, third, *_ = RecordingHandler.bodies
    assert first == second == third
    assert len(RecordingHandler.bodies) == 5


@pytest.mark.parametrize("status", [400, 204, 302, 500])
def test_other_statuses_raise_delivery_error_with_the_status(url: str, status: int) -> None:
    RecordingHandler.statuses = [status]
    with pytest.raises(DeliveryError, match=f"did not confirm a batch of metric destination: status {status}"):
        send_reports(url, FLIGHTS, TODAY)


def test_response_without_the_batch_id_raises_delivery_error(url: str) -> None:
    """A captive portal also answers 200."""
    RecordingHandler.echo = False
    with pytest.raises(DeliveryError, match="did not confirm a batch of metric destination: status 202"):
        send_reports(url, FLIGHTS, TODAY)


def test_failed_start_of_the_aggregator_names_the_reason() -> None:
    with pytest.raises(ServiceError, match=r"did not start: .*there is no"), running_aggregator(""):
        raise AssertionError("it started")
