"""People whose machine's clock jumps back and forth, with one metric of their own, whose reports are the permanent response.

Which periods a client skips under wrong clocks is no promise, so what a report stands for is not known here. What must hold is that no
period is sent twice, and that the ledger has what left: `ledger_check.traveller_faults`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from hubbub import Batch
from tests.system.year.definitions import TRAVELLED
from tests.system.year.people import Person
from tests.system.year.values import Unit


@dataclass
class Traveller(Person):
    """A person who records one answer, or nothing, in each period."""

    def suffer(self) -> None:
        jumps = self.chance.random() < 0.2
        self.offset = timedelta(days=self.chance.uniform(-40, 40)) if jumps else timedelta()

    def units_of(self, batch: Batch) -> tuple[Unit | None, ...]:
        return (Unit(None) if batch.digest == TRAVELLED.metric.digest else None,)
