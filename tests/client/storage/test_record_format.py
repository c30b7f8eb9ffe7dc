"""Record format: damaged bytes lose exactly the records that contain them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub.sdk.storage.record_format import MAGIC, encode_record, scan

PAYLOADS = [f"report {number}".encode() * (number % 5 + 1) for number in range(1000)]
FILE = b"".join(map(encode_record, PAYLOADS))
STARTS = [0]
for _payload in PAYLOADS:
    STARTS.append(STARTS[-1] + len(encode_record(_payload)))


def hit_by(at: int) -> int:
    return max(number for number, start in enumerate(STARTS[:-1]) if start <= at)


@settings(max_examples=300)
@given(at=st.integers(0, len(FILE) - 1), flip=st.integers(1, 255))
def test_flipped_byte_loses_one_record(at: int, flip: int) -> None:
    damaged = bytearray(FILE)
    damaged[at] ^= flip
    found = scan(bytes(damaged))
    hit = hit_by(at)
    assert found.payloads == PAYLOADS[:hit] + PAYLOADS[hit + 1 :]
    assert found.damaged == 1


@settings(max_examples=300)
@given(at=st.integers(0, len(FILE)), more=st.binary(max_size=40))
def test_records_after_torn_end_are_read(at: int, more: bytes) -> None:
    """A process was killed while it wrote, and the next one wrote behind it."""
    whole = sum(start <= at for start in STARTS) - 1
    found = scan(FILE[:at] + encode_record(more))
    assert found.payloads == [*PAYLOADS[:whole], more]
    assert found.damaged == (0 if at in STARTS else 1)


@given(st.lists(st.binary(max_size=200)))
def test_payload_round_trip(iter_payloads: list[bytes]) -> None:
    iter_payloads = [*iter_payloads, MAGIC, encode_record(b"one within another")]
    assert scan(b"".join(map(encode_record, iter_payloads))).payloads == iter_payloads


@given(st.binary(max_size=500))
def test_scan_accepts_any_bytes(data: bytes) -> None:
    assert len(scan(data).payloads) <= 1
