"""Sets of items: the cohort of a client is the item that it is asked about."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hubbub.metrics.kinds import AskedItemKind, Value
from hubbub.metrics.kinds.sets import SEPARATOR
from hubbub.text import format_count
from hubbub_decoder.errors import PopulationError
from hubbub_decoder.estimators.items import fit_items
from hubbub_decoder.kinds.one_hot import OneHotOperations
from hubbub_decoder.kinds.operations import Positions
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.options import Options
from hubbub_decoder.results.build import build_item_decoding
from hubbub_decoder.results.decoding import Decoding


class AskedItemOperations(OneHotOperations[AskedItemKind], of=AskedItemKind):
    """Operations of sets; a value of a population is its items with commas between them."""

    def _decode(self, evidence: Evidence, rows: Sequence[str] | None, options: Options) -> Decoding:
        return build_item_decoding(fit_items(evidence, options.target), evidence, self._selected(rows), options)

    def positions(self, values: Sequence[str]) -> Positions:
        return np.array([self._in_cohorts(value) for value in values], np.int16)[:, :, None]

    def _in_cohorts(self, value: str) -> list[int]:
        """Position of the true bit in each cohort: 0, or 1 for none."""
        items = set(value.split(SEPARATOR)) if value else set()
        unknown = sorted(items - set(self.kind.items))
        if unknown:
            listed = ", ".join(self.kind.items[:8])
            raise PopulationError(
                f"{self.metric.name}: {unknown[0]!r} is not one of its {format_count(len(self.kind.items), 'item')} ({listed}"
                f"{', ...' if len(self.kind.items) > 8 else ''}). Write a set as its items with commas between them."
            )
        return [0 if item in items else 1 for item in self.kind.items]

    def audited_values(self) -> list[Value]:
        return [self.kind.items, None]
