"""People and their lives: days of use, values that change and return, consent that is withdrawn and given again."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from hubbub import Batch, Client, Definitions, Metric, Policy
from hubbub.sdk.assembly import AllSeams
from hubbub.sdk.storage.filesystem import File, SystemDisk, SystemFile
from hubbub.testing import UNLIMITED, SeededBytes
from tests.system.year.clients import Node, NodeClient, PythonClient, RunningClient
from tests.system.year.definitions import Question
from tests.system.year.service import Network, Service
from tests.system.year.values import Reference, Unit
from tests.system.year.window import Window
from tests.system.year.world import Process, World

SESSION = timedelta(hours=2)
ELSEWHERE = 0.002
"""Probability that an answer is recorded in a process of its own, which takes half a second."""
STRICT = Policy(epsilon_report=3, epsilon_enrollment=9, epsilon_metric=18, epsilon_total=150)


@dataclass
class Release:
    """A release of the app: its version and its questions."""

    version: str
    questions: Sequence[Question]

    def __post_init__(self) -> None:
        self.definitions = Definitions([question.metric for question in self.questions])
        self.metrics: dict[str, Metric] = dict(self.definitions)
        self.has_group = any(metric.group for metric in self.metrics.values())


class Habits:
    """What a person answers: mostly what they answered last, sometimes something new, sometimes an earlier answer again."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._answers: dict[str, list[Any]] = {}

    def answer(self, question: Question) -> Any:
        """Return today's answer."""
        given, chance = self._answers.setdefault(question.metric.name, []), self._chance
        if not given or chance.random() < 0.02:
            weights = [1 / (1 + place) for place in range(len(question.answers))]
            given.append(chance.choices(question.answers, weights)[0])
        elif len(given) > 1 and chance.random() < 0.05:
            given.append(given[-2])
        return given[-1]


