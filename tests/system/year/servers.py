"""A server that reports for several people: one client that stays open, with a secret, drafts and a ledger for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import cache
from pathlib import Path
from random import Random
from uuid import UUID

from hubbub import Batch, Client
from hubbub.client import collaborators
from hubbub.sdk.assembly import AllSeams
from hubbub.sdk.upload.uploader import UploadLoop
from hubbub.testing import UNLIMITED, SeededBytes
from tests.system.year.definitions import ALPHABET, DISCOVERED
from tests.system.year.people import Habits, Release
from tests.system.year.service import Network, Service
from tests.system.year.values import Reference, Unit
from tests.system.year.world import Process, World


@dataclass
class Subject:
    """One of the people of a server.

    own_answers : answers that nobody else gives; `discover` could find the second one
    """

    identity: str
    own_answers: tuple[str, str]
    use: float
    habits: Habits
    reference: Reference = field(default_factory=Reference)


@dataclass
class Server:
    """A server of some people. The batches of a period have the rows of all of them, shuffled: whose are in which is not known."""

    name: str
    directory: Path
    world: World
    service: Service
    chance: Random
    release: Release
    number: int

    def __post_init__(self) -> None:
        self.random_bytes = SeededBytes(f"{self.chance.random()} {self.name}")
        self._units: dict[UUID, tuple[Unit | None, ...]] = {}
        self._waiting = cache(self._units_of_period)
        self.subjects = [
            Subject(
                f"{self.name}-account{place}@example.org",
                (f"only-{self.name}-{place}.example", "".join(ALPHABET[int(digit)] for digit in f"{place:04o}")),
                self.chance.uniform(0.2, 1),
                Habits(self.chance),
            )
            for place in range(self.number)
        ]

    @property
    def today(self) -> date:
        """The day of the server."""
        return self.world.now.date()

    def units_of(self, batch: Batch) -> tuple[Unit | None, ...]:
        """Return what the reports of a batch stand for, as if the people were in the batches of a period in their order.

        Has None for each report that is one more than there are people who have one.
        """
        if batch.batch_id not in self._units:
            waiting = self._waiting(batch.digest, date.fromisoformat(batch.period))
            units = tuple(next(waiting, None) for _ in range(len(batch)))
            for unit in units:
                if unit is not None:
                    unit.reports.add((batch.batch_id, batch.rows))
            self._units[batch.batch_id] = units
        return self._units[batch.batch_id]

    def _units_of_period(self, digest: str, period: date) -> Iterator[Unit]:
        """Iterate over what the reports of a period stand for. They are made before the first of them leaves."""
        found = [subject.reference.of_report(digest, period) for subject in self.subjects]
        return iter([unit for unit in found if unit is not None])

    def open(self) -> Client:
        """Start the server's client."""
        network = Network(self.service, self.name, self.units_of)
        return Client(
            self.release.definitions,
            self.directory,
            "http://127.0.0.1:1",
            policy=UNLIMITED,
            groups={"version": self.release.version} if self.release.has_group else {},
            per_subject=True,
            environment={},
            seams=AllSeams(clock=self.world, transport=network, random_bytes=self.random_bytes),
        )

    def live(self, last: datetime) -> Process:
        """Serve until the end."""
        client = self.open()
        try:
            client.set_consent("on", "text")
            loop = collaborators(client).uploader.start()
            while self.world.now < last:
                midnight = datetime.combine(self.today + timedelta(days=1), datetime.min.time(), last.tzinfo)
                left = (midnight - self.world.now).total_seconds()
                moments = [
                    (self.world.now + timedelta(seconds=self.chance.uniform(1, left)), place)
                    for place, subject in enumerate(self.subjects)
                    if self.chance.random() < subject.use
                ]
                for moment, place in sorted(moments):
                    yield from self._send_until(loop, moment)
                    self._record(client, self.subjects[place])
                yield from self._send_until(loop, midnight)
        finally:
            client.close()

    def _send_until(self, loop: UploadLoop, moment: datetime) -> Process:
        while self.world.now < moment:
            if pause := loop._round():
                today = self.today
                yield min(moment, self.world.now + timedelta(seconds=max(pause, 1.0)))
                if self.today != today:
                    self._end_day()

    def _end_day(self) -> None:
        for subject in self.subjects:
            if subject.reference.accounts:
                subject.reference.advance(self.release.metrics, self.today)

    def _record(self, client: Client, subject: Subject) -> None:
        recorder, reference = client.subject(subject.identity), subject.reference
        for question in self.release.questions:
            metric = question.metric
            if metric.kind.word in ("ordinal", "set") or not reference.has_recorded(metric, self.today):
                answer = subject.habits.answer(question)
                if question is DISCOVERED and self.chance.random() < 0.1:
                    answer = self.chance.choice(subject.own_answers)
                recorder.record(metric.name, answer)
                reference.meet(self.release.metrics, self.today)
                reference.record(metric, self.today, answer)
