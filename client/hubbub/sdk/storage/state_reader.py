"""Read a state directory without locking it, and report its contents as JSON.

`hubbub inspect` and `hubbub ledger` print these reports; `Client.inspect` and `Client.ledger` return them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hubbub.errors import HubbubError
from hubbub.sdk.storage.events import EARLIER, JOURNAL, SNAPSHOT, fold
from hubbub.sdk.storage.record_format import is_foreign
from hubbub.sdk.storage.state import State, Waiting
from hubbub.wire.json_values import replace_non_finite


def read_state(directory: Path) -> State:
    """Fold a directory's journal as it is on disk, without a lock: a record that is just being written is not seen."""
    try:
        contents = _contents(directory)
    except OSError as problem:
        told = problem.strerror
        if isinstance(problem, NotADirectoryError):
            told = "it is a file"
        elif isinstance(problem, FileNotFoundError) and directory.is_dir():
            told = "there is no journal in it"
        raise HubbubError(
            f"{directory} holds no client's state ({told}): give the directory that the app passes to Client as `state`"
        ) from None
    if any(is_foreign(content) for content in contents):
        raise HubbubError(
            f"{directory} is not a client's state: what is there as journal or snapshot is somebody else's; "
            "give the directory that the app passes to Client as `state`"
        )
    state = State()
    state.settle(sum(fold(state.apply, (content,)) for content in contents))
    return state


def _contents(directory: Path) -> list[bytes]:
    """Read the files together: again, if a compaction renamed one meanwhile."""
    paths = [directory / name for name in (SNAPSHOT, EARLIER, JOURNAL)]
    while True:
        inodes = _inodes(paths)
        if not inodes:
            paths[-1].stat()  # raises the error that says why
        with suppress(FileNotFoundError):
            contents = [path.read_bytes() for path in inodes]
            if inodes and inodes == _inodes(paths):
                return contents


def _inodes(paths: list[Path]) -> dict[Path, int]:
    """Return the inode of each file that is there."""
    inodes = {}
    for path in paths:
        with suppress(FileNotFoundError):
            inodes[path] = path.stat().st_ino
    return inodes


def inspection_report(state: State, last: int = 1) -> dict[str, Any]:
    """Return consent, the queued and refused batches, and the bodies of the `last` batches sent, the newest first."""
    report = {
        "consent": {
            "level": str(state.consent),
            "text": state.consent_text,
            "time": iso_time(state.consent_time) if state.consent_time else None,
        },
        "machines": len(state.machines),
        "waiting": [_queued(state, batch_id, waiting) for batch_id, waiting in state.waiting.items()],
        "trouble": {"failures": state.failures, "last": state.trouble},
        "quarantined": [
            {"metric": batch.metric, "period": batch.period, "problem": problem, "body": batch.to_json().decode()}
            for batch, problem in state.quarantine.values()
        ],
        "last_sent": [batch.to_json().decode() for batch in state.last_sent.values()][::-1][: max(0, last)],
        "accounting": state.accounting(),
    }
    return replace_non_finite(report)  # type: ignore[no-any-return]


def ledger_report(state: State) -> dict[str, Any]:
    """Return what each metric definition of each subject has spent and reserved."""
    totals = {subject: state.spent(subject) for subject in sorted(state.digests)}
    accounts = [
        {**asdict(account), "epsilon_spent": account.spent, "epsilon_reserved": account.reserved_epsilon}
        for account in state.accounts.values()
    ]
    for account in accounts:
        del account["tags"], account["tag"], account["sealed"]
    report = {
        "consent": str(state.consent),
        "enrollments": state.enrollments,
        "epsilon_total": totals,
        "epsilon_reserved": {subject: state.reserved(subject) for subject in totals},
        "accounts": accounts,
        "accounting": state.accounting(),
    }
    return replace_non_finite(report)  # type: ignore[no-any-return]


def iso_time(moment: float) -> str:
    """Return POSIX seconds as a date and time in UTC.

    >>> iso_time(0)
    '1970-01-01T00:00:00+00:00'
    """
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")


def _queued(state: State, batch_id: str, waiting: Waiting) -> dict[str, Any]:
    return {
        "batch_id": batch_id,
        "metric": waiting.batch.metric,
        "period": waiting.batch.period,
        "reports": len(waiting.batch),
        "sent_from": _sent_from(state, waiting),
        "in_doubt": waiting.doubt,
        "local": waiting.local,
        "body": waiting.batch.to_json().decode(),
    }


def _sent_from(state: State, waiting: Waiting) -> str | None:
    """Return the earliest time at which a batch may be sent; None where no time is set: made under `local`, or its metric is held."""
    held = state.held.get(waiting.batch.digest, 0.0)
    if waiting.local or held is None:
        return None
    return iso_time(max(waiting.at, state.not_before, held))
