"""Joint metrics: the operations of two or three parts together. `association` estimates how their values depend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from hubbub.errors import SummaryError
from hubbub.metrics.kinds import JointKind
from hubbub_decoder.errors import PopulationError
from hubbub_decoder.kinds.operations import Candidates, KindOperations, Positions, operations_of
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.options import Options, Progress, StringOptions


class JointOperations(KindOperations[JointKind], of=JointKind):
    """Operations of a joint metric; a value of a population is a tuple with the values of the parts, None for no value of a part."""

    @property
    def _parts(self) -> list[KindOperations[Any]]:
        return [operations_of(part) for part in self.metric.components]

    def other_command(self) -> str:
        return "hubbub associate"

    def reason_to_skip(self, *, has_candidates: bool) -> str:
        return f"a joint metric is estimated by `{self.other_command()}`"

    def check_decodable(self) -> NoReturn:
        raise SummaryError(
            f"{self.metric.name}: a joint metric has the bits of {len(self.kind.parts)} parts. Use `hubbub associate` for "
            "their joint distribution, or decode(summary.part(name)) for one part."
        )

    def decode(
        self,
        evidence: Evidence,
        candidates: Candidates,
        options: Options,
        strings: StringOptions,
        progress: Progress,
    ) -> NoReturn:
        self.check_decodable()

    def rows(self, candidates: Candidates) -> NoReturn:
        self.check_decodable()

    def positions(self, values: Sequence[tuple[str | None, ...]]) -> Positions:
        m = self.metric.num_cohorts
        columns = []
        for part, of_part in zip(self._parts, zip(*values, strict=True), strict=True):
            listed = sorted({value for value in of_part if value is not None})
            rows = np.concatenate([part.positions(listed), part.no_bits]) if listed else part.no_bits
            row_of = {value: row for row, value in enumerate(listed)}
            of_values = rows[[row_of.get(value, len(listed)) for value in of_part]]
            columns.append(np.broadcast_to(of_values, (len(values), m, of_values.shape[2])))
        return np.concatenate(columns, axis=2)

    def check_value(self, value: object) -> None:
        if not isinstance(value, tuple) or len(value) != len(self.kind.parts):
            raise PopulationError(
                f"{self.metric.name}: a combination must have {len(self.kind.parts)} values, got {value!r}. Use None for no value."
            )
        for part, of_part in zip(self._parts, value, strict=True):
            if of_part is not None:
                part.check_value(of_part)

    def draw(self, distribution: str, num_values: int | None, num_reports: int, rng: np.random.Generator) -> NoReturn:
        raise PopulationError(
            f"{self.metric.name}: a joint metric has no named distribution. Give a population of combinations (--population)."
        )

    def audited_values(self) -> list[tuple[Any, ...]]:
        """The parts change together: the first value has the first value of each part, and so on."""
        of_parts = [part.audited_values() for part in self._parts]
        together = [tuple(values[row % len(values)] for values in of_parts) for row in range(max(map(len, of_parts)))]
        return list(dict.fromkeys([*together, (None,) * len(of_parts)]))
