"""Each faulty client fails the rule of its fault, and no rule before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubbub.conformance.results import Verdict
from hubbub.conformance.rules import all_rules
from tests.client.conformance.faulty_clients import FAULTS, Fault, adapter_of

RULES = {rule.number: rule for rule in all_rules()}
SLOW_RULE = 112
"""It waits ten seconds."""


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_the_report_names_the_rule_first(fault: Fault, tmp_path: Path) -> None:
    with adapter_of(fault, tmp_path) as adapter:
        found = RULES[fault.rule].run(adapter)
        assert found.verdict is Verdict.FAILED, fault.words
        earlier = [rule for number, rule in RULES.items() if number < fault.rule and number != SLOW_RULE]
        failed = [rule.number for rule in earlier if rule.run(adapter).verdict is not Verdict.PASSED]
        assert not failed, f"rules {failed} failed before {fault.rule}"
