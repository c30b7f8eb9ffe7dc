"""Decoding of batches: agreement with a reference decoder, field names, and the bound of the size."""

from __future__ import annotations

import base64
import gzip
import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub import Batch, RefusedError, parse_definitions
from hubbub.wire.problems import ProblemType
from hubbub_aggregator.api.ingest import decode_batch
from hubbub_aggregator.pipeline.active_definitions import largest_batch

if TYPE_CHECKING:
    from hubbub_aggregator.store.sql_store import SqlStore
    from tests.aggregator.conftest import StartAggregator

DECODERS = pytest.mark.parametrize("decode", [decode_batch, Batch.from_json])
NAMES = ("batch_id", "metric", "digest", "period", "cohorts", "bits")


def fields(**changes: Any) -> dict[str, Any]:
    good = {"batch_id": str(uuid.UUID(int=7, version=4)), "metric": "homepage", "digest": "a" * 64}
    return good | {"period": "2024-06-10", "cohorts": [0, 1], "bits": base64.b64encode(bytes(6)).decode()} | changes


def encode_object(pairs: list[tuple[str, Any]]) -> bytes:
    """Return a JSON object with these names in this order, repeated ones included."""
    return b"{%b}" % b",".join(json.dumps(name).encode() + b": " + json.dumps(value).encode() for name, value in pairs)


def outcome(decode: Any, body: bytes) -> Batch | ProblemType:
    try:
        batch: Batch = decode(body)
    except RefusedError as refused:
        return refused.problem_type
    return batch


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9) | st.sampled_from(NAMES), inner),
    max_leaves=9,
)


@given(
    st.dictionaries(st.sampled_from(NAMES), values, max_size=2),
    st.dictionaries(st.text(max_size=12), values, max_size=4),
    st.sets(st.sampled_from(NAMES), max_size=1),
    st.sets(st.sampled_from(NAMES), max_size=1),
    st.randoms(),
)
def test_decode_batch_agrees_with_reference_decoder(
    changed: dict[str, Any], others: dict[str, Any], missing: set[str], repeats: set[str], order: Any
) -> None:
    pairs = [(name, value) for name, value in (others | fields() | changed).items() if name not in missing]
    pairs += [pair for pair in pairs if pair[0] in repeats]
    order.shuffle(pairs)
    body = encode_object(pairs)
    assert outcome(decode_batch, body) == outcome(Batch.from_json, body)


@given(st.text("AZaz09+/=-_ \n", max_size=12) | st.binary(max_size=9).map(lambda data: base64.b64encode(data).decode()))
def test_decode_batch_agrees_with_reference_decoder_on_base64(bits: str) -> None:
    """Also with escaped slashes, as some JSON encoders write them."""
    body = json.dumps(fields(bits=bits)).encode()
    for spelled in (body, body.replace(b"/", rb"\/")):
        assert outcome(decode_batch, spelled) == outcome(Batch.from_json, body)


@DECODERS
@pytest.mark.parametrize("bits", ["AAA", "AAAA=", "AAAA====", "AA==AA==", "AA= =", "AA==\n", "AA-_"])
def test_rejects_invalid_base64(decode: Any, bits: str) -> None:
    """Also more padding than a text needs, which Python's strict decoder accepts."""
    with pytest.raises(RefusedError) as refused:
        decode(json.dumps(fields(bits=bits)).encode())
    assert refused.value.problem_type is ProblemType.MALFORMED


@DECODERS
@given(st.sampled_from([*NAMES, "colour"]), st.data())
def test_rejects_repeated_field_names(decode: Any, name: str, data: Any) -> None:
    """Also repetitions with the same value, and names with escaped letters."""
    pairs = [*fields().items(), ("colour", 1)]
    value = dict(pairs)[name]
    body = encode_object(pairs)
    spelled = "".join(f"\\u{ord(c):04x}" if data.draw(st.booleans()) else c for c in name)
    repetition = b'"%b":%b' % (spelled.encode(), json.dumps(value).encode())
    at_start = data.draw(st.booleans())
    repeated = b"{" + repetition + b"," + body[1:] if at_start else body[:-1] + b"," + repetition + b"}"
    assert isinstance(outcome(decode, body), Batch)
    with pytest.raises(RefusedError, match="a field occurs twice"):
        decode(repeated)


