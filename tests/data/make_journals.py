"""Generate the folder journals: the files of clients whose randomness, clock and network are scripted. Run this only for a new format.

python -m tests.data.make_journals tests/data/journals

reports.json: what `Client.inspect` and `Client.ledger` say about each directory. The other files:

written    all records that a client appended to its journal and snapshots, in order; together they have every kind of event
lived      the directory at the end of that life        withdrawn   the same after `off`
torn       of a client killed in the middle of a write  compacting  of a client killed during a compaction
local      of a client under consent `local`, with a clock that was set back
labelled   of a client whose app was updated, with a metric that has a group
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from email.utils import format_datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal
from unittest.mock import patch

from hubbub import Buckets, Client, Definitions, Group, Metric, Params, UnaryResponse
from hubbub.client import collaborators
from hubbub.metrics.buckets import Several
from hubbub.sdk.assembly import AllSeams, Collaborators
from hubbub.sdk.storage.copy_detection import renew_identity
from hubbub.sdk.storage.filesystem import File
from hubbub.sdk.storage.state_reader import read_state
from hubbub.sdk.transparency.state_reports import inspect_state, ledger_of_state
from hubbub.sdk.upload.detached import claim_daily_run
from hubbub.sdk.upload.retry_policy import NO_RESPONSE, NOT_SENT, UploadResponse
from hubbub.sdk.upload.uploader import UploadLoop
from hubbub.testing import UNLIMITED, ManualClock, RecordingTransport, SeededBytes, deliver
from tests.support.power_loss_filesystem import SimulatedDisk

STATE = Path("/scripted/state")
RECORDS = ("journal", "snapshot", "snapshot.new")
PAGE = Metric.string("page", Params(num_bits=16, num_hashes=2, num_cohorts=4, prob_p=0.25, prob_q=0.75, prob_f=0.5))
THEME = Metric.categorical("theme", ("light", "dark"), UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), hold=7)
HOURS = Metric.ordinal("hours", Buckets((0, 4, 8), several=Several.SUM), UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
METRICS = Definitions([PAGE, THEME, HOURS])
LABELLED = Metric.boolean(
    "updated", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), group=Group("version", ("1.x", "2.x", "other"))
)
END = date(2026, 12, 20)
"""A day after all of them."""


class Killed(BaseException):
    """The end of a process."""


class ScriptedDisk(SimulatedDisk):
    """Keeps the records written, and ends the process in the middle of its n-th append or before a named step."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.appends_left = -1
        self.forbidden = ""

    def open(self, path: Path) -> File:
        return ScriptedFile(self, super().open(path), path.name)

    def remove(self, path: Path) -> None:
        if path.name == self.forbidden:
            raise Killed
        super().remove(path)

    def contents(self) -> dict[str, bytes]:
        """Return the files that a start reads."""
        names = ("journal", "journal.earlier", "snapshot", "secret", "sent-periods")
        files = {name: super(ScriptedDisk, self).open(STATE / name) for name in names if self.identity(STATE / name)}
        return {name: file.read(0, file.identity()[1]) for name, file in files.items()}


