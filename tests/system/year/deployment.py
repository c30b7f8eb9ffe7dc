"""One deployment: definitions, service, people, nights."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random
from unittest.mock import patch

from hubbub.testing import UNLIMITED, raise_internal_errors
from tests.system.year.definitions import FIRST, SECOND, definitions_of
from tests.system.year.nightly import Analyst, map_in_this_process
from tests.system.year.people import STRICT, ManualUploadLoop, Person, Release
from tests.system.year.servers import Server
from tests.system.year.service import Messages, Service
from tests.system.year.world import Process, World

START = date(2026, 3, 2)
ANALYST_WEEKDAY = 2
"""A pull and a publication in each night would take half of the time of a short run."""


@dataclass
class Deployment:
    """What has happened, for the checks."""

    directory: Path
    world: World
    service: Service
    people: list[Person]
    servers: list[Server]
    analyst: Analyst
    messages: Messages
    seconds: dict[str, float] = field(default_factory=dict)


@contextmanager
def lived(directory: Path, seed: int, days: int, number: int) -> Iterator[Deployment]:
    """Live through a deployment, and yield it while its service runs."""
    directory.mkdir(exist_ok=True)
    chance = Random(f"year {seed}")  # noqa: S311  (a simulation)
    start = datetime.combine(START, datetime.min.time(), UTC)
    world = World(start)
    service = Service(directory / "reports.db", definitions_of(FIRST, SECOND), world, Random(chance.random()))  # noqa: S311
    upgrade = START + timedelta(days=days // 2)
    releases = [Release("1.9", FIRST), Release("2.0", SECOND)]
    people = []
    for place in range(number):
        own = Random(chance.random())  # noqa: S311
        since = upgrade + timedelta(days=own.randrange(14))
        person = Person(
            f"person{place}",
            directory / "people" / str(place),
            world,
            service,
            own,
            [(START, releases[0]), (since, releases[1])],
            STRICT if own.random() < 0.2 else UNLIMITED,
            timedelta(hours=own.choice([0, 0, 0, 0, 0, 0, 0, 0, -20, 20])),
        )
        people.append(person)
    servers = [
        Server(
            "server",
            directory / "people" / "server",
            world,
            service,
            Random(chance.random()),  # noqa: S311
            releases[0],
            max(number // 5, 2),
        )
    ]
    messages = Messages()
    logger = logging.getLogger()
    logger.addHandler(messages)
    analyst = Analyst(directory / "analyst", service, min_reports=max(number // 4, 1))
    deployment = Deployment(directory, world, service, people, servers, analyst, messages)
    try:
        with (
            patch("hubbub.sdk.upload.uploader.UploadLoop", ManualUploadLoop),
            patch("hubbub_decoder.batch_decoding.run.map_in_processes", map_in_this_process),
            raise_internal_errors(),
        ):
            began = time.monotonic()
            service.start()
            last = start + timedelta(days=days)
            for person in people:
                world.begin(person.live(start, last))
            for server in servers:
                world.begin(server.live(last))
            world.begin(_nights(deployment, start))
            world.begin(_accidents(deployment, chance, last, days))
            world.run(last)
            deployment.seconds["lives"] = time.monotonic() - began
        yield deployment
    finally:
        analyst.close()
        service.stop()
        logger.removeHandler(messages)


def _nights(deployment: Deployment, start: datetime) -> Process:
    night = start + timedelta(hours=26)
    while True:
        yield night
        began = time.monotonic()
        deployment.service.work()
        if night.weekday() == ANALYST_WEEKDAY:
            deployment.analyst.work()
        deployment.seconds["nights"] = deployment.seconds.get("nights", 0.0) + time.monotonic() - began
        night += timedelta(days=1)


def _accidents(deployment: Deployment, chance: Random, last: datetime, days: int) -> Process:
    """Two people copy their files to a second machine, and the service's database is restored from a backup."""
    service, world = deployment.service, deployment.world
    yield world.now + timedelta(days=days * 0.4, hours=1)
    for person in chance.sample(deployment.people, 2):
        if person.directory.exists():
            second = person.copy()
            deployment.people.append(second)
            world.begin(second.live(world.now + timedelta(hours=3), last))
    file = deployment.directory / "backup.db"
    began = service.back_up(file)
    yield world.now + timedelta(hours=chance.uniform(4, 48))
    service.restore(file, began)
