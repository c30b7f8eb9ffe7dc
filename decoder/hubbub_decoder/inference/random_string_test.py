"""How often chance alone would make a string look as frequent as each candidate does: its errors compared with random strings'."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.inference.intervals import p_values, p_values_by_themselves
from hubbub_decoder.inference.null_distribution import ErrorLaw, chance_to_look_there
from hubbub_decoder.model.random_string import RandomPlaces

Seen = tuple[Sequence[float] | Floats, list[Floats]]
"""What each cohort says for a candidate that is left out of the model, and for random strings, in the candidate's standard errors."""


def tested(
    shares: Floats,
    errors: Floats,
    anybody: Iterable[Floats],
    left_out: Callable[[Indices], Iterable[Seen]],
    strings: RandomPlaces,
    cohorts: int,
) -> tuple[ErrorLaw, Floats]:
    """Return how random strings err, and how often one would look as frequent as each candidate: (M,), nan where nothing is known.

    shares, errors : (M,) estimates and their standard errors, nan where nothing is known
    anybody        : of each cohort, what random strings score, in standard errors of a typical candidate
    left_out       : of some candidates, each left out of the model
    cohorts        : that sent anything
    """
    known = ~np.isnan(errors)
    if not known.any():
        return ErrorLaw.of([]), np.full(len(known), np.nan)
    common = ErrorLaw.of(anybody, strings.chances)
    p, normal = (np.where(known, p_values(shares, errors, law), np.nan) for law in (common, None))

    def chances(some: Indices) -> Iterator[float]:
        for own, scores in left_out(some):
            yield chance_to_look_there(own, scores, strings.same, strings.chances)

    return common, p_values_by_themselves(p, normal, chances, cohorts, strings.alike(cohorts))
