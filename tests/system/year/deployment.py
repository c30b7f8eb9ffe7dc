"""One deployment: definitions, service, people, nights."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random
from unittest.mock import patch

from hubbub import Definitions
from hubbub.testing import UNLIMITED, raise_internal_errors
from tests.support.release_artefacts import Release as PackedRelease
from tests.system.year.clients import ManualUploadLoop, Node
from tests.system.year.definitions import DISCOVERED, FIRST, SECOND, TRAVELLED, definitions_of
from tests.system.year.front import Front
from tests.system.year.nightly import Analyst, map_in_this_process
from tests.system.year.people import STRICT, Person, Release
from tests.system.year.servers import Server
from tests.system.year.service import Messages, Service
from tests.system.year.stores import STORAGES, Storage, upgraded
from tests.system.year.travellers import Traveller
from tests.system.year.veterans import Veteran, veteran_of
from tests.system.year.world import Process, World

START = date(2026, 3, 16)
"""A Monday. 52 days later the days and weeks of a month, and the month itself, are published."""
NODE_EVERY = 3
"""One person of so many has an app with the TypeScript client."""
NUM_TRAVELLERS = 2
"""Too few for a publication, because nobody knows what their reports stand for."""
COMPACT_ABOVE_BYTES = 1 << 15
"""With the product's own number a client compacts twice in a year, and each start reads up to 256 kB."""
CROWD = 60
"""People of a server who mostly give the same answers to one question. With fewer, `discover` finds none of them."""
SERVED = 250
"""People of a server: the queue of its client has room for 10,000 reports."""
UPKEEP_WEEKDAYS = (2, 5)
ANALYST_WEEKDAY = 2
"""The analyst works every other week. Upkeep and a publication in each night would take most of the time, and find little new."""


@dataclass
class Deployment:
    """What has happened, for the checks.

    before : summaries of the service before anybody sent to it: those of the release that wrote its database
    node   : processes of the TypeScript client; None without it
    """

    directory: Path
    world: World
    service: Service
    people: list[Person]
    servers: list[Server]
    analyst: Analyst
    messages: Messages
    before: Path
    node: Node | None = None
    seconds: dict[str, float] = field(default_factory=dict)


@contextmanager
def lived(
    directory: Path, seed: int, days: int, number: int, adapter: Sequence[str] | None = None, served: int = 2
) -> Iterator[Deployment]:
    """Live through a deployment, and yield it while its service runs.

    number  : people with an installation
    adapter : command of the TypeScript client's; None: all people have the Python client
    served  : people for whom servers ask all questions
    """
    directory.mkdir(exist_ok=True)
    with (
        upgraded(STORAGES[seed % len(STORAGES)], directory / "release") as (released, storage),
        _lived_on(storage, released, directory, seed, days, number, adapter, served) as deployment,
    ):
        yield deployment


