"""Categorical and boolean metrics: each value has a bit of its own, decoded in closed form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from hubbub.metrics.kinds import BooleanKind, CategoricalKind, Kind, Value
from hubbub.text import with_article
from hubbub_decoder.data.candidates import distinct_candidates
from hubbub_decoder.errors import CandidateError, PopulationError
from hubbub_decoder.estimators.categories import fit_categories, select_categories
from hubbub_decoder.kinds.operations import Candidates, KindOperations, Positions
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.options import Options, Progress, StringOptions
from hubbub_decoder.results import warnings
from hubbub_decoder.results.build import build_category_decoding
from hubbub_decoder.results.decoding import Decoding

K = TypeVar("K", bound=Kind)


class OneHotOperations(KindOperations[K]):
    """Operations of a kind whose values need no candidates."""

    def decode(
        self,
        evidence: Evidence,
        candidates: Candidates,
        options: Options,
        strings: StringOptions,
        progress: Progress,
    ) -> Decoding:
        decoding = self._decode(evidence, self.rows(candidates), options)
        found = (*warnings.incomplete_reports(evidence.counts), *warnings.impossible_totals(decoding))
        return replace(decoding, warnings=found)

    def _decode(self, evidence: Evidence, rows: Sequence[str] | None, options: Options) -> Decoding:
        selected = select_categories(self.metric, rows)
        return build_category_decoding(fit_categories(evidence, selected), selected, evidence, options)

    def rows(self, candidates: Candidates) -> Sequence[str] | None:
        if isinstance(candidates, DesignMatrix):
            raise CandidateError(
                f"{self.metric.name}: {with_article(self.kind.word)} metric has no design matrix. Pass names of categories, or leave candidates out."
            )
        return None if candidates is None else distinct_candidates(candidates)[0]


class CategoricalOperations(OneHotOperations[CategoricalKind], of=CategoricalKind):
    """Operations of a categorical metric; in a population, unknown values are the category `other`."""

    def positions(self, values: Sequence[str]) -> Positions:
        return _named_bits(self.metric.name, self.kind, values, other=self.kind.other)

    def unlisted(self, values: Iterable[str]) -> list[str]:
        return [value for value in values if value not in self.kind.categories]

    def audited_values(self) -> list[Value]:
        return [*self.kind.categories, None]


class BooleanOperations(OneHotOperations[BooleanKind], of=BooleanKind):
    """Operations of a boolean metric; in a population, its values are "true" and "false"."""

    def positions(self, values: Sequence[str]) -> Positions:
        return _named_bits(self.metric.name, self.kind, values)

    def audited_values(self) -> list[Value]:
        return [True, False, None]


def _named_bits(name: str, kind: Kind, values: Sequence[str], *, other: str | None = None) -> Positions:
    """Positions (M, 1, 1) of named values of a one-hot kind; `other` replaces unknown ones, None: they raise PopulationError."""
    bit_of = {value: bit for bit, value in enumerate(kind.named_values)}
    unknown = next((value for value in values if value not in bit_of), None)
    if unknown is not None and other is None:
        raise PopulationError(
            f"{name}: {unknown!r} is not a value of this {kind} metric "
            f"({', '.join(list(bit_of)[:8])}{', ...' if len(bit_of) > 8 else ''}). Use these values only."
        )
    bits = [bit_of[value if value in bit_of or other is None else other] for value in values]
    return np.array(bits, np.int16).reshape(-1, 1, 1)
