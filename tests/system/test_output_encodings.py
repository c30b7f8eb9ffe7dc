"""Commands on terminals of other encodings: no command ends in a traceback, and what is machine-readable can be read back."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from hubbub.cli import main

ENCODINGS = ("ascii", "cp1252", "latin-1", "utf-8")
SAMPLES = "aé€Ωж中\u0301\u05d0\U0001f600\u2588\u2591\u2026\u00a0"
"""Characters of one to four bytes, combining and right-to-left ones, and those of the bars."""

Run = Callable[..., tuple[int, str, str]]


def random_word(seed: int) -> str:
    draw = random.Random(seed)  # noqa: S311  (test data)
    return "".join(draw.choices(SAMPLES, k=draw.randint(2, 12)))


@pytest.fixture(params=ENCODINGS)
def encoding(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(encoding: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command on streams of this encoding that refuse other characters; exit code and both outputs."""

    def run_command(*arguments: object) -> tuple[int, str, str]:
        streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict") for _ in range(2)]
        monkeypatch.setattr(sys, "stdout", streams[0])
        monkeypatch.setattr(sys, "stderr", streams[1])
        with pytest.raises(SystemExit) as end:
            main(list(map(str, arguments)), prog_name="hubbub")
        for stream in streams:
            stream.flush()
        code = int(end.value.code or 0)
        used = "utf-8" if encoding == "ascii" else encoding  # click writes UTF-8 where the encoding is ASCII
        shown, message = (stream.buffer.getvalue().decode(used) for stream in streams)
        return code, shown, message

    return run_command