@contextmanager
def _lived_on(
    storage: Storage,
    released: PackedRelease,
    directory: Path,
    seed: int,
    days: int,
    number: int,
    adapter: Sequence[str] | None,
    served: int,
) -> Iterator[Deployment]:
    chance = Random(f"year {seed}")  # noqa: S311  (a simulation)
    start = datetime.combine(START, datetime.min.time(), UTC)
    world = World(start)
    asked = definitions_of(FIRST, SECOND, (TRAVELLED, DISCOVERED))
    definitions = Definitions([*released.definitions.versions(), *asked.versions()])
    service = Service(storage, definitions, world, chance.random())
    running = ExitStack()
    front = running.enter_context(Front(service))
    people_directory = directory / "people"
    people_directory.mkdir()
    node = None if adapter is None else running.enter_context(Node(adapter, front, people_directory / "node.stderr"))
    upgrade = START + timedelta(days=days // 2)
    releases = [Release("1.9", FIRST), Release("2.0", SECOND)]
    people: list[Person] = []
    for place in range(number):
        own = Random(chance.random())  # noqa: S311
        since = upgrade + timedelta(days=own.randrange(14))
        person = Person(
            f"person{place}",
            people_directory / str(place),
            world,
            service,
            own,
            [(START, releases[0]), (since, releases[1])],
            STRICT if own.random() < 0.2 else UNLIMITED,
            timedelta(hours=own.choice([0, 0, 0, 0, 0, 0, 0, 0, -20, 20])),
            node if place % NODE_EVERY == 0 else None,
        )
        people.append(person)
    travels = [(START, Release("1.9", [TRAVELLED]))]
    for place in range(NUM_TRAVELLERS):
        own = Random(chance.random())  # noqa: S311
        traveller = Traveller(f"traveller{place}", people_directory / f"t{place}", world, service, own, travels)
        traveller.node = node if place == 0 else None
        people.append(traveller)
    people.append(veteran_of(released, world, service, Random(chance.random())))  # noqa: S311
    sizes = [min(SERVED, served - place) for place in range(0, served, SERVED)]
    servers = [
        Server(name, people_directory / name, world, service, Random(chance.random()), release, size)  # noqa: S311
        for name, release, size in (
            *((f"server{place}", releases[0], size) for place, size in enumerate(sizes)),
            ("crowd", Release("1.9", [DISCOVERED]), CROWD),
        )
    ]
    messages = Messages()
    logger = logging.getLogger()
    logger.addHandler(messages)
    analyst = Analyst(directory / "analyst", service, front.url, min_reports=max(number // 4, NUM_TRAVELLERS + 1))
    before = directory / "before"
    deployment = Deployment(directory, world, service, people, servers, analyst, messages, before, node)
    try:
        with (
            patch("hubbub.sdk.upload.uploader.UploadLoop", ManualUploadLoop),
            patch("hubbub.sdk.storage.compaction.COMPACT_ABOVE_BYTES", COMPACT_ABOVE_BYTES),
            patch("hubbub_decoder.batch_decoding.run.map_in_processes", map_in_this_process),
            raise_internal_errors(),
        ):
            began = time.monotonic()
            service.start()
            analyst.pull(before, "--open")
            last = start + timedelta(days=days)
            for person in people:
                world.begin(person.live(start, last))
            for server in servers:
                world.begin(server.live(last))
            world.begin(_nights(deployment, start))
            world.begin(_accidents(deployment, chance, last, days))
            world.begin(_replacements(service, world, Random(chance.random())))  # noqa: S311
            world.run(last)
            deployment.seconds["lives"] = time.monotonic() - began
            # the checks open the clients, too: they shall send nothing. Inside, because without the patch their threads would begin
            for person in people:
                person.network.is_offline = True
            yield deployment
    finally:
        running.close()
        service.stop()
        logger.removeHandler(messages)


def _nights(deployment: Deployment, start: datetime) -> Process:
    night = start + timedelta(hours=26)
    while True:
        yield night
        began = time.monotonic()
        if night.weekday() in UPKEEP_WEEKDAYS:
            deployment.service.work()
            deployment.analyst.fold()
        if night.weekday() == ANALYST_WEEKDAY and night.isocalendar().week % 2:
            deployment.analyst.work()
        deployment.seconds["nights"] = deployment.seconds.get("nights", 0.0) + time.monotonic() - began
        night += timedelta(days=1)


def _accidents(deployment: Deployment, chance: Random, last: datetime, days: int) -> Process:
    """Two people copy their files to a second machine, another one loses them, and the service's database is restored from a backup."""
    service, world = deployment.service, deployment.world
    yield world.now + timedelta(days=days * 0.4, hours=1)
    *copied, lost = chance.sample(
        [person for person in deployment.people if not isinstance(person, Traveller | Veteran)], 3
    )
    others = [person.copy() for person in copied if person.directory.exists()]
    for other in (*others, lost.begin_anew()):
        deployment.people.append(other)
        world.begin(other.live(world.now + timedelta(hours=3), last))
    file = deployment.directory / "backup.db"
    began = service.back_up(file)
    yield world.now + timedelta(hours=chance.uniform(4, 48))
    service.restore(file, began)


def _replacements(service: Service, world: World, chance: Random) -> Process:
    """About every ten days the oldest replica is stopped, and after some hours another one takes its place."""
    while True:
        yield world.now + timedelta(days=chance.uniform(5, 15))
        service.stop_one()
        yield world.now + timedelta(hours=chance.uniform(1, 12))
        service.start()
