"""Options of a decoding: what its intervals, its tests and its shares mean, and who is told of its progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from hubbub.errors import ParameterError
from hubbub.number_checks import check_number

Target = Literal["reporters", "population"]
"""Shares to estimate: those among the reporters, or those of the population of which the reporters are a random sample."""


class Progress(Protocol):
    """Function that is called at the start of each stage of a long computation.

    Parameters
    ----------
    stage
        Name of the stage.
    share
        Fraction of the total time that has usually passed, in [0, 1]; None: unknown.
    """

    def __call__(self, stage: str, share: float | None, /) -> None: ...


def ignore_progress(_stage: str, _share: float | None) -> None:
    """`Progress` that nobody is told of."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of `decode`, `compare`, `associate` and `decode_each`; raises ParameterError for values out of range.

    confidence   : level of the intervals, in (0, 1)
    fdr          : false discovery rate of what is detected, in (0, 1)
    target       : "reporters": shares among the reporters; "population": of the population of which they are a random sample
    same_clients : whether the same clients report in each of several periods, with the same values
    fabricated   : share of the received reports that may be forged, in [0, 1)

    >>> Options(confidence=95)
    Traceback (most recent call last):
        ...
    hubbub.errors.ParameterError: confidence must be a number in (0, 1), got 95: pass 0.95, for example
    """

    confidence: float = 0.95
    fdr: float = 0.05
    target: Target = "reporters"
    same_clients: bool = True
    fabricated: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("confidence", self.confidence), ("fdr", self.fdr)):
            check_number(
                name,
                value,
                "(0, 1)",
                hint="pass 0.95, for example" if name == "confidence" else "pass 0.05, for example",
            )
        check_number("fabricated", self.fabricated, "[0, 1)", hint="pass 0.001 for one report in a thousand")
        if self.target not in ("reporters", "population"):
            raise ParameterError(f'target must be "reporters" or "population", got {self.target!r}')
        if not isinstance(self.same_clients, bool):
            raise ParameterError(f"same_clients must be True or False, got {self.same_clients!r}")
