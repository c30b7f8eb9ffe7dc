"""`hubbub state`: change the identity of a state directory that was copied or moved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hubbub.cli.output import PATH

if TYPE_CHECKING:
    from hubbub.journal import Journal


@click.group()
def command() -> None:
    """Change the identity of a client's state directory.

    \b
    Example:
      hubbub state new-identity /var/lib/my-app/hubbub
    """


@command.command("new-identity")
@click.argument("directory", metavar="STATE", type=PATH)
def new_identity(directory: Path) -> None:
    """Give a copied state directory a secret of its own.

    For image builders: run it in the image, or at a clone's first boot. Deletes the secret, the drafts and the queued reports. Keeps
    consent and the ledger: a new secret spends budget anew, within the app's policy. The app makes the secret at its next start.

    \b
    Example:
      hubbub state new-identity /var/lib/my-app/hubbub
    """
    from hubbub.coins import system_coins
    from hubbub.compaction import Compactor
    from hubbub.disk import SystemDisk
    from hubbub.errors import HubbubError
    from hubbub.identity import renew_identity
    from hubbub.secret_file import SecretFile

    disk, journal = SystemDisk(), _opened(directory)
    secret = SecretFile(journal, disk, system_coins)
    renewed = journal.run(lambda _: renew_identity(journal, secret))
    if not (renewed and Compactor(journal, disk).compact(always=True)):
        raise HubbubError(
            f"{directory} has no new identity yet: {journal.problem}. Run the command again when this is fixed"
        )
    click.echo("The directory has a new identity: its next start makes a new secret and continues the ledger.")


@command.command("keep-identity")
@click.argument("directory", metavar="STATE", type=PATH)
def keep_identity(directory: Path) -> None:
    """Accept this machine for a state directory that was moved, not copied.

    Changes neither the secret nor the ledger; `hubbub doctor --state` does not warn about the earlier machine any more.

    \b
    Example:
      hubbub state keep-identity /var/lib/my-app/hubbub
    """
    from hubbub import identity
    from hubbub.errors import HubbubError
    from hubbub.machine_id import read_machine_id

    journal = _opened(directory)
    if not (journal.run(lambda state: identity.keep_identity(journal, state, read_machine_id())) and journal.sync()):
        raise HubbubError(f"{directory} was not changed: {journal.problem}. Run the command again when this is fixed")
    click.echo("The directory keeps its identity on this machine.")


def _opened(directory: Path) -> Journal:
    """Return the journal of a directory that holds a client's state; raises HubbubError where it does not."""
    from hubbub.disk import SystemDisk
    from hubbub.inspection import read_state
    from hubbub.journal import Journal

    read_state(directory)
    return Journal(directory.absolute(), SystemDisk())
