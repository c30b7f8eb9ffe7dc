"""Journal events against the files that clients with untyped events wrote, see `tests/data/make_journals.py`."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from datetime import date
from typing import Any, get_args

import pytest

from hubbub import Consent
from hubbub.client import collaborators
from hubbub.metrics.periods import PeriodKind
from hubbub.sdk.storage import event_codec
from hubbub.sdk.storage.event_codec import decode_event, encode_records, item, replay
from hubbub.sdk.storage.events import AccountChange, Backoff, BatchRemoval, Event
from hubbub.sdk.storage.record_format import encode_record, scan
from hubbub.sdk.storage.state import State
from hubbub.sdk.storage.state_reader import read_state
from hubbub.sdk.transparency.state_reports import inspect_state, ledger_of_state
from hubbub.testing import ManualClock, RecordingTransport, deliver
from tests.client.conftest import Rig, require_balanced
from tests.data import make_journals
from tests.support.paths import DATA

RECORDED = DATA / "journals"
DIRECTORIES = [path.name for path in sorted(RECORDED.iterdir()) if path.is_dir()]


def test_clients_write_the_recorded_bytes() -> None:
    recorded = {str(path.relative_to(RECORDED)): path.read_bytes() for path in RECORDED.rglob("*") if path.is_file()}
    written = make_journals.journals()
    assert written.keys() == recorded.keys()
    assert [name for name in written if written[name] != recorded[name]] == []


def test_every_kind_of_event_is_recorded_and_written_again_unchanged() -> None:
    kinds: Counter[type] = Counter()
    for payload in scan((RECORDED / "written").read_bytes()).payloads:
        event = decode_event(payload)
        assert event is not None, payload
        # else an account may have the same meaning without `newest_epoch` and `response`
        if b'"epoch":2' not in payload:
            assert encode_records(event) == encode_record(payload)
        assert decode_event(scan(encode_records(event)).payloads[0]) == event
        kinds[type(event)] += 1
    assert kinds.keys() == set(get_args(Event)) == event_codec._BY_KIND.keys()
    assert len(event_codec._CODECS) == len(event_codec._BY_KIND) == len(event_codec._BY_WORD)


@pytest.mark.parametrize("name", DIRECTORIES)
def test_recorded_directory_is_read_and_continued(name: str, rig: Rig) -> None:
    """Also of killed clients: no report is lost, none is sent twice, and the ledger only grows."""
    shutil.copytree(RECORDED / name, rig.state)
    for path in rig.state.iterdir():
        path.chmod(0o600)
    before = read_state(rig.state)
    reports = json.loads((RECORDED / "reports.json").read_bytes())[name]
    assert json.loads(json.dumps(inspect_state(before, 10).to_dict())) == reports["inspect"]
    assert json.loads(json.dumps(ledger_of_state(before).to_dict())) == reports["ledger"]
    rig.clock, rig.transport = ManualClock(make_journals.END), RecordingTransport()
    client = rig.client(*make_journals.METRICS.values())
    client.set_consent("on")
    make_journals.record(client)
    deliver(client)
    require_balanced(client.accounting())
    sent = Counter(batch.batch_id for batch in rig.transport.batches)
    assert sent
    assert set(sent.values()) == {1}
    assert client.accounting().damaged_records == before.damaged
    after = collaborators(client).journal.run(lambda state: dict(state.accounts))
    assert all(after[key].units >= account.units for key, account in before.accounts.items())
    client.close()
    assert read_state(rig.state).accounts == after


@pytest.mark.parametrize("start", ["9999-12-31", "9999-12-27", "9999-12-01"])
def test_account_of_the_last_period_is_kept_with_its_units(start: str) -> None:
    """An earlier version wrote it under a clock of the year 9999; the client of each later start reads it."""
    state, last = State(), State()
    replay(state.apply, [(RECORDED / "lived" / "snapshot").read_bytes()])
    kind = {"9999-12-31": PeriodKind.DAY, "9999-12-27": PeriodKind.WEEK, "9999-12-01": PeriodKind.MONTH}[start]
    account = next(iter(state.accounts.values()))._replace(period=kind, next_period_start=start)
    assert replay(last.apply, [encode_records(AccountChange(account))]) == 0
    assert last.accounts[account.key].units == account.units
    assert last.accounts[account.key].period_end() == last.earliest_period_end == date.max


@pytest.mark.parametrize(
    ("payload", "damaged"),
    [
        (b'{"event":"of_a_newer_version","number":1}', 0),
        (b'{"event":"consent","level":"on","text":"","time":0.0,"reports_from":"","by":"of a newer version"}', 0),
        (b'{"event":"consent","level":"on","text":""}', 1),
        (b'{"event":"consent","level":"perhaps","text":"","time":0.0,"reports_from":""}', 1),
        (b'{"number":1}', 1),
        (b"[]", 1),
        (b"no JSON", 1),
    ],
)
def test_unknown_kinds_and_fields_are_ignored_and_wrong_ones_are_damaged(payload: bytes, damaged: int) -> None:
    state = State()
    assert replay(state.apply, [encode_record(payload)]) == damaged
    assert state.consent is (Consent.ON if b"by" in payload else Consent.OFF)


def test_fields_of_a_later_version_are_ignored_at_every_depth() -> None:
    """Else a client that is set back to this version would lose accounts, and spend their epsilon again."""
    for payload in scan((RECORDED / "written").read_bytes()).payloads:
        later = json.dumps(with_later_fields(json.loads(payload))).encode()
        assert decode_event(later) == decode_event(payload), later


def with_later_fields(value: Any) -> Any:
    """Return a JSON value with one more field in every object, except in those that map items to numbers."""
    match value:
        case dict():
            maps = ("counts", "send_at", "dropped", "ignored")
            fields = {name: field if name in maps else with_later_fields(field) for name, field in value.items()}
            return {**fields, "of_a_later_version": 1}
        case list():
            return [with_later_fields(item) for item in value]
        case _:
            return value


def test_events_about_the_same_item_replace_each_other() -> None:
    one, other = BatchRemoval("1", "age"), BatchRemoval("2", "age")
    assert item(one) == item(one._replace(reason="quota")) != item(other)
    assert item(Backoff(0, 0.0, "")) == item(Backoff(1, 2.0, "3"))


def test_state_after_an_event_is_the_state_after_its_replay() -> None:
    """`apply` in the process that wrote an event, and in one that reads it, give the same accounts, queue and drafts."""
    payloads = scan((RECORDED / "written").read_bytes()).payloads
    written, read = State(), State()
    for payload in payloads:
        event = decode_event(payload)
        assert event is not None
        written.apply(event)
        replay(read.apply, [encode_records(event)])
        assert vars(written) | {"subjects": set(written.subjects)} == vars(read) | {"subjects": set(read.subjects)}
    assert written.accounts
