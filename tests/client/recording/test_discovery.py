"""A client that records a metric with `discover`: its reports, its ledger, and the commands that show them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hubbub import Metric, Params
from hubbub.metrics.discovery import Discovery
from hubbub.testing import SeededBytes, deliver
from tests.client.cli.test_cli import hubbub
from tests.client.conftest import Rig
from tests.client.encoding.test_discovery import TABLE

DISCOVER = Discovery(longest=5, step=2, alphabet="abcd", held_out=0.25)
PARAMS = Params(num_bits=64, num_hashes=1, num_cohorts=64, prob_p=0, prob_q=1, permanent_p=0.1, permanent_q=0.5)
WORDS = Metric.string("words", PARAMS, discover=DISCOVER)


@pytest.mark.parametrize("number", range(6))
def test_client_keeps_its_cohort_and_charges_each_distinct_value(rig: Rig, number: int) -> None:
    """With p = 0 and q = 1 a report is its permanent bits. "No value" is a report too, and one more unit."""
    client = rig.agreed(WORDS, random_bytes=SeededBytes(f"words {number}"))
    values = ("abca", "abcb", "abca", None, "bbca")
    for value in values:
        client.record("words", value)
        deliver(client)
        rig.clock.move(days=1)
    batches = [batch for batch in rig.transport.batches if batch.metric == "words"][: len(values)]
    (cohort,) = {batch.cohorts[0] for batch in batches}
    for i, one in enumerate(batches):
        for j, other in enumerate(batches):
            assert (one.rows == other.rows) == (values[i] == values[j])
    (account,) = [account for account in client.ledger().accounts if account.metric == "words"]
    assert account.units == len(set(values)) == 4
    client.close()
    inspected = json.loads(hubbub("inspect", rig.state, "--json").stdout)
    assert json.loads(inspected["last_sent"][0])["cohorts"] == [cohort]
    assert "words" in hubbub("inspect", rig.state).stdout


def test_show_states_the_groups_and_the_identifier(tmp_path: Path) -> None:
    file = tmp_path / "metrics.toml"
    file.write_text(TABLE)
    shown = hubbub("metrics", "show", file).stdout
    assert "prefix of 2, 4, 6 characters of 4, or the whole value (16 of 64 cohorts)" in shown
    assert "an identifier of 6 bits" in shown
    assert hubbub("metrics", "check", file).exit_code == 0
