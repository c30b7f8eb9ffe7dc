"""Length on the wire: every request that carries one report has as many bytes as every other, headers included."""

from __future__ import annotations

import itertools
import json
import socket
from datetime import date
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hubbub import Client, Definitions, KindWord, Metric, Params, PeriodKind, UnaryResponse
from hubbub.metrics.periods import Period
from hubbub.sdk.upload.transport import HttpTransport
from hubbub.testing import UNLIMITED, ManualClock, RecordingTransport, Seams, SeededBytes, deliver
from hubbub.wire.batch import SINGLE_REPORT_BYTES, Batch, Report
from tests.client.upload.test_transport import JSON, http, server

EMPTY_LINE = b"\r\n\r\n"


def content_length(head: bytes) -> int:
    lines = (line.partition(b":") for line in head.split(b"\r\n"))
    return next(int(value) for name, _, value in lines if name.lower() == b"content-length")


class Capture:
    """A server that keeps all bytes of each request, and accepts every batch."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []

    def __call__(self, connection: socket.socket) -> None:
        data = b""
        while EMPTY_LINE not in data or len(data.partition(EMPTY_LINE)[2]) < content_length(
            data.partition(EMPTY_LINE)[0]
        ):
            part = connection.recv(65536)
            if not part:
                return
            data += part
        self.requests.append(data)
        batch_id = json.loads(data.partition(EMPTY_LINE)[2])["batch_id"]
        stored = json.dumps({"batch_id": batch_id, "status": "stored"}).encode()
        connection.sendall(http("202 Accepted", stored, JSON))


NAMES = st.from_regex(r"[a-z][a-z0-9_.-]{0,63}", fullmatch=True)


def sizes(num_bits: int, num_cohorts: int) -> Params:
    return Params(num_bits=num_bits, num_hashes=1, num_cohorts=num_cohorts, prob_p=0.25, prob_q=0.75, prob_f=0.5)


@st.composite
def metrics(draw: st.DrawFn, name: str) -> Metric:
    period, hold = draw(st.sampled_from(PeriodKind)), draw(st.none() | st.integers(1, 9))
    match draw(st.sampled_from(KindWord)):
        case KindWord.BOOLEAN:
            return Metric.boolean(name, UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5), period=period, hold=hold)
        case KindWord.CATEGORICAL:
            categories = tuple(f"c{number}" for number in range(draw(st.integers(2, 1024))))
            return Metric.categorical(
                name, categories, UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5), period=period, hold=hold
            )
        case _:
            cohorts = 1 << draw(st.integers(0, 8))
            return Metric.string(name, sizes(draw(st.integers(8, 1024)), cohorts), period=period, hold=hold)


@st.composite
def definitions(draw: st.DrawFn) -> Definitions:
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    return Definitions([draw(metrics(name)) for name in names])


def value_of(metric: Metric, number: int) -> str | bool | None:
    if number == 0:
        return None
    if metric.kind.word is KindWord.CATEGORICAL:
        return metric.kind.labels[number % len(metric.kind.labels)]
    return bool(number % 2) if metric.kind.word is KindWord.BOOLEAN else "v" * number


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=st.data())
def test_request_length_is_constant(tmp_path: Path, made: st.DataObject) -> None:
    """Over metrics, cohorts, period kinds, dates and values; the bytes are those that arrive at a socket."""
    capture = Capture()
    with server(capture) as url:
        for seed in range(3):  # three clients: three cohorts
            definitions_drawn = made.draw(definitions())
            clock = ManualClock(made.draw(st.dates(date(2026, 1, 1), date(2090, 1, 1))))
            client = Client(
                definitions_drawn,
                tmp_path,
                url,
                durability="memory",
                policy=UNLIMITED,
                seams=Seams(
                    clock=clock,
                    random_bytes=SeededBytes(made.draw(st.integers(0, 10_000)) + seed),
                    transport=HttpTransport(url),
                ),
                environment={},
            )
            with client:
                client.set_consent("on")
                for name, metric in definitions_drawn.items():
                    client.record(name, value_of(metric, made.draw(st.integers(0, 300))))
                assert deliver(client) == len(definitions_drawn)
    assert len(capture.requests) >= 3
    assert {len(request) for request in capture.requests} == {len(capture.requests[0])}
    heads = {request.partition(EMPTY_LINE)[0] for request in capture.requests}
    assert len(heads) == 1, "the headers of two requests differ"


def test_length_of_a_per_subject_batch_depends_on_no_recorded_value(tmp_path: Path) -> None:
    """All recordings of two of four subjects on two days, under one secret: each batch has the same reports, cohorts and length.

    The padding ends at 512 bytes, and four reports of 128 bytes are longer. On the second day a subject may record nothing.
    """
    metric, values = Metric.string("page", sizes(1024, 256)), (None, "a", "b" * 300)
    seen = set()
    for of_first_day in itertools.product(values, repeat=2):
        for of_second_day in itertools.product((*values, ...), repeat=2):
            clock, transport = ManualClock(date(2026, 11, 23)), RecordingTransport()
            client = Client(
                Definitions([metric]),
                tmp_path,
                "https://telemetry.example.org",
                durability="memory",
                per_subject=True,
                policy=UNLIMITED,
                seams=Seams(clock=clock, random_bytes=SeededBytes(1), transport=transport),
                environment={},
            )
            with client:
                client.set_consent("on")
                for day in (of_first_day, of_second_day):
                    for subject, value in zip(("ada", "bob"), day, strict=True):
                        if value is not ...:
                            client.subject(subject).record("page", value)
                    client.subject("cy").record("page", "c")
                    client.subject("dan").record("page")
                    deliver(client)
                    clock.move(days=1)
            batches = transport.batches
            seen.add(tuple((str(of.period), tuple(sorted(of.cohorts)), len(of.to_json())) for of in batches))
    (sent,) = seen
    assert [len(cohorts) for _, cohorts, _ in sent] == [4, 4]
    assert all(length > SINGLE_REPORT_BYTES for *_, length in sent)


def test_largest_report_fits_the_fixed_length() -> None:
    """The longest name, the most bits and the longest cohort number: a larger limit must make the length larger."""
    largest = Metric.categorical(
        "m" * 64,
        tuple(f"c{n}" for n in range(1024)),
        UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5),
        period=PeriodKind.MONTH,
    )
    strings = Metric.string("m" * 64, sizes(1024, 256))
    for metric in (largest, strings):
        cohort = metric.num_cohorts - 1
        report = Report.from_int(cohort, (1 << 1024) - 1, 1024)
        period = Period.containing(metric.period, date(2026, 11, 21))
        body = Batch.from_reports(metric, period, [report]).to_json()
        assert len(body) == SINGLE_REPORT_BYTES
        assert body.rstrip(b" ").endswith(b"}")


def test_padding_is_removed_from_batch() -> None:
    batch = Batch.from_reports(
        Metric.boolean("b", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5)),
        Period.containing(PeriodKind.DAY, date(2026, 11, 21)),
        [Report.from_int(0, 1, 1)],
    )
    assert Batch.from_json(batch.to_json()) == batch
