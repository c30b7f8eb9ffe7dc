"""Permanent and instantaneous randomized response of a whole report, one block of bits after the other."""

from __future__ import annotations

from collections.abc import Sequence

from hubbub.encoding.bloom import ValueKey
from hubbub.encoding.secret import Secret, length_prefixed
from hubbub.metrics.kinds import BloomBits
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params, first_bits
from hubbub.randomness import RandomBytes

_NO_EPOCH = length_prefixed(b"")


class PermanentResponse:
    """Permanent randomized response (PRR) of Bloom bits B, for one client and one definition of a metric.

    It is the same for the same value, secret, definition and epoch. Its bytes are derived, not stored: SHAKE-256 over (secret, digest of
    the definition, name of the block, epoch, `ValueKey`). The mechanism's probabilities are exact for a random stream; for SHAKE-256 they
    hold computationally.

    Two values, two epochs and two definitions therefore have independent responses. A joint metric has one key for all its parts. So if
    one part's value changes, the bits of every part are drawn again: whether a part changed alone is not visible.

    Sources: Erlingsson et al. 2014, sec. 2, step 2; docs/explanation/privacy.md, "The mechanism".
    """

    __slots__ = ("_blocks", "_key", "_key_length")

    def __init__(self, metric: Metric, secret: Secret) -> None:
        self._key = ValueKey(metric)
        self._key_length = length_prefixed(bytes(self._key.num_bytes))[: -self._key.num_bytes]
        digest, blocks = bytes.fromhex(metric.digest), []
        for (name, kind), first_bit in zip(metric.kind.components.items(), metric.kind.first_bits, strict=True):
            num_bits = kind.params.num_bits
            num_bytes, respond = kind.params.mechanism.permanent_response(num_bits)
            stream = secret.stream("hubbub/prr/v2", digest, name.encode())
            blocks.append((stream, num_bytes, respond, first_bit, (1 << num_bits) - 1))
        self._blocks = tuple(blocks)

    def __call__(self, bloom: BloomBits, epoch: int | None = None) -> int:
        """Return the permanent bits B' of Bloom bits.

        epoch : number of the permanent response; None for a metric without `hold`
        """
        of_epoch = _NO_EPOCH if epoch is None else length_prefixed(epoch.to_bytes(8, "little", signed=True))
        fields = of_epoch + self._key_length + self._key(bloom)
        bits = 0
        for stream, num_bytes, respond, first_bit, mask in self._blocks:
            shake = stream.copy()
            shake.update(fields)
            bits |= respond(bloom >> first_bit & mask, shake.digest(num_bytes)) << first_bit
        return bits


class InstantaneousResponse:
    """Instantaneous randomized response (IRR) of permanent bits B': independent noise for each report.

    The blocks of a joint metric draw their random bytes one block after the other.

    Source: Erlingsson et al. 2014, sec. 2, step 3; docs/explanation/privacy.md, "The mechanism".
    """

    __slots__ = ("_blocks",)

    def __init__(self, blocks: Sequence[Params], random_bytes: RandomBytes) -> None:
        self._blocks = tuple(
            (first_bit, (1 << block.num_bits) - 1, block.mechanism.instantaneous_response(block.num_bits, random_bytes))
            for block, first_bit in zip(blocks, first_bits(blocks), strict=True)
        )

    def __call__(self, permanent: int) -> int:
        """Return the bits of one report."""
        bits = 0
        for first_bit, mask, respond in self._blocks:
            bits |= respond(permanent >> first_bit & mask) << first_bit
        return bits
