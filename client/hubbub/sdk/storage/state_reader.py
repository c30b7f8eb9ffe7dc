"""Read a state directory without locking it, and report its contents as JSON.

`hubbub inspect` and `hubbub ledger` print these reports; `Client.inspect` and `Client.ledger` return them.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hubbub.errors import HubbubError
from hubbub.sdk.storage.events import JOURNAL, ROTATED, SNAPSHOT, QueuedBatch, replay
from hubbub.sdk.storage.record_format import describe_version, is_foreign, other_version
from hubbub.sdk.storage.state import State
from hubbub.wire.json_values import replace_non_finite


class UnreadableStateError(HubbubError):
    """Directory without a state that this version reads: `observation` and `next_step`."""

    def __init__(self, observation: str, next_step: str) -> None:
        super().__init__(f"{observation}: {next_step}")
        self.observation = observation
        self.next_step = next_step


def read_state(directory: Path) -> State:
    """Return the state of a directory on disk. It takes no lock, so a record that is being written may be missing.

    Raises UnreadableStateError if the directory holds no state, or one of another format.
    """
    next_step = "give the directory that the app passes to Client as `state`"
    try:
        contents = _contents(directory)
    except PermissionError as problem:
        raise UnreadableStateError(
            f"{directory} cannot be read ({problem.strerror})", "run the command as the user of the app"
        ) from None
    except OSError as problem:
        reason = problem.strerror
        if isinstance(problem, NotADirectoryError):
            reason = "it is a file"
        elif isinstance(problem, FileNotFoundError) and directory.is_dir():
            reason = "there is no journal in it"
        raise UnreadableStateError(f"{directory} holds no client's state ({reason})", next_step) from None
    version = next(filter(None, map(other_version, contents)), None)
    if version is not None:
        differs, next_step = describe_version(version)
        raise UnreadableStateError(f"{directory} {differs}", next_step)
    if any(is_foreign(content) for content in contents):
        raise UnreadableStateError(
            f"{directory} is not a client's state (its journal or snapshot belongs to another program)", next_step
        )
    state = State()
    state.account_for_losses(sum(replay(state.apply, (content,)) for content in contents))
    return state


def _contents(directory: Path) -> list[bytes]:
    """Read the files of one moment: again, if a compaction renamed one meanwhile.

    A compaction moves events from the journal to the renamed journal, then into the snapshot. Files are opened in this direction, so
    one of them is found at every moment. An open file keeps its inode, so no new file has the same one.
    """
    paths = [directory / name for name in (JOURNAL, ROTATED, SNAPSHOT)]
    while True:
        with ExitStack() as stack:
            files = {}
            for path in paths:
                with suppress(FileNotFoundError):
                    files[path] = stack.enter_context(path.open("rb"))
            if not files:
                paths[0].stat()  # raises the error with the reason
            contents = [file.read() for file in files.values()]
            if files and {path: os.fstat(file.fileno()).st_ino for path, file in files.items()} == _inodes(paths):
                return contents[::-1]


def _inodes(paths: list[Path]) -> dict[Path, int]:
    """Return the inode of each existing file."""
    inodes = {}
    for path in paths:
        with suppress(FileNotFoundError):
            inodes[path] = path.stat().st_ino
    return inodes


def inspection_report(state: State, last: int = 1) -> dict[str, Any]:
    """Return consent, queued and quarantined batches, and the bodies of the `last` batches sent, the newest first."""
    report = {
        "consent": {
            "level": str(state.consent),
            "text": state.consent_text,
            "time": iso_time(state.consent_time) if state.consent_time else None,
        },
        "machines": len(state.machine_tags),
        "queued": [_queued(state, batch_id, queued) for batch_id, queued in state.queue.items()],
        "failures": state.failures,
        "last_error": state.last_error,
        "quarantined": [
            {"metric": batch.metric, "period": batch.period, "problem": problem, "body": batch.to_json().decode()}
            for batch, problem in state.quarantine.values()
        ],
        "last_sent": [batch.to_json().decode() for batch in state.last_sent.values()][::-1][: max(0, last)],
        "accounting": state.accounting(),
    }
    return replace_non_finite(report)  # type: ignore[no-any-return]


def ledger_report(state: State) -> dict[str, Any]:
    """Return the epsilon that each metric definition of each subject has spent and reserved."""
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


def _queued(state: State, batch_id: str, queued: QueuedBatch) -> dict[str, Any]:
    return {
        "batch_id": batch_id,
        "metric": queued.batch.metric,
        "period": queued.batch.period,
        "reports": len(queued.batch),
        "send_time": _send_time(state, queued),
        "possibly_delivered": queued.possibly_delivered,
        "local": queued.local,
        "body": queued.batch.to_json().decode(),
    }


def _send_time(state: State, queued: QueuedBatch) -> str | None:
    """Return the earliest time of a batch's upload; None for a batch made under `local`."""
    if queued.local:
        return None
    return iso_time(max(queued.send_at, state.backoff_until, state.paused_metrics.get(queued.batch.digest, 0.0)))
