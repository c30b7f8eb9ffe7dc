"""Bloom bits: the true bits of a value, for each kind of metric."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from hubbub.encoding.hashing import google_md5, murmur3_v1
from hubbub.errors import InvalidValueError
from hubbub.metrics.metric import Kind, Metric

Value = str | bool | None


DIGEST_BYTES = 16


class BloomBits(int):
    """True bits of a value in one cohort: bit i is one where the Bloom filter, or the category, sets bit i.

    value_digest : first 16 bytes of SHA-256 of the value, if each value of the metric has its own permanent response; else empty
    """

    value_digest: bytes = b""


_HASH_FUNCTIONS = {"murmur3-v1": murmur3_v1.bit_positions, "google-md5": google_md5.bit_positions}


def bloom_bits(metric: Metric, value: Value, cohort: int) -> BloomBits:
    """Return the true bits of a value in a cohort, before any randomization. Never send or store them.

    string : bit i is one if one of the h hashes has position i       categorical : the bit of the category
             with `discover`, the hashes are those of the fragment that the cohort reports
    boolean : one bit                                                  None (no value recorded) : no bit

    Raises InvalidValueError; its message never contains the value.

    >>> metric = Metric.categorical("os", ("linux", "macos", "windows"), prob_p=0.25, prob_q=0.75, prob_f=0.5)
    >>> bin(bloom_bits(metric, "windows", cohort=0)), bloom_bits(metric, None, cohort=0)
    ('0b100', 0)
    """
    if (
        type(value) is str and metric.kind is Kind.STRING and value.isascii()
    ):  # the common case, without the other checks
        return _string_bits(metric, value.encode(), cohort)
    if value is None:
        return BloomBits(0)
    if metric.kind is Kind.BOOLEAN:
        if not isinstance(value, bool):
            raise InvalidValueError(
                f"{metric.name}: a boolean metric accepts True, False or None, got {_type_name(value)}"
            )
        return BloomBits(value)
    if not isinstance(value, str):
        raise InvalidValueError(f"{metric.name}: a {metric.kind} metric accepts a str or None, got {_type_name(value)}")
    if metric.kind is Kind.CATEGORICAL:
        return _category_bit(metric, value)
    text = _utf8(value)
    if text is None:  # not raised in _utf8: the UnicodeEncodeError there contains the value
        raise InvalidValueError(f"{metric.name}: the value cannot be encoded as UTF-8: remove lone surrogates")
    return _string_bits(metric, text, cohort)


def _string_bits(metric: Metric, text: bytes, cohort: int) -> BloomBits:
    params, discover = metric.params, metric.discover
    hashed = text if discover is None else discover.fragment(text, discover.group(cohort, params.num_cohorts))
    bits = _bits_at(_HASH_FUNCTIONS[params.hash_scheme](hashed, cohort, params.num_bits, params.num_hashes))
    if metric.has_response_per_value:
        bits.value_digest = hashlib.sha256(text).digest()[:DIGEST_BYTES]
    return bits


def _utf8(value: str) -> bytes | None:
    try:
        return value.encode()
    except UnicodeEncodeError:
        return None


def _bits_at(positions: Iterable[int]) -> BloomBits:
    bits = 0
    for position in positions:
        bits |= 1 << position
    return BloomBits(bits)


def _category_bit(metric: Metric, value: str) -> BloomBits:
    if value in metric.categories:
        return BloomBits(1 << metric.categories.index(value))
    if metric.other is not None:
        return BloomBits(1 << metric.categories.index(metric.other))
    raise InvalidValueError(
        f"{metric.name}: the value is none of the {len(metric.categories)} categories: "
        "add it to `categories`, or set `other` to the category of unknown values"
    )


def _type_name(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
