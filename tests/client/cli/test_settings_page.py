"""Consent, queued reports and ledger for an app's settings page, from Python and from the commands."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import IO, Any

import pytest
from click.testing import CliRunner

from hubbub import Client, Consent, ConsentRecord
from hubbub.cli import main
from hubbub.client import collaborators
from hubbub.sdk.storage.events import JOURNAL, ROTATED
from hubbub.sdk.storage.filesystem import SystemDisk
from hubbub.sdk.storage.state_reader import read_state
from hubbub.sdk.upload.retry_policy import UploadResponse
from hubbub.testing import deliver
from tests.client.conftest import HOMEPAGE, SURVEY, Rig, logged
from tests.support.power_loss_filesystem import SimulatedDisk

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def printed(*arguments: str) -> object:
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_consent_property_returns_level_text_and_time(rig: Rig) -> None:
    client = rig.client()
    assert client.consent == ConsentRecord(Consent.OFF, "", None, effective=Consent.OFF)
    client.set_consent("on", "notice 1")
    rig.clock.move(days=2)
    expected = ConsentRecord(Consent.ON, "notice 1", NOON, effective=Consent.ON)
    assert client.consent == rig.client().consent == expected
    client.set_consent("on", "notice 1")  # as an app does at each start
    assert client.consent == expected
    client.set_consent("on", "notice 2")
    assert (client.consent.text, client.consent.time) == ("notice 2", rig.clock())
    client.set_consent("off", "settings, 3rd of May")
    assert rig.client().consent == ConsentRecord(Consent.OFF, "settings, 3rd of May", rig.clock(), Consent.OFF)
    silent = rig.client(environment={"HUBBUB_CONSENT": "local"})
    client.set_consent("on", "notice 2")
    assert (silent.consent.level, silent.consent.effective) == (Consent.ON, Consent.LOCAL)


def test_consent_survives_compaction_and_a_restart(rig: Rig) -> None:
    client = rig.client()
    client.set_consent("local", "notice 1")
    expected = client.consent
    rig.clock.move(days=1)
    collaborators(client).compactor.compact(always=True)
    client.close()
    assert rig.client().consent == expected == ConsentRecord(Consent.LOCAL, "notice 1", NOON, Consent.LOCAL)


def test_inspect_prints_the_consent_with_its_text_and_time(rig: Rig) -> None:
    client = rig.client()
    client.set_consent("local", 'notice\x1b[31m "1"')
    shown = CliRunner().invoke(main, ["inspect", str(rig.state)]).stdout
    assert 'consent: local since 2026-11-21T12:00:00+00:00, text "notice\\u001b[31m \\"1\\""\n' in shown
    printed_state = printed("inspect", str(rig.state))
    assert isinstance(printed_state, dict)
    assert printed_state["consent"] == {
        "level": "local",
        "text": 'notice\x1b[31m "1"',
        "time": "2026-11-21T12:00:00+00:00",
    }
    client.close()
    rig.clock.move(days=1)
    again = rig.client()
    again.flush(5)
    shown = CliRunner().invoke(main, ["inspect", str(rig.state)]).stdout
    assert "queued: homepage of 2026-11-21, never sent: created under consent local" in shown


@pytest.mark.parametrize("consent", ["on", "local", "off"])
def test_inspect_and_ledger_return_what_the_command_prints(consent: str, rig: Rig) -> None:
    """The policy is infinite, so some figures are infinite."""
    client = rig.agreed(HOMEPAGE, SURVEY)
    for _ in range(3):
        client.record("homepage", "x")
        deliver(client)
        rig.clock.move(days=1)
    client.record("survey", True)
    client.set_consent(consent)  # type: ignore[arg-type]
    rig.clock.move(days=2)
    client.flush(5)
    collaborators(client).uploader.stop()
    for last in (1, 3):
        document = printed("inspect", str(rig.state), "--last", str(last))
        assert isinstance(document, dict)
        assert isinstance(document.pop("problems"), list)
        assert document == client.inspect(last=last).to_dict() | {"ledger": client.ledger().to_dict()}
    assert len(client.inspect(last=3).last_sent) == (0 if consent == "off" else 3)


COUNTERS = (
    *("recorded", "waiting", "chosen", "superseded", "ignored", "formed", "stood_in"),
    *("acknowledged", "queued", "quarantined", "dropped", "failed_uploads", "damaged_records"),
)
KEYS = {
    "inspect": (
        "consent",
        "machines",
        "queued",
        "failures",
        "last_error",
        "quarantined",
        "last_sent",
        "accounting",
        "ledger",
        "problems",
    ),
    "inspect.consent": ("level", "text", "time"),
    "inspect.queued": (
        *("batch_id", "metric", "period", "reports", "send_time", "possibly_delivered", "local", "body"),
    ),
    "inspect.quarantined": ("metric", "period", "problem", "body"),
    "inspect.accounting": COUNTERS,
    "inspect.problems": ("health", "check", "observation", "impact", "next_step"),
    "inspect.ledger": ("consent", "enrollments", "epsilon_total", "epsilon_reserved", "accounts", "accounting"),
    "inspect.ledger.accounts": (
        *("subject", "digest", "metric", "period", "next_period_start", "unit", "epsilon_per_unit", "units"),
        *("reports", "enrollment", "epoch", "reserved_units", "spent_before_enrollment", "refused"),
        *("replanned_before", "newest_epoch", "response", "epsilon_spent", "epsilon_reserved"),
    ),
    "inspect.ledger.accounting": COUNTERS,
}


def test_keys_of_the_commands_json_keep_their_order(rig: Rig) -> None:
    """Scripts read these documents, so their keys are part of the interface."""
    rig.transport.responses = [UploadResponse(422, "wrong-size")]
    client = rig.agreed(HOMEPAGE, SURVEY)
    deliver(client)
    rig.clock.now = datetime.combine(rig.clock().date() + timedelta(days=2), time(), UTC)
    client.flush(5)  # what is due at midnight waits
    client.close()
    assert dict(keys_below("inspect", printed("inspect", str(rig.state)))) == KEYS


def keys_below(name: str, value: object) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the keys of an object, and of the objects and first elements of lists in it. Those of `epsilon_total` are subjects."""
    fields = value[0] if isinstance(value, list) and value else value
    if isinstance(fields, dict) and not name.endswith(("epsilon_total", "epsilon_reserved")):
        yield name, tuple(fields)
        for key, below in fields.items() if fields.keys() != set(COUNTERS) else ():
            yield from keys_below(f"{name}.{key}", below)


