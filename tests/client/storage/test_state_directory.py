"""The state directory and its secret: paths, owners, modes, and a start that cannot open them."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hubbub import Client, DefinitionError, HubbubError, Limits, ParameterError, Policy
from hubbub.cli import main
from hubbub.cli.state_checks import check_state
from hubbub.client import collaborators
from hubbub.sdk.storage.filesystem import File, SystemDisk
from hubbub.sdk.storage.record_format import MAGIC
from hubbub.sdk.storage.state_reader import read_state
from hubbub.testing import deliver
from tests.client.conftest import HOMEPAGE, Rig, logged, require_balanced
from tests.support.paths import DATA

METRICS = DATA / "metrics.toml"


class Refusing(SystemDisk):
    """A disk that opens some files no more: another user's, or there is no descriptor left."""

    def __init__(self, *names: str, problem: int = errno.EMFILE) -> None:
        self.names_refused = names
        self.problem = problem

    def open(self, path: Path) -> File:
        if path.name in self.names_refused:
            raise OSError(self.problem, os.strerror(self.problem), str(path))
        return super().open(path)


@pytest.mark.parametrize("problem", [errno.EACCES, errno.EMFILE, errno.EIO])
@pytest.mark.parametrize("name", ["secret", "journal"])
@pytest.mark.filterwarnings("ignore:hubbub cannot use its state directory")
def test_start_with_unreadable_files_does_not_enroll_or_send(
    name: str, problem: int, rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """With a new secret it would enroll and spend again; after two such starts the metric would be refused permanently."""
    client = rig.agreed(policy=Policy())
    client.record("homepage", "https://example.org/")
    client.close()
    with collaborators(client).journal as state:
        accounts, draft = dict(state.accounts), dict(state.drafts)
    secret = (rig.state / "secret").read_bytes()
    disk = Refusing(name, problem=problem)
    with caplog.at_level(logging.WARNING, "hubbub"):
        for start in range(1, 4):
            caplog.clear()
            again = rig.agreed(disk=disk, policy=Policy())
            again.record("homepage", "https://example.org/other")
            assert deliver(again) == 0
            counts = again.accounting()
            assert counts.ignored["no-state"] == (start if name == "secret" else 1)  # the journal saves counts
            require_balanced(counts)
            assert len(caplog.records) == 1
            assert collaborators(again).journal.problem.startswith(str(rig.state))
            again.close()
    disk.names_refused = ()
    again.record("homepage", "https://example.org/other")
    assert collaborators(again).journal.sync()
    assert collaborators(again).journal.problem == ""
    with collaborators(again).journal as state:
        assert (state.enrollments, state.accounts) == (1, accounts)
        assert [draft_after.num_recordings for draft_after in state.drafts.values()] == [
            draft_before.num_recordings + 1 for draft_before in draft.values()
        ]
    assert (rig.state / "secret").read_bytes() == secret
    assert deliver(again) == 1


def test_queue_is_not_sent_without_readable_secret(rig: Rig) -> None:
    client = rig.agreed()
    rig.clock.move(days=1)
    with collaborators(client).journal as state:
        collaborators(client).builder.build_due(state)
    client.close()
    rig.clock.move(days=2)
    with logged(match="secret cannot be used .Permission denied.: give Client a directory"):
        again = rig.client(disk=Refusing("secret", problem=errno.EACCES))
    assert not again.flush(0.3)
    assert rig.transport.bodies == []


def test_relative_state_path_survives_chdir(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    client = rig.agreed(state="state")
    client.record("homepage", "x")
    monkeypatch.chdir(tmp_path / "there")
    client.record("homepage", "y")
    assert (client.consent.level, client.accounting().recorded) == ("on", 2)
    assert list(Path().iterdir()) == []
    assert str(tmp_path / "here") in repr(client)


def test_tilde_in_state_path_is_expanded(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    rig.agreed(state="~/hubbub")
    assert (tmp_path / "hubbub" / "journal").exists()


@pytest.mark.parametrize("state", ["", " ", "a\0b", 5, None, b"state"])
def test_rejects_invalid_state_path(state: object) -> None:
    with pytest.raises(ParameterError, match="state must be a path that is not empty, got "):
        Client(METRICS, state, "http://127.0.0.1:1")  # type: ignore[arg-type]


@pytest.mark.parametrize("subject_id", [None, 42, "", b"ada"])
@pytest.mark.parametrize("per_subject", [True, False])
def test_rejects_invalid_subject_id(subject_id: object, per_subject: bool, rig: Rig) -> None:
    """`subject(None)` was the installation itself, on a client that is not per_subject."""
    client = rig.agreed(HOMEPAGE, per_subject=per_subject)
    with pytest.raises(ParameterError, match="subject_id must be a string that is not empty, got "):
        client.subject(subject_id)  # type: ignore[arg-type]
    assert client.accounting().recorded == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": 5}, r"policy must be hubbub.Policy\(...\), got 5"),
        ({"policy": {"epsilon_report": 3}}, "policy must be hubbub.Policy"),
        ({"limits": 100}, r"limits must be hubbub.Limits\(...\), got 100"),
        ({"ca_certs": "/nope"}, "ca_certs must be a readable PEM file of certificates, got '/nope'"),
        ({"ca_certs": "."}, "ca_certs must be a readable PEM file"),
        ({"ca_certs": ""}, "ca_certs must be a path"),
        ({"ca_certs": b"x"}, "ca_certs must be a path"),
    ],
)
def test_rejects_invalid_client_options(options: dict[str, Any], message: str) -> None:
    """`policy=5` was taken, and nothing was ever recorded."""
    with pytest.raises(ParameterError, match=message):
        Client(METRICS, "state", "http://127.0.0.1:1", **options)


@pytest.mark.parametrize("fields", [{"max_reports": 0}, {"max_reports": "9"}, {"max_bytes": 1.5}, {"max_bytes": True}])
def test_rejects_invalid_limits(fields: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="must be an integer >= 1, got"):
        Limits(**fields)


@pytest.mark.parametrize("value", ["3", None, True])
def test_rejects_invalid_policy(value: Any) -> None:
    with pytest.raises(ParameterError, match="epsilon_total must be a number in"):
        Policy(epsilon_total=value)


@pytest.mark.parametrize("name", ["journal", "secret", "lock", "snapshot"])
@pytest.mark.filterwarnings("ignore:hubbub cannot use its state directory")
@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="this system has no O_NOFOLLOW")
def test_symbolic_link_in_state_is_not_followed(name: str, rig: Rig, tmp_path: Path) -> None:
    rig.agreed().close()
    precious = tmp_path / "precious"
    precious.write_bytes(b"not yours, and longer than a torn record")
    (rig.state / name).unlink(missing_ok=True)
    (rig.state / name).symlink_to(precious)
    client = rig.agreed()
    client.record("homepage", "x")
    assert deliver(client) == 0
    assert "symbolic link" in collaborators(client).journal.problem
    assert precious.read_bytes() == b"not yours, and longer than a torn record"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.filterwarnings("ignore:hubbub cannot use its state directory")
