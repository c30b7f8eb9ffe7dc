"""The demo's gateway: nothing leaves a person but the client encoder's report, and nothing is counted twice."""

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
from hubbub_decoder.demo.gateway import DeliveryError, report

TODAY = date(2013, 7, 4)
CROWD = [Flight("BOS", "B6", from_jfk=True), Flight("LAX", "UA", from_jfk=False)]


class Listening(BaseHTTPRequestHandler):
    """Answers what the test says, and keeps what it heard."""

    statuses: ClassVar[list[int]] = []
    echo: ClassVar[bool] = True
    bodies: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.bodies.append(body)
        said = {"batch_id": json.loads(body)["batch_id"] if self.echo else "welcome to our wireless network"}
        answer = json.dumps(said).encode()
        self.send_response(self.statuses.pop(0) if self.statuses else 202)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (its name in the base class)
        pass


@pytest.fixture
def url() -> Iterator[str]:
    Listening.statuses, Listening.echo, Listening.bodies = [], True, []
    with ThreadingHTTPServer(("127.0.0.1", 0), Listening) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_one_batch_a_metric_goes_out_and_holds_no_value(url: str) -> None:
    assert report(url, CROWD, TODAY) == 2
    batches = [json.loads(body) for body in Listening.bodies]
    assert [batch["metric"] for batch in batches] == ["destination", "carrier", "from_jfk"]
    assert all(set(batch) == {"batch_id", "metric", "digest", "period", "cohorts", "bits"} for batch in batches)
    assert all(len(batch["cohorts"]) == 2 for batch in batches)


def test_a_batch_that_was_not_taken_is_sent_again_the_same_bytes_under_the_same_id(url: str) -> None:
    Listening.statuses = [503, 429, 202]
    report(url, CROWD, TODAY)
    first, again, taken, *_ = Listening.bodies
    assert first == again == taken
    assert len(Listening.bodies) == 5


@pytest.mark.parametrize("status", [400, 204, 302, 500])
def test_any_other_answer_is_an_error_that_shows_it(url: str, status: int) -> None:
    Listening.statuses = [status]
    with pytest.raises(DeliveryError, match=f"answered {status} to a batch of destination"):
        report(url, CROWD, TODAY)


def test_a_200_that_does_not_repeat_the_batch_id_is_no_answer(url: str) -> None:
    """Captive portals exist."""
    Listening.echo = False
    with pytest.raises(DeliveryError, match="answered 202 to a batch of destination"):
        report(url, CROWD, TODAY)


def test_an_aggregator_that_does_not_start_says_why() -> None:
    with pytest.raises(ServiceError, match=r"did not start: .*there is no"), running_aggregator(""):
        raise AssertionError("it started")
