"""Copy detection: notice that a state directory was copied to another machine, and give the copy its own secret.

Two copies of a directory report every period twice under one secret. A machine id is only a hint: golden images share one, and containers
may get another at each start. By default the secret and the ledger stay unchanged on a new machine, and the client warns once.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from pathlib import Path

from hubbub.sdk.runtime.safe_logging import log_when_unlocked
from hubbub.sdk.storage.events import IdentityRenewal, MachineTags
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.storage.secret_file import SecretFile
from hubbub.sdk.storage.state import State

MACHINE_ID_FILE = Path("/etc/machine-id")
MachineIdReader = Callable[[], bytes | None]
"""Function that returns the identifier of the machine; None if it is unknown."""

_VALID = re.compile(rb"[0-9a-f]{32}")
_TAG_BYTES = 16


def read_machine_id(path: Path = MACHINE_ID_FILE) -> bytes | None:
    """Return the systemd id of this machine; None if there is none (macOS, most containers, an image before its first boot)."""
    try:
        with path.open("rb") as file:
            content = file.read(64).strip()
    except OSError:
        return None
    return content if _VALID.fullmatch(content) else None


def machine_tag(ledger_key: str, machine_id: bytes) -> str:
    """Return the tag of a machine in a state directory: HMAC-SHA256(ledger key, machine id), 16 bytes in hex.

    ledger_key : hex, kept in the same directory
    """
    message = b"hubbub/machine/v1" + machine_id
    return hmac.new(bytes.fromhex(ledger_key), message, hashlib.sha256).digest()[:_TAG_BYTES].hex()


MAX_MACHINES = 16
"""Machines that a directory remembers; the client does not warn about more."""


class CopyDetector:
    """Compares this machine with the machines that used a directory. Call `check` inside `with journal`.

    renew : give the directory a new identity on another machine, instead of a warning
    """

    def __init__(self, journal: Journal, secret: SecretFile, read_machine_id: MachineIdReader, *, renew: bool) -> None:
        self._journal = journal
        self._secret = secret
        self._read_machine_id = read_machine_id
        self._renew = renew

    def check(self, state: State) -> None:
        """Remember this machine, if it has an id. If the directory comes from another machine, warn or renew the identity."""
        machine_id = self._read_machine_id()
        if machine_id is None or not state.ledger_key:
            return
        tag = machine_tag(state.ledger_key, machine_id)
        if tag in state.machine_tags or len(state.machine_tags) >= MAX_MACHINES:
            return
        if not state.machine_tags:
            self._journal.write(MachineTags((tag,)))
        elif self._renew and renew_identity(self._journal, self._secret):
            self._journal.write(MachineTags((tag,)))
            log_when_unlocked(
                "%s was used on another machine before. The client made a new identity: queued reports are dropped, and the new secret "
                "spends budget anew.",
                self._journal.directory,
            )
        else:
            self._journal.write(MachineTags((*state.machine_tags, tag)))
            log_when_unlocked(
                "%s was used on another machine before. If it is a copy, both copies report every period under one secret. Run "
                "`hubbub inspect STATE --identity new` on a copy, or `hubbub inspect STATE --identity keep` if it was moved.",
                self._journal.directory,
            )


def renew_identity(journal: Journal, secret: SecretFile) -> bool:
    """Destroy the secret and drop the data made under it; return whether the disk did both. Call it inside `with journal`.

    The ledger continues: the next enrollment has a new secret and the budget that the policy leaves.
    """
    if journal.is_outdated or not secret.destroy():
        return False
    journal.write(IdentityRenewal())
    return not journal.is_degraded


def keep_identity(journal: Journal, state: State, machine_id: bytes | None) -> bool:
    """Remember this machine as the only one that used the directory; return whether it was saved. Call it inside `with journal`."""
    if journal.is_outdated:
        return False
    has_tag = machine_id and state.ledger_key
    journal.write(MachineTags((machine_tag(state.ledger_key, machine_id),) if machine_id and has_tag else ()))
    return not journal.is_degraded
