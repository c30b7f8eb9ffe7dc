"""Events that could not be written, kept in memory until the disk works again; and the reason, in words."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterable

from hubbub.sdk.storage.events import Event, IgnoredRecordings, Reschedule, item
from hubbub.sdk.storage.record_format import OtherFormatError

MAX_PENDING_EVENTS = 10_000


class PendingEvents:
    """The last event about each item, the oldest first. Most events hold new values, so the last one is enough."""

    def __init__(self) -> None:
        self.events: dict[tuple[object, ...], Event] = {}

    def keep(self, events: Iterable[Event]) -> None:
        """Keep events; beyond `MAX_PENDING_EVENTS` the oldest are dropped."""
        for event in events:
            about = item(event)
            earlier = self.events.pop(about, None)
            self.events[about] = event if earlier is None else _combine(earlier, event)
        while len(self.events) > MAX_PENDING_EVENTS:
            self.events.pop(next(iter(self.events)))


def _combine(earlier: Event, event: Event) -> Event:
    """Return one event with the effect of two about the same item."""
    match earlier, event:
        case IgnoredRecordings(), IgnoredRecordings():
            return IgnoredRecordings(dict(Counter(earlier.counts) + Counter(event.counts)))
        case Reschedule(), Reschedule():
            return event._replace(send_at=earlier.send_at | event.send_at)
        case _:
            return event


def describe_os_error(problem: OSError) -> str:
    """Return the reason why a state directory cannot be used, and the next step, in words."""
    reason = problem.strerror or type(problem).__name__
    if isinstance(problem, OtherFormatError):
        return reason
    own_directory = "give Client a directory of its own as `state`"
    match problem.errno:
        case errno.EBADMSG:
            return f"is not a client's state ({reason}): {own_directory}"
        case errno.ELOOP:
            return f"is or contains a symbolic link, which hubbub does not follow ({reason}): {own_directory}"
        case errno.EEXIST | errno.ENOTDIR:
            return f"is not a directory ({reason}): {own_directory}"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return f"cannot be used ({reason}): give Client a directory that this user may read and write as `state`"
        case errno.ETIMEDOUT:
            return f"is locked by another process that does not continue ({reason}): find that process and resume or end it"
        case errno.ENOSPC | errno.EDQUOT:
            return f"is on a full disk ({reason}): free some space"
        case _:
            return f"cannot be used ({reason}): check the disk and the system log"