def test_inspects_client_with_in_memory_state(rig: Rig) -> None:
    for client in (rig.agreed(durability="memory"), rig.agreed(disk=SimulatedDisk())):
        client.record("homepage", "x")
        deliver(client)
        assert client.inspect().accounting.formed == 1
        assert client.ledger().accounts[0].units == 1
        assert client.consent.level is Consent.ON
    assert not rig.state.exists()


def test_inspect_and_ledger_never_raise_without_state(rig: Rig, tmp_path: Path) -> None:
    fresh = rig.client()
    assert fresh.inspect().accounting.recorded == 0
    assert fresh.ledger().accounts == ()
    file = tmp_path / "file"
    file.write_text("Dear diary, today I wrote more than a torn record")
    for state in (file, tmp_path):
        (tmp_path / "journal").write_text("Dear diary, today I wrote more than a torn record")
        with logged("Until the directory is usable"):
            client = rig.client(state=state)
        client.set_consent("on")
        assert (client.consent.level, client.inspect().consent.level) == (Consent.ON, "on")
        assert client.ledger().accounts == ()


def test_inspect_and_ledger_do_not_wait_for_the_journal_lock(rig: Rig) -> None:
    """Another process holds the lock, and a thread of this process waits for it."""
    client = rig.agreed()
    client.record("homepage", "x")
    lock = SystemDisk().lock(rig.state / "lock")
    assert lock.acquire(wait=True)
    thread = threading.Thread(target=client.record, args=("homepage", "y"))
    rested = threading.Event()
    collaborators(client).journal._sleep = lambda _seconds: (rested.set(), threading.Event().wait(0.01))[0]  # type: ignore[func-returns-value]
    thread.start()
    try:
        assert rested.wait(5)
        done: list[Client] = []
        reader = threading.Thread(
            target=lambda: done.append(client) if client.inspect() and client.ledger() else None, daemon=True
        )
        reader.start()
        reader.join(2)
        assert thread.is_alive()
        assert done == [client]
    finally:
        lock.release()
        thread.join()


@pytest.mark.parametrize("files_opened", [0, 1, 2])
def test_reads_state_if_the_journal_is_renamed_between_two_looks(
    rig: Rig, files_opened: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.agreed().record("homepage", "x")
    opened = 0
    open_file = Path.open

    def rename_and_open(path: Path, mode: str) -> IO[Any]:
        nonlocal opened
        if opened == files_opened:
            (rig.state / JOURNAL).rename(rig.state / ROTATED)
        opened += 1
        return open_file(path, mode)

    monkeypatch.setattr(Path, "open", rename_and_open)
    state = read_state(rig.state)
    assert (state.consent, len(state.accounts)) == (Consent.ON, 1)


def test_reads_state_during_compactions(rig: Rig) -> None:
    client = rig.agreed()
    client.record("homepage", "x")
    ended = threading.Event()

    def compact() -> None:
        while not ended.is_set():
            collaborators(client).compactor.compact(always=True)

    thread = threading.Thread(target=compact)
    thread.start()
    try:
        for _ in range(1000):
            state = read_state(rig.state)
            assert (state.consent, len(state.accounts)) == (Consent.ON, 1)
    finally:
        ended.set()
        thread.join()
