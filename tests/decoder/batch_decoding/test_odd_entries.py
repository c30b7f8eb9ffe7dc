"""Commands over directories: an odd entry beside good files is named once with its reason, and the good files are worked with."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from hubbub.cli import main
from hubbub.metrics import periods
from hubbub.summary import summary_to_bytes
from hubbub.text import escape_control_characters
from hubbub_decoder import simulate
from hubbub_decoder.batch_decoding import run as batch_run
from hubbub_decoder.results_store.store import ResultsStore
from tests.support.explored import PAGE, Explored, folder, text_of, write
from tests.support.odd_entries import ENTRIES, NAMES, SUMMARIES

DAY = "2026-03-02"
SECONDS = 60


@pytest.fixture(autouse=True)
def limited_time() -> Iterator[None]:
    """A reader that waits for a FIFO ends the test."""
    import signal

    def expire(*_: object) -> None:
        raise AssertionError(f"a command did not end within {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(
        batch_run, "map_in_processes", lambda function, items, _: [(item, function(item)) for item in items]
    )
    monkeypatch.setattr(periods, "utc_now", lambda: datetime(2027, 1, 1, tzinfo=UTC))
    for name in ("summaries", "candidates"):
        (tmp_path / name).mkdir()
    (tmp_path / "candidates" / "page.txt").write_text("a\nb\n")
    write(tmp_path, PAGE, DAY, {"a": 2_000})
    return tmp_path


def invoke(*arguments: str | Path) -> Result:
    done = CliRunner().invoke(main, list(map(str, arguments)))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "Traceback" not in done.stderr
    return done


def over_directory(command: str, place: Path) -> Result:
    given = place / "summaries", "--candidates", place / "candidates", "--jobs", "1"
    return invoke(command, *given, "--out-dir", place / command)


def named_lines(text: str, path: Path) -> list[str]:
    """Lines with the name of an entry, and a reason after it."""
    shown = re.escape(escape_control_characters(path.name))
    return [line for line in text.splitlines() if re.search(rf"/{shown}:? .{{8}}", line)]


def add_odd_entries(place: Path) -> list[Path]:
    """One entry of each kind among the summaries, each of a day of its own where it has one; the names are odd, too."""
    paths = []
    for number, (kind, make) in enumerate(SUMMARIES.items()):
        day = str(date.fromisoformat(DAY) + timedelta(days=1 + number))
        counts = replace(simulate(PAGE, {"a": 2_000}, np.random.default_rng(number), periods=[day]), closed=True)
        paths.append(place / "summaries" / f"{number:02} {NAMES[number % len(NAMES)]}.parquet")
        make(paths[-1], summary_to_bytes(counts))
        assert os.path.lexists(paths[-1]), kind
    return paths


@pytest.mark.parametrize("command", ["decode-all", "publish"])
def test_odd_entries_among_summaries_cost_nothing_else(place: Path, command: str) -> None:
    odd = add_odd_entries(place)
    done = over_directory(command, place)
    assert done.exit_code == 1, done.output
    assert re.match(f"1 (decoded|published), {len(odd)} failed", done.stdout), done.output
    for path in odd:
        assert len(named_lines(done.stderr, path)) == 1, (path, done.stderr)
    assert len(done.stderr.splitlines()) == len(odd)
    assert "unexpected" not in done.stderr
    assert "\x1b" not in done.output
    assert len(list((place / command).resolve().glob("page@*/2*"))) == 1


def test_explore_shows_the_others(place: Path) -> None:
    """A file of which only the counts are wrong has a page, which says so."""
    odd = add_odd_entries(place)
    with Explored(place) as explored:
        front = explored.get("/")
        assert front.status == 200
        assert explored.get(f"{folder(PAGE)}/?from={DAY}").status == 200
        found, _ = explored.explorer.read()
        pages = {task.files[0]: task.periods[0] for version in found.values() for task in version.tasks}
        for path in odd:
            if path in pages:
                page = explored.get(f"{folder(PAGE)}/?from={pages[path]}")
                assert page.status == 503
            else:
                page = front
            assert page.body.decode().count(f">{path.name[:5]}") + text_of(page).count(f"/{path.name[:5]}") == 1


def denied(path: object, *_: object) -> int:
    raise PermissionError(13, "Permission denied", str(path))


def gone(path: object, *_: object) -> int:
    raise FileNotFoundError(2, "No such file or directory", str(path))


@pytest.mark.parametrize("problem", [denied, gone])
@pytest.mark.parametrize("suffix", [".parquet", ".txt"])
@pytest.mark.parametrize("command", ["decode-all", "publish"])
def test_unreadable_and_vanishing_files_fail_alone(
    place: Path, monkeypatch: pytest.MonkeyPatch, command: str, suffix: str, problem: Callable[..., int]
) -> None:
    """`open` fails as it does for another user, and for a file that was deleted after the directory was listed."""
    (place / "summaries" / "odd.parquet").write_bytes(
        summary_to_bytes(simulate(PAGE, {"a": 9}, np.random.default_rng(0), periods=["2026-03-03"]))
    )
    really_open = os.open

    def opened(path: str, *arguments: int) -> int:
        odd = "odd" if suffix == ".parquet" else ".txt"
        return problem(path) if odd in str(path).rpartition("/")[2] else really_open(path, *arguments)

    with monkeypatch.context() as only_here:
        only_here.setattr(os, "open", opened)
        done = over_directory(command, place)
    assert done.exit_code == 1
    assert ("1 failed" if suffix == ".parquet" else "2 failed") in done.stdout
    assert "cannot be read: " in done.stderr


@pytest.mark.parametrize("kind", [kind for kind in ENTRIES if kind not in ("truncated", "without its end")])
@pytest.mark.parametrize("command", ["decode-all", "publish", "explore"])
def test_odd_candidates_cost_their_metric(place: Path, command: str, kind: str) -> None:
    from tests.decoder.publishing.test_publish import DARK

    write(place, DARK, DAY, {"true": 2_000})
    odd = place / "candidates" / "page.txt"
    odd.unlink()
    ENTRIES[kind](odd, b"a\nb\n")
    if command == "explore":
        with Explored(place) as explored:
            assert explored.get("/").status == 200
            assert explored.get(f"{folder(DARK)}/").status == 200
            page = explored.get(f"{folder(PAGE)}/")
            assert page.status in (400, 503)
            assert "page.txt" in text_of(page)
        return
    done = over_directory(command, place)
    assert done.exit_code == 1
    assert re.match("1 (decoded|published), 1 failed", done.stdout), done.output
    assert len(named_lines(done.stderr, odd)) == 1, done.stderr


@pytest.mark.parametrize("command", ["decode", "compare", "discover", "associate"])
def test_an_odd_file_that_is_named_ends_the_command(place: Path, command: str) -> None:
    """A sum or a comparison without one of its files would be of something else. The dates of single files are not used, so any are read."""
    odd, good = add_odd_entries(place), place / "summaries" / f"page-{PAGE.digest[:8]}-{DAY}.parquet"
    candidates = ("--candidates", str(place / "candidates" / "page.txt")) if command in ("decode", "compare") else ()
    for path, kind in zip(odd, SUMMARIES, strict=True):
        if kind.startswith("period ") and kind.isprintable() and "no text" not in kind:
            continue
        done = invoke(command, *([] if command == "associate" else [good]), path, *candidates)
        assert done.exit_code == 1, done.output
        assert escape_control_characters(path.name) in done.stderr
        assert "\x1b" not in done.output


def test_a_directory_without_an_odd_entry_has_none(place: Path) -> None:
    (place / "summaries" / "below").mkdir()
    (place / "summaries" / "link").symlink_to("below")
    (place / "summaries" / "notes.txt").write_text("")
    assert over_directory("decode-all", place).exit_code == 0
    with ResultsStore(place / "decode-all" / "results.sqlite") as store:
        assert [key.period for key in store.known_results()] == [DAY]
