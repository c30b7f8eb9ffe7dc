"""What is in the memory of this process alone: recordings that wait for the journal, and counts of ignored ones that are not saved."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping, MutableSequence, MutableSet
from datetime import datetime
from typing import Any, NamedTuple

from hubbub.consent import Consent
from hubbub.metrics.kinds import JointValue, Value

MAX_WAITING = 10_000
"""Recordings that wait while another thread or process is in the journal, or while this thread is, in a signal handler."""


class WaitingRecording(NamedTuple):
    """A recording that waits.

    moment  : time of the recording
    consent : consent under which it was made, see `Journal.known_consent`; None if this process had not read it
    """

    subject_id: str | None
    name: str
    value: Value | JointValue
    moment: datetime
    consent: tuple[Consent, str] | None


class Backlog:
    """The recordings that wait, in their order, and the unsaved counts. No call waits for another thread or process.

    A forked child begins with an empty one, because its parent records what waits. The objects that a client is built of anew in the
    same process share it.
    """

    def __init__(self) -> None:
        self.recordings: deque[WaitingRecording] = deque()
        self.ignored: Counter[str] = Counter()
        self._lock = threading.RLock()

    def add(self, recording: WaitingRecording) -> bool:
        """Let a recording wait; return False if `MAX_WAITING` do already."""
        if len(self.recordings) >= MAX_WAITING:
            return False
        self.recordings.append(recording._replace(value=_copied(recording.value)))
        return True

    def take(self) -> WaitingRecording | None:
        """Remove and return the oldest recording; None if no one waits."""
        try:
            return self.recordings.popleft()
        except IndexError:
            return None

    def ignore(self, reason: str, number: int = 1) -> None:
        """Count recordings as ignored."""
        with self._lock:
            self.ignored[reason] += number

    def take_ignored(self) -> Counter[str]:
        """Remove and return the counts."""
        with self._lock:
            taken, self.ignored = self.ignored, Counter()
            return taken


def _copied(value: Any) -> Any:
    """Return a value that the app cannot change any more."""
    if isinstance(value, Mapping):
        return {name: _copied(part) for name, part in value.items()}
    return tuple(value) if isinstance(value, MutableSet | MutableSequence) else value
