"""Commands over a state directory: an odd entry is a reason on stderr, and no command waits for it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubbub.cli import main
from tests.client.conftest import HOMEPAGE, Rig
from tests.support.odd_entries import ENTRIES


@pytest.fixture(autouse=True)
def limited_time() -> Iterator[None]:
    def expire(*_: object) -> None:
        raise AssertionError("a command did not end within 20 seconds")

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", ["journal", "snapshot", "secret", "other"])
@pytest.mark.parametrize("command", ["inspect", "doctor --state"])
def test_an_odd_entry_of_a_state_directory_ends_no_command_without_a_reason(rig: Rig, command: str, name: str) -> None:
    rig.client(HOMEPAGE).close()
    for kind, make in ENTRIES.items():
        if kind in ("huge", "device"):
            continue
        path = rig.state / name
        _remove(path)
        make(path, b"")
        done = CliRunner().invoke(main, [*command.split(), str(rig.state)])
        assert done.exception is None or isinstance(done.exception, SystemExit), (kind, done.exception)
        assert done.exit_code in (0, 1), (kind, done.output)
        assert done.exit_code == 0 or done.output


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