@pytest.fixture
def files(encoding: str, tmp_path: Path) -> Path:
    """Directory with definitions and candidates of random words: metrics.toml, names.txt, population.csv."""
    words = list(dict.fromkeys(random_word(10 * ENCODINGS.index(encoding) + i) for i in range(6)))
    quoted = json.dumps(words, ensure_ascii=False)
    directory = tmp_path / words[0]
    directory.mkdir()
    common = f'description = {json.dumps("What they see: " + words[1], ensure_ascii=False)}\nowner = "é@example.org"\nprob_p = 0.2\nprob_q = 0.8\nprob_f = 0\nexpires = 2099-01-01\n'
    (directory / "metrics.toml").write_text(
        f'[[metric]]\nname = "page"\nkind = "string"\nnum_bits = 16\nnum_hashes = 1\nnum_cohorts = 8\n{common}'
        f'[[metric]]\nname = "city"\nkind = "categorical"\ncategories = {quoted}\n{common}'
        f'[[metric]]\nname = "time"\nkind = "ordinal"\nedges = [0, 1, 2, 3]\nunit = "µs"\n{common}',
        encoding="utf-8",
    )
    (directory / "names.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    shares = "".join(f"{word},{5000 - 400 * i}\n" for i, word in enumerate(words))
    (directory / "population.csv").write_text(f"value,count\n{shares}", encoding="utf-8")
    (directory / "numbers.csv").write_text("value,count\n0.5,5000\n1.5,3000\n2.5,900\n", encoding="utf-8")
    return directory


def test_tables_of_random_names(run: Run, files: Path) -> None:
    """Every table with bars or names: decode, compare, trends, plan, metrics, and the messages with the names of files."""
    definitions, names = files / "metrics.toml", files / "names.txt"
    for metric, population in (("page", "population"), ("city", "population"), ("time", "numbers")):
        for seed, out in enumerate("ab"):
            options = ("--population", files / f"{population}.csv", "--periods", 2, "--seed", seed)
            code, _, message = run(
                "simulate", definitions, metric, *options, "--out", files / f"{metric}-{out}.parquet"
            )
            assert code == 0, message
        listed = ("--candidates", names) if metric == "page" else ()
        summary, other = (files / f"{metric}-{out}.parquet" for out in "ab")
        for arguments in (
            ("decode", summary, *listed, "--all"),
            ("decode", summary, *listed, "--out", files / "estimates.csv"),
            ("compare", summary, other, *listed, "--all"),
            ("plan", definitions, metric, "--explain"),
        ):
            code, shown, message = run(*arguments)
            assert code == 0, (arguments, message)
            assert shown.strip(), arguments
    for arguments in (
        ("metrics", "check", definitions),
        ("metrics", "show", definitions),
        ("metrics", "diff", definitions, definitions),
    ):
        code, _, message = run(*arguments)
        assert code == 0, (arguments, message)


def test_bars_have_the_same_width_in_every_encoding(run: Run, files: Path) -> None:
    """A bar is one character a cell, of ASCII where the terminal has no blocks."""
    _, shown, _ = run("plan", files / "metrics.toml", "page", "--explain")
    bars = [line.rstrip() for line in shown.splitlines() if line.rstrip().endswith(("█", "#"))]
    assert len(bars) > 5
    assert {len(bar.split()[-1]) for bar in bars} >= {24}
    assert "\\u" not in "".join(bars)


def test_json_is_read_back_in_every_encoding(run: Run, encoding: str, files: Path) -> None:
    """JSON is UTF-8 or ASCII, whatever the terminal is: files of it are read as UTF-8."""
    run(
        "simulate",
        files / "metrics.toml",
        "city",
        "--population",
        files / "population.csv",
        "--out",
        files / "c.parquet",
    )
    code, shown, message = run("decode", files / "c.parquet", "--json")
    assert code == 0, message
    if encoding != "utf-8":
        assert shown.isascii()
    names = {estimate["candidate"] for estimate in json.loads(shown)["estimates"]}
    assert names == set((files / "names.txt").read_text(encoding="utf-8").splitlines())


def test_a_planned_definition_is_read_back_in_every_encoding(run: Run, encoding: str) -> None:
    words = list(dict.fromkeys(random_word(seed) for seed in range(4)))
    options = [argument for word in words for argument in ("--category", word)]
    code, shown, message = run("plan", "--epsilon", 1, "--kind", "categorical", "--reports", 1000, *options)
    assert code == 0, message
    if encoding != "utf-8":
        assert shown.isascii()
    assert tomllib.loads(shown)["metric"][0]["categories"] == words


COMMANDS = sorted(entry.name for entry in entry_points(group="hubbub.commands"))


@pytest.mark.parametrize("name", [random_word(1), "\udcff" + random_word(2)], ids=["text", "undecodable"])
@pytest.mark.parametrize("command", COMMANDS)
def test_errors_with_random_names_of_files(run: Run, tmp_path: Path, command: str, name: str) -> None:
    """Each command with the name of a file that does not exist, which it cannot read, or an option of this name."""
    if command == "demo":
        arguments: tuple[object, ...] = (f"--{name}",)
    elif command in ("metrics", "db", "token"):
        first = {"metrics": "show", "db": "check", "token": "list"}[command]
        arguments = (first, tmp_path / name) if command == "metrics" else (first, f"--{name}")
    else:
        arguments = (tmp_path / name, tmp_path / name)
    code, _, message = run(command, *arguments)
    assert code in (1, 2)
    assert message


def test_a_process_with_another_encoding(tmp_path: Path) -> None:
    """The variable PYTHONIOENCODING sets what a terminal's code page sets on Windows."""
    environment = os.environ | {"PYTHONIOENCODING": "cp1252"}
    categories = ("--kind", "categorical", "--category", "Ω", "--category", "b")
    plan = ("plan", "--epsilon", "1", *categories, "--reports", "1000", "--explain")
    command = [sys.executable, "-m", "hubbub", *plan]
    ended = subprocess.run(command, env=environment, capture_output=True, check=False, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr.decode("cp1252")
    assert "##########" in ended.stderr.decode("cp1252")
    assert tomllib.loads(ended.stdout.decode("ascii"))["metric"][0]["categories"] == ["Ω", "b"]
