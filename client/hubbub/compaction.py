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

from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

from hubbub.disk import Disk
from hubbub.journal import EARLIER, SNAPSHOT

if TYPE_CHECKING:
    from hubbub.journal import Journal
    from hubbub.state import State

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
        things = chain(state.protected(), state.unprotected(), state.protected())
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
    journal.write(*now.counts(), *now.counts())
    return True


def _replace(_: State, journal: Journal, disk: Disk) -> bool:
    if journal.locked_out:
        return False
    disk.replace(journal.directory / f"{SNAPSHOT}.new", journal.directory / SNAPSHOT)
    disk.remove(journal.directory / EARLIER)
    return True
