"""Bloom filter of a string, and the true bits of a value of each kind of metric."""

from __future__ import annotations

from collections.abc import Iterable

from hubbub.encoding.hashing import google_md5, murmur3_v1
from hubbub.errors import InvalidValueError
from hubbub.metrics.metric import Kind, Metric

Value = str | bool | None


class BloomBits(int):
    """True bits of a value in one cohort: bit i is one where the Bloom filter, or the category, sets bit i."""

    __slots__ = ()


_SCHEMES = {"murmur3-v1": murmur3_v1.bit_positions, "google-md5": google_md5.bit_positions}


def bloom_bits(metric: Metric, value: Value, cohort: int) -> BloomBits:
    """Return the true bits of a value in a cohort, before any randomization. Never send or store them.

    >>> metric = Metric.categorical("os", ("linux", "macos", "windows"), prob_p=0.25, prob_q=0.75, prob_f=0.5)
    >>> bin(bloom_bits(metric, "windows", cohort=0)), bloom_bits(metric, None, cohort=0)
    ('0b100', 0)
    """
    if value is None:
        return BloomBits(0)
    if metric.kind is Kind.BOOLEAN:
        if not isinstance(value, bool):
            raise InvalidValueError(f"{metric.name}: a boolean metric takes True, False or None, got a {_type(value)}")
        return BloomBits(value)
    if not isinstance(value, str):
        raise InvalidValueError(f"{metric.name}: a {metric.kind} metric takes a str or None, got a {_type(value)}")
    if metric.kind is Kind.CATEGORICAL:
        return _category_bit(metric, value)
    text = _utf8(value)
    if text is None:  # raised here, and not where the failure that holds the value is at hand
        raise InvalidValueError(f"{metric.name}: a value must be encodable as UTF-8: drop lone surrogates")
    params = metric.params
    return _set(_SCHEMES[params.hash_scheme](text, cohort, params.num_bits, params.num_hashes))


def _utf8(value: str) -> bytes | None:
    try:
        return value.encode()
    except UnicodeEncodeError:
        return None


def _set(positions: Iterable[int]) -> BloomBits:
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
        "declare it, or declare `other` to stand in for the rest"
    )


def _type(value: object) -> str:
    return type(value).__name__
