"""Ordinal metrics: numbers in buckets, or numbers of which the mean alone is estimated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import SummaryError
from hubbub.metrics.buckets import finite_number, format_number
from hubbub.metrics.kinds import MeanKind, NumberKind, OrdinalKind, Value
from hubbub_decoder.errors import CandidateError, PopulationError
from hubbub_decoder.kinds.one_hot import OneHotOperations
from hubbub_decoder.kinds.operations import Positions
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.options import Options
from hubbub_decoder.results.build import build_mean_decoding, with_numbers
from hubbub_decoder.results.decoding import Decoding

N = TypeVar("N", bound=NumberKind)


class NumberOperations(OneHotOperations[N]):
    """Operations of both kinds; in a population, numbers are texts, and a client without one reports the `default`."""

    def default_value(self) -> str | None:
        default = self.kind.buckets.default
        return None if default is None else format_number(default)

    def _check_options(self, options: Options) -> None:
        if options.fabricated:
            raise SummaryError(
                f"{self.metric.name}: the bound on fabricated reports is one for shares, and an ordinal metric has a mean and quantiles. "
                "Leave out fabricated (--fabricated)."
            )

    def _number(self, text: str, labels: Sequence[str] = ()) -> float:
        try:
            number = finite_number(float(text))
        except ValueError:
            number = None
        if number is None:
            listed = f" ({', '.join(labels[:8])}{', ...' if len(labels) > 8 else ''})" if labels else ""
            raise PopulationError(
                f"{self.metric.name}: {text!r} is {'neither a number nor a bucket' if labels else 'not a number'} of this ordinal metric{listed}. "
                "Use these values only."
            )
        return number


class OrdinalOperations(NumberOperations[OrdinalKind], of=OrdinalKind):
    """Operations of an ordinal metric; a population has numbers, or labels of the buckets."""

    def _decode(self, evidence: Evidence, rows: Sequence[str] | None, options: Options) -> Decoding:
        self._check_options(options)
        return with_numbers(super()._decode(evidence, rows, options), evidence, self.kind.buckets, options)

    def positions(self, values: Sequence[str]) -> Positions:
        return np.array([self._bucket(value) for value in values], np.int16).reshape(-1, 1, 1)

    def _bucket(self, value: str) -> int:
        buckets = self.kind.buckets
        return (
            buckets.labels.index(value)
            if value in buckets.labels
            else buckets.index_of(self._number(value, buckets.labels))
        )

    def audited_values(self) -> list[Value]:
        return [*self.kind.buckets.edges[:-1], None]


class MeanOperations(NumberOperations[MeanKind], of=MeanKind):
    """Operations of a metric that estimates a mean: one bit, which depends on the client's threshold."""

    def check_comparable(self) -> NoReturn:
        raise SummaryError(
            f'{self.metric.name}: its reports estimate a mean (estimate = "mean"), and no shares that could be compared. '
            "Decode each sample: means of different clients differ with the variance std_error_a**2 + std_error_b**2."
        )

    def _decode(self, evidence: Evidence, rows: Sequence[str] | None, options: Options) -> Decoding:
        self._check_options(options)
        if rows is not None:
            raise CandidateError(
                f'{self.metric.name}: its reports estimate a mean (estimate = "mean"), and no share of any value. Leave candidates out.'
            )
        return build_mean_decoding(evidence, self.kind.buckets, options)

    def positions(self, values: Sequence[str]) -> NoReturn:
        raise PopulationError(
            f'{self.metric.name}: two periods of a metric with estimate = "mean" cannot be simulated. Use `simulate`.'
        )

    def _draw_bits(
        self, values: list[str], counts: NDArray[np.int64], rng: np.random.RandomState
    ) -> tuple[Positions, NDArray[np.int64]]:
        """Positions (2 M, m, 1) and numbers of clients (2 M,): position 0 if the number reaches the threshold (c + U) / m of cohort c.

        Of the clients with u m = c + r, a binomial number at the rate r has U <= r, and the bit in cohort c.
        """
        m = self.metric.num_cohorts
        places = m * np.array([self.kind.buckets.fraction(self._number(value)) for value in values])
        reached = np.concatenate([np.ceil(places), np.floor(places)])
        with_last = rng.binomial(counts, places - np.floor(places))
        positions = (np.arange(m) >= reached[:, None]).astype(np.int16)[:, :, None]
        return positions, np.concatenate([with_last, counts - with_last])

    def draw(
        self, distribution: str, num_values: int | None, num_reports: int, rng: np.random.Generator
    ) -> dict[str, int]:
        raise PopulationError(
            f'{self.metric.name}: a metric with estimate = "mean" has numbers, and no named values. Give a population (--population).'
        )

    def audited_values(self) -> list[Value]:
        """The ends of the range, whose bits are the same for all thresholds; "no value" if its number is at an end."""
        buckets = self.kind.buckets
        known = buckets.default is not None and buckets.fraction(buckets.default) in (0.0, 1.0)
        return [*buckets.edges, *([None] if known else [])]
