"""Sets of items: the cohort of a client is the item that it is asked about, or its report is a row of the whole set."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from hubbub.errors import ParameterError
from hubbub.metrics.kinds import SetKind, Value
from hubbub.metrics.kinds.sets import SEPARATOR, AskedItemKind, HashedSetKind, WholeSetKind
from hubbub.text import format_count
from hubbub_decoder.blas_threads import idle_blas_threads
from hubbub_decoder.documents.finding import Finding, Severity
from hubbub_decoder.errors import PopulationError
from hubbub_decoder.estimators.categories import select_categories
from hubbub_decoder.estimators.hashed_items import fit_hashed_sets
from hubbub_decoder.estimators.items import ItemFit, fit_items, fit_whole_sets
from hubbub_decoder.kinds.one_hot import OneHotOperations
from hubbub_decoder.kinds.operations import Candidates, Positions
from hubbub_decoder.kinds.strings import HashedOperations, hash_candidates
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.model.vectorized_hashing import bit_positions
from hubbub_decoder.options import ALL_CANDIDATES, Options, Progress, StringOptions, Target
from hubbub_decoder.results import warnings
from hubbub_decoder.results.build import build_item_decoding
from hubbub_decoder.results.decoding import Decoding

_HASHING, _FITTING = 0.01, 0.05
"""Usual shares of the time before each stage."""

K = TypeVar("K", bound=SetKind)


class SetOperations(OneHotOperations[K]):
    """Operations of sets; a value of a population is its items with commas between them."""

    def _decode(self, evidence: Evidence, rows: Sequence[str] | None, options: Options) -> Decoding:
        selected, items = select_categories(self.metric, rows), self.kind.items
        shown = np.array([items.index(name) for name in selected])
        fit = self._fit(evidence, options.target)
        return build_item_decoding(fit, [(name,) for name in selected], shown, evidence, options)

    @abstractmethod
    def _fit(self, evidence: Evidence, target: Target) -> ItemFit:
        """Estimate the share of the clients with each item."""

    def _items_of(self, value: str) -> set[str]:
        """Items of a value of a population; raises PopulationError."""
        items = set(value.split(SEPARATOR)) if value else set()
        unknown = sorted(items - set(self.kind.items))
        if unknown:
            listed = ", ".join(self.kind.items[:8])
            raise PopulationError(
                f"{self.metric.name}: {unknown[0]!r} is not one of its {format_count(len(self.kind.items), 'item')} ({listed}"
                f"{', ...' if len(self.kind.items) > 8 else ''}). Write a set as its items with commas between them."
            )
        return items


class AskedItemOperations(SetOperations[AskedItemKind], of=AskedItemKind):
    """Operations of sets of which each client answers for one item."""

    def _fit(self, evidence: Evidence, target: Target) -> ItemFit:
        return fit_items(evidence, target)

    def positions(self, values: Sequence[str]) -> Positions:
        return np.array([self._in_cohorts(value) for value in values], np.int16)[:, :, None]

    def _in_cohorts(self, value: str) -> list[int]:
        """Position of the true bit in each cohort: 0, or 1 for none."""
        items = self._items_of(value)
        return [0 if item in items else 1 for item in self.kind.items]

    def audited_values(self) -> list[Value]:
        """All items, some of them and none: the question must depend on none of them."""
        items = self.kind.items
        return [items, *([items[:1]] if len(items) > 1 else []), None]


class WholeSetOperations(SetOperations[WholeSetKind], of=WholeSetKind):
    """Operations of whole sets in one row."""

    def decode(
        self,
        evidence: Evidence,
        candidates: Candidates,
        options: Options,
        strings: StringOptions,
        progress: Progress,
    ) -> Decoding:
        decoding = super().decode(evidence, candidates, options, strings, progress)
        most = self.kind.mechanism.max_items
        found = larger_sets(most) if most < len(self.kind.items) else ()
        return replace(decoding, warnings=(*decoding.warnings, *found))

    def _fit(self, evidence: Evidence, target: Target) -> ItemFit:
        return fit_whole_sets(evidence, target, self.kind.mechanism)

    def positions(self, values: Sequence[str]) -> Positions:
        bit_of = {item: bit for bit, item in enumerate(self.kind.items)}
        bits = [sorted(bit_of[item] for item in self._items_of(value)) for value in values]
        width, no_bit = max(map(len, bits), default=0) or 1, self.kind.num_bits
        return np.array([own + [no_bit] * (width - len(own)) for own in bits], np.int16).reshape(-1, 1, width)

    def audited_values(self) -> list[Value]:
        """Sets that fill a row's true set: they differ from each other, and from no item, by the whole epsilon."""
        items, m = self.kind.items, self.kind.mechanism.max_items
        return [*(items[max(0, min(start, len(items) - m)) :][:m] for start in range(0, len(items), m)), None]


class HashedSetOperations(HashedOperations[HashedSetKind], of=HashedSetKind):
    """Operations of sets whose items are hashed; a value of a population is its items with commas between them."""

    def decode(
        self,
        evidence: Evidence,
        candidates: Candidates,
        options: Options,
        strings: StringOptions,
        progress: Progress,
    ) -> Decoding:
        if strings != ALL_CANDIDATES:
            raise ParameterError(
                f"{self.metric.name}: method and weights are for string metrics, not for sets. Leave them out."
            )
        progress("hashing the candidates", _HASHING)
        design, repeated = hash_candidates(self.metric, candidates)
        progress(f"estimating {format_count(len(design.groups), 'share')}", _FITTING)
        mechanism = self.kind.mechanism
        with idle_blas_threads(len(design.groups)):
            fit = fit_hashed_sets(evidence, design, options.target, mechanism)
        decoding = build_item_decoding(fit, design.groups, np.arange(len(design.groups)), evidence, options)
        found = (
            *warnings.incomplete_reports(evidence.counts),
            *warnings.padded_candidates(design),
            *warnings.repeated_candidates(repeated),
            *warnings.merged_candidates(design),
            *larger_sets(mechanism.max_items),
        )
        return replace(decoding, warnings=found)

    def positions(self, values: Sequence[str]) -> Positions:
        sets = [sorted(set(value.split(SEPARATOR))) if value else [] for value in values]
        width = max(map(len, sets), default=0) or 1
        positions = np.full((len(sets), self.kind.num_cohorts, width), self.kind.num_bits, np.int16)
        hashed = bit_positions([item for items in sets for item in items], self.kind.params)[:, :, 0]
        first = 0
        for row, items in zip(positions, sets, strict=True):
            row[:, : len(items)] = hashed[first : first + len(items)].T
            first += len(items)
        return positions

    def audited_values(self) -> list[Value]:
        """Sets of as many items as a row stands for, and no item."""
        m = self.kind.mechanism.max_items
        return [*(tuple(f"v{number}" for number in range(start, start + m)) for start in (0, m)), None]


def larger_sets(most: int) -> Iterator[Finding]:
    """Clients may have more items than a report stands for."""
    yield Finding(
        "larger_sets",
        f"A client with more than {format_count(most, 'item')} reports a random {most} of them, and no report shows its number of items. "
        f"So estimates are lower bounds: the share of an item is at most its estimate times the largest number of items of a client over {most}, and "
        f"the mean number of items counts no more than {most} of a client.",
        "If clients have more items, add a version of the metric with a larger max_items.",
        severity=Severity.NOTE,
    )
