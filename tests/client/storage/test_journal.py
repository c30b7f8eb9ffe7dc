"""The journal after kills, damage, full disks and power losses."""

from __future__ import annotations

import json
import logging
import os
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hubbub import Accounting
from hubbub.cli.inspect import command as inspect_command
from hubbub.client import collaborators
from hubbub.randomness import system_random_bytes
from hubbub.sdk.storage.events import JOURNAL, ROTATED, SNAPSHOT, Event, IgnoredRecordings
from hubbub.sdk.storage.filesystem import SystemDisk
from hubbub.sdk.storage.journal import PendingEvents
from hubbub.sdk.storage.record_format import encode_record, scan
from hubbub.sdk.storage.secret_file import secret_on
from hubbub.sdk.storage.state import State
from hubbub.sdk.upload.retry_policy import NO_RESPONSE, UploadResponse
from hubbub.testing import SeededBytes, deliver
from hubbub.wire.batch import Batch
from tests.client.conftest import HOMEPAGE, SURVEY, Rig, logged, require_balanced
from tests.support.paths import DATA
from tests.support.power_loss_filesystem import SimulatedDisk


def filled(rig: Rig, days: int = 6) -> None:
    client = rig.agreed(HOMEPAGE, SURVEY)
    for day in range(days):
        client.record("homepage", f"https://example.org/{day}")
        client.record("homepage", None)
        if day == 3:
            deliver(client)
        rig.clock.move(days=1)
    with collaborators(client).journal as state:
        collaborators(client).builder.build_all(state)
    client.close()


def state_of(rig: Rig, **options: Any) -> Accounting:
    client = rig.client(HOMEPAGE, SURVEY, environment={"DO_NOT_TRACK": "1"}, **options)
    client.close()
    return client.accounting()


def test_flipped_byte_keeps_accounting_exact(rig: Rig, unseen_seed: int) -> None:
    filled(rig)
    journal = rig.state / "journal"
    whole, before = journal.read_bytes(), state_of(rig)
    require_balanced(before)
    chance = random.Random(unseen_seed)  # noqa: S311
    for _ in range(150):
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= chance.randrange(1, 256)
        journal.write_bytes(damaged)
        counts = state_of(rig)
        require_balanced(counts)
        assert counts.damaged_records == before.damaged_records + 1
        assert before.formed - 2 <= counts.formed <= before.formed
        assert counts.dropped["corrupt"] <= 2


def test_truncated_journal_starts_and_records(rig: Rig, unseen_seed: int) -> None:
    filled(rig)
    journal = rig.state / "journal"
    whole = journal.read_bytes()
    chance = random.Random(unseen_seed)  # noqa: S311
    for _ in range(60):
        journal.write_bytes(whole[: chance.randrange(len(whole))])
        client = rig.agreed(HOMEPAGE, SURVEY)
        client.record("homepage", "x")
        require_balanced(client.accounting())
        client.close()
        counts = state_of(rig)
        require_balanced(counts)
        assert counts.chosen >= 1


def test_lost_batch_is_counted_as_corrupt(rig: Rig) -> None:
    filled(rig)
    before = state_of(rig)
    journal = rig.state / "journal"
    iter_payloads = scan(journal.read_bytes()).payloads
    events = [json.loads(payload) for payload in iter_payloads]
    gone = {event["batch_id"] for event in events if event["event"] == "batch_removed"}
    formed = [n for n, event in enumerate(events) if event["event"] == "batch_created"]
    first = next(n for n in formed[:-1] if events[n]["queued"]["batch"]["batch_id"] not in gone)
    journal.write_bytes(b"".join(map(encode_record, iter_payloads[:first] + iter_payloads[first + 1 :])))
    counts = state_of(rig)
    assert (counts.formed, counts.queued) == (before.formed, before.queued - 1)
    assert counts.dropped["corrupt"] == 1


def test_ledger_and_consent_survive_one_damaged_record(rig: Rig) -> None:
    filled(rig)
    client = rig.client(HOMEPAGE, SURVEY, environment={"DO_NOT_TRACK": "1"})
    collaborators(client).compactor.compact(always=True)
    with collaborators(client).journal as state:
        spent = {key: account.spent for key, account in state.accounts.items()}
    client.close()
    for file in (rig.state / SNAPSHOT, rig.state / JOURNAL):
        whole = file.read_bytes()
        iter_payloads = scan(whole).payloads
        for hit in range(len(iter_payloads)):
            file.write_bytes(b"".join(encode_record(p) for n, p in enumerate(iter_payloads) if n != hit))
            again = rig.client(HOMEPAGE, SURVEY, environment={"DO_NOT_TRACK": "1"})
            with collaborators(again).journal as state:
                assert {key: account.spent for key, account in state.accounts.items()} == spent
                assert state.consent == "on"
            require_balanced(again.accounting())
            again.close()
        file.write_bytes(whole)


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def test_compaction_keeps_state(rig: Rig) -> None:
    filled(rig)
    before = state_of(rig)
    client = rig.client(HOMEPAGE, SURVEY, environment={"DO_NOT_TRACK": "1"})
    other = rig.client(HOMEPAGE, SURVEY, environment={"DO_NOT_TRACK": "1"})
    with collaborators(client).journal as state:
        drafts, waiting, accounts = dict(state.drafts), dict(state.queue), dict(state.accounts)
    size = size_of(rig.state)
    assert collaborators(client).compactor.compact(always=True)
    assert size_of(rig.state) < size
    for reader in (client, other):
        with collaborators(reader).journal as state:
            assert (state.drafts, state.queue, state.accounts) == (drafts, waiting, accounts)
    assert state_of(rig) == before


