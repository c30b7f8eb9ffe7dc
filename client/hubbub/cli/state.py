"""`hubbub state`: change the identity of a state directory that was copied or moved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hubbub.cli.output import PATH, json_option, print_json

if TYPE_CHECKING:
    from hubbub.sdk.storage.journal import Journal


@click.group()
def command() -> None:
    """Change the identity of a client's state directory.

    \b
    Example:
      hubbub state new-identity /var/lib/my-app/hubbub
    """


@command.command("new-identity")
@click.argument("directory", metavar="STATE", type=PATH)
@json_option
def new_identity(directory: Path, *, as_json: bool) -> None:
    """Give a copied state directory a new secret.

    For image builders: run this in the image, or at the first boot of a clone. Deletes the secret, the drafts and the queued reports.
    Keeps consent and the ledger. Reports under the new secret spend more of the budget, within the app's policy. The app creates the
    secret at its next start.

    \b
    Example:
      hubbub state new-identity /var/lib/my-app/hubbub
    """
    from hubbub.errors import HubbubError
    from hubbub.randomness import system_random_bytes
    from hubbub.sdk.storage.compaction import Compactor
    from hubbub.sdk.storage.copy_detection import renew_identity
    from hubbub.sdk.storage.filesystem import SystemDisk
    from hubbub.sdk.storage.secret_file import SecretFile

    disk, journal = SystemDisk(), _open_journal(directory)
    secret = SecretFile(journal, disk, system_random_bytes)
    renewed = journal.run(lambda _: renew_identity(journal, secret))
    if not (renewed and Compactor(journal, disk).compact(always=True)):
        raise HubbubError(
            f"{directory} has no new identity: {journal.problem}. Solve this problem and run the command again"
        )
    if as_json:
        print_json({"state": str(directory), "identity": "new"})
    else:
        click.echo(
            "The directory has a new identity. The next start of the app creates a new secret and continues the ledger."
        )


@command.command("keep-identity")
@click.argument("directory", metavar="STATE", type=PATH)
@json_option
def keep_identity(directory: Path, *, as_json: bool) -> None:
    """Accept this machine for a moved directory.

    For a state directory that was moved, not copied. Does not change the secret or the ledger. `hubbub doctor --state` no longer warns about the earlier machine.

    \b
    Example:
      hubbub state keep-identity /var/lib/my-app/hubbub
    """
    from hubbub.errors import HubbubError
    from hubbub.sdk.storage import copy_detection
    from hubbub.sdk.storage.copy_detection import read_machine_id

    journal = _open_journal(directory)
    if not (
        journal.run(lambda state: copy_detection.keep_identity(journal, state, read_machine_id())) and journal.sync()
    ):
        raise HubbubError(
            f"{directory} was not changed: {journal.problem}. Solve this problem and run the command again"
        )
    if as_json:
        print_json({"state": str(directory), "identity": "kept"})
    else:
        click.echo("The directory keeps its identity on this machine.")


def _open_journal(directory: Path) -> Journal:
    """Return the journal of a state directory; raises HubbubError for any other directory."""
    from hubbub.sdk.storage.filesystem import SystemDisk
    from hubbub.sdk.storage.journal import Journal
    from hubbub.sdk.storage.state_reader import read_state

    read_state(directory)
    return Journal(directory.absolute(), SystemDisk())
