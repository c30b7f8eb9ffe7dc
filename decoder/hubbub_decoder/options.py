"""Options of a decoding: what its intervals, its tests and its shares mean, and who is told of its progress.

The public functions take the fields of `Options` as keywords, `**options: Unpack[OptionFields]`, so that each option is described once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypedDict

from hubbub.errors import ParameterError
from hubbub.metrics.metric import Metric
from hubbub.number_checks import check_number
from hubbub.text import did_you_mean, with_article

DecodingMethod = Literal["auto", "lasso"]
"""How candidates of bit counts are chosen: all of them up to 100,000, or those that a lasso keeps."""

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


class IntervalFields(TypedDict, total=False):
    """Keywords for the options of intervals; `Options` describes them."""

    confidence: float
    target: Target


class DetectionFields(IntervalFields, total=False):
    """Keywords for the options of intervals and tests; `Options` describes them."""

    fdr: float


class OptionFields(DetectionFields, total=False):
    """Keywords for the options of a decoding; `Options` describes them."""

    same_clients: bool


@dataclass(frozen=True, slots=True)
class Options:
    """What the intervals, the tests and the shares of a result mean.

    `decode`, `decode_each`, `compare`, `associate` and `discover` take these fields as keywords, as far as they apply.

    Parameters
    ----------
    confidence
        Level of the intervals, in (0, 1).
    fdr
        False discovery rate of the detected candidates and changes, in (0, 1).
    target
        "reporters": shares among the reporters. "population": shares of the population of which they are a random
        sample, with wider intervals.
    same_clients
        Whether the same clients report in each of several periods, with the same values. Their permanent noise then
        repeats, so intervals are wider than for independent reports. False: each period has other clients.
    fabricated
        Share of the received reports that may be forged, in [0, 1). Intervals are of the shares among the other
        reports, and intervals and tests hold whichever reports are forged. Totals and posterior shares are then not
        determined, and pattern counts and reports are decoded as bit counts.

    Raises
    ------
    ParameterError
        A value is out of range.

    Examples
    --------
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


def read_options(given: IntervalFields, taken: type) -> Options:
    """Options of the keywords that a function was given; raises TypeError for one that is not in the function's TypedDict `taken`."""
    names = taken.__annotations__
    for name in given:
        if name not in names:
            raise TypeError(f"unexpected keyword argument {name!r}.{did_you_mean(name, names)}")
    return Options(**given)


@dataclass(frozen=True, slots=True)
class StringOptions:
    """What only a string metric takes, since only its values are candidates: parameters of `decode`.

    method  : "auto" estimates all candidates, "lasso" those that a lasso on half of the cohorts keeps
    weights : weight of each candidate; None: all are alike

    Raises ParameterError for another method.
    """

    method: DecodingMethod = "auto"
    weights: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        if self.method not in ("auto", "lasso"):
            raise ParameterError(f'method must be "auto" or "lasso", got {self.method!r}: leave it out for "auto"')

    def check_metric(self, metric: Metric) -> None:
        """Raise ParameterError for an option that is given for a metric without candidates, where it would have no effect."""
        if metric.kind.needs_candidates:
            return
        for name, is_given in (("method", self.method != "auto"), ("weights", self.weights is not None)):
            if is_given:
                raise ParameterError(
                    f"{metric.name}: {name} is for the candidates of a string metric, and {with_article(metric.kind.word)} metric has none. "
                    f"Leave out {name} (--{name})"
                )


ALL_CANDIDATES = StringOptions()
"""Estimate all candidates, which are alike."""