def test_accepts_repeated_names_in_nested_objects() -> None:
    body = encode_object([*fields().items(), ("later", {"bits": 1, "x": {"bits": [2]}}), ("note", 'a":b: {"bits":')])
    assert outcome(decode_batch, body) == Batch.from_json(body)


@DECODERS
@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"x" * 65: 1}, "at most 64 characters, got 65"),
        ({f"f{n}": n for n in range(59)}, "at most 64 fields"),
    ],
)
def test_rejects_long_and_too_many_field_names(decode: Any, others: dict[str, Any], message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        decode(encode_object([*fields().items(), *others.items()]))


@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_rejects_deep_nesting_in_unknown_fields(depth: int) -> None:
    nested = b'{"x":' + b"[" * depth + b"]" * depth + b"," + json.dumps(fields()).encode()[1:]
    assert outcome(decode_batch, nested) in (ProblemType.MALFORMED, Batch.from_json(json.dumps(fields()).encode()))


def test_error_messages_contain_no_content_of_the_body() -> None:
    for changes in ({"cohorts": ["canary"]}, {"bits": {"canary": 1}}, {"metric": ["canary"]}):
        with pytest.raises(RefusedError) as refused:
            decode_batch(json.dumps(fields(**changes)).encode())
        assert "canary" not in refused.value.detail


@settings(max_examples=30)
@given(st.integers(8, 1024), st.integers(0, 8).map(lambda power: 1 << power), st.integers(1, 400), st.booleans())
def test_largest_batch_is_a_tight_bound(k: int, m: int, n: int, spaces: bool) -> None:
    """Cohorts have three digits, with a space after each comma, as many JSON encoders write them."""
    definitions = parse_definitions(
        f'[[metric]]\nname = "homepage"\nkind = "string"\ndescription = "d"\nowner = "o@example.org"\nexpires = 2030-01-01\n'
        f"num_bits = {k}\nnum_hashes = 1\nnum_cohorts = {m}\nprob_p = 0.25\nprob_q = 0.75\nprob_f = 0.5\n"
    )
    metric = definitions["homepage"]
    rows = bytes(n * metric.row_bytes)
    batch = Batch(uuid.uuid4(), metric.name, metric.digest, "2024-06-10", bytes([m - 1] * n), rows)
    body = json.dumps(json.loads(batch.to_json()), separators=(", ", ": ") if spaces else (",", ":")).encode()
    bound = largest_batch(definitions, n)
    around = len(json.dumps(fields(cohorts=[], bits="")))
    assert len(body) - around <= bound - (1 << 16), "the part of the bound that grows with the reports"
    assert bound - (1 << 16) <= len(body) + 5 * n


def test_rejects_body_beyond_the_bound_before_decoding(
    start: StartAggregator, sqlite_store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a body that exceeds the bound after decompression: 4 MB of nested lists in 4 kB."""
    aggregator = start(sqlite_store, max_reports=100)
    decoded: list[int] = []

    def decode(body: bytes) -> Batch:
        decoded.append(len(body))
        return decode_batch(body)

    monkeypatch.setattr("hubbub_aggregator.api.ingest.decode_batch", decode)
    nested = b'{"x":[' + b"[]," * 1_400_000 + b"[]]}"
    bound = largest_batch(aggregator.definitions, 100)
    answers = [
        aggregator.post(gzip.compress(nested), content_encoding="gzip"),
        aggregator.post(nested[: bound + 1]),
        aggregator.post(gzip.compress(bytes(bound + 1)), content_encoding="gzip"),
    ]
    assert [(answer.status, answer.json["type"]) for answer in answers] == [(413, "/problems/too-large")] * 3
    assert aggregator.post(bytes(bound)).status == 400
    assert decoded == [bound]
