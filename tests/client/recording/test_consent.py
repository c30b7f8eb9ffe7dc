"""Consent: off by default; withdrawal erases the data."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from hubbub import Consent, ParameterError
from hubbub.client import collaborators
from hubbub.consent import consent_limit, stricter_consent
from hubbub.sdk.storage.compaction import protected_events
from hubbub.sdk.storage.events import ConsentChange, Erasure
from hubbub.sdk.storage.filesystem import File, SystemDisk
from hubbub.testing import deliver
from tests.client.conftest import HOMEPAGE, SURVEY, Rig, logged, require_balanced
from tests.support.power_loss_filesystem import SimulatedDisk


def everything_in(place: Path) -> bytes:
    return b"".join(file.read_bytes() for file in place.rglob("*") if file.is_file())


def test_nothing_is_recorded_before_consent(rig: Rig) -> None:
    client = rig.client()
    client.record("homepage", "https://example.org/")
    assert not collaborators(client).uploader.is_started  # no thread, no network code
    rig.clock.move(days=3)
    assert deliver(client) == 0
    assert client.accounting().ignored["consent"] == 1
    assert not (rig.state / "secret").exists()
    require_balanced(client.accounting())


def test_consent_is_shared_by_clients_of_one_directory(rig: Rig) -> None:
    first, second = rig.agreed(), rig.client()
    first.record("homepage", "https://example.org/")
    assert second.consent.effective is Consent.ON
    second.set_consent("off")
    first.record("homepage", "https://example.org/")
    assert first.accounting().ignored["consent"] == 1
    # nor is the secret in its memory any more
    assert (collaborators(first).encoders._secret, collaborators(first).encoders._encoders) == (None, {})
    assert rig.client().consent.effective is Consent.OFF


def test_local_builds_reports_and_sends_none(rig: Rig) -> None:
    client = rig.client()
    client.set_consent("local")
    client.record("homepage", "https://example.org/")
    rig.clock.move(days=3)
    assert client.flush(5)
    assert (client.accounting().formed, rig.transport.bodies) == (3, [])


def test_off_erases_queue_drafts_and_secret_but_keeps_ledger(rig: Rig) -> None:
    client = rig.agreed(HOMEPAGE, SURVEY)
    client.record("homepage", "https://example.org/")
    rig.clock.move(days=1)
    client.record("homepage", "https://example.org/")
    with collaborators(client).journal as state:
        collaborators(client).builder.build_due(state)
        rows = [waiting.batch.rows for waiting in state.queue.values()]
        rows += [draft.report.bits for draft in state.drafts.values()]
        secret = (rig.state / "secret").read_bytes()
        remembered = [
            trace for account in state.accounts.values() for trace in (account.sealed, account.tag, *account.tags)
        ]
        assert len(remembered) == 6
    client.set_consent("off")
    left = everything_in(rig.state)
    assert secret not in left
    assert not any(row.hex().encode() in left for row in rows if len(row) > 1)
    assert not any(trace.hex().encode() in left for trace in remembered)
    counts = client.accounting()
    assert (counts.dropped["consent"], counts.queued) == (2, 0)
    require_balanced(counts)
    with collaborators(client).journal as state:
        assert [account.units for account in state.accounts.values()] == [1, 1]


def test_on_after_off_creates_new_secret_on_same_ledger(rig: Rig) -> None:
    """The same value under a new secret is noised anew, so it is charged anew."""
    client = rig.agreed()
    client.record("homepage", "https://example.org/")
    deliver(client)
    client.set_consent("off")
    client.set_consent("on")
    rig.clock.move(days=1)
    client.record("homepage", "https://example.org/")
    deliver(client)
    with collaborators(client).journal as state:
        (account,) = state.accounts.values()
        assert (account.units, state.enrollments) == (2, 2)


def test_consent_withdrawal_during_upload_counts_batch_once(rig: Rig) -> None:
    client = rig.agreed()
    take = rig.transport.send

    def withdrawn_meanwhile(body: bytes, is_wanted: object) -> object:
        client.set_consent("off")
        return take(body)

    rig.transport.send = withdrawn_meanwhile  # type: ignore[method-assign,assignment]
    client.record("homepage", "https://example.org/")
    assert deliver(client) == 1
    counts = client.accounting()
    assert (counts.dropped["consent"], counts.acknowledged) == (1, 0)
    require_balanced(counts)


@pytest.mark.parametrize(("value", "number"), [("yes", 1), ("on", 0), ("", 0), (" Local ", 0), ("off", 0)])
def test_unknown_consent_variable_is_logged(
    value: str, number: int, rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.client(environment={"HUBBUB_CONSENT": value})
    assert caplog.text.count(f"HUBBUB_CONSENT={value!r} is not off, local or on: off applies") == number
    assert len(caplog.records) == number


@pytest.mark.parametrize("variable", ["DO_NOT_TRACK", "HUBBUB_CONSENT"])
def test_environment_stops_recording_without_erasing(variable: str, rig: Rig) -> None:
    rig.agreed().close()
    silent = rig.client(environment={variable: "1"})
    assert silent.consent.effective is Consent.OFF
    silent.record("homepage", "https://example.org/")
    assert silent.accounting().ignored["consent"] == 1
    rig.clock.move(days=2)
    assert silent.flush(5)
    assert rig.transport.bodies == []
    assert (rig.state / "secret").exists()


@pytest.mark.parametrize("agreed", list(Consent))
def test_environment_only_lowers_consent(agreed: Consent) -> None:
    empty = {"HUBBUB_CONSENT": "", "DO_NOT_TRACK": " "}  # as `VARIABLE=` in a compose file: not set
    for environment in ({"HUBBUB_CONSENT": "on", "DO_NOT_TRACK": "0"}, {}, empty):
        assert stricter_consent(agreed, consent_limit(environment)) is agreed
    assert stricter_consent(agreed, consent_limit({"HUBBUB_CONSENT": "local"})) in (Consent.OFF, Consent.LOCAL)
    for environment in ({"HUBBUB_CONSENT": "yes please"}, {"HUBBUB_CONSENT": "on", "DO_NOT_TRACK": "true"}):
        assert stricter_consent(agreed, consent_limit(environment)) is Consent.OFF


def test_killed_erasure_is_finished_at_next_start(rig: Rig) -> None:
    client = rig.agreed()
    client.record("homepage", "https://example.org/")
    with collaborators(client).journal as state:
        (draft,) = state.drafts.values()
        collaborators(client).journal.write(ConsentChange(Consent.OFF, "", 0.0, ""), Erasure())
    client.close()
    rig.client()
    assert draft.report.bits.hex().encode() not in everything_in(rig.state)


def test_consent_text_is_saved(rig: Rig) -> None:
    client = rig.client()
    client.set_consent("on", text="privacy notice of 2026-11")
    with collaborators(rig.client()).journal as state:
        assert state.consent_text == "privacy notice of 2026-11"
    with pytest.raises(ParameterError, match="consent must be one of off, local, on, got 'maybe'"):
        client.set_consent("maybe")  # type: ignore[arg-type]


def test_journal_contains_no_recorded_value(rig: Rig) -> None:
    client = rig.agreed()
    client.record("homepage", "https://canary.example.org/")
    assert b"canary" not in everything_in(rig.state)
    assert json.dumps("https") not in everything_in(rig.state).decode("latin-1")


class SealedDirectory(SystemDisk):
    """A directory of mode 0500 for a user other than root: existing files can be written, none created or deleted."""

    sealed = False

    def open_new(self, path: Path) -> File:
        return super().open_new(self._there(path))

    def remove(self, path: Path) -> None:
        self._refuse(path)
        super().remove(path)

    def replace(self, source: Path, target: Path) -> None:
        self._refuse(source)
        super().replace(source, target)

    def _there(self, path: Path) -> Path:
        if not path.exists():
            self._refuse(path)
        return path

    def _refuse(self, path: Path) -> None:
        if self.sealed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def test_off_in_undeletable_directory_is_saved_with_warning(rig: Rig) -> None:
    """It was lost, and reports went on being sent: the deletion failed before anything was written."""
    disk = SealedDirectory()
    client = rig.agreed(disk=disk)
    client.record("homepage", "https://example.org/")
    secret = (rig.state / "secret").read_bytes()
    disk.sealed = True
    with logged(match="consent is off in this process, but .* is not erased yet: .*cannot be used"):
        assert client.set_consent("off") is False
    rig.clock.move(days=3)
    client.record("homepage", "https://example.org/")
    assert deliver(client) == 0
    assert (client.consent.effective, rig.transport.bodies) == (Consent.OFF, [])
    assert secret not in everything_in(rig.state)
    assert rig.client(environment={}).consent.level is Consent.OFF  # so it is on the disk as well
    disk.sealed = False
    assert client.set_consent("off") is True
    assert [path.name for path in rig.state.iterdir() if path.name.startswith("secret")] == []


def test_unsaved_off_applies_to_process_and_children(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    client = rig.agreed(disk=disk)
    client.record("homepage", "https://example.org/")
    with collaborators(client).journal as state:
        agreed = next(protected_events(state))
    disk.full = True
    with logged(match="the previous value may apply after a restart"):
        assert client.set_consent("off") is False
    child = os.getpid() + 1
    monkeypatch.setattr(os, "getpid", lambda: child)  # this is a forked child now
    rig.clock.move(days=3)
    disk.full = False
    with collaborators(client).journal as state:
        assert (agreed, state.consent) == (state.consent_event(), "on")  # the file still has "on"
    client.record("homepage", "https://example.org/")
    assert client.consent.effective == "off"
    for batch_id in list(state.queue):
        collaborators(client).sender.send_now(batch_id)
    deliver(client)
    assert client.flush(1)
    assert rig.transport.bodies == []
    assert client.set_consent("on") is True
    assert client.consent.effective == "on"


def test_kill_before_secret_deletion_is_repaired_at_next_start(rig: Rig) -> None:
    client = rig.agreed()
    client.record("homepage", "https://example.org/")
    secret = (rig.state / "secret").read_bytes()
    with collaborators(client).journal:
        collaborators(client).journal.write(ConsentChange(Consent.OFF, "", 0.0, ""), Erasure())
    client.close()
    rig.client().close()
    assert not (rig.state / "secret").exists()
    (rig.state / "secret").write_bytes(secret)
    (rig.state / "secret").chmod(0o600)
    rig.agreed()
    assert (rig.state / "secret").read_bytes() != secret


class Lazy:
    """As a translation that is looked up late: no str, and JSON does not take it."""

    def __str__(self) -> str:
        return "You agree to ..."


@pytest.mark.parametrize("text", [Lazy(), None, b"x", "x" * 70_000])
def test_rejects_invalid_consent_text_without_change(text: object, rig: Rig) -> None:
    """`off` with such a text held until the next start, which was on again."""
    client = rig.agreed()
    with pytest.raises(ParameterError, match="text must be a string of at most 65536 characters, got "):
        client.set_consent("off", text=text)  # type: ignore[arg-type]
    assert client.consent.level is Consent.ON


def test_unserializable_event_changes_no_state(rig: Rig) -> None:
    client = rig.agreed()
    with collaborators(client).journal as state, pytest.raises(TypeError):
        collaborators(client).journal.write(ConsentChange(Consent.OFF, Lazy(), 0.0, ""))  # type: ignore[arg-type]
    assert (state.consent, client.consent.level) == ("on", "on")
