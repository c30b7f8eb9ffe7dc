"""A kill at every operation on the disk, while consent becomes `on` after `local`, and while a copy gets a new identity."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hubbub import Client, Definitions, Metric, Params
from hubbub.client import collaborators
from hubbub.encoding.encoder import Encoder
from hubbub.randomness import system_random_bytes
from hubbub.sdk.assembly import AllSeams
from hubbub.sdk.storage.compaction import Compactor
from hubbub.sdk.storage.copy_detection import renew_identity
from hubbub.sdk.storage.filesystem import SystemDisk
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.storage.secret_file import SecretFile, load_secret
from hubbub.sdk.storage.state_reader import read_state
from hubbub.testing import UNLIMITED, ManualClock, RecordingTransport, deliver
from tests.client.conftest import TODAY, Rig, require_balanced
from tests.stress.kill_matrix import KilledDisk, Killer

QUIET = Metric.string("quiet", Params(num_bits=128, num_hashes=8, num_cohorts=1, prob_p=0, prob_q=1, prob_f=0.5))
MOST_OPERATIONS = 200


def killed_in(step: Callable[[Killer], None], at: int, step_file: Path) -> bool:
    """Run a step in a child that is killed at its `at`-th operation; return whether it reached that operation."""
    step_file.write_text("")
    child = os.fork()
    if child == 0:
        try:
            step(Killer(at, step_file))
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.slow
@pytest.mark.parametrize("compacted", [False, True])
def test_kill_between_local_and_on_sends_no_local_report(tmp_path: Path, compacted: bool) -> None:
    for at in range(1, MOST_OPERATIONS):
        state, clock = tmp_path / f"state {at}", ManualClock(TODAY)

        def client(
            transport: RecordingTransport, disk: SystemDisk, state: Path = state, clock: ManualClock = clock
        ) -> Client:
            return Client(
                Definitions([QUIET]),
                state,
                "http://127.0.0.1:1",
                policy=UNLIMITED,
                environment={},
                seams=AllSeams(clock=clock, transport=transport, disk=disk),
            )

        local = client(RecordingTransport(), SystemDisk())
        local.set_consent("local")
        local.record("quiet", "local 1")
        clock.move(days=1)
        local.flush(5)
        local.record("quiet", "local 2")
        local.close()

        def becomes_on(killer: Killer, start: Callable[..., Client] = client) -> None:
            killed = start(RecordingTransport(), KilledDisk(killer))
            killed.set_consent("on")
            if compacted:
                collaborators(killed).compactor.compact(always=True)
            killed.record("quiet", "on")
            killed.close()

        was_killed = killed_in(becomes_on, at, tmp_path / "step")
        transport = RecordingTransport()
        with client(transport, SystemDisk()) as after:
            deliver(after)  # before set_consent: the state after the kill
            after.set_consent("on")
            clock.move(days=1)
            deliver(after)
            require_balanced(after.accounting())
            assert after.accounting().dropped["local"] >= 1
        encoder = Encoder(QUIET, load_secret(state / "secret"))
        rows = {batch.rows for batch in transport.batches}
        assert transport.batches
        assert rows <= {encoder.encode(value).to_bytes() for value in (None, "on")}
        if not was_killed:
            assert at > 5
            return
    raise AssertionError(f"the step has more than {MOST_OPERATIONS} operations")


@pytest.mark.slow
def test_killed_new_identity_keeps_ledger_and_can_be_repeated(rig: Rig) -> None:
    client = rig.agreed(QUIET)
    client.record("quiet", "x")
    deliver(client)
    client.close()
    original = {path.name: path.read_bytes() for path in rig.state.iterdir()}
    secret, units = original["secret"], [account.units for account in read_state(rig.state).accounts.values()]
    for at in range(1, MOST_OPERATIONS):
        for name, content in original.items():
            (rig.state / name).write_bytes(content)
            (rig.state / name).chmod(0o600)

        def renew(killer: Killer | None) -> None:
            disk = KilledDisk(killer) if killer else SystemDisk()
            journal = Journal(rig.state, disk)
            file = SecretFile(journal, disk, system_random_bytes)
            assert journal.run(lambda _: renew_identity(journal, file))
            assert Compactor(journal, disk).compact(always=True)
            journal.close()

        was_killed = killed_in(renew, at, rig.state.with_name("step"))
        assert [account.units for account in read_state(rig.state).accounts.values()] == units
        renew(None)
        state = read_state(rig.state)
        assert (state.secret_tag, (rig.state / "secret").exists(), state.queue) == ("", False, {})
        rig.clock.move(days=1)
        again = rig.client(QUIET)
        again.record("quiet", "x")
        deliver(again)
        require_balanced(again.accounting())
        assert (rig.state / "secret").read_bytes() != secret
        assert read_state(rig.state).enrollments == 2
        again.close()
        for path in rig.state.iterdir():
            path.unlink()
        if not was_killed:
            assert at > 5
            return
    raise AssertionError(f"the command has more than {MOST_OPERATIONS} operations")
