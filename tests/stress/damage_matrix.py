"""Damage a client's files at random, restart the client, and count the periods that are reported twice.

python -m tests.stress.damage_matrix SEEDS          prints one line for each kind of damage

In each life a client records and sends for 8 to 12 days, compacts at random, and stops. Then bytes of its files are damaged, and the
client runs for three more days. "Twice" is a metric and period sent under two batch ids; a retry of the same batch is not counted.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections import defaultdict
from datetime import date, timedelta
from pathlib import Path

from hubbub import Client, Definitions
from hubbub.client import collaborators
from hubbub.testing import UNLIMITED, ManualClock, RecordingTransport, Seams
from hubbub.wire.batch import Batch
from tests.client.conftest import HOMEPAGE, SURVEY
from tests.stress.file_damage import Damage, flip, remove, truncate


def sent_in_a_life(seed: int, damage: Damage, names: tuple[str, ...]) -> tuple[dict[tuple[str, str], int], list[str]]:
    """Return the number of batches sent for each (digest, period), and the days after the damage with due reports."""
    chance = random.Random(seed)  # noqa: S311
    clock, transport = ManualClock(date(2026, 11, 1)), RecordingTransport()
    with tempfile.TemporaryDirectory() as place:
        state = Path(place) / "state"

        def live(days: int) -> None:
            client = Client(
                Definitions([HOMEPAGE, SURVEY]),
                state,
                "http://127.0.0.1:1",
                policy=UNLIMITED,
                seams=Seams(clock=clock, transport=transport),
                environment={},
            )
            client.set_consent("on")
            collaborators(client).uploader.start().stop(5)
            for _ in range(days):
                client.record("homepage", "x")
                clock.move(days=1)
                with collaborators(client).journal as client_state:
                    collaborators(client).builder.build_due(client_state)
                    due = list(client_state.queue)
                for batch_id in due:
                    collaborators(client).sender.send_now(batch_id)
                if chance.random() < 0.2:
                    collaborators(client).compactor.compact(always=True)
            collaborators(client).uploader.stop()
            client.close()

        live(chance.randrange(8, 13))
        for name in names:
            if (state / name).exists() and (state / name).stat().st_size:
                damage(state / name, chance)
        after = [str(clock().date() + timedelta(days=day)) for day in range(3)]
        live(3)
    ids = defaultdict(set)
    for body in transport.bodies:
        batch = Batch.from_json(body)
        ids[batch.digest, batch.period].add(batch.batch_id)
    return {key: len(batch_ids) for key, batch_ids in ids.items()}, after


KINDS: dict[str, tuple[Damage, tuple[str, ...]]] = {
    "journal truncated": (truncate, ("journal",)),
    "journal lost": (remove, ("journal",)),
    "journal flipped": (flip, ("journal",)),
    "snapshot truncated": (truncate, ("snapshot",)),
    "snapshot flipped": (flip, ("snapshot",)),
    "sent-periods truncated": (truncate, ("sent-periods",)),
    "sent-periods flipped": (flip, ("sent-periods",)),
    "sent-periods lost": (remove, ("sent-periods",)),
    "both truncated": (truncate, ("journal", "sent-periods")),
    "both flipped": (flip, ("journal", "sent-periods")),
}


def main(seeds: int) -> None:
    os.fsync = lambda fd: None  # noqa: ARG005  (no power is lost here)
    for name, (damage, names) in KINDS.items():
        found = sum(max(sent_in_a_life(seed, damage, names)[0].values()) > 1 for seed in range(seeds))
        print(f"{name:24} a period is reported twice in {found} of {seeds} lives")  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]))
