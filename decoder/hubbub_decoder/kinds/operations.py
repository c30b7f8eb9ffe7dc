"""`KindOperations`: what differs between kinds in decoding, simulation and audit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from hubbub.metrics.kinds import Kind
from hubbub.metrics.metric import Metric
from hubbub.text import with_article
from hubbub_decoder.data.populations import distribution_shares, draw_population
from hubbub_decoder.errors import PopulationError
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.options import Options, Progress, StringOptions
from hubbub_decoder.results.decoding import Decoding

CELLS_PER_BLOCK = 1 << 22

Candidates: TypeAlias = Iterable[str] | DesignMatrix | None
Positions: TypeAlias = NDArray[np.int16]

K = TypeVar("K", bound=Kind)


@dataclass(frozen=True)
class KindOperations(ABC, Generic[K]):
    """Operations of a metric's kind."""

    metric: Metric
    kind: K

    _classes: ClassVar[dict[type[Kind], type[KindOperations[Any]]]] = {}

    def __init_subclass__(cls, *, of: type[Kind] | None = None) -> None:
        if of is not None:
            KindOperations._classes[of] = cls

    @abstractmethod
    def decode(
        self,
        evidence: Evidence,
        candidates: Candidates,
        options: Options,
        strings: StringOptions,
        progress: Progress,
    ) -> Decoding:
        """Decode evidence with at least one report; parameters as of `pipeline.decode_evidence`. Raises CandidateError, SummaryError."""

    def other_command(self) -> str:
        """Return the command that estimates the metric by its definition; empty: `decode` does."""
        return ""

    def reason_to_skip(self, *, has_candidates: bool) -> str | None:
        """Return why `decode` cannot estimate the metric in a run over many; None: it can."""
        return None

    def check_decodable(self) -> None:
        """Raise SummaryError if the metric has no shares of single values."""

    def check_comparable(self) -> None:
        """Raise SummaryError if the metric has no shares that could change between two samples."""

    @abstractmethod
    def rows(self, candidates: Candidates) -> DesignMatrix | Sequence[str] | None:
        """Rows of a decoding, prepared once for several: hashed candidates, or names of categories (None: all). Raises CandidateError."""

    @abstractmethod
    def positions(self, values: Sequence[Any]) -> Positions:
        """True bits of values of a population, (M, m, h): positions within each block of the metric, k of the block for no bit.

        A block has h columns.

        Raises PopulationError for a value that the metric does not have.
        """

    @property
    def no_bits(self) -> Positions:
        """Positions of a client without a value, (1, m, h)."""
        columns = [
            np.full(params.num_hashes, params.num_bits - params.mechanism.has_no_value_bit, np.int16)
            for params in self.metric.blocks
        ]
        return np.tile(np.concatenate(columns), (1, self.metric.num_cohorts, 1))

    def true_bits(
        self, population: Mapping[Any, int], rng: np.random.RandomState
    ) -> Iterator[tuple[Positions, NDArray[np.int64]]]:
        """Yield true bits of a population in blocks of values: positions (M, m, h) and numbers of clients (M,).

        rng : thresholds of clients, where the bits depend on them
        """
        counts = np.array(list(population.values()), np.int64)
        values = list(population)
        size = max(1, CELLS_PER_BLOCK // self.no_bits.size)
        for start in range(0, len(values), size):
            block = slice(start, start + size)
            yield self._draw_bits(values[block], counts[block], rng)

    def _draw_bits(
        self, values: list[Any], counts: NDArray[np.int64], rng: np.random.RandomState
    ) -> tuple[Positions, NDArray[np.int64]]:
        return self.positions(values), counts

    def check_value(self, value: object) -> None:
        """Raise PopulationError if a value of a population has the wrong type."""
        if not isinstance(value, str):
            raise PopulationError(
                f"{self.metric.name}: a value of the population must be a string, got {value!r}: pass {str(value).lower()!r}, for example"
            )

    def unlisted(self, values: Iterable[str]) -> list[str]:
        """Values of a population that another one replaces."""
        return []

    def default_value(self) -> str | None:
        """Value, as text, that a client without a value reports; None: it reports "no value"."""
        return None

    def draw(
        self, distribution: str, num_values: int | None, num_reports: int, rng: np.random.Generator
    ) -> dict[str, int]:
        """Random population of a named distribution over the metric's values. Raises PopulationError.

        num_values : number of values of a string metric, 100 if None; others use their own
        """
        values = self.kind.named_values
        if num_values not in (None, len(values)):
            raise PopulationError(
                f"{self.metric.name}: {with_article(self.kind.word)} metric has {len(values)} values, got {num_values}. Leave out num_values (--values)."
            )
        shares = distribution_shares(distribution, len(values)).values()
        return draw_population(dict(zip(values, shares, strict=True)), num_reports, rng)

    @abstractmethod
    def audited_values(self) -> list[Any]:
        """Values that an audit compares: "no value" (None), and values that together set every bit in some cohort."""


def operations_of(metric: Metric) -> KindOperations[Any]:
    """Return the operations of a metric's kind.

    >>> from hubbub import UnaryResponse
    >>> operations_of(Metric.boolean("dark", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))).audited_values()
    [True, False, None]
    """
    return KindOperations._classes[type(metric.kind)](metric, metric.kind)
