"""Random histories of the small tables (tokens, sessions, refusals, the clock), compared with dictionaries."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hubbub_aggregator.errors import StoppedError
from hubbub_aggregator.pipeline.folding import fold
from hubbub_aggregator.store.clock_state import TOLERANCE, ClockState, StoredClock, observed
from hubbub_aggregator.store.period_figures import VersionTotals
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_aggregator.store.tokens import Scope, Token, record_use

if TYPE_CHECKING:
    from hubbub import Definitions
    from tests.aggregator.conftest import MakeBatch

NAMES = st.sampled_from(["a", "b", "c"])
HASHES = st.integers(0, 5).map(lambda number: bytes([number]) * 32)
DAYS = st.integers(0, 3).map(lambda days: date(2026, 11, 1) + timedelta(days=days))


class SmallTables(RuleBasedStateMachine):
    """A store on disk, and a dictionary for each table."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(prefix="hubbub-machine-")
        self.store = SqlStore.open(Path(self.directory.name) / "reports.db")
        self.tokens: dict[str, tuple[bytes, Token]] = {}
        self.sessions: dict[bytes, tuple[str, int]] = {}
        self.refusals: dict[tuple[str, str], int] = {}
        self.clock: StoredClock | None = None

    @rule(name=NAMES, hashed=HASHES, created=DAYS, expires=st.none() | DAYS, scope=st.sampled_from(Scope))
    def add_token(self, name: str, hashed: bytes, created: date, expires: date | None, scope: Scope) -> None:
        token = Token(name, frozenset([scope]), created, None, expires)
        if name not in self.tokens and hashed in {known_hash for known_hash, _ in self.tokens.values()}:
            return  # secrets are random
        assert self.store.add_token(token, hashed) is (name not in self.tokens)
        self.tokens.setdefault(name, (hashed, token))

    @rule(name=NAMES, hashed=HASHES, created=DAYS)
    def rotate_token(self, name: str, hashed: bytes, created: date) -> None:
        if hashed in {known_hash for known_hash, _ in self.tokens.values()}:
            return
        _, old = self.tokens.get(name, (b"", Token(name, frozenset())))
        new = replace(old, created=created, last_used=None, expires=None)
        assert self.store.rotate_token(new, hashed) is (name in self.tokens)
        if name in self.tokens:
            self.tokens[name] = hashed, new
        self._end_sessions(name)

    @rule(name=NAMES)
    def revoke_token(self, name: str) -> None:
        assert self.store.revoke_token(name) is (name in self.tokens)
        self.tokens.pop(name, None)
        self._end_sessions(name)

    @rule(name=NAMES, today=DAYS)
    def use_token(self, name: str, today: date) -> None:
        """The latest day counts."""
        if name in self.tokens:
            hashed, token = self.tokens[name]
            self.store.record_token_use(hashed, today)
            self.tokens[name] = hashed, replace(token, last_used=max(today, token.last_used or today))

    @rule(name=NAMES, hashed=HASHES, now=st.integers(0, 4), lasts=st.integers(1, 4))
    def begin_session(self, name: str, hashed: bytes, now: int, lasts: int) -> None:
        self.sessions = {session_hash: session for session_hash, session in self.sessions.items() if session[1] > now}
        if hashed in self.sessions:
            return
        assert self.store.add_session(hashed, name, now + lasts, now) is (name in self.tokens)
        if name in self.tokens:
            self.sessions[hashed] = name, now + lasts

    @rule(hashed=HASHES)
    def end_session(self, hashed: bytes) -> None:
        self.store.end_session(hashed)
        self.sessions.pop(hashed, None)
        assert self.store.session(hashed, 0) is None

    @rule(counts=st.dictionaries(st.tuples(NAMES, st.sampled_from(["x", "y"])), st.integers(1, 9), max_size=3))
    def refuse(self, counts: dict[tuple[str, str], int]) -> None:
        self.store.add_refusals(counts)
        self.refusals = {key: self.refusals.get(key, 0) + counts.get(key, 0) for key in self.refusals | counts}

    @rule(replaces=st.none() | st.integers(1, 3), generation=st.integers(1, 3), boot_id=st.none() | NAMES)
    def save_clock(self, replaces: int | None, generation: int, boot_id: str | None) -> None:
        new = StoredClock(ClockState(generation, 1_000.0 * generation, 60.0), boot_id, 5.0 * generation)
        expected = self.clock.state.generation if self.clock else None
        assert self.store.save_clock(new, replaces) is (replaces == expected)
        self.clock = new if replaces == expected else self.clock

    @invariant()
    def tables_are_those_of_the_model(self) -> None:
        assert self.store.tokens() == [token for _, (_, token) in sorted(self.tokens.items())]
        for hashed, token in self.tokens.values():
            assert self.store.token(hashed) == token
        for hashed, (name, expires) in self.sessions.items():
            assert self.store.session(hashed, expires - 1) == self.tokens[name][1]
            assert self.store.session(hashed, expires) is None
        assert self.store.refusals() == self.refusals
        assert self.store.clock() == self.clock

    def teardown(self) -> None:
        self.store.close()
        self.directory.cleanup()

    def _end_sessions(self, name: str) -> None:
        self.sessions = {hashed: session for hashed, session in self.sessions.items() if session[0] != name}


TestSmallTables = SmallTables.TestCase
TestSmallTables.settings = settings(max_examples=15, stateful_step_count=20)


@pytest.mark.parametrize("last_used", [None, date(2026, 11, 1), date(2026, 11, 2)])
@pytest.mark.parametrize("expires", [None, date(2026, 11, 2), date(2026, 11, 3)])
def test_use_is_stored_once_a_day_and_of_valid_tokens(last_used: date | None, expires: date | None) -> None:
    calls: list[date] = []
    today, token = date(2026, 11, 2), Token("a", frozenset(), None, last_used, expires)
    record_use(token, b"", today, lambda _hashed, day: calls.append(day))
    assert calls == ([] if last_used == today or expires == today else [today])


def test_clock_agrees_up_to_the_tolerance() -> None:
    state = ClockState(1, 0.0)
    assert observed(state, TOLERANCE, 0.0).generation == 1
    assert observed(state, TOLERANCE + 1, 0.0).generation == 2


def test_ids_and_totals_before_and_after_the_fold(
    sqlite_store: SqlStore, definitions: Definitions, make_batch: MakeBatch
) -> None:
    homepage = definitions["homepage"]
    assert (sqlite_store.segment_ids(), sqlite_store.version_totals()) == (None, {})
    for _ in range(3):
        sqlite_store.append([make_batch(homepage)])
    assert sqlite_store.segment_ids() == (1, 3)
    assert sqlite_store.version_totals() == {homepage.digest: VersionTotals(0, None, 0, 0)}
    fold(sqlite_store, homepage)
    assert sqlite_store.segment_ids() is None


def test_stopped_store_ends_a_read(sqlite_store: SqlStore, definitions: Definitions, make_batch: MakeBatch) -> None:
    sqlite_store.append([make_batch(definitions["homepage"])])
    sqlite_store.stop()
    with pytest.raises(StoppedError):
        list(sqlite_store.read(definitions["homepage"].digest))
