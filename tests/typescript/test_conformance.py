"""The TypeScript client in Node follows every rule of the conformance kit."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from click.testing import CliRunner

from hubbub.cli import main


def test_every_rule_in_node(node_adapter: Sequence[str]) -> None:
    found = CliRunner().invoke(main, ["conformance", "--command", shlex.join(node_adapter), "--json"])
    assert found.exit_code == 0, found.output
    assert {rule["verdict"] for rule in json.loads(found.stdout)["rules"]} == {"passed"}
