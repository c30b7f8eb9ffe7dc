"""Each faulty client fails the rule that it is made for, and no rule before it."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from hubbub.conformance.results import Verdict
from hubbub.conformance.rules import all_rules
from tests.client.conformance.faulty_clients import FAULTY_CLIENTS, FaultyClient, adapter_of

RULES = {rule.number: rule for rule in all_rules()}
WAITS_TEN_SECONDS = 112
SAMPLED = int(os.environ.get("HUBBUB_TEST_FAULTY_CLIENTS", "4"))
"""Faulty clients that are tested by the earlier rules, too: `make soak` tests all."""


@pytest.mark.slow
@pytest.mark.parametrize("client", FAULTY_CLIENTS, ids=str)
def test_a_faulty_client_fails_its_rule(client: FaultyClient, tmp_path: Path) -> None:
    with adapter_of(client, tmp_path) as adapter:
        assert RULES[client.rule].run(adapter).verdict is Verdict.FAILED


@pytest.mark.slow
def test_a_faulty_client_fails_no_earlier_rule(unseen_seed: int, tmp_path: Path) -> None:
    for number, client in enumerate(Random(unseen_seed).sample(FAULTY_CLIENTS, min(SAMPLED, len(FAULTY_CLIENTS)))):  # noqa: S311
        folder = tmp_path / str(number)
        folder.mkdir()
        earlier = (rule for rule in RULES.values() if rule.number < client.rule and rule.number != WAITS_TEN_SECONDS)
        with adapter_of(client, folder) as adapter:
            failed = [rule.number for rule in earlier if rule.run(adapter).verdict is not Verdict.PASSED]
        assert failed == [], client.words
