"""The TypeScript client labels its reports as the model says that the Python client is tested by, whatever is recorded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hubbub.conformance.adapter import Adapter
from hubbub.conformance.scenarios import UPDATED, WEEKLY
from hubbub.metrics.periods import Period
from tests.support.group_labels import LabelModel

METRICS = {metric.name: metric for metric in (UPDATED, WEEKLY)}
NOBODY = "http://127.0.0.1:9"
"""No date of an aggregator confirms the clock."""
BEGIN, EARLIEST = datetime(2026, 11, 23, 12, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)


def history(seed: int, *, wrong_clock: bool) -> list[tuple[str, Any]]:
    """Random starts, ends, decisions of the user, recordings, and hours that pass, also by a clock that is set."""
    random = Random(seed)  # noqa: S311  (a test)
    steps: list[tuple[str, Any]] = [("start", "1.0"), ("consent", "on")]
    for _ in range(40):
        steps += random.choices(
            [
                ("start", random.choice(["1.0", "2.3", "9"])),
                (random.choice(["stop", "kill"]), None),
                ("pass", random.choice([1, 5, 20, 30, 80, 400])),
                ("pass", random.choice([-5, -20, -30, -80, -1000, 1000])),
                ("record", random.choice([*METRICS])),
                ("consent", random.choice(["on", "off"])),
            ],
            [6, 5, 6, int(wrong_clock), 5, 1],
        )
    return [*steps, ("start", "1.5"), ("consent", "on"), ("pass", 24 * 30), ("start", "2.0")]


class Run:
    """One client that plays a history, and the model of each metric. records : whether recordings are made"""

    def __init__(self, adapter: Adapter, place: Path, *, records: bool) -> None:
        self.adapter, self.place, self.records = adapter, place, records
        self.now, self.version, self.consent = BEGIN, "", "off"
        self.models = {name: LabelModel() for name in METRICS}
        self.seen: dict[str, tuple[str, str, str]] = {}

    def play(self, steps: Sequence[tuple[str, Any]]) -> list[tuple[str, str, str]]:
        for word, detail in steps:
            getattr(self, f"take_{word}")(detail)
            if self.version:
                self.check()
        return sorted(self.seen.values())

    def ask(self, call: str, **fields: Any) -> Any:
        answer = self.adapter.ask({"call": call, **fields})
        assert not {"refused", "unknown"} & answer.keys(), (call, answer)
        return answer

    def take_start(self, version: str) -> None:
        self.take_stop(None)
        self.version = version
        definitions = [metric.to_dict() for metric in METRICS.values()]
        where = {"directory": str(self.place), "url": NOBODY, "now": self.now.isoformat()}
        self.ask("start", definitions=definitions, groups={"version": version}, **where)
        self.run(is_start=True)

    def take_stop(self, _: None) -> None:
        if self.version:
            self.ask("stop")
        self.version = ""

    def take_kill(self, _: None) -> None:
        self.adapter.kill()
        self.version = ""

    def take_pass(self, hours: int) -> None:
        self.now = max(self.now + timedelta(hours=hours), EARLIEST)
        if self.version:
            self.ask("advance", now=self.now.isoformat())
            self.ask("flush")
            self.run(is_start=False)

    def take_record(self, name: str) -> None:
        if self.version and self.records:
            self.ask("record", metric=name, value=True)

    def take_consent(self, level: str) -> None:
        if self.version:
            self.ask("consent", level=level)
            was, self.consent = self.consent, level
            if level == "off":
                for model in self.models.values():
                    model.withdraw()
            elif was == "off":
                self.run(is_start=True)

    def run(self, *, is_start: bool) -> None:
        if self.consent == "on":
            for name, metric in METRICS.items():
                value = metric.group_value({"version": self.version})
                self.models[name].run(Period.containing(metric.period, self.now.date()), value, is_start=is_start)

    def check(self) -> None:
        """Compare the reports that were made in a step to the model after it."""
        for body in map(json.loads, self.ask("inspect")["queued"]):
            if body["batch_id"] not in self.seen:
                name, day = body["metric"], body["period"]
                self.seen[body["batch_id"]] = name, day, body["group"]
                period = Period(date.fromisoformat(day), METRICS[name].period)
                assert body["group"] == self.models[name].label(period), (name, day)


@pytest.mark.parametrize("number", range(10))
def test_labels_are_those_of_the_model(
    number: int, unseen_seed: int, node_adapter: Sequence[str], tmp_path: Path
) -> None:
    wrong_clock = number % 2 == 1
    steps = history(unseen_seed, wrong_clock=wrong_clock)
    found = []
    for records in (False, True):
        with Adapter(node_adapter, 60) as adapter:
            found.append(Run(adapter, tmp_path / str(records), records=records).play(steps))
    assert found[0]
    # else chance decides which reports were sent before the clock was set back
    assert wrong_clock or found[0] == found[1]


def test_a_state_of_an_earlier_version_is_read(node_adapter: Sequence[str], tmp_path: Path) -> None:
    """It had one label, of the period that was open."""
    place, journal = tmp_path / "state", tmp_path / "state" / "journal.jsonl"
    with Adapter(node_adapter, 60) as adapter:
        run = Run(adapter, place, records=True)
        run.play([("start", "1.0"), ("consent", "on"), ("record", "updated"), ("stop", None)])
    line = json.loads(journal.read_text().splitlines()[-1])
    for account in line["state"]["accounts"].values():
        steps: list[tuple[str, str]] = list(account["groups"].items())
        account["groups"] = dict(steps[-2:-1])
    journal.write_text(json.dumps(line | {"at": 0}, separators=(",", ":")) + "\n")
    with Adapter(node_adapter, 60) as adapter:
        run.adapter = adapter
        run.play([("start", "2.0"), ("pass", 24 * 3), ("stop", None), ("pass", 24 * 20), ("start", "9")])
    labels = {period: label for name, period, label in run.seen.values() if name == "updated"}
    assert [labels[f"2026-11-{day}"] for day in (23, 24, 25, 26, 27)] == ["1.x", "2.x", "2.x", "2.x", "2.x"]