def test_secret_of_another_user_is_rejected(rig: Rig) -> None:
    rig.state.mkdir(mode=0o700)
    (rig.state / "secret").write_bytes(b"planted " * 4)
    (rig.state / "secret").chmod(0o666)
    os.chown(rig.state / "secret", 1234, 1234)
    client = rig.agreed()
    client.record("homepage", "x")
    assert client.accounting().ignored["no-state"] == 1
    assert "secret belongs to user 1234, this process runs as user 0" in collaborators(client).journal.problem


@pytest.mark.parametrize("mode", [0o666, 0o640, 0o604])
def test_readable_secret_is_restricted_with_warning(mode: int, rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.agreed().close()
    (rig.state / "secret").chmod(mode)
    for times in (1, 1):  # warned once, because the mode is corrected then
        rig.client().record("homepage", "x")
        assert caplog.text.count(f"secret had mode {mode:04o}") == times
    assert (rig.state / "secret").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["journal", "snapshot"])
def test_directory_of_another_program_is_left_unchanged(name: str, rig: Rig) -> None:
    """It was read as a damaged journal, and written on."""
    rig.state.mkdir(mode=0o700)
    (rig.state / name).write_bytes(b"Dear diary, today")
    (rig.state / name).chmod(0o600)
    with logged(match="is not a client's state .*: give Client a directory of its own"):
        client = rig.agreed()
    client.record("homepage", "x")
    assert deliver(client) == 0
    assert (rig.state / name).read_bytes() == b"Dear diary, today"
    for command in (["inspect", str(rig.state)], ["doctor", "--state", str(rig.state)]):
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 1
        assert "is not a client's state" in done.output + str(done.exception)


@pytest.mark.parametrize("definitions", ["a\0b", None, {}, 5])
def test_rejects_invalid_definitions(definitions: Any) -> None:
    with pytest.raises(DefinitionError, match="definitions must be the path of a TOML file, or a Definitions object"):
        Client(definitions, "state", "http://127.0.0.1:1")


def test_journal_with_damaged_long_first_record_is_recognized(rig: Rig) -> None:
    client = rig.client()
    client.set_consent("on", text="a long notice " * 4000)
    client.record("homepage", "x")
    client.close()
    journal = rig.state / "journal"
    journal.write_bytes(b"????" + journal.read_bytes()[4:])
    with collaborators(rig.client()).journal as state:
        assert (state.damaged, state.chosen) == (1, 1)


@pytest.mark.parametrize(
    ("version", "next_step"),
    [
        (1, "delete the directory to start anew; this starts a new ledger and spends epsilon again"),
        (3, "install the newer hubbub"),
    ],
)
def test_rejects_other_state_format_and_keeps_files(
    version: int, next_step: str, rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Version 1 had other event names. It was never released, so it is not converted."""
    rig.agreed().close()
    journal = rig.state / "journal"
    old = journal.read_bytes().replace(MAGIC, MAGIC[:-1] + bytes([version]))
    journal.write_bytes(old)
    message = f"has state format version {version}, this hubbub reads version 2.*: {next_step}"
    with pytest.raises(HubbubError, match=message):
        read_state(rig.state)
    with logged(match=message):
        client = rig.client()
    client.record("homepage", "x")
    assert deliver(client) == 0
    client.close()
    assert journal.read_bytes() == old
    assert "in memory" not in caplog.text
    assert "hubbub ignores recordings (`no-state`) and sends nothing" in caplog.text
    (finding,) = check_state(rig.state, rig.clock(), {})
    assert f"has state format version {version}" in finding.observation
    assert finding.next_step == next_step


def test_empty_subject_id_is_quoted_in_error(rig: Rig) -> None:
    with pytest.raises(ParameterError, match="subject_id must be a string that is not empty, got '':"):
        rig.client().subject("")
