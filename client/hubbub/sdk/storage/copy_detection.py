"""The identity of a state directory: notice that it was copied to another machine, and give a copy a secret of its own.

Two copies of a directory report every period twice under one secret. A machine id is only a hint: golden images share one, and containers
may have another at each start. So by default a new machine costs nothing: secret and ledger stay, and the client warns once.
"""

from __future__ import annotations

from hubbub.sdk.runtime.machine_id import MachineIdReader, machine_tag
from hubbub.sdk.runtime.safe_logging import tell
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.storage.secret_file import SecretFile
from hubbub.sdk.storage.state import State

MAX_MACHINES = 16
"""Machines that a directory remembers; the client does not warn about further ones."""


class CopyDetector:
    """Compares this machine with those that a directory was used on. Nothing here may be called but inside `with journal`.

    renew : give the directory a new identity when it is used on another machine, instead of a warning
    """

    def __init__(self, journal: Journal, secret: SecretFile, read_machine_id: MachineIdReader, *, renew: bool) -> None:
        self._journal = journal
        self._secret = secret
        self._read_machine_id = read_machine_id
        self._renew = renew

    def check(self, state: State) -> None:
        """Remember this machine, if it has an id; warn where the directory comes from another one, or give it a new identity."""
        machine_id = self._read_machine_id()
        if machine_id is None or not state.ledger_key:
            return
        tag = machine_tag(state.ledger_key, machine_id)
        if tag in state.machines or len(state.machines) >= MAX_MACHINES:
            return
        if not state.machines:
            self._journal.write({"e": "machines", "tags": [tag]})
        elif self._renew and renew_identity(self._journal, self._secret):
            self._journal.write({"e": "machines", "tags": [tag]})
            tell(
                "%s was used on another machine before. The client made a new identity: queued reports are dropped, and the new secret "
                "spends budget anew.",
                self._journal.directory,
            )
        else:
            self._journal.write({"e": "machines", "tags": [*state.machines, tag]})
            tell(
                "%s was used on another machine before. If it is a copy, both copies report every period under one secret. Run "
                "`hubbub state new-identity` on a copy, or `hubbub state keep-identity` if it was moved.",
                self._journal.directory,
            )


def renew_identity(journal: Journal, secret: SecretFile) -> bool:
    """Destroy the secret and drop what was made under it; return whether the disk let us. To be called inside `with journal`.

    The ledger goes on: the next enrollment has a new secret and gets what the policy leaves.
    """
    if journal.locked_out or not secret.destroy():
        return False
    journal.write({"e": "new_identity"})
    return not journal.degraded


def keep_identity(journal: Journal, state: State, machine_id: bytes | None) -> bool:
    """Take this machine for the only one that the directory was used on. To be called inside `with journal`."""
    if journal.locked_out:
        return False
    known = machine_id is not None and state.ledger_key
    journal.write(
        {"e": "machines", "tags": [machine_tag(state.ledger_key, machine_id)] if machine_id and known else []}
    )
    return not journal.degraded
