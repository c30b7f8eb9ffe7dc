"""docs/explanation/threat-model.md, "Stored data": what the files of a client tell about values, without and with the secret."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hubbub import Buckets, Metric, Params, UnaryResponse
from hubbub.client import collaborators
from hubbub.encoding.sealed_values import Sealer
from hubbub.encoding.secret import Secret
from hubbub.metrics.buckets import Several
from hubbub.sdk.storage.state_reader import read_state
from hubbub.testing import deliver
from tests.client.conftest import Rig
from tests.support.paths import DOCS

NOISE: dict[str, Any] = {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.5}
OS = Metric.categorical("os", ("linux", "mac", "other"), UnaryResponse(**NOISE))
HELD = Metric.categorical("held", ("a", "b"), UnaryResponse(**NOISE), hold=7)
FRESH = Metric.boolean("fresh", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0))
PAGE = Metric.string(
    "page", Params(num_bits=64, num_hashes=1, num_cohorts=4, prob_p=0.25, prob_q=0.75, permanent_p=0.1, permanent_q=0.5)
)
MINUTES = Metric.ordinal("minutes", Buckets((0, 10, 60), several=Several.SUM), UnaryResponse(**NOISE))
VALUES: dict[str, Any] = {"os": "mac", "held": "b", "fresh": True, "page": "https://example.org/", "minutes": 12.5}
STORED_DATA = (
    (DOCS / "explanation" / "threat-model.md").read_text().partition("## Stored data")[2].partition("\n## ")[0]
)


def test_files_with_the_secret_tell_the_last_values(rig: Rig) -> None:
    """Values of the open period and those reported last, of every kind of ledger unit; a string by testing a guess."""
    metrics = {metric.name: metric for metric in (OS, HELD, FRESH, PAGE, MINUTES)}
    client = rig.agreed(*metrics.values())
    for _ in range(2):
        for name, value in VALUES.items():
            client.record(name, value)
        deliver(client)
        rig.clock.move(days=1)
    for name, value in VALUES.items():
        client.record(name, value)
    secret = Secret((rig.state / "secret").read_bytes())
    wrong = Secret(b"x" * 32)
    state = read_state(rig.state)
    assert len(state.accounts) == len(state.drafts) == 5
    for (_, digest), account in state.accounts.items():
        metric = metrics[account.metric]
        encoder = next(
            cached.encoder
            for cached in collaborators(client).encoders._encoders.values()
            if cached.encoder.metric == metric
        )
        guess = encoder.bloom_bits(VALUES[metric.name])
        sealer, draft = Sealer(metric, secret, bytes), state.drafts["", digest]
        for sealed, tag in ((account.sealed, account.tag), (draft.report.sealed, draft.report.tag)):
            opened = sealer.open(sealed)
            assert (opened, opened.value_digest) == (guess, guess.value_digest)
            assert sealer.tag(guess) == tag
            assert Sealer(metric, wrong, bytes).tag(guess) != tag
        assert sealer.open_number(draft.number) == (12.5 if metric is MINUTES else None)


def test_files_without_the_secret_have_no_value(rig: Rig) -> None:
    client = rig.agreed(PAGE, MINUTES)
    for name in ("page", "minutes"):
        client.record(name, VALUES[name])
    files = [file for file in rig.state.iterdir() if file.name != "secret"]
    assert files
    for file in files:
        assert b"example.org" not in file.read_bytes()
        assert b"12.5" not in file.read_bytes()


@pytest.mark.parametrize("page", sorted((DOCS / "explanation").glob("*.md")), ids=lambda page: page.stem)
def test_no_page_says_that_nothing_is_stored(page: Any) -> None:
    """Regression: two pages said that values are randomized before anything is stored, and that no component has them."""
    text = " ".join(page.read_text().split())
    assert not re.search(r"before (it|anything) (is )?store[sd]|No component ever has", text)


def test_page_names_each_form_of_stored_values() -> None:
    for words in (
        "keyed tag of 16 bytes",
        "IEEE 754 double, encrypted",
        "true bits, encrypted",
        "the file `secret`, in the same directory",
    ):
        assert words in STORED_DATA
