"""A withdrawal erases what the TypeScript client keeps, and the ledger stays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hubbub.conformance.adapter import Adapter
from hubbub.conformance.scenarios import CANARY, PAGE

START = {"call": "start", "definitions": [PAGE.to_dict()], "url": "http://127.0.0.1:9"}


def test_a_withdrawal_leaves_the_ledger_alone(node_adapter: Sequence[str], tmp_path: Path) -> None:
    with Adapter(node_adapter, 60) as adapter:
        adapter.ask({**START, "directory": str(tmp_path), "now": "2026-11-23T12:00:00Z"})
        adapter.ask({"call": "consent", "level": "on"})
        adapter.ask({"call": "record", "metric": "page", "value": CANARY})
        before = secrets(tmp_path)
        adapter.ask({"call": "advance", "now": "2026-11-24T12:00:00Z"})
        adapter.ask({"call": "flush"})
        (account,) = adapter.ask({"call": "inspect"})["ledger"]
        adapter.ask({"call": "consent", "level": "off"})
        after = adapter.ask({"call": "inspect"})
        assert len(before) == 1
        assert secrets(tmp_path) == set()
        assert (after["queued"], after["sent"], after["consent"]) == ([], [], "off")
        assert after["ledger"] == [account]
        assert account["units"] == 1


def secrets(directory: Path) -> set[str]:
    """Secrets in the lines of all files."""
    lines = [line for path in directory.iterdir() for line in path.read_text().splitlines() if line]
    return {line.partition('"secret":"')[2].partition('"')[0] for line in lines if '"secret":"' in line} - {""}
