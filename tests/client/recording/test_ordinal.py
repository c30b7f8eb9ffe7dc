"""Recordings of ordinal metrics: several numbers in a period, memory of the running number, reports without a recording."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from hubbub import Buckets, Metric, UnaryResponse
from hubbub.client import collaborators
from hubbub.testing import SeededBytes, deliver
from tests.client.conftest import Rig, require_balanced

EDGES = (0, 1, 10, 100, 1000)
CANARY = 74656.31942


def plain(several: str, **more: Any) -> Metric:
    """Without noise: the report shows the bucket."""
    return Metric.ordinal("clicks", Buckets(EDGES, several, **more), UnaryResponse(prob_p=0, prob_q=1, prob_f=0))  # type: ignore[arg-type]


def rows(rig: Rig) -> list[int]:
    return [row for batch in rig.transport.batches for row in batch.rows]


@pytest.mark.parametrize(
    ("several", "numbers", "bucket"),
    [
        ("sum", (4, 5, 3), 2),
        ("sum", (0, 0.25, 0.5), 0),
        ("sum", (500, 600, -200), 3),
        ("sum", (10**400, 5), 3),
        ("max", (4, 50, 3), 2),
        ("last", (4, 500, 0), 0),
        ("one", (7, 7, 7), 1),
    ],
)
def test_several_numbers_of_a_period_are_reported_as_declared(
    several: str, numbers: tuple[float, ...], bucket: int, rig: Rig
) -> None:
    client = rig.agreed(plain(several))
    for number in numbers:
        client.record("clicks", number)
    deliver(client)
    assert rows(rig) == [1 << bucket]
    counts = client.accounting()
    assert (counts.recorded, counts.chosen, counts.superseded) == (len(numbers), 1, len(numbers) - 1)
    require_balanced(counts)


@pytest.mark.parametrize(
    ("several", "numbers", "bit"),
    [
        ("sum", (400, 500, 150), 1),
        ("sum", (400, -500), 0),
        ("max", (50, 1e9, 3), 1),
        ("last", (2000, -1), 0),
        ("one", (1000,), 1),
    ],
)
def test_mean_reports_the_number_of_the_period(several: str, numbers: tuple[float, ...], bit: int, rig: Rig) -> None:
    """Without noise; the numbers end at or beyond an end of the range, which decides the bit for every threshold."""
    buckets = Buckets((0, 1000), several, default=0, estimate="mean")  # type: ignore[arg-type]
    client = rig.agreed(Metric.ordinal("clicks", buckets, UnaryResponse(prob_p=0, prob_q=1, prob_f=0)))
    for number in numbers:
        client.record("clicks", number)
    rig.clock.move(days=1)
    deliver(client)
    assert rows(rig) == [bit, 0]  # nothing was recorded on the second day
    require_balanced(client.accounting())


def test_a_changed_number_costs_one_more_value_only_if_it_crosses_the_threshold(rig: Rig) -> None:
    """Ends of the range: the bit is 0 for the first three numbers, then 1, 1, 0 and 1."""
    buckets = Buckets((0, 1000), default=0, estimate="mean")  # type: ignore[arg-type]
    client = rig.agreed(Metric.ordinal("clicks", buckets, UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5)))
    units = []
    for number in (-5, 0, -1e9, 1000, 2000, 0, 5000):
        client.record("clicks", number)
        rig.clock.move(days=1)
        deliver(client)
        (account,) = client.ledger().accounts
        units.append(account.units)
    assert units == [1, 1, 1, 2, 2, 2, 2]


def test_the_next_period_starts_from_nothing(rig: Rig) -> None:
    client = rig.agreed(plain("sum"))
    for _ in range(3):
        client.record("clicks", 60)
        client.record("clicks", 60)
        rig.clock.move(days=1)
    deliver(client)
    assert rows(rig)[:3] == [0b1000] * 3


def test_a_restarted_client_continues_the_sum(rig: Rig) -> None:
    for number in range(4):
        client = rig.agreed(plain("sum"))
        client.record("clicks", 30)
        if number == 2:
            collaborators(client).compactor.compact(always=True)
        client.close()
    client = rig.client(plain("sum"))
    deliver(client)
    assert rows(rig) == [0b1000]


def test_two_processes_add_to_one_sum(rig: Rig) -> None:
    first, second = rig.agreed(plain("sum")), rig.client(plain("sum"))
    for number in range(4):
        (first, second)[number % 2].record("clicks", 30)
    deliver(first)
    assert rows(rig) == [0b1000]


def test_subjects_have_their_own_sums(rig: Rig) -> None:
    server = rig.agreed(plain("sum"), per_subject=True)
    for name, number in (("ada", 60), ("bob", 5), ("ada", 60)):
        server.subject(name).record("clicks", number)
    deliver(server)
    assert sorted(rows(rig)) == [0b10, 0b1000]


@pytest.mark.parametrize("several", ["sum", "max", "last"])
def test_no_value_and_invalid_values_do_not_change_the_number(several: str, rig: Rig) -> None:
    client = rig.agreed(plain(several))
    wrong: list[Any] = [None, "50", float("nan"), True, float("inf")]
    client.record("clicks", None)
    client.record("clicks", 50)
    for value in wrong:
        client.record("clicks", value)
    deliver(client)
    assert rows(rig) == [0b100]
    assert client.accounting().ignored["invalid"] == 4


def test_a_period_without_recording_reports_the_default(rig: Rig) -> None:
    client = rig.agreed(plain("sum", default=0))
    rig.clock.move(days=1)
    client.record("clicks", 5)
    rig.clock.move(days=1)
    deliver(client)
    assert rows(rig) == [0b1, 0b10, 0b1]


def test_a_sum_under_local_consent_is_not_continued(rig: Rig) -> None:
    client = rig.client(plain("sum"))
    client.set_consent("local")
    client.record("clicks", 500)
    client.set_consent("on")
    client.record("clicks", 5)
    deliver(client)
    assert rows(rig) == [0b10]


def test_a_sum_is_not_continued_under_a_new_secret(rig: Rig) -> None:
    client = rig.agreed(plain("sum"))
    client.record("clicks", 500)
    client.set_consent("off")
    client.set_consent("on")
    client.record("clicks", 5)
    deliver(client)
    assert rows(rig)[-1] == 0b10


def test_the_recorded_number_is_in_no_file_log_or_request(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    metric = Metric.ordinal("clicks", Buckets(EDGES, "sum"), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5))  # type: ignore[arg-type]
    client = rig.agreed(metric, random_bytes=SeededBytes(1))
    for _ in range(3):
        client.record("clicks", CANARY)
        client.record("clicks", str(CANARY))
    collaborators(client).compactor.compact(always=True)
    client.record("clicks", CANARY)
    deliver(client)
    outputs = [file.read_bytes() for file in rig.state.rglob("*") if file.is_file()]
    everything = b"\n".join([*outputs, caplog.text.encode(), *rig.transport.bodies, repr(client.inspect()).encode()])
    for count in range(1, 5):
        total = count * CANARY
        for form in (struct.pack("<d", total), struct.pack(">d", total)):
            assert form not in everything
            assert form.hex().encode() not in everything
        assert str(total)[:8].encode() not in everything
    assert b"accepts a finite number" in everything
