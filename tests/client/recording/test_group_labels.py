"""The label of a report: what the app said when it first ran in the period, whatever it recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub import Client, Definitions, Metric, ParameterError
from hubbub.client import collaborators
from hubbub.metrics.group import Group
from hubbub.metrics.periods import PeriodKind
from hubbub.sdk.transparency.consent_notice import consent_notice
from hubbub.sdk.upload.uploader import Uploader
from hubbub.testing import UNLIMITED, ManualClock, RecordingTransport, deliver, raise_internal_errors
from tests.client.conftest import TODAY, Rig, require_balanced
from tests.support.every_kind import NOISE, VERSION
from tests.support.html import without_word_spans

DARK = Metric.boolean("dark", group=VERSION, **NOISE)
ARM = Metric.categorical("menu", ("old", "new"), group=Group("arm", ("a", "b", "other")), hold=3, **NOISE)
WEEKLY = Metric.boolean("rating", period=PeriodKind.WEEK, group=VERSION, **NOISE)
PLAIN = Metric.boolean("plain", **NOISE)
METRICS = (DARK, ARM, WEEKLY, PLAIN)

Step = tuple[int, str, str, bool]
"""Hours that pass, version and arm of the process that then starts, and whether its upload thread works before it ends."""
steps = st.lists(
    st.tuples(
        st.sampled_from([1, 5, 20, 30, 80]), st.sampled_from(["1.0", "2.3", "9"]), st.sampled_from("ab"), st.booleans()
    ),
    min_size=1,
    max_size=12,
)


def run(steps: list[Step], state: Path, recordings: np.random.Generator | None) -> list[tuple[str, str, str]]:
    """Metric, period and label of all reports of a history; recordings : None: nothing is recorded."""
    clock, transport = ManualClock(TODAY), RecordingTransport()
    for number, (hours, version, arm, works) in enumerate(steps):
        clock.move(hours=hours)
        options: dict[str, Any] = {"clock": clock, "transport": transport, "environment": {}, "policy": UNLIMITED}
        groups = {"version": version, "arm": arm}
        client = Client(Definitions(list(METRICS)), state, "http://127.0.0.1:1", groups=groups, **options)
        if number == 0:
            client.set_consent("on")
        for index in [] if recordings is None else recordings.integers(len(METRICS), size=recordings.integers(3)):
            metric = METRICS[index]
            client.record(metric.name, "old" if metric is ARM else True)
        if works:
            with collaborators(client).journal as journal_state:
                while collaborators(client).builder.build_due(journal_state):
                    pass
        client.close()
    clock.move(days=30)
    client = Client(
        Definitions(list(METRICS)), state, "http://127.0.0.1:1", groups={"version": "1.0", "arm": "a"},
        clock=clock, transport=transport, environment={}, policy=UNLIMITED,
    )  # fmt: skip
    with collaborators(client).journal as journal_state:
        collaborators(client).builder.build_all(journal_state)
        batches = [each.batch for each in journal_state.queue.values()] + list(journal_state.last_sent.values())
    require_balanced(client.accounting())
    client.close()
    found = {str(each.batch_id): (each.metric, each.period, each.group) for each in (*batches, *transport.batches)}
    return sorted(found.values())


@settings(max_examples=40, deadline=None)
@given(steps, st.integers(0, 1 << 30))
def test_labels_do_not_depend_on_recordings(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step], seed: int
) -> None:
    with (
        raise_internal_errors(),
        patch.object(Uploader, "start"),
        patch.object(Uploader, "wake"),
    ):  # a step says whether it works
        paths = [tmp_path_factory.mktemp("state") for _ in range(3)]
        silent = run(steps, paths[0], None)
        assert run(steps, paths[1], np.random.default_rng(seed)) == silent
        assert run(steps, paths[2], np.random.default_rng(seed + 1)) == silent
    assert len({(metric, period) for metric, period, _ in silent}) == len(silent)
    assert {label for metric, _, label in silent if metric == "plain"} <= {""}
    assert {label for metric, _, label in silent if metric == "menu"} <= {"a", "b"}
    assert {label for metric, _, label in silent if metric in ("dark", "rating")} <= set(VERSION.values)


def test_a_new_label_counts_from_the_next_period_on(rig: Rig) -> None:
    for hour, version in enumerate(("1.0", "2.0", "2.0", "3.0", "1.0")):
        client = rig.client(DARK, groups={"version": version})
        if hour == 0:
            client.set_consent("on")
        client.record("dark", True)
        client.close()
        rig.clock.move(hours=11)  # from noon on: two starts on the first two days
    client = rig.client(DARK, groups={"version": "2.0"})
    deliver(client)
    labels = {batch.period: batch.group for batch in rig.transport.batches}
    assert labels == {"2026-11-21": "1.x", "2026-11-22": "2.x", "2026-11-23": "1.x"}
    assert {batch.digest for batch in rig.transport.batches} == {DARK.digest}
    require_balanced(client.accounting())


def test_a_batch_has_one_label(rig: Rig) -> None:
    """Also of a server, whose people reached the period under different versions."""
    for version in ("1.0", "2.0"):
        client = rig.client(DARK, groups={"version": version}, per_subject=True)
        client.set_consent("on")
        for person in range(5):
            client.subject(f"{version}-{person}").record("dark", True)
        client.close()
    deliver(rig.client(DARK, groups={"version": "2.0"}, per_subject=True))
    sizes = {batch.group: len(batch) for batch in rig.transport.batches}
    assert sizes == {"1.x": 5, "2.x": 5}


def test_users_see_the_label_of_each_report(rig: Rig) -> None:
    """In the page of their settings and in `inspect`: of the open period, of reports that wait, and of those that were sent."""
    client = rig.agreed(DARK, PLAIN, groups={"version": "1.0"})
    for metric in ("dark", "plain"):
        client.record(metric, True)
    assert "dark, 2026-11-21, 1.x (sent in clear)" in without_word_spans(client.inspect_html())
    deliver(client)
    page = client.inspect_html()
    assert page.count("1.x (sent in clear)") == 1
    assert [json.loads(body).get("group") for body in client.inspect(2).last_sent].count("1.x") == 1


def test_a_killed_client_keeps_the_label(rig: Rig) -> None:
    client = rig.agreed(DARK, groups={"version": "1.0"})
    client.record("dark", True)
    rig.clock.move(days=1)
    collaborators(client).journal.sync()
    again = rig.client(DARK, groups={"version": "2.0"})
    deliver(again)
    labels = {batch.period: batch.group for batch in rig.transport.batches}
    assert labels == {"2026-11-21": "1.x", "2026-11-22": "2.x"}


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (None, "groups has no 'version', by which dark is divided"),
        ({}, "groups has no 'version'"),
        ({"version": 1}, "groups must be texts by name"),
        ("version", "groups must be texts by name"),
        (
            {"version": "1", "verison": "2"},
            "groups has 'verison', but the definitions have version. Did you mean 'version'",
        ),
    ],
)
def test_wrong_labels_are_refused_at_the_start(groups: Any, message: str, rig: Rig) -> None:
    with pytest.raises(ParameterError, match=message):
        rig.client(DARK, groups=groups)


def test_labels_without_a_group_are_refused(rig: Rig) -> None:
    with pytest.raises(ParameterError, match="but no metric has a group"):
        rig.client(PLAIN, groups={"version": "1.0"})


def test_the_notice_names_the_label_among_what_is_collected() -> None:
    text = consent_notice(Definitions([DARK, PLAIN]), app="Editor", recipient="Example", policy=UNLIMITED)
    line = next(line for line in text.splitlines() if "(dark)" in line)
    assert line.endswith("Each report also says, without any randomness: version (1.x, 2.x, other).")
    assert text.splitlines().index(line) < 5
    assert "randomness: " not in next(line for line in text.splitlines() if "(plain)" in line)
