"""A snapshot of the state, written beside the journal's lock: who records waits for a piece of it at most.

    1  the journal is renamed, and goes on in a new file              under the lock
    2  the snapshot is written, `PIECE` things at a time              each as it is when its turn comes; no lock but between threads
    3  the new journal says the counts                                under the lock
    4  the snapshot takes its place, the renamed journal goes         under the lock

Why a fold of snapshot, renamed journal and journal is the state, wherever a kill comes: an event says what now is, so folding it again is
harmless, and after the last event about a thing it does not matter what was said before. A thing without an event since step 1 is as the
snapshot has it. Only counts are counted up, which is why they are said after everything that step 2 may have missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from hubbub.disk import Disk
from hubbub.journal import EARLIER, SNAPSHOT
from hubbub.state import batch_event

if TYPE_CHECKING:
    from hubbub.journal import Journal
    from hubbub.ledger import Event
    from hubbub.state import State

K = TypeVar("K")
V = TypeVar("V")
PIECE = 100
PAUSE = 0.001
"""Seconds between two pieces: those who wait for the lock, or for the interpreter's, get it."""


def write_snapshot(journal: Journal, disk: Disk, rest: Callable[[float], None], *, always: bool) -> bool:
    """Write it and drop what it replaces; False where the disk or a consent withdrawn meanwhile ends it.

    always : once more, if what a kill left of an earlier compaction came first
    """
    begun = False
    while not begun:
        started = journal.run(_begin, journal, always=always)
        if started is None:
            return False
        state, erased, begun = started
        new = journal.directory / f"{SNAPSHOT}.new"
        try:
            if not (_write(journal, state, disk, rest, erased=erased) and _put_in_place(journal, state, disk)):
                return False
        finally:
            with suppress(OSError):
                if disk.identity(new) is not None:
                    disk.remove(new)
    if always:
        state.erased = False
    return True


def _begin(state: State, journal: Journal, *, always: bool) -> tuple[State, bool, bool] | None:
    if not journal.write_the_unwritten():
        return None
    return state, state.erased, journal.begin_part() or not always


def _write(journal: Journal, state: State, disk: Disk, rest: Callable[[float], None], *, erased: bool) -> bool:
    file = disk.open_new(journal.directory / f"{SNAPSHOT}.new")
    try:
        # what protects people is said twice: one damage is none
        things = chain(protected(state), unprotected(state), protected(state))
        while piece := journal.some(things, PIECE):
            if state.erased != erased:
                return False
            file.append(piece)
            rest(PAUSE)
        file.sync()
    finally:
        file.close()
    return True


def _put_in_place(journal: Journal, state: State, disk: Disk) -> bool:
    directory = journal.directory
    if not (journal.run(_say_the_counts, journal, state) and journal.sync() and journal.run(_replace, journal, disk)):
        return False
    disk.sync_directory(directory)
    return True


def _say_the_counts(now: State, journal: Journal, written: State) -> bool:
    if now is not written:
        return False  # somebody removed the directory
    journal.write(*counts(now), *counts(now))
    return True


def _replace(_: State, journal: Journal, disk: Disk) -> bool:
    if journal.locked_out:
        return False
    disk.replace(journal.directory / f"{SNAPSHOT}.new", journal.directory / SNAPSHOT)
    disk.remove(journal.directory / EARLIER)
    return True


def protected(state: State) -> Iterator[Event]:
    """Yield what protects people: consent and ledger. Here as below each is what it is when it is yielded."""
    yield {"e": "consent", "to": state.consent, "text": state.consent_text}
    yield {"e": "enrolment", "number": state.enrolments, "tag": state.secret_tag}
    if state.ledger_key:
        yield {"e": "ledger_key", "key": state.ledger_key}
    yield {"e": "clock", "at": state.confirmed}
    for digest, runs in _still_in(state.tried):
        yield {"e": "tried", "m": digest, "runs": runs}
    for _, account in _still_in(state.accounts):
        yield account.event()


def unprotected(state: State) -> Iterator[Event]:
    """Yield the rest but for the counts."""
    for _, waiting in _still_in(state.waiting):
        yield {
            "e": "waiting",
            "batch": batch_event(waiting.batch),
            "kind": waiting.period,
            "at": waiting.at,
            "doubt": waiting.doubt,
        }
    for (subject, digest), draft in _still_in(state.drafts):
        yield {"e": "kept", "s": subject, "m": digest, "draft": asdict(draft)}
    for _, (batch, problem) in _still_in(state.quarantine):
        yield {"e": "quarantined", "batch": batch_event(batch), "problem": problem}
    for digest, until in _still_in(state.held):
        yield {"e": "held", "m": digest, "until": until}
    yield {"e": "backoff", "failures": state.failures, "until": state.not_before, "told": state.trouble}
    yield {"e": "detached", "at": state.detached_at}


def counts(state: State) -> Iterator[Event]:
    """Yield what later events count up from: right only where all that was counted is before it."""
    yield {
        "e": "head",
        "formed": state.formed,
        "acknowledged": state.acknowledged,
        "damaged": state.damaged,
        "chosen": state.chosen,
        "superseded": state.superseded,
        "dropped": state.dropped,
        "ignored": state.ignored,
    }
    for batch in state.last_sent.values():
        yield {"e": "sent", "batch": batch_event(batch)}


def _still_in(things: dict[K, V]) -> Iterator[tuple[K, V]]:
    """Iterate over a dictionary that changes meanwhile: what is still in it when its turn comes."""
    for key in list(things):
        if key in things:
            yield key, things[key]
