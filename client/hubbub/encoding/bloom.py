"""Bloom bits: the true bits of a value, for each kind of metric."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from hubbub.encoding.hashing import google_md5, murmur3_v1
from hubbub.errors import InvalidValueError
from hubbub.metrics.buckets import finite_number
from hubbub.metrics.metric import Kind, Metric
from hubbub.text import with_article

if TYPE_CHECKING:
    from decimal import Decimal
    from fractions import Fraction

Value: TypeAlias = "str | bool | float | Decimal | Fraction | None"
JointValue: TypeAlias = "tuple[Value, ...] | Mapping[str, Value]"
"""Values of the parts of a joint metric: in the order of the parts, or by name."""


DIGEST_BYTES = 16


class BloomBits(int):
    """True bits of a value in one cohort: bit i is one where the Bloom filter, the category or the bucket sets bit i.

    value_digest : first 16 bytes of SHA-256 of a string; empty for "no value" and for metrics without hashing. For a joint metric the
                   digests of its string parts are concatenated, with 16 zero bytes for a string part without a value
    """

    value_digest: bytes = b""


class ValueKey:
    """Bytes that identify a recorded value of one metric: equal keys are one value.

        key = Bloom bits of all parts (ceil(k / 8) bytes), digest of each string part (16 bytes; zero for "no value")

    The permanent response is a function of this key (`permanent.py`), and the ledger counts this key (`sealed_values.py`). So the client
    draws a new permanent response exactly when the ledger charges another value. Two strings with equal Bloom bits are two values. For
    a boolean, False and "no value" have no bits and are one value.
    """

    __slots__ = ("_row_bytes", "num_bytes")

    def __init__(self, metric: Metric) -> None:
        strings = sum(part.kind is Kind.STRING for part in metric.components)
        self._row_bytes = metric.params.row_bytes
        self.num_bytes = self._row_bytes + DIGEST_BYTES * strings

    def __call__(self, bloom: BloomBits) -> bytes:
        """Return the key of a value's Bloom bits: `num_bytes` bytes."""
        return (bloom.to_bytes(self._row_bytes, "little") + bloom.value_digest).ljust(self.num_bytes, b"\0")

    def bloom_bits(self, key: bytes) -> BloomBits:
        """Return the Bloom bits, with their digest, of a key."""
        bloom = BloomBits(int.from_bytes(key[: self._row_bytes], "little"))
        bloom.value_digest = key[self._row_bytes :]
        return bloom


_HASH_FUNCTIONS = {"murmur3-v1": murmur3_v1.bit_positions, "google-md5": google_md5.bit_positions}


def bloom_bits(metric: Metric, value: Value | JointValue, cohort: int, threshold: float | None = None) -> BloomBits:
    """Return the true bits of a value in a cohort, before any randomization. Never send or store them.

    string : bit i is one if one of the h hashes has position i       categorical : the bit of the category
             with `discover`, the hashes are those of the fragment that the cohort reports
    boolean : one bit                                                  ordinal : the bit of the number's bucket; of a mean, one bit:
                                                                                 whether the number's fraction reaches the threshold
    None (no value recorded) : no bit, or the bit of the `default` of an ordinal metric
    joint : the bits of each part's value, from a tuple of the values, or a mapping of the parts' names in which a missing
            part has no value

    threshold : of the client, `Secret.threshold`, for an ordinal metric that estimates a mean. None is enough if the bit is the same for all
                thresholds of the cohort

    Raises InvalidValueError; its message never contains the value.

    >>> metric = Metric.categorical("os", ("linux", "macos", "windows"), prob_p=0.25, prob_q=0.75, prob_f=0.5)
    >>> bin(bloom_bits(metric, "windows", cohort=0)), bloom_bits(metric, None, cohort=0)
    ('0b100', 0)
    >>> joint = Metric.joint("device", (Metric.boolean("paid", prob_p=0.25, prob_q=0.75, prob_f=0.5), metric))
    >>> bin(bloom_bits(joint, (True, "windows"), 0)), bin(bloom_bits(joint, {"os": "linux"}, 0))
    ('0b1001', '0b10')
    """
    if (
        type(value) is str and metric.kind is Kind.STRING and value.isascii()
    ):  # the common case, without the other checks
        return _string_bits(metric, value.encode(), cohort)
    if metric.parts:
        return _joint_bits(metric, value, cohort)
    if metric.buckets is not None:
        number = metric.buckets.default if value is None else recorded_number(metric, value)
        if number is not None and metric.buckets.is_mean:
            return _threshold_bit(
                metric.name, metric.buckets.fraction(number), (cohort, metric.params.num_cohorts), threshold
            )
        return BloomBits(0 if number is None else 1 << metric.buckets.index_of(number))
    if value is None:
        return BloomBits(0)
    if metric.kind is Kind.BOOLEAN:
        if not isinstance(value, bool):
            raise InvalidValueError(
                f"{metric.name}: a boolean metric accepts True, False or None, got {with_article(type(value).__name__)}"
            )
        return BloomBits(value)
    if not isinstance(value, str):
        raise InvalidValueError(
            f"{metric.name}: a {metric.kind} metric accepts a str or None, got {with_article(type(value).__name__)}"
        )
    if metric.kind is Kind.CATEGORICAL:
        return _category_bit(metric, value)
    text = _utf8(value)
    if text is None:  # not raised in _utf8: the UnicodeEncodeError there contains the value
        raise InvalidValueError(f"{metric.name}: the value cannot be encoded as UTF-8: remove lone surrogates")
    return _string_bits(metric, text, cohort)


