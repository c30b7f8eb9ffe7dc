"""The service in this process under simulated time, its restarts, and a list of all requests with what became of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from email.utils import format_datetime
from pathlib import Path
from random import Random
from unittest.mock import patch

from hubbub import Batch, Definitions
from hubbub.sdk.upload.retry_policy import NO_RESPONSE, NOT_SENT, UploadResponse
from hubbub.sdk.upload.transport import Transport, always, parse_response
from hubbub_aggregator.app import create_app
from hubbub_aggregator.database.backup import copy_file
from hubbub_aggregator.pipeline.credible_clock import CredibleClock
from hubbub_aggregator.pipeline.folding import compute_figures
from hubbub_aggregator.pipeline.retention import upkeep
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore
from tests.support.asgi import ADDRESS, AppResponse, started
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


@dataclass
class Service:
    """The service on one SQLite file. Its jobs run when `work` is called, and not by themselves.

    seed                      : of what becomes of the requests of each sender
    answers_lost, unreachable : probabilities for one request
    """

    database: Path
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
    _running: ExitStack = field(default_factory=ExitStack)

    def start(self) -> None:
        """Open the database and start the application."""
        self._running = ExitStack()
        self._running.enter_context(patch("hubbub_aggregator.app.CLOCK_CHECK_SECONDS", NEVER_SECONDS))
        self.store = SqlStore.open(self.database)
        self._running.callback(self.store.close)
        begin = datetime.fromtimestamp(0, tz=self.world.now.tzinfo)
        self.clock = CredibleClock(
            self.store,
            wall=lambda: self.world.now.timestamp(),
            elapsed=lambda: (self.world.now - begin).total_seconds(),
            boot_id="simulated",
        )
        settings = Settings(fold_interval=NEVER_SECONDS, local_reads_without_token=True)
        app = create_app(self.definitions, self.store, settings, self.clock, local_address=ADDRESS)
        self.settings, self.caller = settings, self._running.enter_context(started(app))

    def stop(self) -> None:
        """Stop the application and close the database."""
        self._running.close()

    def restart(self) -> None:
        """Stop, and start on the same database."""
        self.stop()
        self.start()
        self.restarts += 1

    def back_up(self, file: Path) -> datetime:
        """Back the database up while it is served; return the time."""
        copy_file(str(self.database), str(file))
        return self.world.now

    def restore(self, file: Path, since: datetime) -> None:
        """Restore a backup: what was stored since then is lost, and clients do not send it again."""
        self.stop()
        self.database = self.database.with_name(f"restored{self.restores}.db")
        copy_file(str(file), str(self.database))
        self.restores, self.lost_since = self.restores + 1, since
        self.start()

    def is_lost(self, request: Request) -> bool:
        """Return whether the restore lost what a request had stored."""
        return self.lost_since is not None and request.restored < self.restores and request.time > self.lost_since

    def work(self) -> None:
        """Do what the periodic jobs do: fold, close periods, compute figures."""
        service = self.caller.state["service"]
        service.progress.round(lambda: upkeep(self.store, self.definitions, self.settings, self.clock.observe()))
        compute_figures(self.store, self.definitions)

    def call(self, method: str, path: str) -> AppResponse:
        """Send a request that is no upload."""
        return self.caller.call(method, path)

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
        answer = self.caller.post(JSON, (body,))
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
            self.restart()
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
