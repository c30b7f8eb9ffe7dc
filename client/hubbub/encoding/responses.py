"""Permanent and instantaneous randomized response of a whole report, one part of a joint metric after the other."""

from __future__ import annotations

from hubbub.encoding.bloom import ValueKey
from hubbub.encoding.secret import Secret, length_prefixed
from hubbub.metrics.kinds import BloomBits
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.randomness import RandomBytes

_NO_EPOCH = length_prefixed(b"")


class PermanentResponse:
    """Permanent randomized response (PRR) of Bloom bits B, for one client and one definition of a metric.

    It is the same for the same value, secret, definition and epoch. Its bytes are derived, not stored: SHAKE-256 over (secret, digest of
    the definition, name of the part, epoch, `ValueKey`). The mechanism's probabilities are exact for a random stream; for SHAKE-256 they
    hold computationally.

    Two values, two epochs and two definitions therefore have independent responses. A joint metric has one key for all its parts. So if
    one part's value changes, the bits of every part are drawn again: whether a part changed alone is not visible.

    Sources: Erlingsson et al. 2014, sec. 2, step 2; docs/explanation/privacy.md, "The mechanism".
    """

    __slots__ = ("_key", "_key_length", "_parts")

    def __init__(self, metric: Metric, secret: Secret) -> None:
        self._key = ValueKey(metric)
        self._key_length = length_prefixed(bytes(self._key.num_bytes))[: -self._key.num_bytes]
        digest, parts = bytes.fromhex(metric.digest), []
        for part, params, offset in zip(metric.components, metric.params.parts, metric.params.offsets, strict=True):
            num_bytes, respond = params.mechanism.permanent_response(params.num_bits)
            stream = secret.stream("hubbub/prr/v2", digest, part.name.encode() if metric.parts else b"")
            parts.append((stream, num_bytes, respond, offset, (1 << params.num_bits) - 1))
        self._parts = tuple(parts)

    def __call__(self, bloom: BloomBits, epoch: int | None = None) -> int:
        """Return the permanent bits B' of Bloom bits.

        epoch : number of the permanent response; None for a metric without `hold`
        """
        of_epoch = _NO_EPOCH if epoch is None else length_prefixed(epoch.to_bytes(8, "little", signed=True))
        fields = of_epoch + self._key_length + self._key(bloom)
        bits = 0
        for stream, num_bytes, respond, offset, mask in self._parts:
            shake = stream.copy()
            shake.update(fields)
            bits |= respond(bloom >> offset & mask, shake.digest(num_bytes)) << offset
        return bits


class InstantaneousResponse:
    """Instantaneous randomized response (IRR) of permanent bits B': independent noise for each report.

    The parts of a joint metric draw their random bytes one part after the other.

    Source: Erlingsson et al. 2014, sec. 2, step 3; docs/explanation/privacy.md, "The mechanism".
    """

    __slots__ = ("_parts",)

    def __init__(self, params: Params, random_bytes: RandomBytes) -> None:
        self._parts = tuple(
            (offset, (1 << part.num_bits) - 1, part.mechanism.instantaneous_response(part.num_bits, random_bytes))
            for part, offset in zip(params.parts, params.offsets, strict=True)
        )

    def __call__(self, permanent: int) -> int:
        """Return the bits of one report."""
        bits = 0
        for offset, mask, respond in self._parts:
            bits |= respond(permanent >> offset & mask) << offset
        return bits