def _joint_bits(metric: Metric, value: Value | JointValue, cohort: int) -> BloomBits:
    """Return the bits of all parts, one part after the other, and the digests of all string parts."""
    bits, digests, offset = 0, b"", 0
    for part, of_part in zip(metric.parts, _values(metric, value), strict=True):
        try:
            bloom = bloom_bits(part, of_part, cohort)
        except InvalidValueError as problem:
            raise InvalidValueError(f"{metric.name}: part {problem}") from None
        bits |= bloom << offset
        offset += part.params.num_bits
        if part.kind is Kind.STRING:
            digests += bloom.value_digest.ljust(DIGEST_BYTES, b"\0")
    joint = BloomBits(bits)
    joint.value_digest = digests
    return joint


def _values(metric: Metric, value: Value | JointValue) -> tuple[Value, ...]:
    """Return the value of each part."""
    names = [part.name for part in metric.parts]
    if value is None:
        return (None,) * len(names)
    if isinstance(value, Mapping):
        if not value.keys() <= set(names):
            raise InvalidValueError(
                f"{metric.name}: the mapping has keys that are no parts of the metric: use {', '.join(names)} only"
            )
        return tuple(value.get(name) for name in names)
    if not isinstance(value, tuple):
        raise InvalidValueError(
            f"{metric.name}: a joint metric accepts a tuple or a mapping of {', '.join(names)}, or None, got {type(value).__name__}"
        )
    if len(value) != len(names):
        raise InvalidValueError(
            f"{metric.name}: the tuple must have {len(names)} values ({', '.join(names)}), got {len(value)}"
        )
    return value


def recorded_number(metric: Metric, value: Value | JointValue) -> float:
    """Return the value of an ordinal metric as a double.

    Raises InvalidValueError for anything but a finite real number; its message never contains the value.
    """
    number = finite_number(value)
    if number is None:
        problem = "NaN or an infinity" if isinstance(value, float) else with_article(type(value).__name__)
        raise InvalidValueError(f"{metric.name}: an ordinal metric accepts a finite number or None, got {problem}")
    return number


def _threshold_bit(name: str, fraction: float, cohort: tuple[int, int], threshold: float | None) -> BloomBits:
    """Return whether a number's fraction reaches the threshold; cohort : c, m of the thresholds from c / m to (c + 1) / m."""
    c, m = cohort
    if threshold is None and c < fraction * m < c + 1:
        raise InvalidValueError(
            f"{name}: threshold is missing, and the bit of this number depends on it: use Encoder.bloom_bits"
        )
    return BloomBits(fraction >= ((c + 1) / m if threshold is None else threshold))


def _string_bits(metric: Metric, text: bytes, cohort: int) -> BloomBits:
    params, discover = metric.params, metric.discover
    hashed = text if discover is None else discover.fragment(text, discover.group(cohort, params.num_cohorts))
    bits = _bits_at(_HASH_FUNCTIONS[params.hash_scheme](hashed, cohort, params.num_bits, params.num_hashes))
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
