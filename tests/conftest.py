"""Settings and fixtures of the whole suite: seeds that change with every commit, and no deadlines of random examples."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import settings

from hubbub.cli import Commands
from tests.support.named_options import missing_options

# a busy machine is no fault; pytest-timeout ends a test that hangs
settings.register_profile("hubbub", parent=settings(), deadline=None)
settings.load_profile("hubbub")
_TAKE_MINUTES = (
    "tests/typescript/test_conformance.py",
    "tests/system/test_year.py",
    "tests/deploy/test_image.py",
    "tests/client/conformance/test_faulty_clients.py",
    "tests/contracts/test_docs_site.py",
    "tests/calibration/test_random_tasks.py",
)
os.environ["HUBBUB_CONSENT"] = "on"  # clients of a test runner are paused unless the environment states a level
_MEMORY = Path("/dev/shm")  # noqa: S108  (each test makes a directory of its own in it)
_MEMORY_BYTES = 6 << 30
"""Of the temporary files of all tests, and of an image that one builds: twice what was measured."""


def commit_of_seeds() -> str:
    """Return the origin of all seeds: HUBBUB_TEST_SEED to repeat a run, else the commit's hash."""
    if seed := os.environ.get("HUBBUB_TEST_SEED"):
        return seed
    here = Path(__file__).parent
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False)
    return head.stdout.strip() or "no commit"


def pytest_report_header() -> str:
    return f"statistical seeds derive from HUBBUB_TEST_SEED={commit_of_seeds()}"


def pytest_configure() -> None:
    """Keep temporary files in memory, where the system has such a disk: on another one, many tests wait for its syncs most of their time."""
    if "TMPDIR" not in os.environ and _is_disk_in_memory(_MEMORY):
        os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)


def _is_disk_in_memory(path: Path) -> bool:
    """Return whether a directory has room for all temporary files, and programs in it may be run."""
    if not os.access(path, os.W_OK) or os.statvfs(path).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(path).free > _MEMORY_BYTES


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than processors: many tests wait for a process of their own."""
    return 1 + (os.cpu_count() or 1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take minutes first: started last, one of them would run alone for all of its time."""
    first = {path: place for place, path in enumerate(_TAKE_MINUTES)}
    items.sort(key=lambda item: first.get(item.nodeid.partition("::")[0], len(first)))


@pytest.fixture
def unseen_seed(request: pytest.FixtureRequest) -> int:
    """A seed derived from the commit's hash and the test's name: new with every commit, the same in every run of it.

    An assertion about random draws must therefore fail by chance with probability about 1e-6. The test states the theory, or the
    distance from the bound in many draws. With 270 such assertions, a correct program fails in fewer than one of 300 commits.
    """
    text = f"{commit_of_seeds()} {request.node.nodeid}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


@pytest.fixture(autouse=True)
def _errors_name_options_of_their_command(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Fail a test of a folder `cli` in which a command, run in this process, names an option that it does not have in an error."""
    if request.path.parent.name != "cli":
        yield
        return
    found = list[tuple[str, str, set[str]]]()
    invoke = Commands.invoke

    def checked(group: Commands, ctx: click.Context) -> Any:
        try:
            return invoke(group, ctx)
        except click.NoSuchOption:
            raise
        except click.ClickException as problem:
            name = ctx.invoked_subcommand or ""
            having = [name, "serve"] if name == "doctor" else [name]  # `doctor` checks the options of `serve`
            commands = filter(None, (group.get_command(ctx, command_name) for command_name in having))
            missing = [missing_options(problem.message, command) for command in commands]
            if missing and set.intersection(*missing):
                found.append((name, problem.message, set.intersection(*missing)))
            raise

    monkeypatch.setattr(Commands, "invoke", checked)
    yield
    assert found == []
