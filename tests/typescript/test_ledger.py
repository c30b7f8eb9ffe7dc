"""The TypeScript client and the Python client keep the same ledger over random histories of all kinds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from examples import conformance_adapter
from hubbub import Metric
from hubbub.conformance.adapter import Adapter
from hubbub.conformance.scripted_aggregator import Request, ScriptedAggregator
from hubbub.sdk.recording.batch_builder import MAX_BATCH_AGE
from tests.support.every_kind import METRICS

# Values that are told apart in every cohort: two clients with other secrets then have equal histories.
VALUES: dict[str, Sequence[Any]] = {
    "homepage": ["a", "b", "é", None],
    "words": ["ab", "abc"],
    "browser": ["firefox", "chromium"],
    "os": ["linux", "beos"],
    "dark": [True, False],
    "delay": [3, 40, 1000],
    "size": [0, 512],
    "plugins": [["spelling", "preview", "vim"], []],
    "packages": [["git", "vim", "zsh"], ["curl"], []],
    "extensions": [["é", "b"], ["a", "b", "c", "d", "e"], []],
    "theme": ["dark", "light", "system"],
    "os_and_page": [{"os": "linux", "page": "a"}, {"page": "b"}],
    "theme_and_page": [{"theme": "dark", "page": "a"}, {"theme": "light"}],
}
Ask = Callable[[dict[str, Any]], Mapping[str, Any]]


def versions(random: Random) -> list[Metric]:
    """Some metrics of every kind, some with another number of reports of a response, or a limit."""
    plain = [metric for metric in METRICS if metric.group is None]
    chosen = random.sample(plain, random.randint(1, 4))
    changes: list[dict[str, Any]] = [{}, {"hold": 7}, {"lifetime_epsilon": 12.0}]
    return [replace(metric, **random.choice(changes)) for metric in chosen]


def history(seed: int) -> list[dict[str, Any]]:
    """Random calls of a client: starts with other definitions, decisions of the user, recordings, days, ends."""
    random = Random(seed)  # noqa: S311  (a test)
    calls: list[dict[str, Any]] = [
        {"call": "start", "definitions": versions(random)},
        {"call": "consent", "level": "on"},
    ]
    for _ in range(40):
        definitions = next(call["definitions"] for call in reversed(calls) if call["call"] == "start")
        metric = random.choice(definitions)
        days = sum(call["call"] == "advance" for call in calls)
        # one value a period, so that chance chooses none of several
        value = VALUES[metric.name][days % len(VALUES[metric.name])]
        steps: list[list[dict[str, Any]]] = random.choices(
            [
                [{"call": "record", "metric": metric.name, "value": value}],
                [{"call": "advance", "days": random.choice([1, 1, 1, 3, 9])}, {"call": "flush"}],
                [{"call": "stop"}, {"call": "start", "definitions": random.choice([definitions, versions(random)])}],
                [{"call": "consent", "level": "off"}, {"call": "consent", "level": "on"}],
            ],
            [8, 8, 2, 1],
        )
        calls += steps[0]
    return [
        *calls,
        {"call": "advance", "days": 2},
        {"call": "flush"},
        {"call": "advance", "days": 2},
        {"call": "flush"},
    ]


def played(ask: Ask, calls: Sequence[Mapping[str, Any]], place: Path) -> Counter[tuple[str, str, str]]:
    """Plays a history; returns how many reports each period of a definition has.

    It is always midnight, so no chance decides whether the time of a report has passed. Batches that were too old when they arrived are
    left out: a client that returns after weeks learns the date from its first answer, and chance decides which batch that is.
    """
    with ScriptedAggregator() as aggregator:
        aggregator.now = datetime.combine(aggregator.now.date(), time(), UTC)
        for call in calls:
            sent = dict(call)
            if call["call"] == "start":
                sent["definitions"] = [metric.to_dict() for metric in call["definitions"]]
                sent |= {"directory": str(place), "url": aggregator.url, "now": aggregator.now.isoformat()}
            if call["call"] == "advance":
                aggregator.now += timedelta(days=sent.pop("days"))
                sent["now"] = aggregator.now.isoformat()
            assert "refused" not in ask(json.loads(json.dumps(sent))), call
        bodies = {request.batch_id: json.loads(request.body) for request in aggregator.requests if is_recent(request)}
    return Counter((body["metric"], body["digest"], body["period"]) for body in bodies.values())


def is_recent(request: Request) -> bool:
    """Whether a client that knows the date still sends this batch of a day."""
    day = date.fromisoformat(json.loads(request.body)["period"])
    return request.time.date() < day + timedelta(days=1) + MAX_BATCH_AGE


@pytest.mark.parametrize("number", range(6))
def test_same_ledger_as_the_python_client(
    number: int, unseen_seed: int, node_adapter: Sequence[str], tmp_path: Path
) -> None:
    calls = history(unseen_seed)
    of_python = played(conformance_adapter.answer, calls, tmp_path / "python")
    client = conformance_adapter.SESSION.client
    assert client is not None
    expected = {
        account.digest: (
            account.unit,
            account.units,
            account.reserved_units,
            account.spent_before_enrollment,
            bool(account.refused),
            pytest.approx(account.epsilon_per_unit),
        )
        for account in client.ledger().accounts
    }
    conformance_adapter.answer({"call": "stop"})
    with Adapter(node_adapter, 60) as adapter:
        of_node = played(adapter.ask, calls, tmp_path / "node")
        accounts = adapter.ask({"call": "inspect"})["ledger"]
    found = {
        account["digest"]: (
            account["unit"],
            account["units"],
            account["reservedUnits"],
            account["spentBeforeEnrollment"],
            bool(account["refused"]),
            account["epsilonPerUnit"],
        )
        for account in accounts
    }
    assert found == expected
    assert of_node == of_python
