"""Encoding of joint metrics: the parts' permanent and instantaneous responses, one part after the other.

Conventions: the bits of part i begin at `params.offsets[i]`. `BloomBits.value_digest` holds 16 bytes for each part with a permanent
response for each value, in the order of the parts; zeros for "no value".
"""

from __future__ import annotations

from hubbub.encoding.bloom import DIGEST_BYTES
from hubbub.encoding.instantaneous import InstantaneousResponse
from hubbub.encoding.permanent import PermanentResponse
from hubbub.encoding.secret import Secret
from hubbub.metrics.joint import JointParams
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.randomness import RandomBytes


class JointPermanentResponse:
    """Permanent responses of the parts, each from its own value and its own stream.

    A part whose value stays keeps its permanent bits when another part's value changes.
    """

    __slots__ = ("_parts",)

    def __init__(self, metric: Metric, secret: Secret) -> None:
        self._parts = tuple(
            (
                PermanentResponse(part, secret, metric.name),
                offset,
                (1 << part.params.num_bits) - 1,
                part.has_response_per_value,
            )
            for part, offset in zip(metric.parts, _offsets(metric.params), strict=True)
        )

    def __call__(self, bloom: int, epoch: int | None = None, value_digest: bytes = b"") -> int:
        """Return the permanent bits B' of all parts; arguments as for `PermanentResponse`."""
        permanent, start = 0, 0
        for respond, offset, mask, has_digest in self._parts:
            of_part, digest = bloom >> offset & mask, b""
            if has_digest:
                digest = value_digest[start : start + DIGEST_BYTES] if of_part else b""
                start += DIGEST_BYTES
            permanent |= respond(of_part, epoch, digest) << offset
        return permanent


class JointInstantaneousResponse:
    """Instantaneous responses of the parts, each with its own p and q. Every part draws its own words, in the order of the parts."""

    __slots__ = ("_parts",)

    def __init__(self, params: Params, random_bytes: RandomBytes) -> None:
        self._parts = tuple(
            (InstantaneousResponse(part, random_bytes), offset, (1 << part.num_bits) - 1)
            for part, offset in zip(params.parts, _offsets(params), strict=True)
        )

    def __call__(self, permanent: int) -> int:
        """Return the bits of one report."""
        bits = 0
        for respond, offset, mask in self._parts:
            bits |= respond(permanent >> offset & mask) << offset
        return bits


def _offsets(params: Params) -> tuple[int, ...]:
    return params.offsets if isinstance(params, JointParams) else (0,)
