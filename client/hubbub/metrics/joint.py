"""Parameters and rules of joint metrics: two or three parts whose bits are reported together.

The report of a joint metric is the bits of its parts, one part after the other, under one cohort. Each part has its own mechanism
(`Params.mechanism`), its own value and its own permanent response. Given the values and the cohort the parts' bits are independent.
Source: Fanti, Pihur, Erlingsson 2016 (arXiv 1503.01214), sec. 3; docs/how-to/association.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from hubbub.errors import ParameterError
from hubbub.mechanisms.unary import UnaryResponse
from hubbub.metrics.params import MAX_BITS, Params

MIN_PARTS, MAX_PARTS = 2, 3


class JointParams(Params):
    """Shape of the reports of a joint metric.

    parts       : parameters of each part, in the order of their bits
    num_bits    : sum of the parts' bits, at most 1024
    num_hashes  : sum of the parts' hashes: the most true bits of a value
    num_cohorts : of the string parts; 1 if there are none

    Each part has its own mechanism: `mechanism` raises ParameterError here.

    >>> one = Params.one_hot(1, prob_p=0.25, prob_q=0.75, prob_f=0.5)
    >>> joint = JointParams((Params.one_hot(4, prob_p=0.25, prob_q=0.75, prob_f=0.5), one))
    >>> joint.num_bits, joint.num_cohorts, joint.offsets
    (5, 1, (0, 4))
    """

    __slots__ = ("_parts",)
    _parts: tuple[Params, ...]

    def __init__(self, parts: Sequence[Params]) -> None:
        parts = tuple(parts)
        if not MIN_PARTS <= len(parts) <= MAX_PARTS:
            raise ParameterError(f"a joint metric must have {MIN_PARTS} or {MAX_PARTS} parts, got {len(parts)}")
        if any(isinstance(part, JointParams) for part in parts):
            raise ParameterError("a part of a joint metric must not be joint itself: list its parts instead")
        cohorts = {part.num_cohorts for part in parts if part.hash_scheme != "one-hot"} or {1}
        if len(cohorts) > 1:
            raise ParameterError(
                f"the string parts of a joint metric must have one num_cohorts, got {_listed(cohorts)}: a report has one cohort"
            )
        if len({part.has_permanent_noise for part in parts}) > 1:
            raise ParameterError(
                "either all parts of a joint metric or none must have a permanent response, got some with prob_f = 0: "
                "the price of a value and the price of a report would be mixed"
            )
        bits = sum(part.num_bits for part in parts)
        if bits > MAX_BITS:
            raise ParameterError(f"the parts of a joint metric must have at most {MAX_BITS} bits together, got {bits}")
        set_field = object.__setattr__
        set_field(self, "_parts", parts)
        set_field(self, "num_bits", bits)
        set_field(self, "num_hashes", sum(part.num_hashes for part in parts))
        set_field(self, "num_cohorts", cohorts.pop())
        set_field(self, "hash_scheme", "joint")

    @property
    def parts(self) -> tuple[Params, ...]:
        """Parameters of each part, in the order of their bits."""
        return self._parts

    @property
    def offsets(self) -> tuple[int, ...]:
        """Position of the first bit of each part."""
        return tuple(sum(part.num_bits for part in self._parts[:index]) for index in range(len(self._parts)))

    @property
    def mechanism(self) -> UnaryResponse:
        """Raise ParameterError: each part has its own mechanism."""
        raise ParameterError(
            "the mechanism of a joint metric differs between its parts, so the metric has none of its own: "
            "use metric.parts, or read joint reports with `hubbub associate`"
        )

    def __eq__(self, other: object) -> bool:
        return self._parts == other._parts if isinstance(other, JointParams) else NotImplemented

    def __hash__(self) -> int:
        return hash((JointParams, self._parts))

    def __repr__(self) -> str:
        return f"JointParams({self._parts!r})"

    def __reduce__(self) -> tuple[type[JointParams], tuple[tuple[Params, ...]]]:
        return JointParams, (self._parts,)


def _listed(numbers: set[int]) -> str:
    return " and ".join(str(number) for number in sorted(numbers))
