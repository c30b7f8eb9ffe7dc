"""Commands of the documents that repeat a measured figure: they exist with the options that a document names, and every benchmark is named."""

from __future__ import annotations

import importlib.util
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.__main__ import programs
from benchmarks.runner import generator, seed
from benchmarks.tables import Table
from tests.support.paths import DOCS, REPOSITORY

PAGES = sorted([*DOCS.rglob("*.md"), *REPOSITORY.glob("*.md")])
MAKEFILE = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
COMMAND = re.compile(r"python (?:-m )?(benchmarks[\w./]*)([^`\n]*)")
PROGRAM = re.compile(r"python -m (tests\.[\w.]+)|node ([\w/.-]+\.mjs)")
TARGET = re.compile(r"make ([a-z][a-z-]*)(?: [A-Z]+=[^`]*)?`")
BENCH = re.compile(r"bench-([a-z-]+)")


def commands(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the module and the arguments of each benchmark that a text names.

    >>> list(commands("`python -m benchmarks.peers --runs N` and `make bench-decode-time`"))
    [('benchmarks.peers', ('--runs', '1')), ('benchmarks.decode_time', ())]
    """
    for module, arguments in COMMAND.findall(text):
        yield (
            module,
            tuple("1" if word == "N" else word for word in shlex.split(arguments.replace("(", "").replace(")", ""))),
        )
    for target in TARGET.findall(text):
        if found := BENCH.fullmatch(target):
            yield f"benchmarks.{found[1].replace('-', '_')}", ()


OF_PAGES = {page: page.read_text(encoding="utf-8") for page in PAGES if "progress" not in page.parts}
COMMANDS = sorted({command for text in OF_PAGES.values() for command in commands(text)})
TARGETS = sorted({target for text in OF_PAGES.values() for target in TARGET.findall(text)})


def run_help(module: str, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> int | str | None:
    """Exit code of a command with `--help`; a choice that does not exist is refused before."""
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr("sys.argv", [module, *arguments, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    return ended.value.code


@pytest.mark.parametrize(
    ("module", "arguments"), COMMANDS, ids=lambda part: part if isinstance(part, str) else " ".join(part)
)
def test_command_exists(
    module: str, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_help(module, arguments, monkeypatch) == 0
    shown = capsys.readouterr().out
    assert [
        word for word in arguments if word.startswith("--") and f"{word} " not in shown and f"{word}]" not in shown
    ] == []


@pytest.mark.parametrize(
    ("module", "path"), sorted({found for text in OF_PAGES.values() for found in PROGRAM.findall(text)})
)
def test_program_exists(module: str, path: str) -> None:
    assert importlib.util.find_spec(module) if module else (REPOSITORY / path).is_file()


@pytest.mark.parametrize("target", TARGETS)
def test_target_exists(target: str) -> None:
    done = subprocess.run(["make", "--dry-run", target], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_benchmark_is_named() -> None:
    named = {module for module, _ in COMMANDS}
    named |= set(re.findall(r"-m (benchmarks\.\w+)", MAKEFILE))
    assert [name for name, _ in programs() if name not in named] == []


def test_generator_repeats_the_run_of_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    for text, case in (("a", "case 1"), ("a", "case 1"), ("a", "case 2"), ("b", "case 1")):
        monkeypatch.setenv("HUBBUB_TEST_SEED", text)
        drawn.append((seed(), generator(case, 0).random()))
    assert drawn[0] == drawn[1]
    assert len({number for _, number in drawn}) == 3
    assert drawn[0][0] == drawn[2][0] != drawn[3][0]


def test_table_writes_the_rows_that_it_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(tmp_path / "table.csv", {"commit": "c0ffee"})
    table.add({"case": "one, or two", "error": "0.5"})
    table.add({"case": "three", "error": ""})
    assert (tmp_path / "table.csv").read_text() == 'case,error,commit\n"one, or two",0.5,c0ffee\nthree,,c0ffee\n'
    assert capsys.readouterr().out == (
        "| case | error | commit |\n|---|---|---|\n| one, or two | 0.5 | c0ffee |\n| three |  | c0ffee |\n"
    )
