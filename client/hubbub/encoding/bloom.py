"""Bloom bits: the true bits of a value, and the key that tells recorded values apart."""

from __future__ import annotations

from hubbub.errors import InvalidValueError
from hubbub.metrics.kinds import DIGEST_BYTES, BloomBits, JointValue, Value
from hubbub.metrics.metric import Metric


class ValueKey:
    """Bytes that identify a recorded value of one metric: equal keys are one value.

        key = Bloom bits of all parts (ceil(k / 8) bytes), digest of each string part (16 bytes; zero for "no value")

    The permanent response is a function of this key (`responses.py`), and the ledger counts this key (`sealed_values.py`). So the client
    draws a new permanent response exactly when the ledger charges another value. Two strings with equal Bloom bits are two values. For
    a boolean, False and "no value" have no bits and are one value.
    """

    __slots__ = ("_row_bytes", "num_bytes")

    def __init__(self, metric: Metric) -> None:
        self._row_bytes = metric.row_bytes
        self.num_bytes = self._row_bytes + DIGEST_BYTES * metric.kind.num_strings

    def __call__(self, bloom: BloomBits) -> bytes:
        """Return the key of a value's Bloom bits: `num_bytes` bytes."""
        return (bloom.to_bytes(self._row_bytes, "little") + bloom.value_digest).ljust(self.num_bytes, b"\0")

    def bloom_bits(self, key: bytes) -> BloomBits:
        """Return the Bloom bits, with their digest, of a key."""
        bloom = BloomBits(int.from_bytes(key[: self._row_bytes], "little"))
        bloom.value_digest = key[self._row_bytes :]
        return bloom


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

    >>> from hubbub import UnaryResponse
    >>> metric = Metric.categorical("os", ("linux", "macos", "windows"), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5))
    >>> bin(bloom_bits(metric, "windows", cohort=0)), bloom_bits(metric, None, cohort=0)
    ('0b100', 0)
    >>> joint = Metric.joint("device", (Metric.boolean("paid", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5)), metric))
    >>> bin(bloom_bits(joint, (True, "windows"), 0)), bin(bloom_bits(joint, {"os": "linux"}, 0))
    ('0b1001', '0b10')
    """
    try:
        return metric.kind.true_bits(value, cohort, threshold)
    except InvalidValueError as problem:
        message = f"{metric.name}: {problem}"
    raise InvalidValueError(message)  # not in the handler: an exception without context has no frames to leak a value
