"""The client's pipeline on one page: value -> Bloom bits -> PRR -> IRR -> report."""

from __future__ import annotations

from collections.abc import Iterable

from hubbub.encoding.hashing import google_md5, murmur3_v1
from hubbub.encoding.instantaneous import InstantaneousResponse
from hubbub.encoding.permanent import PermanentResponse
from hubbub.encoding.secret import Secret
from hubbub.errors import InvalidValueError
from hubbub.metrics.metric import Kind, Metric
from hubbub.randomness import Coins, system_coins
from hubbub.wire.report import Report

Value = str | bool | None

_SCHEMES = {"murmur3-v1": murmur3_v1.bit_positions, "google-md5": google_md5.bit_positions}


class Encoder:
    """Turns values of one metric into reports of one client.

    >>> from hubbub.metrics.params import Params
    >>> metric = Metric.string(
    ...     "homepage", Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.5)
    ... )
    >>> report = Encoder(metric, Secret.generate()).encode("https://example.org/")
    >>> len(report.bits), 0 <= report.cohort < 64
    (128, True)
    """

    def __init__(self, metric: Metric, secret: Secret, coins: Coins = system_coins) -> None:
        self.metric = metric.require_collectable()
        self.cohort = secret.cohort(metric.params.num_cohorts)
        self._held = metric.hold is not None
        self._num_bits, self._num_hashes = metric.params.num_bits, metric.params.num_hashes
        self._hashed = _SCHEMES[metric.params.hash_scheme] if metric.kind is Kind.STRING else None
        self._permanent = PermanentResponse(metric, secret)
        self._instantaneous = InstantaneousResponse(metric.params, coins)

    def encode(self, value: Value, epoch: int | None = None) -> Report:
        """Randomize a value twice; nothing else about it leaves the process.

        value : str for a string or categorical metric, bool for a boolean one; None, nothing recorded, is the
                empty Bloom filter (false for a boolean), so that such a period looks like any other
        epoch : the number of the current epoch, for a metric with `hold` and only for one

        Raises InvalidValueError, which does not repeat the value.
        """
        if (epoch is not None) is not self._held:
            raise InvalidValueError(
                f"{self.metric.name}: "
                + ("has a hold: give the current epoch" if self._held else "has no hold, so no epoch")
            )
        return Report.from_int(self.cohort, self.respond(self.bloom(value), epoch), self._num_bits)

    def bloom(self, value: Value) -> int:
        """Return the true bits of a value, never to be sent or stored; raises InvalidValueError."""
        if self._hashed is not None and type(value) is str and value.isascii():  # the common case, without the checks
            return _set(self._hashed(value.encode(), self.cohort, self._num_bits, self._num_hashes))
        return bloom_bits(self.metric, value, self.cohort)

    def respond(self, bloom: int, epoch: int | None = None) -> int:
        """Randomize true bits twice and return the bits of a report."""
        return self._instantaneous(self._permanent(bloom, epoch))


def bloom_bits(metric: Metric, value: Value, cohort: int) -> int:
    """Return the true bits of a value in a cohort, before any randomization: never to be sent or stored.

    >>> metric = Metric.categorical("os", ("linux", "macos", "windows"), prob_p=0.25, prob_q=0.75, prob_f=0.5)
    >>> bin(bloom_bits(metric, "windows", cohort=0)), bloom_bits(metric, None, cohort=0)
    ('0b100', 0)
    """
    if value is None:
        return 0
    if metric.kind is Kind.BOOLEAN:
        if not isinstance(value, bool):
            raise InvalidValueError(f"{metric.name}: a boolean metric takes True, False or None, got a {_type(value)}")
        return int(value)
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


def _set(positions: Iterable[int]) -> int:
    bits = 0
    for position in positions:
        bits |= 1 << position
    return bits


def _category_bit(metric: Metric, value: str) -> int:
    if value in metric.categories:
        return 1 << metric.categories.index(value)
    if metric.other is not None:
        return 1 << metric.categories.index(metric.other)
    raise InvalidValueError(
        f"{metric.name}: the value is none of the {len(metric.categories)} categories: "
        "declare it, or declare `other` to stand in for the rest"
    )


def _type(value: object) -> str:
    return type(value).__name__
