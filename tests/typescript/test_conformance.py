"""The TypeScript client follows every rule of the conformance kit, in Node and in browsers."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence

import pytest
from click.testing import CliRunner

from hubbub.cli import main
from tests.support.browsers import require_browser
from tests.typescript.conftest import Built


def check(command: Sequence[str]) -> None:
    found = CliRunner().invoke(main, ["conformance", "--command", shlex.join(command), "--timeout", "120", "--json"])
    assert found.exit_code == 0, found.output
    assert {rule["verdict"] for rule in json.loads(found.stdout)["rules"]} == {"passed"}


def test_every_rule_in_node(node_adapter: Sequence[str]) -> None:
    check(node_adapter)


@pytest.mark.slow
@pytest.mark.parametrize("browser", ["chromium", "firefox"])
def test_every_rule_in_a_browser(browser: str, built: Built) -> None:
    require_browser(browser)
    check([sys.executable, "-m", "tests.typescript.browser_adapter", str(built("conformance-browser.js")), browser])
