"""Whitened observations of the shares at positions (filters or bits), cohort by cohort."""

from __future__ import annotations

from dataclasses import dataclass

from hubbub_decoder.array_types import Floats


@dataclass(frozen=True, eq=False)
class Observations:
    """Whitened numbers, each a known sum of the shares at positions.

        y_c = A_c theta_c + N(0, I)        theta_c,g = sum of x_v over the strings with position g in cohort c

    responses  : y_c, (r_c,) for each cohort      features : A_c, (r_c, p)
    transforms : (r_c, p) of the statistics that y_c was made from: bit shares, or the score of each filter
    """

    responses: tuple[Floats, ...]
    features: tuple[Floats, ...]
    transforms: tuple[Floats, ...]

    @property
    def size(self) -> int:
        """Number of observations, d."""
        return sum(map(len, self.responses))
