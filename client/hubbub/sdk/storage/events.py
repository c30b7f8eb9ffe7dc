"""Events, and the files of a directory that hold them, each a record of JSON. A start folds the files in this order:

    snapshot          what `compaction.py` said of the state, while others went on writing
    journal.earlier   the events that this was to replace: there while a snapshot is written, and after a kill meanwhile
    journal           the events since

Beside them, `sent-periods` says which periods were ever sent, see `sent_periods.py`.

Who reads them is `journal.py`; who looks without a lock, `inspection.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from hubbub.sdk.storage.record_format import payloads, record

Event = dict[str, Any]
JOURNAL, EARLIER, SNAPSHOT = "journal", "journal.earlier", "snapshot"
_encoder = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def _encode_once_made() -> Callable[[Event], str]:
    """Return `_encoder.encode` without what that makes anew for each call: half the time."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return _encoder.encode
    chunks = make(None, _encoder.default, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, True)
    return lambda event: "".join(chunks(event, 0))


_encode = _encode_once_made()


def records(*events: Event) -> bytes:
    """Return events as the files hold them."""
    return b"".join([record(_encode(event).encode()) for event in events])


def fold(apply: Callable[[Event], None], chunks: Iterable[bytes]) -> int:
    """Apply the events of records that come in chunks, and return how many were damaged."""
    damaged = 0
    for payload in payloads(chunks):
        try:
            apply(json.loads(payload or b""))
        except (KeyError, TypeError, ValueError):
            damaged += 1
    return damaged


def after(inode: int) -> Event:
    """Return the first event of the file that goes on after another."""
    return {"e": "after", "inode": inode}
