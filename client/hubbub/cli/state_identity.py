"""Identity of a state directory that was copied or moved (`hubbub inspect --identity`)."""

from __future__ import annotations

from pathlib import Path

from hubbub.errors import HubbubError
from hubbub.randomness import system_random_bytes
from hubbub.sdk.storage import copy_detection
from hubbub.sdk.storage.compaction import Compactor
from hubbub.sdk.storage.copy_detection import read_machine_id
from hubbub.sdk.storage.filesystem import SystemDisk
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.storage.secret_file import SecretFile


def renew_identity(directory: Path) -> None:
    """Delete the secret of a state directory, the drafts and the queued reports. Consent and the ledger stay.

    Raises HubbubError if the disk or another process prevents it.
    """
    disk = SystemDisk()
    journal = Journal(directory.absolute(), disk)
    secret = SecretFile(journal, disk, system_random_bytes)
    renewed = journal.run(lambda _: copy_detection.renew_identity(journal, secret))
    if not (renewed and Compactor(journal, disk).compact(always=True)):
        raise HubbubError(
            f"{directory} has no new identity: {journal.problem}. Solve this problem and run the command again"
        )


def keep_identity(directory: Path) -> None:
    """Remember this machine as the only one that used a state directory, whose secret and ledger stay.

    Raises HubbubError if the disk or another process prevents it.
    """
    journal = Journal(directory.absolute(), SystemDisk())
    kept = journal.run(lambda state: copy_detection.keep_identity(journal, state, read_machine_id()))
    if not (kept and journal.sync()):
        raise HubbubError(
            f"{directory} was not changed: {journal.problem}. Solve this problem and run the command again"
        )