def test_journal_size_is_bounded(rig: Rig) -> None:
    client = rig.agreed()
    for _ in range(8000):
        client.record("homepage", "x")
    collaborators(client).compactor.compact()
    while (rig.state / ROTATED).exists():  # the uploader's may have come first
        pass
    client.close()
    assert size_of(rig.state) < 1 << 18  # 8,000 records are four times that
    assert state_of(rig).recorded == 8000


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["process", "power"])
def test_power_loss_sends_no_period_twice_and_keeps_ledger(durability: str, rig: Rig, unseen_seed: int) -> None:
    """200 lives of a client, each ended by a power loss that drops, tears and reorders unsynced writes.

    All requests for a metric and period have one batch id and the same bytes, and the ledger has counted them.
    """
    chance, disk = random.Random(unseen_seed), SimulatedDisk()  # noqa: S311
    random_bytes = SeededBytes(unseen_seed)
    sent: dict[tuple[str, str], bytes] = {}
    send = rig.transport.send

    def watched(body: bytes, is_wanted: object) -> UploadResponse:
        batch = Batch.from_json(body)
        assert sent.setdefault((batch.metric, batch.period), body) == body
        answer = send(body)
        return answer if chance.random() < 0.5 else NO_RESPONSE

    rig.transport.send = watched  # type: ignore[method-assign,assignment]
    for _ in range(200):
        client = rig.agreed(HOMEPAGE, SURVEY, disk=disk, random_bytes=random_bytes, durability=durability)
        sender = collaborators(client).sender
        collaborators(client).uploader.start().stop(5)
        for _ in range(chance.randrange(8)):
            match chance.randrange(7):
                case 0 | 1:
                    client.record("homepage", str(chance.randrange(5)))
                    assert durability == "process" or not collaborators(client).journal.has_unsynced
                case 2:
                    rig.clock.move(hours=chance.randrange(40))
                case 3 | 4:
                    sender.attempt()
                case 5:
                    deliver(client)
                case 6:
                    collaborators(client).compactor.compact(always=True)
        collaborators(client).uploader.stop()
        require_balanced(client.accounting())
        disk = disk.after_power_loss(chance)
        found = rig.client(HOMEPAGE, SURVEY, disk=disk, environment={"DO_NOT_TRACK": "1"})
        require_balanced(found.accounting())
        with collaborators(found).journal as state:
            assert not sent or state.enrollments == 1  # the secret was durable before anything was sent under it
            for metric, period in sent:
                (account,) = (a for a in state.accounts.values() if a.metric == metric)
                assert account.next_period_start > period
                assert account.units >= 1
        collaborators(found).uploader.stop()
    assert len(sent) > 20


def test_consent_withdrawal_survives_power_loss(rig: Rig, unseen_seed: int) -> None:
    """100 power losses right after `set_consent("off")`; half of them after a kill that left the secret's draft beside it."""
    chance = random.Random(unseen_seed)  # noqa: S311
    for number in range(100):
        disk = SimulatedDisk()
        client = rig.agreed(HOMEPAGE, disk=disk)
        client.record("homepage", "x")
        secret = disk.open(rig.state / "secret").read(0, 64)
        if number % 2:
            disk.open(rig.state / "secret.1-dead").append(secret)
            disk.sync_directory(rig.state)
        client.set_consent("off")
        collaborators(client).uploader.stop()
        disk = disk.after_power_loss(chance)
        assert secret not in [file.read(0, 1 << 20) for file in disk.files.values()]
        assert rig.client(HOMEPAGE, disk=disk).consent.level == "off"


def test_power_loss_leaves_whole_secret_or_none(rig: Rig, unseen_seed: int) -> None:
    chance, path = random.Random(unseen_seed), rig.state / "secret"  # noqa: S311

    class Failing(SimulatedDisk):
        left = 0

        def _refuse_if_full(self) -> None:
            self.left -= 1
            if self.left == 0:
                raise OSError(5, "Input/output error")

    found = set()
    for steps in range(1, 40):
        disk: SimulatedDisk = Failing()
        disk.left = 1 + steps % 8  # type: ignore[attr-defined]
        with suppress(OSError):
            secret_on(disk, path, system_random_bytes)
        disk = disk.after_power_loss(chance)
        made = disk.identity(path)
        assert made is None or made[1] == 32
        found.add(made is None)
        secret_on(disk, path, system_random_bytes)
    assert found == {True, False}