@dataclass
class Person:
    """One person with one installation.

    node : where the app's TypeScript client runs; None: the app has the Python client
    spent_before, acknowledged_before : by the ledger and the counters of a release that this one continues
    recorded : number of recordings that the client promised to count
    """

    name: str
    directory: Path
    world: World
    service: Service
    chance: Random
    releases: Sequence[tuple[date, Release]]
    policy: Policy = UNLIMITED
    offset: timedelta = timedelta()
    node: Node | None = None
    reference: Reference = field(default_factory=Reference)
    consents: list[tuple[datetime, str]] = field(default_factory=list)
    spent_before: Mapping[str, float] = field(default_factory=dict)
    acknowledged_before: int = 0
    recorded: int = 0
    is_copy: bool = False
    is_gone: bool = False
    disk_is_full: bool = False

    @property
    def private_answer(self) -> str:
        """An answer that nobody else gives."""
        return f"only-{self.name}.example"

    def __post_init__(self) -> None:
        self.use = self.chance.uniform(0.25, 1.0)
        self.habits = Habits(self.chance)
        self.random_bytes = SeededBytes(f"{self.chance.random()} {self.name}")
        self.network = Network(self.service, self.name, self.units_of)

    def clock(self) -> datetime:
        """Return the time that the person's machine shows."""
        return self.world.now + self.offset

    @property
    def today(self) -> date:
        """The day of the person's machine."""
        return self.clock().date()

    @property
    def release(self) -> Release:
        """The release that is installed now."""
        return [release for since, release in self.releases if since <= self.world.now.date()][-1]

    def units_of(self, batch: Batch) -> tuple[Unit | None, ...]:
        """Return what the report of a batch stands for, and note that it left."""
        unit = self.reference.of_report(batch.digest, date.fromisoformat(batch.period))
        if unit is not None:
            unit.reports.add((batch.batch_id, batch.rows))
        return (unit,)

    def open(self) -> RunningClient:
        """Start the app."""
        if self.node is not None:
            return NodeClient(
                self.node,
                self.network,
                self.clock,
                Random(self.chance.random()),  # noqa: S311
                self.release.definitions,
                self.directory,
                None if self.policy is UNLIMITED else self.policy,
                self.groups,
            )
        seams = AllSeams(
            clock=self.clock,
            transport=self.network,
            random_bytes=self.random_bytes,
            machine_id=self.name.encode,
            disk=FullDisk() if self.disk_is_full else None,
        )
        return PythonClient(Client(**self.options, seams=seams))

    @property
    def groups(self) -> dict[str, str]:
        """Labels of the app."""
        return {"version": self.release.version} if self.release.has_group else {}

    @property
    def options(self) -> dict[str, Any]:
        """With which each window of the app is opened."""
        return {
            "definitions": self.release.definitions,
            "state": self.directory,
            "url": "http://127.0.0.1:1",
            "policy": self.policy,
            "groups": self.groups,
            "environment": {},
        }

    def live(self, first: datetime, last: datetime) -> Process:
        """Live: agree at the first use, then use the app on some days, and decide again."""
        day = first
        while day < last and not self.is_gone:
            if self.chance.random() < self.use:
                yield day + timedelta(hours=self.chance.uniform(5, 21))
                self.suffer()
                yield from self.session()
            elif self.chance.random() < 0.01:
                day += timedelta(days=self.chance.randint(5, 45))  # a holiday
            day += timedelta(days=1)

    @property
    def is_on(self) -> bool:
        """Whether the person agrees now."""
        return bool(self.consents) and self.consents[-1][1] == "on"

    def decide(self, client: RunningClient, level: str) -> None:
        """Give or withdraw consent."""
        client.set_consent(level)
        self.consents.append((self.world.now, level))
        if level == "on":
            self.reference.enroll()
            self.reference.resume(self.release.metrics, self.today)

    def suffer(self) -> None:
        """What happens to the person's machine before a session. Node has neither our disk nor a file of the secret alone."""
        event, was_full = self.chance.random(), self.disk_is_full
        self.disk_is_full = self.network.is_offline = False
        has_seams = self.is_on and self.node is None
        if has_seams and event < 0.01:
            self.disk_is_full = True
        elif event < 0.05:
            self.network.is_offline = True
        elif has_seams and event < 0.055 and not was_full:
            # not after a full disk: what it refused is made again, under the new secret
            (self.directory / "secret").unlink()
            self.reference.lose_secret()

    def session(self) -> Process:
        """Use the app for at most two hours: what is due leaves meanwhile. Sometimes two windows of it have one state."""
        client, end = self.open(), self.world.now + SESSION
        windows = [client]
        try:
            if self.disk_is_full:
                pass
            elif not self.consents or (not self.is_on and self.chance.random() < 0.1):
                self.decide(client, "on" if self.chance.random() < 0.95 else "off")
            elif self.is_on and self.chance.random() < 0.005:
                self.decide(client, "off")
            if not self.is_on:
                return
            self.begin(client)
            if not self.disk_is_full:
                if self.chance.random() < 0.1:
                    windows.append(self.open())
                self.record(windows)
            while self.world.now < end:
                self.reference.advance(self.release.metrics, self.today)
                pause = min(window.round() for window in windows)
                if pause:
                    yield min(end, self.world.now + timedelta(seconds=max(pause, 1.0)))
        finally:
            for window in windows:
                window.close()

    def begin(self, client: RunningClient) -> None:
        """Bring the reference to this start."""
        metrics, reference = self.release.metrics, self.reference
        reference.meet(metrics, self.today)
        if self.policy is not UNLIMITED:
            for digest, charge in client.charges().items():
                if digest in reference.accounts:
                    reference.accounts[digest].room = charge.room
        reference.advance(metrics, self.today)

    def record(self, windows: Sequence[RunningClient]) -> None:
        """Answer each question in one of the windows."""
        for question in self.release.questions:
            metric = question.metric
            if self.chance.random() < 0.9 and (
                metric.kind.word in ("ordinal", "set") or not self.reference.has_recorded(metric, self.today)
            ):
                answer = self.habits.answer(question)
                if metric.name == "homepage" and self.chance.random() < 0.05:
                    answer = self.private_answer
                is_elsewhere = self.chance.random() < ELSEWHERE
                # not what is ignored, of which a kill loses the count
                can_be_counted = self.policy is UNLIMITED and metric.expires is None
                if is_elsewhere and can_be_counted and self.node is None:
                    self.record_elsewhere(metric.name, answer)
                    self.recorded += 1
                elif self.chance.choice(windows).record(metric.name, answer):
                    self.recorded += 1
                self.reference.record(metric, self.today, answer)

    def record_elsewhere(self, name: str, answer: Any) -> None:
        """Record one answer in another process."""
        seed, is_killed = f"{self.chance.random()} {self.name}", self.chance.random() < 0.5
        Window(self.options, self.clock(), self.name, seed).record(name, answer, is_killed=is_killed)

    def copy(self) -> Person:
        """A second machine begins with a copy of this one's files. Its own reports are counted from now on."""
        name, directory = f"{self.name}-copy", self.directory.with_name(f"{self.directory.name}-copy")
        shutil.copytree(self.directory, directory)
        own = Random(self.chance.random())  # noqa: S311
        second = replace(self, name=name, directory=directory, chance=own, is_copy=True)
        second.reference, second.consents = deepcopy(self.reference), list(self.consents)
        for _, units in second.reference.all_units():
            for unit in units:
                unit.reports.clear()
        return second

    def begin_anew(self) -> Person:
        """Lose all files. The same person, or another one, installs the app again."""
        self.is_gone = True
        directory, own = self.directory.with_name(f"{self.directory.name}-again"), Random(self.chance.random())  # noqa: S311
        return replace(
            self,
            name=f"{self.name}-again",
            directory=directory,
            chance=own,
            is_gone=False,
            recorded=0,
            reference=Reference(),
            consents=[],
        )


class FullDisk(SystemDisk):
    """A disk on which nothing can be written."""

    def open(self, path: Path) -> File:
        return _FullFile(path)

    def open_new(self, path: Path) -> File:  # noqa: ARG002
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class _FullFile(SystemFile):
    def append(self, data: bytes) -> None:  # noqa: ARG002
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
