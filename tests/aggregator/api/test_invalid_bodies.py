"""Invalid bodies: refused without a 5xx, not stored, not inflated beyond the limit."""

from __future__ import annotations

import base64
import gzip
import json
import tracemalloc
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub import Batch, Definitions, RefusedError
from hubbub.wire.problems import ProblemType
from hubbub_aggregator.api.request_body import inflate

if TYPE_CHECKING:
    from tests.aggregator.conftest import Aggregator, MakeBatch

REFUSED = {400, 404, 409, 410, 413, 415, 422}


@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_rejects_truncated_bodies(aggregator: Aggregator, make_batch: MakeBatch, coding: str) -> None:
    before, body = aggregator.stored(), make_batch(aggregator.definitions["homepage"]).to_json().rstrip()
    sent = gzip.compress(body) if coding == "gzip" else body
    for end in range(len(sent)):
        answer = aggregator.post(sent[:end], content_encoding=coding)
        assert (answer.status, answer.json["type"]) == (400, "/problems/malformed"), end
    assert aggregator.stored() == before
    assert aggregator.post(sent, content_encoding=coding).status == 202


def scalars() -> st.SearchStrategy[Any]:
    return st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40)


def values() -> st.SearchStrategy[Any]:
    def deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4)

    return st.recursive(scalars(), deeper, max_leaves=12)


def nearly_batches(definitions: Definitions) -> st.SearchStrategy[Any]:
    """Objects with the fields of a batch and valid, nearly valid or arbitrary values."""
    digests = [metric.digest for metric in definitions.versions()]
    fields: dict[str, st.SearchStrategy[Any]] = {
        "batch_id": st.uuids(version=4).map(str) | st.uuids().map(str),
        "metric": st.sampled_from(sorted(definitions)),
        "digest": st.sampled_from(digests),
        "period": st.just("2024-06-10") | st.dates().map(str),
        "cohorts": st.lists(st.integers(0, 1), max_size=3) | st.lists(st.integers(-1, 300), max_size=3),
        "bits": st.binary(max_size=9).map(lambda data: base64.b64encode(data).decode()),
    }
    mostly = {name: st.one_of(right, right, right, values()) for name, right in fields.items()}
    return st.fixed_dictionaries(mostly) | st.fixed_dictionaries({}, optional=mostly) | values()


def sent_and_counted(aggregator: Aggregator, bodies: Iterable[bytes], coding: str = "identity") -> int:
    """Send bodies; return the number of reports acknowledged as new."""
    acknowledged = 0
    for body in bodies:
        answer = aggregator.post(body, content_encoding=coding)
        if answer.status == 202:
            acknowledged += len(Batch.from_json(body))
        elif answer.status != 200:
            assert answer.status in REFUSED, body
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json["status"] == answer.status
    return acknowledged


@pytest.mark.slow
def test_invalid_bodies_are_refused_or_counted(aggregator: Aggregator) -> None:
    before, acknowledged = aggregator.stored(), 0

    @settings(max_examples=600)
    @given(
        nearly_batches(aggregator.definitions).map(lambda value: json.dumps(value).encode()) | st.binary(max_size=200)
    )
    def send(body: bytes) -> None:
        nonlocal acknowledged
        acknowledged += sent_and_counted(aggregator, [body])

    send()
    assert aggregator.stored() == before + acknowledged


def test_batch_with_one_changed_byte_is_refused_or_counted(
    aggregator: Aggregator, make_batch: MakeBatch, unseen_seed: int
) -> None:
    before, body = aggregator.stored(), make_batch(aggregator.definitions["homepage"]).to_json()

    def changed() -> Iterable[bytes]:
        for at in range(len(body)):
            flip = 1 << (unseen_seed >> at % 61) % 8
            yield body[:at] + bytes([body[at] ^ flip]) + body[at + 1 :]

    acknowledged = sent_and_counted(aggregator, changed())
    assert aggregator.stored() == before + acknowledged


@given(st.binary(max_size=300), st.booleans())
def test_inflate_returns_the_packed_bytes_or_refuses(data: bytes, packed: bool) -> None:
    if packed:
        assert inflate(gzip.compress(data), 4 << 20) == data
    else:
        with pytest.raises(RefusedError) as refused:
            inflate(data, 4 << 20)
        assert refused.value.problem_type is ProblemType.MALFORMED


def test_inflate_bounds_memory_of_a_gzip_bomb() -> None:
    """200 MB of zeros in 200 kB; the limit is 4 MiB, plus a margin for copies."""
    packer = zlib.compressobj(wbits=31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(200)) + packer.flush()
    tracemalloc.start()
    with pytest.raises(RefusedError) as refused:
        inflate(bomb, 4 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused.value.problem_type is ProblemType.TOO_LARGE
    assert peak < 9 << 20


def test_inflate_accepts_the_limit_and_refuses_one_more_byte() -> None:
    assert len(inflate(gzip.compress(bytes(10_000)), 10_000)) == 10_000
    with pytest.raises(RefusedError, match="more than the limit of 10000"):
        inflate(gzip.compress(bytes(10_001)), 10_000)
