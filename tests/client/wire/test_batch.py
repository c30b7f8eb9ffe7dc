"""JSON encoding and validation of batches."""

from __future__ import annotations

import base64
import json
import uuid
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub import Batch, Metric, Params, Period, PeriodKind, ProblemType, RefusedError, Report

METRIC = Metric.string("odd", Params(num_bits=13, num_hashes=2, num_cohorts=4, prob_p=0.25, prob_q=0.75, prob_f=0.5))
PERIOD = Period.containing(PeriodKind.DAY, date(2013, 1, 1))
REPORTS = st.lists(st.builds(lambda c, b: Report.from_int(c, b, 13), st.integers(0, 3), st.integers(0, 2**13 - 1)))


@given(REPORTS)
def test_batch_round_trips_through_json(reports: list[Report]) -> None:
    batch = Batch.from_reports(METRIC, PERIOD, reports)
    assert Batch.from_json(batch.to_json()) == batch
    assert len(batch) == len(reports)
    if reports:
        batch.require_fit(METRIC, max_reports=len(reports))


def test_body_matches_golden_bytes() -> None:
    """Other clients are written from these bytes."""
    reports = [Report.from_int(3, 0b1_0000_0000_0001, 13), Report.from_int(0, 0b0_0000_0001_0000, 13)]
    body = Batch.from_reports(METRIC, PERIOD, reports, random_bytes=lambda n: bytes(range(n))).to_json()
    content = (
        b'{"batch_id":"00010203-0405-4607-8809-0a0b0c0d0e0f"'  # 16 random bytes as a UUID of version 4
        b',"metric":"odd"'
        b',"digest":"' + METRIC.digest.encode() + b'"'  # SHA-256 of the definition
        b',"period":"2013-01-01"'  # the UTC day it starts on
        b',"cohorts":[3,0]'  # one a report
        b',"bits":"ARAQAA=="}'  # rows 01 10 and 10 00: bit 0 and bit 12; bit 4
    )
    assert body == content.ljust(512)  # spaces: every single report has this length


def body(**changes: Any) -> bytes:
    fields = {
        "batch_id": str(uuid.uuid4()),
        "metric": "odd",
        "digest": METRIC.digest,
        "period": "2013-01-01",
        "cohorts": [1, 2],
        "bits": base64.b64encode(bytes(4)).decode(),
    }
    return json.dumps({name: value for name, value in {**fields, **changes}.items() if value != "absent"}).encode()


MALFORMED: list[bytes] = [
    b"",
    b"\xff",
    b"[]",
    b"null",
    b"[" * 100_000,
    b'{"period": ' + b"[" * 50_000,
    *(body(**{name: "absent"}) for name in ("batch_id", "metric", "digest", "period", "cohorts", "bits")),
    *(body(**{name: 7}) for name in ("batch_id", "metric", "digest", "period", "cohorts", "bits")),
    body().decode().encode("utf-16"),
    body(batch_id="7"),
    body(batch_id=str(uuid.uuid1())),
    body(batch_id=str(uuid.uuid4()).upper()),
    body(batch_id=f"{{{uuid.uuid4()}}}"),
    body(cohorts=[1, 2.0]),
    body(cohorts=[1, True]),
    body(cohorts=[1, None]),
    body(cohorts="ab"),
    body(bits="AAA"),
    body(bits="AA A="),
    body(bits="€€€€"),
    body(period="2013-13-01"),
]


@pytest.mark.parametrize("malformed", MALFORMED)
def test_rejects_malformed_body(malformed: bytes) -> None:
    with pytest.raises(RefusedError) as caught:
        Batch.from_json(malformed)
    assert caught.value.problem_type is ProblemType.MALFORMED


def test_rejects_truncated_body() -> None:
    whole = body()
    for length in range(len(whole)):
        with pytest.raises(RefusedError) as caught:
            Batch.from_json(whole[:length])
        assert caught.value.problem_type is ProblemType.MALFORMED


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"cohorts": []}, ProblemType.NO_REPORTS),
        ({"cohorts": [0] * 6, "bits": base64.b64encode(bytes(12)).decode()}, ProblemType.TOO_MANY_REPORTS),
        ({"cohorts": [1]}, ProblemType.WRONG_SIZE),
        ({"bits": base64.b64encode(bytes(3)).decode()}, ProblemType.WRONG_SIZE),
        ({"cohorts": [1, 4]}, ProblemType.COHORT_OUT_OF_RANGE),
        ({"bits": base64.b64encode(b"\xff\x1f\xff\x3f").decode()}, ProblemType.PADDING_SET),
        ({"bits": base64.b64encode(b"\xff\x9f\xff\x1f").decode()}, ProblemType.PADDING_SET),
    ],
)
def test_rejects_batch_that_does_not_fit_its_metric(changes: dict[str, Any], refusal: ProblemType) -> None:
    batch = Batch.from_json(body(**changes))
    with pytest.raises(RefusedError) as caught:
        batch.require_fit(METRIC, max_reports=5)
    assert caught.value.problem_type is refusal


@pytest.mark.parametrize("cohort", [-1, 256, 10**40])
def test_rejects_cohort_out_of_range(cohort: int) -> None:
    with pytest.raises(RefusedError) as caught:
        Batch.from_json(body(cohorts=[cohort]))
    assert caught.value.problem_type is ProblemType.COHORT_OUT_OF_RANGE


@pytest.mark.parametrize("num_bits", range(8, 26))
def test_rejects_every_padding_bit_and_no_other(num_bits: int) -> None:
    metric = Metric.string(
        "m", Params(num_bits=num_bits, num_hashes=2, num_cohorts=1, prob_p=0.25, prob_q=0.75, prob_f=0)
    )
    width = metric.row_bytes
    for bit in range(8 * width):
        batch = Batch(
            uuid.uuid4(),
            "m",
            metric.digest,
            "2013-01-01",
            bytes(2),
            bytes(width) + (1 << bit).to_bytes(width, "little"),
        )
        if bit < num_bits:
            batch.require_fit(metric, max_reports=2)
        else:
            with pytest.raises(RefusedError) as caught:
                batch.require_fit(metric, max_reports=2)
            assert caught.value.problem_type is ProblemType.PADDING_SET


def test_ignores_unknown_fields() -> None:
    assert len(Batch.from_json(body(colour="blue"))) == 2


def test_problem_slugs_are_unique() -> None:
    slugs = [refusal.slug for refusal in ProblemType]
    assert len(set(slugs)) == len(slugs)
    assert all(400 <= refusal.status < 600 and refusal.meaning.endswith(".") for refusal in ProblemType)


def test_repr_of_a_batch_has_no_bits() -> None:
    batch = Batch(uuid.UUID(int=1), "homepage", "digest", "2026-03-01", bytes(2), b"bits")
    assert repr(batch) == "<Batch 00000000-0000-0000-0000-000000000001 of homepage, 2026-03-01: 2 reports>"
