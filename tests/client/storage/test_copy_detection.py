"""Copied state directories: detection, and new identities that continue the copied ledger."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hubbub import Client, Metric, Params, Policy
from hubbub.cli import main
from hubbub.cli.findings import Health
from hubbub.cli.state_checks import check_state
from hubbub.client import collaborators
from hubbub.privacy.pricing import unit_price
from hubbub.sdk.storage.copy_detection import machine_tag, read_machine_id
from hubbub.sdk.storage.state_reader import read_state
from hubbub.testing import deliver
from tests.client.conftest import SURVEY, Rig, require_balanced


def machine(number: int) -> Callable[[], bytes]:
    return lambda: f"{number:032x}".encode()


def copied(rig: Rig, to: Path) -> None:
    """Copy the directory, as a backup, an image or a cloned disk does, and start a client on the copy."""
    shutil.copytree(rig.state, to)
    rig.state = to


def renew(state: Path) -> None:
    done = CliRunner().invoke(main, ["inspect", str(state), "--identity", "new", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"state": str(state), "identity": "new"}


def identity(rig: Rig) -> tuple[bytes, int, float]:
    state = read_state(rig.state)
    return (rig.state / "secret").read_bytes(), state.enrollments, state.spent("")


def machine_finding(rig: Rig, reader: Callable[[], bytes | None]) -> Health:
    (found,) = (finding for finding in check_state(rig.state, rig.clock(), {}, reader) if finding.check == "machine")
    return found.health


def test_copied_directory_keeps_secret_and_warns_once(
    rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig.agreed(machine_id=machine(1)).close()
    before = identity(rig)
    assert machine_finding(rig, machine(1)) is Health.OK
    copied(rig, tmp_path / "copy")
    assert machine_finding(rig, machine(2)) is Health.WARNING  # before the app ran on it
    for _ in range(3):
        rig.client(machine_id=machine(2)).close()
        rig.client(machine_id=machine(1)).close()
    assert identity(rig) == before
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(" was used on another machine before")[0] for line in lines] == [str(rig.state)]
    assert machine_finding(rig, machine(2)) is Health.WARNING
    assert json.loads(CliRunner().invoke(main, ["inspect", str(rig.state), "--json"]).stdout)["machines"] == 2
    assert "was used on 2 machines with one secret" in CliRunner().invoke(main, ["inspect", str(rig.state)]).stdout


def test_same_or_unknown_machine_is_not_a_copy(rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Containers have no machine id, or another at each start; macOS has it elsewhere."""

    def none() -> None:
        return None

    rig.agreed(machine_id=none).close()
    copied(rig, tmp_path / "copy")
    rig.client(machine_id=none).close()
    rig.client(machine_id=machine(1)).close()  # the first that is known
    rig.client(machine_id=none).close()
    rig.client(machine_id=machine(1)).close()
    assert (caplog.records, read_state(rig.state).enrollments) == ([], 1)
    assert machine_finding(rig, none) is machine_finding(rig, machine(1)) is Health.OK


@pytest.mark.parametrize("restart", [True, False])
def test_machine_id_is_stored_only_as_keyed_hash(rig: Rig, restart: bool) -> None:
    client = rig.agreed(machine_id=machine(1))
    if restart:
        client.close()
        client = rig.client(machine_id=machine(1))
    client.record("homepage", "x")
    deliver(client)
    collaborators(client).compactor.compact(always=True)
    client.close()
    state, machine_id = read_state(rig.state), machine(1)()
    assert state.machine_tags == (machine_tag(state.ledger_key, machine_id),)
    for text in (machine_id, state.machine_tags[0].encode()):
        assert not any(text in body for body in rig.transport.bodies)
    assert not any(machine_id in path.read_bytes() for path in rig.state.iterdir())
    assert machine_tag("00" * 32, machine_id) != state.machine_tags[0]


def test_consent_withdrawal_deletes_machine_tags(rig: Rig) -> None:
    client = rig.agreed(machine_id=machine(1))
    (tag,) = read_state(rig.state).machine_tags
    client.set_consent("off")
    assert read_state(rig.state).machine_tags == ()
    assert not any(tag.encode() in path.read_bytes() for path in rig.state.iterdir())


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"0123456789abcdef0123456789abcdef\n", b"0123456789abcdef0123456789abcdef"),
        (b"uninitialized\n", None),
        (b"", None),
        (b"0123456789ABCDEF0123456789ABCDEF\n", None),
        (b"\xff" * 100, None),
        (None, None),
    ],
)
def test_read_machine_id_accepts_only_systemd_format(
    tmp_path: Path, content: bytes | None, expected: bytes | None
) -> None:
    path = tmp_path / "machine-id"
    if content is not None:
        path.write_bytes(content)
    assert read_machine_id(path) == expected


def test_new_identity_renews_secret_drops_queue_and_keeps_ledger(rig: Rig, tmp_path: Path) -> None:
    client = rig.agreed(SURVEY, machine_id=machine(1))
    client.record("survey", True)
    rig.clock.move(days=1)
    client.record("survey", True)
    with collaborators(client).journal as state:
        collaborators(client).builder.build_all(state)
    client.close()
    secret, enrollments, spent = identity(rig)
    copied(rig, tmp_path / "copy")
    renew(rig.state)
    assert not (rig.state / "secret").exists()
    left = b"".join(path.read_bytes() for path in rig.state.iterdir())
    assert secret not in left
    client = rig.client(SURVEY, machine_id=machine(2))
    counts = client.accounting()
    assert (counts.dropped["copied"], counts.queued) == (1, 0)
    require_balanced(counts)
    renewed = identity(rig)
    assert renewed[0] != secret
    assert renewed[1] == enrollments + 1
    assert renewed[2] == pytest.approx(spent)
    assert machine_finding(rig, machine(2)) is Health.OK
    assert client.consent.level == "on"


