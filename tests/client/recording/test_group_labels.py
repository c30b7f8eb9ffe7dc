"""The label of a report: that of the first run in its period, else of the last run before it, whatever was recorded."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub import Client, Definitions, HubbubError, Metric, ParameterError, UnaryResponse
from hubbub.client import collaborators
from hubbub.metrics.group import Group
from hubbub.metrics.periods import Period, PeriodKind
from hubbub.sdk.storage.events import JOURNAL
from hubbub.sdk.storage.record_format import encode_record, scan
from hubbub.sdk.storage.state_reader import read_state
from hubbub.sdk.transparency.consent_notice import consent_notice
from hubbub.sdk.upload.uploader import Uploader
from hubbub.testing import UNLIMITED, ManualClock, RecordingTransport, Seams, deliver, raise_internal_errors
from tests.client.conftest import TODAY, Rig, require_balanced
from tests.support.every_kind import NOISE, VERSION
from tests.support.group_labels import LabelModel
from tests.support.html import without_word_spans

DARK = Metric.boolean("dark", UnaryResponse(**NOISE), group=VERSION)
ARM = Metric.categorical(
    "menu", ("old", "new"), UnaryResponse(**NOISE), group=Group("arm", ("a", "b", "other")), hold=3
)
WEEKLY = Metric.boolean("rating", UnaryResponse(**NOISE), period=PeriodKind.WEEK, group=VERSION)
PLAIN = Metric.boolean("plain", UnaryResponse(**NOISE))
METRICS = (DARK, ARM, WEEKLY, PLAIN)

VERSIONS = ("1.0", "2.3", "9")
step = st.one_of(
    st.tuples(st.just("start"), st.sampled_from(VERSIONS), st.sampled_from("ab")),
    st.tuples(st.just("pass"), st.sampled_from([1, 5, 20, 30, 80, 800])),
    st.tuples(st.sampled_from(["round", "record", "close", "kill", "off", "on"]), st.integers(0, 1)),
)
wrong_clock = st.tuples(st.just("pass"), st.sampled_from([-5, -20, -30, -80, -2000, 2000]))
"""Starts, hours that pass, and what one of the two processes that were started last does."""

Labelled = tuple[str, str, str]
"""Metric, period and label of a report."""


class History:
    """Processes on one state directory, the model of each metric, and what was reported. recordings : None: nothing is recorded"""

    def __init__(self, state: Path, recordings: np.random.Generator | None) -> None:
        self.state, self.recordings = state, recordings
        self.clock, self.transport = ManualClock(TODAY), RecordingTransport()
        self.processes: list[tuple[Client, dict[str, str]]] = []
        self.models = {metric.name: LabelModel() for metric in METRICS if metric.group}
        self.consent = False
        self.seen: dict[str, Labelled] = {}

    def play(self, steps: Sequence[tuple[Any, ...]]) -> list[Labelled]:
        for step in [("start", "1.0", "a"), ("on", 0), *steps, ("pass", 24 * 30), ("start", "2.0", "b"), ("round", 0)]:
            self.take(*step)
            self.check()
        for client, _ in self.processes:
            require_balanced(client.accounting())
            client.close()
        return sorted(self.seen.values())

    def take(self, word: str, *details: Any) -> None:
        if word == "pass":
            self.clock.now = max(self.clock() + timedelta(hours=details[0]), datetime(2026, 2, 1, tzinfo=UTC))
        elif word == "start":
            self.start(dict(zip(("version", "arm"), details, strict=True)))
        elif details[0] < len(self.processes):
            client, groups = self.processes[details[0]]
            self.change(word, client, groups)

    def start(self, groups: dict[str, str]) -> None:
        client = Client(
            Definitions(list(METRICS)),
            self.state,
            "http://127.0.0.1:1",
            groups=groups,
            seams=Seams(clock=self.clock, transport=self.transport),
            environment={},
            policy=UNLIMITED,
        )
        self.processes = [(client, groups), *self.processes[:1]]
        if self.consent:
            self.run(groups, is_start=True)

    def change(self, word: str, client: Client, groups: dict[str, str]) -> None:
        match word:
            case "round" if self.consent:
                with collaborators(client).journal as state:
                    while collaborators(client).recorder.prepare_upload(state).seconds == 0:
                        pass
                self.run(groups, is_start=False)
            case "record" if self.recordings is not None:
                for index in self.recordings.integers(len(METRICS), size=self.recordings.integers(4)):
                    metric = METRICS[index]
                    client.record(metric.name, "old" if metric is ARM else True)
            case "on" | "off":
                client.set_consent("on" if word == "on" else "off")
                if word == "on" and not self.consent:
                    self.run(groups, is_start=True)
                self.consent = word == "on"
                if not self.consent:
                    for model in self.models.values():
                        model.withdraw()
            case "close" | "kill":
                self.processes = [process for process in self.processes if process[0] is not client]
                if word == "close":
                    client.close()
                else:
                    collaborators(client).journal.sync()

    def run(self, groups: dict[str, str], *, is_start: bool) -> None:
        for metric in METRICS:
            if metric.group is not None:
                period = Period.containing(metric.period, self.clock().date())
                self.models[metric.name].run(period, metric.group_value(groups), is_start=is_start)

    def check(self) -> None:
        """Compare the reports that were made in a step to the model after it."""
        with suppress(HubbubError):
            for queued in read_state(self.state).queue.values():
                batch, kind = queued.batch, queued.period_kind
                if str(batch.batch_id) not in self.seen:
                    self.seen[str(batch.batch_id)] = batch.metric, batch.period, batch.group
                    model = self.models.get(batch.metric)
                    period = Period(date.fromisoformat(batch.period), kind)
                    assert batch.group == ("" if model is None else model.label(period)), batch.period


def check_history(
    tmp_path_factory: pytest.TempPathFactory, steps: Sequence[tuple[Any, ...]], seed: int, *, is_wrong: bool
) -> None:
    # a step says when the uploader's thread works
    with raise_internal_errors(), patch.object(Uploader, "start"), patch.object(Uploader, "wake"):
        paths = [tmp_path_factory.mktemp("state") for _ in range(3)]
        silent = dict_of(History(paths[0], None).play(steps))
        for number, path in enumerate(paths[1:]):
            # a recording builds the last 28 days, and the next round of a thread that slept longer does not
            recorded = dict_of(History(path, np.random.default_rng(seed + number)).play(steps))
            assert is_wrong or all(silent[about] == recorded[about] for about in silent.keys() & recorded.keys())


def dict_of(reports: list[Labelled]) -> dict[tuple[str, str], str]:
    return {(metric, period): label for metric, period, label in reports}


@settings(max_examples=40, deadline=None)
@given(st.lists(step, max_size=16), st.integers(0, 1 << 30))
def test_labels_are_those_of_the_model_whatever_is_recorded(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]], seed: int
) -> None:
    check_history(tmp_path_factory, steps, seed, is_wrong=False)


@settings(max_examples=40, deadline=None)
@given(st.lists(step | wrong_clock, max_size=16), st.integers(0, 1 << 30))
def test_labels_are_those_of_the_model_also_under_a_wrong_clock(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]], seed: int
) -> None:
    check_history(tmp_path_factory, steps, seed, is_wrong=True)


def test_a_period_without_a_run_has_the_label_of_the_last_run_before_it(rig: Rig) -> None:
    for version, days in (("1.0", 0), ("1.0", 0), ("2.0", 1), ("9", 4)):
        rig.clock.move(days=days)
        client = rig.agreed(DARK, groups={"version": version})
        if version == "2.0":
            client.close()
            client = rig.client(DARK, groups={"version": "1.5"})
        client.close()
    rig.clock.move(days=1)
    deliver(rig.client(DARK, groups={"version": "9"}))
    labels = {batch.period: batch.group for batch in rig.transport.batches}
    dates = ["2026-11-21", "2026-11-22", "2026-11-23", "2026-11-24", "2026-11-25", "2026-11-26"]
    assert [labels[day] for day in dates] == ["1.x", "2.x", "1.x", "1.x", "1.x", "other"]


@pytest.mark.parametrize("records", [False, True])
def test_a_child_of_a_fork_fixes_no_label(rig: Rig, records: bool) -> None:
    """Only a recording starts its thread."""
    client = rig.agreed(DARK, groups={"version": "1.0"})
    client.close()  # else the thread of the parent fixes it
    rig.clock.move(days=2)
    child = os.fork()
    if child == 0:
        if records:
            client.record("dark", True)
            collaborators(client).journal.run(collaborators(client).recorder.prepare_upload)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    rig.client(DARK, groups={"version": "2.0"}).close()
    rig.clock.move(days=1)
    deliver(rig.client(DARK, groups={"version": "2.0"}))
    labels = {batch.period: batch.group for batch in rig.transport.batches}
    assert labels["2026-11-22"] == "1.x"
    assert labels["2026-11-23"] == "2.x"


def test_labels_of_an_earlier_version_are_read(rig: Rig) -> None:
    """It kept the label with the account."""
    rig.agreed(DARK, groups={"version": "1.0"}).close()
    written = scan((rig.state / JOURNAL).read_bytes()).payloads
    records = []
    for payload in written:
        fields = json.loads(payload)
        if fields["event"] == "account":
            fields["account"]["group"] = "1.x"
        if fields["event"] != "group_labels":
            records.append(encode_record(json.dumps(fields).encode()))
    (rig.state / JOURNAL).write_bytes(b"".join(records))
    rig.clock.move(days=3)
    client = rig.client(DARK, groups={"version": "2.0"})
    deliver(client)
    labels = {batch.period: batch.group for batch in rig.transport.batches}
    assert labels == {"2026-11-21": "1.x", "2026-11-22": "1.x", "2026-11-23": "1.x", "2026-11-24": "2.x"}
    assert client.accounting().damaged_records == 0
    require_balanced(client.accounting())


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


def test_people_of_a_server_have_one_label_in_a_period(rig: Rig) -> None:
    """Also those who come after an update."""
    for version in ("1.0", "2.0"):
        client = rig.client(DARK, groups={"version": version}, per_subject=True)
        client.set_consent("on")
        for person in range(5):
            client.subject(f"{version}-{person}").record("dark", True)
        client.close()
    deliver(rig.client(DARK, groups={"version": "2.0"}, per_subject=True))
    assert [(batch.group, len(batch)) for batch in rig.transport.batches] == [("1.x", 10)]


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


def test_the_notice_names_the_label_in_short() -> None:
    text = consent_notice(
        Definitions([DARK, PLAIN]), app="Editor", recipient="Example", policy=UNLIMITED, details=False
    )
    (line,) = (line for line in text.splitlines() if line.startswith("- Not changed at random: "))
    assert line.endswith("; dark: version (1.x, 2.x, other).")
