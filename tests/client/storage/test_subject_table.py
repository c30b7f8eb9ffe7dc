"""Accounts and drafts in memory: packed, and the same after they were packed."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from hubbub.client import collaborators
from hubbub.metrics.periods import PeriodKind
from hubbub.privacy.ledger import Account, EncodedReport
from hubbub.sdk.storage import subject_table
from hubbub.sdk.storage.events import Draft
from hubbub.sdk.storage.state_reader import read_state
from hubbub.sdk.storage.subject_table import SubjectItems, SubjectTable
from tests.client.conftest import HOMEPAGE, SURVEY, Rig

NEW = Account("", "d1", "homepage", PeriodKind.DAY, "2026-11-23", "report", 0.5, enrollment=1, reserved_units=2)
ACCOUNTS = [
    NEW,
    NEW._replace(reserved_units=2.0),
    NEW._replace(unit="value", units=2, reports=70_000, tags=(b"a" * 16, b"b" * 16), tag=b"b" * 16, sealed=b"c" * 33),
    NEW._replace(epoch=-3, newest_epoch=9, response=-1 - (7 << 32), replanned_before="2026-12-01", reports=1),
    NEW._replace(refused="no budget", lifetime_epsilon=1.5, period=PeriodKind.MONTH),
]
REPORT = EncodedReport(63, b"\x01\x02", b"t" * 16, b"s" * 20, None, costs_unit=True, stood_in=False, response=None)
DRAFTS = [
    Draft(REPORT, "2026-11-23", 1),
    Draft(REPORT._replace(epoch=4, response=-5, costs_unit=False, stood_in=True), "2026-11-01", 10_000, local=True),
    Draft(REPORT._replace(cohort=0, bits=b""), "2026-11-23", 3, number=b"n" * 24),
]


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> SubjectTable:
    """Return a table that packs a subject as soon as another one changes."""
    monkeypatch.setattr(subject_table, "MAX_UNPACKED_SUBJECTS", 1)
    return SubjectTable()


def test_packed_items_are_equal_and_have_the_same_types(table: SubjectTable) -> None:
    accounts = {
        (subject, digest): account._replace(subject=subject, digest=digest)
        for number, account in enumerate(ACCOUNTS)
        for subject, digest in (("", f"d{number}"), (f"s{number}", "d1"), (f"s{number}", "d2"))
    }
    drafts = {(f"s{number}", "d2"): draft for number, draft in enumerate(DRAFTS)}
    table.accounts.update(accounts)
    table.drafts.update(drafts)
    assert dict(table.accounts) == accounts
    assert dict(table.drafts) == drafts
    assert {key: account.to_dict() for key, account in table.accounts.items()} == {
        key: account.to_dict() for key, account in accounts.items()
    }
    assert {key: repr(account) for key, account in table.accounts.items()} == {
        key: repr(account) for key, account in accounts.items()
    }
    assert {key: repr(draft) for key, draft in table.drafts.items()} == {
        key: repr(draft) for key, draft in drafts.items()
    }
    assert set(table) == {"", *(f"s{number}" for number in range(len(ACCOUNTS)))}


def test_packed_items_change_like_those_of_a_dictionary(table: SubjectTable) -> None:
    for subject in "abc":
        table.accounts[subject, "d1"] = NEW._replace(subject=subject)
        table.drafts[subject, "d1"] = DRAFTS[0]
    del table.drafts["a", "d1"]
    assert ("a", "d1") not in table.drafts
    assert (len(table.accounts), len(table.drafts), len(table)) == (3, 2, 3)
    for key, account in table.accounts.items():
        table.accounts[key] = account._replace(units=account.units + 1)
        table.drafts.pop(key, None)
        table.accounts["new", "d1"] = NEW._replace(subject="new")
    assert [account.units for account in table.accounts.values()] == [1, 1, 1, 0]
    assert not table.drafts
    assert table.drafts.get(("nobody", "d1")) is None
    assert table.accounts.get(("nobody", "d1")) is None


def test_replacement_reaches_packed_and_unpacked_subjects(table: SubjectTable) -> None:
    for subject in "abc":
        table.accounts[subject, "d1"] = NEW._replace(subject=subject, sealed=b"s")
        table.drafts[subject, "d1"] = DRAFTS[0]
    table.replace_all(lambda items: SubjectItems({"d1": items.accounts["d1"]._replace(sealed=b"")}, {}))
    assert {account.sealed for account in table.accounts.values()} == {b""}
    assert (len(table.accounts), len(table.drafts)) == (3, 0)


def test_change_is_kept_if_the_subject_was_packed_meanwhile(table: SubjectTable) -> None:
    """A signal handler that records for other subjects may run between any two steps."""
    items = table.change("a")
    table.accounts["b", "d1"] = NEW._replace(subject="b")
    items.accounts["d1"] = NEW._replace(subject="a", units=5)
    table.keep("a", items)
    table.accounts["c", "d1"] = NEW._replace(subject="c")
    assert table.accounts["a", "d1"].units == 5


def test_subject_takes_at_most_400_bytes(rig: Rig) -> None:
    """Two metrics, one of them recorded: 1.8 kB a subject, and 2.5 kB after a start, if nothing were packed.

    The difference between 1,500 and 4,500 subjects leaves out what does not grow: the code, and the subjects that are unpacked.
    """
    server = rig.agreed(HOMEPAGE, SURVEY, per_subject=True)
    collaborators(server).uploader.stop()

    def sizes(subjects: range) -> tuple[int, int]:
        """Record; return the bytes in use afterwards, and those of the state that is read from the files."""
        for number in subjects:
            server.subject(str(number)).record("homepage", f"https://example.org/{number % 7}")
        # the encoders: up to 4,096
        collaborators(server).encoders.forget_secret()
        gc.collect()
        recorded = tracemalloc.get_traced_memory()[0]
        state = read_state(rig.state)
        gc.collect()
        assert len(state.subjects) == subjects.stop
        return recorded, tracemalloc.get_traced_memory()[0] - recorded

    tracemalloc.start()
    try:
        few, many = sizes(range(1500)), sizes(range(1500, 4500))
    finally:
        tracemalloc.stop()
    assert [(after - before) / 3000 < 400 for before, after in zip(few, many, strict=True)] == [True, True]
