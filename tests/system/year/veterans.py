"""The installation that the release candidate wrote: this version opens its state, sends its queue, and goes on.

What its earlier reports stand for is not known, nor what those of its second subject do. Both have one report of each period, in one batch
or in two.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from random import Random
from uuid import UUID

from hubbub import Batch
from tests.data.make_release import ANSWERS
from tests.support.release_artefacts import Release as PackedRelease
from tests.system.year.definitions import Question
from tests.system.year.people import Person, Release
from tests.system.year.service import Service
from tests.system.year.values import UNKNOWN, Account, Reference, Unit
from tests.system.year.world import World

MACHINE = "one machine"
"""The identity of the machine on which the release wrote the state."""
CONTINUES = date(2026, 3, 5)
"""First day of which the release had made no report. On it, one page was recorded."""


@dataclass
class Veteran(Person):
    """The person of the state. Of the reports of a period, the first that leaves is taken for theirs, and the other one for the subject's."""

    _sent: dict[tuple[str, str], dict[UUID, int]] = field(default_factory=dict)

    def units_of(self, batch: Batch) -> tuple[Unit | None, ...]:
        sent = self._sent.setdefault((batch.digest, batch.period), {})
        sent[batch.batch_id] = len(batch)
        if sum(sent.values()) > 2:
            return (None,)
        unknown = (Unit(UNKNOWN),) * len(batch)
        is_own = batch.batch_id == next(iter(sent)) and date.fromisoformat(batch.period) >= CONTINUES
        return (*super().units_of(batch), *unknown[1:]) if is_own else unknown


def veteran_of(release: PackedRelease, world: World, service: Service, chance: Random) -> Veteran:
    """Return the person of a release's state, with what the release's own `inspect` and ledger showed."""
    found, reference = release.facts["client"], Reference()
    accounts = [account for account in found["ledger"]["accounts"] if not account["subject"]]
    for account in accounts:
        # both answers have been given where each value is a unit, and none of the epochs goes on
        values = (True, False) if account["unit"] == "value" else ()
        known: dict[Hashable, Unit] = {value: Unit(UNKNOWN) for value in values}
        reference.accounts[account["digest"]] = Account(date.fromisoformat(account["next_period_start"]), known)
    reference.record(release.definitions["page"], CONTINUES, "/today")
    questions = [Question(metric, ANSWERS[name]) for name, metric in release.definitions.items()]
    return Veteran(
        MACHINE,
        release.folder / "state",
        world,
        service,
        chance,
        [(CONTINUES, Release("2.0", questions))],
        reference=reference,
        consents=[(datetime.fromisoformat(found["inspect"]["consent"]["time"]).astimezone(UTC), "on")],
        spent_before={account["digest"]: account["epsilon_spent"] for account in accounts},
        acknowledged_before=found["inspect"]["accounting"]["acknowledged"],
        recorded=found["inspect"]["accounting"]["recorded"],
    )
