"""What a disk does not take: the events, kept until it does, and why, in words."""

from __future__ import annotations

import errno
from collections.abc import Iterable

from hubbub.sdk.storage.events import Event

MAX_UNWRITTEN = 10_000


class Unwritten:
    """The last event of each kind for each thing, the oldest first."""

    def __init__(self) -> None:
        self.events: dict[tuple[object, ...], Event] = {}

    def keep(self, events: Iterable[Event]) -> None:
        """Remember events; of too many the latest."""
        for event in events:
            about = event.get("id") or event.get("batch", {}).get("id") or event.get("account", {}).get("digest")
            key = (event["e"], event.get("s"), event.get("m"), event.get("p"), about)
            self.events.pop(key, None)
            self.events[key] = event
        while len(self.events) > MAX_UNWRITTEN:
            self.events.pop(next(iter(self.events)))


def what_is_wrong(problem: OSError) -> str:
    """Return what keeps us from a directory, and what to do about it."""
    told = problem.strerror or type(problem).__name__
    match problem.errno:
        case errno.EBADMSG:
            return f"is not a client's state ({told}): give Client a directory of its own as `state`"
        case errno.ELOOP:
            return f"has a symbolic link where a file of its own belongs ({told}): give Client a directory of its own as `state`"
        case errno.EEXIST | errno.ENOTDIR:
            return f"is not a directory ({told}): give Client a directory of its own as `state`"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return f"cannot be used ({told}): give Client a directory that this user may read and write as `state`"
        case errno.ETIMEDOUT:
            return f"is held by another process that does not go on ({told}): find it, a stopped one holds it for ever"
        case errno.ENOSPC | errno.EDQUOT:
            return f"is on a full disk ({told}): make room"
        case _:
            return f"cannot be used ({told}): see what this disk says"