def test_full_disk_pauses_uploads_with_one_warning(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    client = rig.agreed(disk=disk)
    client.record("homepage", "x")
    disk.full = True
    caplog.set_level(logging.INFO, "hubbub")
    for _ in range(20):
        client.record("homepage", "x")
    rig.clock.move(days=3)
    client.record("homepage", "x")
    deliver(client)
    assert caplog.text.count("keeps recording in memory") == 1
    assert rig.transport.bodies == []
    assert client.accounting().recorded == 22
    require_balanced(client.accounting())
    disk.full = False
    deliver(client)
    assert [entry.levelname for entry in caplog.records] == ["WARNING", "INFO"]
    assert len(rig.transport.batches) == 4
    client.close()
    again = rig.client(disk=disk)
    assert again.accounting().recorded == 22
    require_balanced(again.accounting())


def test_full_disk_keeps_the_account_of_every_subject(rig: Rig) -> None:
    disk = SimulatedDisk()
    client = rig.agreed(disk=disk, per_subject=True)
    disk.full = True
    for name in ("ada", "bo", "cy"):
        client.subject(name).record("homepage", "x")
    with collaborators(client).journal as state:
        accounts = {key: account.to_dict() for key, account in state.accounts.items()}
    assert len(accounts) == 3
    disk.full = False
    client.close()
    with collaborators(rig.client(disk=disk, per_subject=True)).journal as state:
        assert {key: account.to_dict() for key, account in state.accounts.items()} == accounts


def test_pending_events_add_up_counts() -> None:
    pending, state, expected = PendingEvents(), State(), State()
    events: list[Event] = [
        IgnoredRecordings({"expired": 2}),
        IgnoredRecordings({"expired": 1, "no-state": 4}),
    ]
    pending.keep(events[:1])
    pending.keep(events[1:])
    for event in pending.events.values():
        state.apply(event)
    for event in events:
        expected.apply(event)
    assert dict(state.ignored) == dict(expected.ignored) == {"expired": 3, "no-state": 4}


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc").exists(), reason="needs a directory nobody can write")
def test_unwritable_directory_warns_and_does_not_raise(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.state = Path("/proc/no-such-place")
    with caplog.at_level(logging.WARNING, "hubbub"):
        client = rig.agreed()
        client.record("homepage", "x")
        rig.clock.move(days=2)
        client.flush(1)
    assert (
        caplog.text.count(
            'hubbub ignores recordings (`no-state`) and sends nothing. durability="memory" needs no directory'
        )
        == 1
    )
    assert rig.transport.bodies == []
    counts = client.accounting()
    assert (counts.chosen, counts.ignored["no-state"]) == (0, 1)
    require_balanced(counts)


def test_state_path_of_a_file_is_rejected_with_next_step(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.state.write_text("not ours")
    with (
        caplog.at_level(logging.WARNING, "hubbub"),
        logged(match="is not a directory .*: give Client a directory of its own as `state`"),
    ):
        client = rig.agreed()
    client.record("homepage", "x")
    assert caplog.text.count("is not a directory") == 1
    assert rig.state.read_text() == "not ours"
    done = CliRunner().invoke(inspect_command, [str(rig.state)])
    assert (done.exit_code, "it is a file" in str(done.exception)) == (1, True)


@pytest.mark.parametrize("operation", ["open", "open_new", "replace", "remove", "sync_directory"])
def test_failed_compaction_loses_nothing(operation: str, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation of the disk fails once: the first time that a compaction comes to it, or the second time."""
    whole = getattr(SystemDisk, operation)
    left = 0

    def failing(disk: SystemDisk, *arguments: Path) -> object:
        nonlocal left
        left -= 1
        if left == 0:
            raise OSError(5, "Input/output error")
        return whole(disk, *arguments)

    for number in (1, 2):
        client = rig.agreed()
        collaborators(client).uploader.start().stop(5)
        before = client.accounting().recorded
        client.record("homepage", "x")
        left = number
        with monkeypatch.context() as broken:
            broken.setattr(SystemDisk, operation, failing)
            done = collaborators(client).compactor.compact(always=True)
        assert done == (left > 0)
        client.record("homepage", "x")
        client.close()
        found = rig.client(environment={"DO_NOT_TRACK": "1"})  # no thread of its own
        assert found.accounting().recorded == before + 2


WRITER = """
import sys
from contextlib import suppress
from pathlib import Path
from hubbub import Client, load_definitions
client = Client(sys.argv[1], sys.argv[2], "http://127.0.0.1:1")
print("ready", flush=True)
sys.stdin.read(1)
for n in range(1000):
    client.record("homepage", f"https://example.org/{n % 7}")
"""


def test_eight_processes_count_every_recording(tmp_path: Path) -> None:
    metrics = DATA / "metrics.toml"
    from hubbub import Client

    with Client(metrics, tmp_path / "state", "http://127.0.0.1:1") as client:
        client.set_consent("local")
        command = [sys.executable, "-c", WRITER, str(metrics), str(tmp_path / "state")]
        writers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(8)]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
        for writer in writers:
            writer.communicate(b"x")
            assert writer.returncode == 0
        counts = client.accounting()
    assert counts.recorded == 8000
    assert counts.damaged_records == 0
    require_balanced(counts)