def test_new_identity_applies_to_running_process(rig: Rig) -> None:
    client = rig.agreed(machine_id=machine(1))
    before = identity(rig)[0]
    renew(rig.state)
    client.record("homepage", "x")
    assert deliver(client) == 1
    secret, enrollments, _ = identity(rig)
    assert (secret != before, enrollments) == (True, 2)


def test_keep_identity_accepts_moved_directory(rig: Rig) -> None:
    rig.agreed(machine_id=machine(1)).close()
    rig.client(machine_id=machine(2)).close()
    before = identity(rig)
    done = CliRunner().invoke(main, ["inspect", str(rig.state), "--identity", "keep", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["identity"] == "keep"
    assert identity(rig) == before
    assert machine_finding(rig, read_machine_id) is Health.OK
    assert len(read_state(rig.state).machine_tags) == (read_machine_id() is not None)


@pytest.mark.parametrize("identity", ["new", "keep"])
def test_identity_of_a_directory_without_state_is_refused(tmp_path: Path, identity: str) -> None:
    (tmp_path / "journal").write_text("Dear diary, today I wrote more than a torn record")
    for directory in (tmp_path, tmp_path / "nothing"):
        done = CliRunner().invoke(main, ["inspect", str(directory), "--identity", identity])
        assert (done.exit_code, "client's state" in done.output) == (1, True)
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]


@pytest.mark.parametrize("how", ["command", "option"])
@pytest.mark.parametrize("image", ["a chain of restores", "ten restores of one image"])
def test_restored_copies_stay_within_policy_totals(rig: Rig, tmp_path: Path, how: str, image: str) -> None:
    """A new secret draws the permanent bits of all values anew, so each costs budget: by default 40 a metric and 100 in total.

    Checked against the ledger and the sent reports: a report is the permanent response, and every distinct one counts.
    """
    policy = Policy(epsilon_report=9)
    params = Params(num_bits=128, num_hashes=2, num_cohorts=1, prob_p=0, prob_q=1, prob_f=0.5)
    metrics = [Metric.string(name, params) for name in ("one", "two", "three")]
    price = unit_price(metrics[0]).epsilon
    options: dict[str, Any] = {"policy": policy, "renew_identity_when_copied": how == "option"}
    sent: dict[int, dict[str, set[bytes]]] = {}

    def live(number: int) -> None:
        client, before = rig.client(*metrics, machine_id=machine(number), **options), len(rig.transport.batches)
        for day in range(6):
            for metric in metrics:
                client.record(metric.name, f"{number} {day}")
            deliver(client)
            rig.clock.move(days=1)
        client.close()
        state = read_state(rig.state)
        assert state.spent("") <= policy.epsilon_total + 1e-6
        assert all(account.spent <= policy.epsilon_metric + 1e-6 for account in state.accounts.values())
        sent[number] = {metric.name: set() for metric in metrics}
        for batch in rig.transport.batches[before:]:
            sent[number][batch.metric].add(batch.rows)

    rig.agreed(*metrics, machine_id=machine(0), **options).close()
    live(0)
    original, enrollments = rig.state, []
    for number in range(1, 11):
        rig.state = rig.state if image == "a chain of restores" else original
        copied(rig, tmp_path / f"restore {number}")
        if how == "command":
            renew(rig.state)
        live(number)
        enrollments.append(read_state(rig.state).enrollments)
        lives = range(number + 1) if image == "a chain of restores" else (0, number)
        spent = [price * sum(len(sent[life][metric.name]) for life in lives) for metric in metrics]
        assert max(spent) <= policy.epsilon_metric + 1e-6
        assert sum(spent) <= policy.epsilon_total + 1e-6
    assert enrollments == (list(range(2, 12)) if image == "a chain of restores" else [2] * 10)
    assert [len(sent[number]["one"]) for number in (0, 1)] == [4, 4]  # the second identity has a budget of its own


@pytest.mark.parametrize("number", range(5))
def test_copies_and_machine_changes_never_enroll(number: int, rig: Rig, tmp_path: Path, unseen_seed: int) -> None:
    """Random copies, machines with and without ids, restarts, withdrawals and new identities: only the last two make a secret."""
    chance = random.Random(unseen_seed + number)  # noqa: S311
    client, expected = rig.agreed(machine_id=machine(0)), 1
    directories = [rig.state]
    for step in range(40):
        match chance.randrange(5):
            case 0 | 1:
                client.close()
                which = chance.randrange(6)
                client = rig.client(machine_id=machine(which) if which else lambda: None)
            case 2:
                copied(rig, tmp_path / f"copy {step}")
                directories.append(rig.state)
                client = rig.client(machine_id=machine(chance.randrange(1, 40)))
            case 3:
                client.record("homepage", "x")
                rig.clock.move(days=1)
            case 4:
                if chance.random() < 0.5:
                    renew(rig.state)
                else:
                    client.set_consent("off")
                    client.set_consent("on")
                client.record("homepage", "x")
                expected += 1
        state = read_state(rig.state)
        assert state.enrollments == expected
        assert len(state.machine_tags) <= 16
        require_balanced(client.accounting())


def test_memory_client_does_not_read_machine_id(rig: Rig) -> None:
    def unread() -> bytes:
        raise AssertionError

    client: Client = rig.agreed(durability="memory", machine_id=unread)
    assert client.consent.level == "on"
