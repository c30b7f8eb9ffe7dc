"""Reading a state directory without touching it: for the ledger, the inspection and support."""

from __future__ import annotations

import json
from pathlib import Path

from hubbub.errors import HubbubError
from hubbub.framing import scan
from hubbub.journal import NAME
from hubbub.state import State


def read_state(directory: Path) -> State:
    """Fold a directory's journal as it is on disk, without a lock: a record that is just being written is not seen."""
    try:
        data = (directory / NAME).read_bytes()
    except OSError as problem:
        told = "it is a file" if directory.is_file() else problem.strerror
        raise HubbubError(
            f"{directory} holds no client's state ({told}): give the directory that the app passes to Client as `state`"
        ) from None
    found, state, damaged = scan(data), State(), 0
    for payload in found.payloads:
        try:
            state.apply(json.loads(payload))
        except (KeyError, TypeError, ValueError):
            damaged += 1
    state.settle(found.damaged + damaged)
    return state
