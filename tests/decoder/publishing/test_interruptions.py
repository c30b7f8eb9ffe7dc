"""`hubbub publish` is killed, or its disk is full, at each of its writes: the site stays, and the next run continues from what the store has."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hubbub.privacy import epsilon
from hubbub_decoder.errors import OutputError
from hubbub_decoder.publishing.plan import PeriodStatus
from hubbub_decoder.results_store import store as results_store
from hubbub_decoder.results_store.schema import open_database
from tests.decoder.publishing.interruptions import call_before_writes
from tests.decoder.publishing.test_publish import DARK, DAYS, PAGE, document, files, place, run, write_day  # noqa: F401  (a fixture)

pytestmark = [
    pytest.mark.usefixtures("place"),
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),  # of Python 3.12 and later, with threads
]


def interrupted(place: Path, at: int, end: Callable[[], None], **terms: Any) -> tuple[int, int]:  # noqa: F811
    """Run in a child that meets `end` before its write number `at`; return its exit code, and how many writes it came to.

    A write is a change of a directory, a file that is opened for writing, or a statement of SQLite.
    """
    reading, writing = os.pipe()
    if child := os.fork():
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            number = len(pipe.read())
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), number
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        os.write(writing, b".")
        if count == at:
            end()

    code = 1
    call_before_writes(step, place)
    with contextlib.suppress(OutputError):
        run(place, **terms)
        code = 0
    os._exit(code)


def killed() -> None:
    os._exit(9)


def no_space() -> None:
    raise OSError(28, "No space left on device")


def chosen_writes(place: Path, number: int | None, rng: np.random.Generator, **terms: Any) -> list[int]:  # noqa: F811
    """Numbers of some writes of a run, or of all; it runs in a copy of the place."""
    with copied(place) as copy:
        code, last = interrupted(copy, 0, killed, **terms)
    assert code == 0
    assert last > 30
    every = np.arange(1, last + 1)
    return sorted((every if number is None else rng.choice(every, number, replace=False)).tolist())


@contextlib.contextmanager
def copied(place: Path) -> Iterator[Path]:  # noqa: F811
    copy = place.with_name(f"{place.name}-copy")
    shutil.copytree(place, copy, symlinks=True)
    try:
        yield copy
    finally:
        shutil.rmtree(copy)


ENDS = pytest.mark.parametrize("end", [killed, no_space])
NUMBERS = pytest.mark.parametrize("number", [12, pytest.param(None, marks=pytest.mark.slow)])
"""Of the writes at which a run is interrupted; None: all of them."""


@ENDS
@NUMBERS
def test_an_interrupted_run_shows_the_site_of_before_or_after(
    place: Path,  # noqa: F811
    end: Callable[[], None],
    number: int | None,
    unseen_seed: int,
) -> None:
    run(place, withheld={"dark"})
    before, wanted, codes = files(place / "site"), None, set()
    write_day(place, "2026-03-01", seed=7)
    for at in chosen_writes(place, number, np.random.default_rng(unseen_seed)):
        with copied(place) as place_of_step:
            code, _ = interrupted(place_of_step, at, end)
            shown = files(place_of_step / "site")
            assert all(result.status is PeriodStatus.PUBLISHED for result in run(place_of_step).values())
            after = files(place_of_step / "site")
        wanted = wanted or after
        assert after == wanted
        assert shown in (before, after)
        codes.add(code)
    assert codes <= ({9} if end is killed else {0, 1})  # SQLite ignores an error of the callback


@ENDS
@NUMBERS
def test_an_interrupted_replacement_is_shown_with_both_releases_or_not(
    place: Path,  # noqa: F811
    end: Callable[[], None],
    number: int | None,
    unseen_seed: int,
) -> None:
    """The kept result was that of the changed counts already, so the next run showed them, as one release with the epsilon of the first."""
    run(place)
    before, seen = files(place / "site"), set()
    write_day(place, DAYS[0], seed=9)
    for at in chosen_writes(place, number, np.random.default_rng(unseen_seed), replaced={"page"}):
        with copied(place) as place_of_step:
            interrupted(place_of_step, at, end, replaced={"page"})
            results = run(place_of_step)  # without --replace
            after, period = files(place_of_step / "site"), document(place_of_step)["periods"][0]
            if period["releases"] == 2:
                assert period["composed_epsilon"] == epsilon(PAGE)
            else:
                assert after == before
                assert results[f"page {DAYS[0]}"].status is PeriodStatus.FAILED
            seen.add(period["releases"])
            run(place_of_step, replaced={"page"})
            assert document(place_of_step)["periods"][0]["releases"] == 2
    assert number is not None or seen == {1, 2}


def test_a_version_whose_removal_was_killed_is_shown_again_with_all_files(place: Path) -> None:  # noqa: F811
    """A night that showed it again took the half that was left for all of it."""
    run(place)
    wanted = files(place / "site")
    run(place, withheld={"dark"})
    number, code = 0, 9
    while code:
        number += 1
        with copied(place) as copy:
            code = killed_at_removal(number, partial(run, copy, withheld={"page"}))
            run(copy, withheld={"page"})
            run(copy)
            assert files(copy / "site") == wanted
            assert len(list((copy / "site.files").iterdir())) == 3
    assert number > len(wanted)


def killed_at_removal(number: int, function: Callable[[], object]) -> int:
    """Call a function in a child that is killed before its removal of a number, from 1, of a file or directory; return its exit code."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    count = 0

    def audit(event: str, _: tuple[Any, ...]) -> None:
        nonlocal count
        count += event in {"os.remove", "os.rmdir"}
        if count == number:
            os._exit(9)

    sys.addaudithook(audit)
    function()
    os._exit(0)


def test_a_full_disk_of_the_store_leaves_the_site(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """SQLite meets its limit of pages while it records, as it meets a full disk. Several new results need more than what is free in its pages."""
    run(place, withheld={"dark"})
    before = files(place / "site")
    for day in range(2, 10):
        write_day(place, f"2026-03-{day:02}", DARK)

    def opened(path: Path | None) -> sqlite3.Connection:
        connection = open_database(path)
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    with monkeypatch.context() as patched:
        patched.setattr(results_store, "open_database", opened)
        with pytest.raises(OutputError, match="Make room on its disk"):
            run(place)
    assert files(place / "site") == before
    assert all(result.status is PeriodStatus.PUBLISHED for result in run(place).values())