class ScriptedFile:
    def __init__(self, disk: ScriptedDisk, file: File, name: str) -> None:
        self._disk, self._file, self._name = disk, file, name
        self.identity, self.read, self.sync, self.close = file.identity, file.read, file.sync, file.close

    def append(self, data: bytes) -> None:
        self._disk.appends_left -= 1
        if self._disk.appends_left == 0:
            self._file.append(data[: len(data) // 2])
            raise Killed
        if self._name in RECORDS:
            self._disk.written.append(data)
        self._file.append(data)


class ScriptedTransport(RecordingTransport):
    """Answers with the date of the aggregator's clock."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def answer(self, status: int, problem: str) -> None:
        self.responses.append(UploadResponse(status, problem, date=format_datetime(self._clock(), usegmt=True)))

    def send(self, body: bytes, is_wanted: Callable[[], bool] = lambda: True) -> UploadResponse:
        response = super().send(body, is_wanted)
        if response.date is None and response.status == 202:
            return UploadResponse(202, batch_id=response.batch_id, date=format_datetime(self._clock(), usegmt=True))
        return response


class Script:
    """One scripted directory: each `start` is a new process on it."""

    def __init__(self, seed: str) -> None:
        self.disk, self.clock = ScriptedDisk(), ManualClock(date(2026, 11, 21))
        self.transport, self._random = ScriptedTransport(self.clock), SeededBytes(seed)
        self.machine = b"one machine"

    def start(self, *, renew: bool = False, version: str = "") -> Client:
        """version : of an app whose definitions have a metric with a group, too"""
        return Client(
            Definitions([*METRICS.values(), LABELLED]) if version else METRICS,
            STATE,
            "http://127.0.0.1:1",
            policy=UNLIMITED,
            groups={"version": version} if version else None,
            environment={},
            seams=AllSeams(
                clock=self.clock,
                transport=self.transport,
                disk=self.disk,
                random_bytes=self._random,
                machine_id=lambda: self.machine,
            ),
            renew_identity_when_copied=renew,
        )

    def consent(self, client: Client, level: Literal["local", "on"], text: str = "") -> None:
        """Consent, in a directory with a file of earlier versions: nothing reads it, and the recorded inodes count it."""
        client.set_consent(level, text)
        self.disk.open_new(STATE / "lease.0").close()

    def next_day(self, client: Client) -> Collaborators:
        self.clock.move(days=1)
        parts = collaborators(client)
        parts.sender.begin()
        parts.sender.attempt()  # saves the ignored counts, and builds the batches
        return parts


def record(client: Client) -> None:
    for value in ("/", "/help", "/buy"):
        client.record("page", value)
    client.record("theme", "dark")
    client.record("hours", 3)
    client.record("hours", 6.5)
    client.subject("someone").record("page", "/")
    client.record("page", 17)  # invalid
    client.record("pages", "/")  # unknown


def life(script: Script) -> None:
    """All kinds of events."""
    client = script.start()
    script.consent(client, "on", "We count pages.")
    record(client)
    parts = script.next_day(client)
    deliver(client)
    answers = (
        (503, ""),
        (404, "unknown-metric"),
        (409, "digest-mismatch"),
        (413, "too-large"),
        (400, "malformed"),
        (410, "period-closed"),
        (401, ""),
        (410, "metric-expired"),
    )
    for status, problem in answers:
        record(client)
        parts = script.next_day(client)
        script.transport.answer(status, problem)
        deliver(client)
    script.transport.responses += [NO_RESPONSE, NOT_SENT]
    record(client)
    script.next_day(client)
    deliver(client)
    record(client)
    script.next_day(client)
    parts.journal.run(lambda state: claim_daily_run(parts.journal, state, script.clock().timestamp() + 5 * 86400.0))
    script.next_day(client)  # overdue batches get another time
    script.transport.answer(400, "malformed")
    script.transport.answer(404, "unknown-metric")
    script.transport.answer(409, "digest-mismatch")
    deliver(client)
    record(client)
    assert parts.compactor.compact(always=True)
    script.clock.move(days=12)
    record(client)
    script.clock.move(days=-12)
    script.next_day(client)
    record(client)
    client.close()
    script.machine = b"another machine"
    client = script.start(renew=True)
    record(client)
    script.machine = b"a third machine"
    client.close()
    script.start().close()


def withdrawal(script: Script) -> None:
    life(script)
    client = script.start()
    client.set_consent("off", "No.")
    client.close()


def torn(script: Script) -> None:
    client = script.start()
    script.consent(client, "on")
    record(client)
    script.disk.appends_left = 3
    with suppress(Killed):
        record(client)
    client = script.start()
    record(client)
    script.next_day(client)


def compacting(script: Script) -> None:
    client = script.start()
    script.consent(client, "on")
    record(client)
    script.next_day(client)
    deliver(client)
    record(client)
    assert collaborators(client).compactor.compact(always=True)
    record(client)
    script.disk.forbidden = "journal.earlier"
    with suppress(Killed):
        collaborators(client).compactor.compact(always=True)


def local(script: Script) -> None:
    client = script.start()
    script.consent(client, "local")
    record(client)
    script.next_day(client)
    record(client)
    parts = collaborators(client)
    script.clock.move(days=-1)
    script.next_day(client)
    parts.journal.run(lambda _: renew_identity_of(client))
    record(client)


def labelled(script: Script) -> None:
    client = script.start(version="1.9")
    script.consent(client, "on")
    client.record("updated", True)
    script.clock.move(days=4)
    client = script.start(version="2.0")
    record(client)
    assert collaborators(client).compactor.compact(always=True)
    client.record("updated", False)


def renew_identity_of(client: Client) -> None:
    parts = collaborators(client)
    assert renew_identity(parts.journal, parts.consent_manager._secret_file)


SCRIPTS = {
    "lived": life,
    "withdrawn": withdrawal,
    "torn": torn,
    "compacting": compacting,
    "local": local,
    "labelled": labelled,
}


def journals() -> dict[str, bytes]:
    """Return the contents of all files by their name in the folder."""
    files: dict[str, bytes] = {}
    with patch.object(UploadLoop, "start", lambda _: None):  # its thread would write at any time
        for name, run in SCRIPTS.items():
            script = Script(name)
            run(script)
            files |= {f"{name}/{file}": content for file, content in script.disk.contents().items()}
            if run in (withdrawal, labelled):
                files["written"] = b"".join([files.get("written", b""), *script.disk.written])
    files["reports.json"] = json.dumps({name: reports(files, name) for name in SCRIPTS}, indent=1).encode()
    return files


def reports(files: dict[str, bytes], name: str) -> dict[str, Any]:
    """Return the reports on one directory."""
    with TemporaryDirectory() as folder:
        write({path: content for path, content in files.items() if path.startswith(f"{name}/")}, Path(folder))
        state = read_state(Path(folder) / name)
        return {"inspect": inspect_state(state, 10).to_dict(), "ledger": ledger_of_state(state).to_dict()}


def write(files: dict[str, bytes], folder: Path) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


if __name__ == "__main__":
    write(journals(), Path(sys.argv[1]))
