"""The client's pipeline on one page: value -> Bloom bits -> PRR -> IRR -> report."""

from __future__ import annotations

from hubbub.encoding.bloom import _SCHEMES, Value, _set, bloom_bits
from hubbub.encoding.instantaneous import InstantaneousResponse
from hubbub.encoding.permanent import PermanentResponse
from hubbub.encoding.secret import Secret
from hubbub.errors import InvalidValueError
from hubbub.metrics.metric import Kind, Metric
from hubbub.randomness import RandomBytes, system_coins
from hubbub.wire.report import Report


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

    def __init__(self, metric: Metric, secret: Secret, random_bytes: RandomBytes = system_coins) -> None:
        self.metric = metric.require_collectable()
        self.cohort = secret.cohort(metric.params.num_cohorts)
        self._held = metric.hold is not None
        self._num_bits, self._num_hashes = metric.params.num_bits, metric.params.num_hashes
        self._hashed = _SCHEMES[metric.params.hash_scheme] if metric.kind is Kind.STRING else None
        self._permanent = PermanentResponse(metric, secret)
        self._instantaneous = InstantaneousResponse(metric.params, random_bytes)

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
