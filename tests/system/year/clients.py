"""What a person does with a client: the Python client in this process, and the TypeScript client in one of Node."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, Protocol, Self

from hubbub import Client, Definitions, Policy
from hubbub.client import collaborators
from hubbub.conformance.adapter import Adapter, AdapterError
from hubbub.sdk.upload.retry_policy import NOT_SENT, UploadResponse
from hubbub.sdk.upload.uploader import UploadLoop
from tests.support.asgi import AppResponse
from tests.system.year.front import Front
from tests.system.year.service import Network

KILLED = 0.02
"""Probability that a process of Node is killed in one round."""
KILLED_AFTER_RECORDING = 0.01
"""Probability that a process of Node is killed as soon as it has answered a recording."""
MOST_EPSILON = {"epsilon_report": 1e6, "epsilon_enrollment": 1e6, "epsilon_metric": 1e6, "epsilon_total": 1e9}
"""A policy without limits for all definitions, in numbers that JSON has."""
ANSWER_SECONDS = 120
LOGGER = logging.getLogger("hubbub.typescript")
"""The TypeScript client logs nothing: these are its answers."""


@dataclass(frozen=True)
class Charge:
    """Ledger of one definition.

    spent : epsilon over all enrollments
    room  : units that this enrollment may have
    """

    spent: float
    room: float


@dataclass(frozen=True)
class Counts:
    """How many recordings and reports were made, and what became of the reports.

    recorded : in all processes; of the TypeScript client without those that it ignored
    """

    recorded: int
    formed: int
    acknowledged: int
    queued: int
    quarantined: int
    dropped: int


class RunningClient(Protocol):
    """A client that runs in a window of a person's app."""

    def set_consent(self, level: str) -> None:
        """Give or withdraw consent."""

    def record(self, metric: str, value: Any) -> bool:
        """Record a value; return whether the client counts it from now on, also if the process is killed."""

    def round(self) -> float:
        """Let what is due leave; return the seconds until the client wants to be asked again, 0 for at once."""

    def charges(self) -> Mapping[str, Charge]:
        """Return the ledger by digest."""

    def counts(self) -> Counts:
        """Return the counters."""

    def close(self) -> None:
        """End it."""


class ManualUploadLoop(UploadLoop):
    """The upload thread's loop without its threads: a session calls its rounds under simulated time."""

    def start(self) -> None:
        pass

    def _start_compactor(self) -> None:
        # a thread would draw random bytes at a moment that another run of the seed does not repeat
        self._compactor.compact()


class PythonClient(RunningClient):
    """The Python client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @cached_property
    def _loop(self) -> UploadLoop:
        return collaborators(self._client).uploader.start()

    def set_consent(self, level: str) -> None:
        self._client.set_consent(level, "text")  # type: ignore[arg-type]

    def record(self, metric: str, value: Any) -> bool:
        self._client.record(metric, value)
        return True

    def round(self) -> float:
        return self._loop._round()

    def charges(self) -> Mapping[str, Charge]:
        return {
            account.digest: Charge(
                account.epsilon_spent,
                0 if account.refused else account.reserved_units - account.spent_before_enrollment,
            )
            for account in self._client.ledger().accounts
            if not account.subject
        }

    def counts(self) -> Counts:
        counts = self._client.accounting()
        return Counts(
            counts.recorded,
            counts.formed,
            counts.acknowledged,
            counts.queued,
            counts.quarantined,
            sum(counts.dropped.values()),
        )

    def close(self) -> None:
        self._client.close()


class Node:
    """Processes of the TypeScript client's adapter. It is a context manager.

    command : program and arguments of one
    said    : file of what they write to stderr
    """

    def __init__(self, command: Sequence[str], front: Front, said: Path) -> None:
        self.front, self.said = front, said
        self._command = ("sh", "-c", 'exec "$@" 2>> "$0"', str(said), *command)
        self._idle: list[Adapter] = []
        self._running = ExitStack()
        said.touch()

    def take(self) -> Adapter:
        """Return a process without a client."""
        return self._idle.pop() if self._idle else self._running.enter_context(Adapter(self._command, ANSWER_SECONDS))

    def give_back(self, process: Adapter) -> None:
        """Keep a process whose client has ended for the next one."""
        self._idle.append(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()


class NodeClient(RunningClient):
    """The TypeScript client on a directory, and requests of it that reach the service while it is asked: time stands still then.

    chance : of the kills, and of the moments at which it is asked
    """

    def __init__(
        self,
        node: Node,
        network: Network,
        clock: Callable[[], datetime],
        chance: Random,
        definitions: Definitions,
        directory: Path,
        policy: Policy | None,
        groups: Mapping[str, str],
    ) -> None:
        self._node, self._network, self._clock, self._chance = node, network, clock, chance
        self._start = {
            "definitions": [metric.to_dict() for metric in definitions.values()],
            "directory": str(directory),
            "url": node.front.address_for(self._upload),
            "policy": MOST_EPSILON if policy is None else asdict(policy),
            "groups": groups,
        }
        self._is_asked = self._dies = False
        self._process = node.take()
        self._begin()

    def set_consent(self, level: str) -> None:
        assert self._ask("consent", level=level)["saved"]

    def record(self, metric: str, value: Any) -> bool:
        outcome = self._ask("record", metric=metric, value=value)["outcome"]
        if outcome != "recorded":
            LOGGER.warning("a recording of %s is ignored: %s", metric, outcome)
        if self._chance.random() < KILLED_AFTER_RECORDING:
            self._kill()
        return bool(outcome == "recorded")

    def round(self) -> float:
        self._ask("advance", now=self._now)
        self._dies = self._chance.random() < KILLED
        try:
            self._ask("flush")
        except AdapterError:
            if not self._dies:
                raise
        if self._dies:
            self._dies = False
            self._kill()
        return self._chance.uniform(60, 3600)

    def charges(self) -> Mapping[str, Charge]:
        return {
            account["digest"]: Charge(
                account["units"] * account["epsilonPerUnit"],
                0 if account["refused"] else account["reservedUnits"] - account["spentBeforeEnrollment"],
            )
            for account in self._ask("inspect")["ledger"]
        }

    def counts(self) -> Counts:
        found = self._ask("inspect")
        counts = found["counts"]
        return Counts(
            counts["chosen"] + counts["superseded"],
            counts["formed"],
            counts["acknowledged"],
            len(found["queued"]),
            counts["quarantined"],
            sum(counts["dropped"].values()),
        )

    def close(self) -> None:
        found = self._ask("inspect")
        for text in (found["paused"], found["lastError"], *(account["refused"] for account in found["ledger"])):
            if text not in ("", "no answer"):
                LOGGER.warning("%s", text)
        self._ask("stop")
        self._node.give_back(self._process)

    @property
    def _now(self) -> str:
        return self._clock().isoformat()

    def _begin(self) -> None:
        self._ask("start", now=self._now, **self._start)

    def _kill(self) -> None:
        """Kill the process, and start the app again."""
        self._process.kill()
        self._begin()

    def _ask(self, call: str, **fields: Any) -> Mapping[str, Any]:
        self._is_asked = True
        try:
            answer = self._process.ask({"call": call, **fields})
        finally:
            self._is_asked = False
        assert "refused" not in answer, (call, fields.keys())
        return answer

    def _upload(self, body: bytes) -> AppResponse | UploadResponse:
        """Pass a request on. The process may be killed while it waits for the answer."""
        if not self._is_asked:  # a timer of the process
            return NOT_SENT
        answer = self._network.upload(body, hears=not self._dies)
        if self._dies:
            self._process._process.kill()
        return answer
