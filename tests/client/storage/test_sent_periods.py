"""The file of sent periods: a damaged journal sends no period twice."""

from __future__ import annotations

import random
from datetime import date, timedelta
from pathlib import Path

import pytest

from hubbub.client import collaborators
from hubbub.sdk.storage.filesystem import SystemDisk
from hubbub.sdk.storage.sent_periods import FILE_NAME, SentPeriods
from hubbub.testing import deliver
from tests.client.conftest import HOMEPAGE, Rig
from tests.stress import damage_matrix
from tests.support.power_loss_filesystem import SimulatedDisk

DIGEST = HOMEPAGE.digest
ONE_FILE = [name for name, (_, names) in damage_matrix.KINDS.items() if len(names) == 1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ONE_FILE)
def test_damage_of_one_file_sends_no_period_twice(kind: str, unseen_seed: int) -> None:
    """Without the file of sent periods, 25 of 40 clients with a truncated journal reported a period twice."""
    for seed in range(8):
        sent, after = damage_matrix.sent_in_a_life(unseen_seed + seed, *damage_matrix.KINDS[kind])
        assert max(sent.values()) == 1, (kind, unseen_seed + seed)
        assert all((DIGEST, day) in sent for day in after), (kind, unseen_seed + seed)


def day(number: int) -> str:
    return str(date(2026, 1, 1) + timedelta(days=number))


def test_damaged_sent_period_costs_one_record(tmp_path: Path, unseen_seed: int) -> None:
    """Any flipped byte loses one record; a cut loses those after it; a torn record does not damage the next one."""
    chance = random.Random(unseen_seed)  # noqa: S311
    file, kept = tmp_path / FILE_NAME, SentPeriods(tmp_path, SystemDisk())
    for number in range(0, 40, 2):  # every second day: no runs join
        kept.add(DIGEST, day(number), day(number + 1))
    whole = file.read_bytes()
    assert kept.read() == {DIGEST: [[day(number), day(number + 1)] for number in range(0, 40, 2)]}
    for _ in range(50):
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= chance.randrange(1, 256)
        file.write_bytes(damaged)
        assert len(kept.read()[DIGEST]) == 19
        cut = chance.randrange(len(whole))
        file.write_bytes(whole[:cut])
        assert len(kept.read().get(DIGEST, [])) == cut // 44
        SentPeriods(tmp_path, SystemDisk()).add(DIGEST, day(100), day(101))
        assert kept.read()[DIGEST][-1] == [day(100), day(101)]
        assert len(kept.read()[DIGEST]) == cut // 44 + 1


def test_sent_periods_file_size_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Periods that follow each other become one record once the file is large."""
    monkeypatch.setattr("os.fsync", lambda _: None)
    kept = SentPeriods(tmp_path, SystemDisk())
    for number in range(2000):
        kept.add(DIGEST, day(number), day(number + 1))
    assert (tmp_path / FILE_NAME).stat().st_size < 1 << 16
    assert kept.read() == {DIGEST: [[day(0), day(2000)]]}


def test_upload_waits_for_sent_period_record(rig: Rig) -> None:
    """A disk that takes the journal and not this file: the batch waits; once the file is taken, it leaves."""
    disk = SimulatedDisk()
    client = rig.agreed(disk=disk)
    client.record("homepage", "x")
    whole = SimulatedDisk.open

    def refusing(self: SimulatedDisk, path: Path) -> object:
        if path.name == FILE_NAME:
            raise OSError(28, "No space left on device")
        return whole(self, path)

    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(SimulatedDisk, "open", refusing)
        deliver(client)
        assert rig.transport.bodies == []
    deliver(client)
    assert len(rig.transport.batches) == 1
    assert not collaborators(client).journal.problem


def test_undamaged_client_skips_no_period(rig: Rig) -> None:
    """Subjects that take part later report the periods that others have reported already."""
    client = rig.agreed(per_subject=True)
    client.subject("ada").record("homepage", "x")
    deliver(client)
    client.close()
    again = rig.agreed(per_subject=True)
    again.subject("bob").record("homepage", "y")
    rig.clock.move(days=1)
    again.subject("bob").record("homepage", "y")
    rig.clock.move(days=1)
    deliver(again)
    days = [batch.period for batch in rig.transport.batches for _ in range(len(batch))]
    assert days.count(str(rig.clock().date() - timedelta(days=1))) == 2
