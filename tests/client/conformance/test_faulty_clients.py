"""Each faulty client fails the rule that it is made for, and no rule before it."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from hubbub.conformance.results import Verdict
from hubbub.conformance.rules import all_rules
from tests.client.conformance.faulty_clients import FAULTY_CLIENTS, adapter_of, replaced
from tests.support.paths import REPOSITORY
from tests.support.quick_rules import WAITS_TEN_SECONDS

RULES = {rule.number: rule for rule in all_rules()}
SAMPLED = int(os.environ.get("HUBBUB_TEST_FAULTY_CLIENTS", "12"))
"""Faulty clients of a run, chosen at random; a fourth of them are tested by the earlier rules, too."""


def test_the_changed_lines_are_those_of_the_client() -> None:
    for client in FAULTY_CLIENTS:
        sources: dict[str, str] = {}
        for change in client.changes:
            path = REPOSITORY / "client" / "hubbub" / change.module
            sources[change.module] = replaced(sources.get(change.module, path.read_text(encoding="utf-8")), change)
        for module, source in sources.items():
            compile(source, module, "exec")


@pytest.mark.slow
def test_a_faulty_client_fails_its_rule_first(unseen_seed: int, tmp_path: Path) -> None:
    sample = Random(unseen_seed).sample(FAULTY_CLIENTS, min(SAMPLED, len(FAULTY_CLIENTS)))  # noqa: S311
    for number, client in enumerate(sample):
        folder = tmp_path / str(number)
        folder.mkdir()
        with adapter_of(client, folder) as adapter:
            assert RULES[client.rule].run(adapter).verdict is Verdict.FAILED, client.words
            if number < SAMPLED / 4:
                earlier = (
                    rule for rule in RULES.values() if rule.number < client.rule and rule.number != WAITS_TEN_SECONDS
                )
                failed = [rule.number for rule in earlier if rule.run(adapter).verdict is not Verdict.PASSED]
                assert failed == [], client.words
