"""The service in this process under simulated time, its restarts, and a list of all requests with what became of them."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from email.utils import format_datetime
from pathlib import Path
from random import Random
from unittest.mock import patch
from uuid import UUID

from hubbub import Batch, Definitions
from hubbub.sdk.upload.retry_policy import NO_RESPONSE, NOT_SENT, UploadResponse
from hubbub.sdk.upload.transport import Transport, always, parse_response
from hubbub_aggregator.app import create_app
from hubbub_aggregator.pipeline.credible_clock import CredibleClock
from hubbub_aggregator.pipeline.folding import compute_figures
from hubbub_aggregator.pipeline.retention import upkeep
from hubbub_aggregator.settings import Settings
from tests.support.asgi import ADDRESS, AppResponse, Caller, started
from tests.system.year.stores import Storage
from tests.system.year.values import Unit
from tests.system.year.world import World

NEVER_SECONDS = 1e9
JSON = ((b"content-type", b"application/json"),)


@dataclass(frozen=True)
class Request:
    """One upload.

    units     : what its reports stand for; None for a report that the person cannot have
    stored    : whether the service answered that it stored the batch now
    is_known  : whether it answered that it had stored the batch before
    confirmed : whether the client learned it
    restored  : how often the database had been restored from a backup
    """

    sender: str
    time: datetime
    batch: Batch
    units: tuple[Unit | None, ...]
    stored: bool
    is_known: bool
    confirmed: bool
    restored: int

    @property
    def period(self) -> date:
        """First day of the period."""
        return date.fromisoformat(self.batch.period)


class Replica:
    """One application, which runs until it is stopped."""

    def __init__(self, storage: Storage, definitions: Definitions, world: World) -> None:
        """Open the store and start the application."""
        self._definitions, self._running = definitions, ExitStack()
        self.store = storage.open()
        self._running.callback(self.store.close)
        begin = datetime.fromtimestamp(0, tz=world.now.tzinfo)
        self._clock = CredibleClock(
            self.store,
            wall=lambda: world.now.timestamp(),
            elapsed=lambda: (world.now - begin).total_seconds(),
            boot_id="simulated",
        )
        self._settings = Settings(fold_interval=NEVER_SECONDS, local_reads_without_token=True)
        app = create_app(definitions, self.store, self._settings, self._clock, local_address=ADDRESS)
        with patch("hubbub_aggregator.app.CLOCK_CHECK_SECONDS", NEVER_SECONDS):
            self.caller: Caller = self._running.enter_context(started(app))

    def work(self) -> None:
        """Do what the periodic jobs do: fold, close periods, compute figures."""
        progress = self.caller.state["service"].progress
        progress.round(lambda: upkeep(self.store, self._definitions, self._settings, self._clock.observe()))
        compute_figures(self.store, self._definitions)

    def stop(self) -> None:
        """Stop the application and close the store."""
        self._running.close()


@dataclass
class Service:
    """The service: one application, or several on one database. Their jobs run when `work` is called, and not by themselves.

    seed                      : of what becomes of the requests of each sender
    answers_lost, unreachable : probabilities for one request
    """

    storage: Storage
    definitions: Definitions
    world: World
    seed: float
    answers_lost: float = 0.002
    unreachable: float = 0.01
    restarts: int = 0
    restores: int = 0
    lost_since: datetime | None = None
    requests: list[Request] = field(default_factory=list)
    refusals: list[tuple[str, int, str]] = field(default_factory=list)
    _chances: dict[str, Random] = field(default_factory=dict)
    _replicas: list[Replica] = field(default_factory=list)
    _turns: Iterator[int] = field(default_factory=itertools.count)

    def start(self) -> None:
        """Start the replicas that do not run."""
        while len(self._replicas) < self.storage.num_replicas:
            self._replicas.append(Replica(self.storage, self.definitions, self.world))

    def stop(self) -> None:
        """Stop all replicas."""
        while self._replicas:
            self._replicas.pop().stop()

    def stop_one(self) -> None:
        """Stop the replica that has run longest, if there is another one."""
        if len(self._replicas) > 1:
            self._replicas.pop(0).stop()

    def restart(self, replica: Replica) -> None:
        """Stop a replica, and start another one on the same database."""
        self._replicas.remove(replica)
        replica.stop()
        self.start()
        self.restarts += 1

    def back_up(self, file: Path) -> datetime:
        """Back up what is stored while it is served; return the time."""
        self.storage.back_up(file)
        return self.world.now

    def restore(self, file: Path, since: datetime) -> None:
        """Restore a backup: what was stored since then is lost, and clients do not send it again."""
        self.stop()
        self.storage.restore(file)
        self.restores, self.lost_since = self.restores + 1, since
        self.start()

    def is_lost(self, request: Request) -> bool:
        """Return whether the restore lost what a request had stored."""
        return self.lost_since is not None and request.restored < self.restores and request.time > self.lost_since

    def counted(self) -> list[Request]:
        """Return the requests whose batches are counted, the first of each batch: where segments are folded, repeated ones are stored, too."""
        found: dict[UUID, Request] = {}
        for request in self.requests:
            if request.stored and not self.is_lost(request):
                found.setdefault(request.batch.batch_id, request)
        return list(found.values())

    def work(self) -> None:
        """Let all replicas do the work of a night at once."""
        with ThreadPoolExecutor(len(self._replicas)) as threads:
            list(threads.map(Replica.work, self._replicas))

    def call(self, method: str, path: str) -> AppResponse:
        """Send a request that is no upload to the replicas in turn."""
        return self._replicas[next(self._turns) % len(self._replicas)].caller.call(method, path)

    def upload(
        self, sender: str, body: bytes, units: Callable[[Batch], tuple[Unit | None, ...]], *, hears: bool
    ) -> AppResponse | UploadResponse:
        """Send a batch; return the answer, or why there is none: the request or its answer may get lost.

        An answer is lost because the service is restarted after its commit, or because its sender does not hear it.
        """
        # of this sender alone: another one may send at times that a seed does not repeat
        chance = self._chances.setdefault(sender, Random(f"{self.seed} {sender}"))  # noqa: S311
        if chance.random() < self.unreachable:
            return NOT_SENT
        is_lost = chance.random() < self.answers_lost
        replica = chance.choice(self._replicas)
        answer = replica.caller.post(JSON, (body,))
        date = format_datetime(self.world.now, usegmt=True)
        headers = {"Date": date} | {name.title(): value for name, value in answer.headers.items()}
        batch = Batch.from_json(body)
        stored, known = answer.status == 202, answer.status == 200
        if not (stored or known):
            self.refusals.append((sender, answer.status, answer.body.decode()))
        confirmed = hears and not is_lost
        self.requests.append(
            Request(sender, self.world.now, batch, units(batch), stored, known, confirmed, self.restores)
        )
        if is_lost:
            self.restart(replica)
        return replace(answer, headers=headers) if confirmed else NO_RESPONSE


@dataclass
class Network(Transport):
    """What connects one client to the service; `is_offline` while its machine has no network."""

    service: Service
    sender: str
    units: Callable[[Batch], tuple[Unit | None, ...]]
    is_offline: bool = False

    def send(self, body: bytes, is_wanted: Callable[[], bool] = always) -> UploadResponse:
        answer = self.upload(body) if is_wanted() else NOT_SENT
        return parse_response(answer.status, answer.headers, answer.body) if isinstance(answer, AppResponse) else answer

    def upload(self, body: bytes, *, hears: bool = True) -> AppResponse | UploadResponse:
        """Send a batch; return the answer, or why there is none. hears : whether the client still runs then"""
        return NOT_SENT if self.is_offline else self.service.upload(self.sender, body, self.units, hears=hears)


class Messages(logging.Handler):
    """All messages above INFO, by logger and text without its arguments, with one example each."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.examples: dict[tuple[str, str], str] = {}
        self.numbers: dict[tuple[str, str], int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        key = record.name, text[:60] if record.msg == "%s" else str(record.msg)
        self.examples.setdefault(key, text)
        self.numbers[key] = self.numbers.get(key, 0) + 1
