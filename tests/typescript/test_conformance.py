"""The TypeScript client follows every rule of the conformance kit, in Node and in browsers."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubbub.cli import main
from tests.support.browsers import require_browser
from tests.support.quick_rules import QUICK_RULES, RULE_THAT_WAITS
from tests.typescript.conftest import Built

SHARES_A_DIRECTORY = 133


def check(command: Sequence[str], *options: str, unclaimed: Collection[int] = ()) -> None:
    """Check the rules; those that are not claimed need two processes on one directory, which a browser's profile does not allow."""
    arguments = ["conformance", "--command", shlex.join(command), "--timeout", "120", "--json", *options]
    found = CliRunner().invoke(main, arguments)
    assert found.exit_code in {0, 3}, found.output
    rules = json.loads(found.stdout)["rules"]
    assert rules
    left = [rule for rule in rules if rule["verdict"] != "passed"]
    assert [rule for rule in left if rule["rule"] not in unclaimed or rule["verdict"] != "not claimed"] == []


def test_quick_rules_in_node(node_adapter: Sequence[str]) -> None:
    check(node_adapter, *QUICK_RULES)


@pytest.mark.slow
def test_the_rule_that_waits_in_node(node_adapter: Sequence[str]) -> None:
    check(node_adapter, RULE_THAT_WAITS)


@pytest.mark.slow
@pytest.mark.parametrize("browser", ["chromium", "firefox"])
def test_every_rule_in_a_browser(browser: str, built: Built, tmp_path: Path) -> None:
    require_browser(browser)
    bundle = str(built("conformance-browser.js"))
    check(
        [sys.executable, "-m", "tests.typescript.browser_adapter", bundle, browser, str(tmp_path)],
        unclaimed=[SHARES_A_DIRECTORY],
    )
