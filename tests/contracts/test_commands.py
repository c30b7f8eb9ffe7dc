"""All commands: one meaning for each option, an example, `-h`, `--json`, and units."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from hubbub import Metric, Params
from hubbub.cli import SECTIONS, main
from hubbub.summary import BitCounts, write_summary
from tests.support.named_options import missing_options
from tests.support.paths import DOCS

MEANINGS = {
    "all": "Everything: ",
    "candidates": "Strings to look for: ",
    "command": "Command that ",
    "confidence": "Confidence level of the ",
    "content": "Content of the output file: bit counts, pattern counts, or individual reports",
    "database": "SQLite file or postgresql://user@host/database. ",
    "events": "Events that the charts over periods mark, such as releases: ",
    "expires": "First day (UTC) on which the ",
    "fdr": "False discovery rate: the expected share of false positives among the detected ",
    "hold": "Length of an epoch, ",
    "html": "HTML page to write: ",
    "independent-clients": "Different clients: no client ",
    "jobs": "Number of processes that work at once. ",
    "json": "Print the result as JSON.",
    "map": "Map of google/rappor: .csv with candidates and their bit positions.",
    "name": "Name of the metric.",
    "out": "Output file (",
    "out-dir": "Output directory for the ",
    "period": "First day of a period",
    "periods": "Number of periods ",
    "plot": "Also draw ",
    "port": "Port to listen on; 0 takes a free one.",
    "prometheus-textfile": "Write the figures of this run to this file, ",
    "reports": "Number of reports",
    "seed": "Seed for a reproducible result: ",
    "timeout": "Longest duration of one ",
    "target": "Results for the reporters, or for the population of which they are a random sample",
    "top": "Show at most N rows: ",
}
"""Beginning of the help of each option that several commands have: its meaning."""
WITHOUT_JSON = {"serve", "explore", "metrics schema"}
"""Two run until they are stopped, and print no result. The third prints JSON in any case."""
UNITS = {"SECONDS", "BYTES", "BYTES/S", "REQUESTS/S", "REPORTS/S", "FACTOR"}
QUANTITIES = re.compile(r"seconds|interval|timeout|window|began|body|bytes|memory|disk|burst|rate\b|rate-factor")
"""Names of options that are a duration, a size or a rate."""


def commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command and group with its words."""

    def below(words: tuple[str, ...], command: click.Command) -> Iterator[tuple[tuple[str, ...], click.Command]]:
        yield words, command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None
                yield from below((*words, name), found)

    return below((), main)


COMMANDS = dict(commands())
LEAVES = {words: command for words, command in COMMANDS.items() if not isinstance(command, click.Group)}
every_command = pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words) or "hubbub")


def options(command: click.Command) -> list[click.Option]:
    context = click.Context(command, parent=click.Context(main, **main.context_settings))
    return [parameter for parameter in command.get_params(context) if isinstance(parameter, click.Option)]


def word(option: click.Option) -> str:
    """Long name; click before 8.5 gives `-h` and `--help` in a random order."""
    return max(option.opts, key=len).removeprefix("--")


def shape(option: click.Option) -> tuple[str, str]:
    return type(option.type).__name__, option.make_metavar(click.Context(click.Command("any")))


def test_an_option_has_one_type_and_one_meaning_in_all_commands() -> None:
    """`doctor` has the options of `serve`."""
    uses = defaultdict(list)
    for words, command in LEAVES.items():
        for option in options(command) if words != ("doctor",) else ():
            if word(option) != "help":
                uses[word(option)].append((words, option))
    shared = {name: used for name, used in uses.items() if len(used) > 1}
    assert shared.keys() == MEANINGS.keys()
    for name, used in shared.items():
        assert len({shape(option) for _, option in used}) == 1, (name, [shape(option) for _, option in used])
        for words, option in used:
            assert (option.help or "").startswith(MEANINGS[name]), (words, name, option.help)


@every_command
def test_a_command_has_an_example_and_short_help(words: tuple[str, ...]) -> None:
    assert " ".join(("hubbub", *words)) in (COMMANDS[words].help or "").partition("Example")[2]
    shown = CliRunner().invoke(main, [*words, "-h"])
    assert shown.exit_code == 0
    assert shown.stdout.startswith(f"Usage: {' '.join(('main', *words))} ")
    assert "-h, --help" in shown.stdout


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_a_command_prints_json(words: tuple[str, ...]) -> None:
    has_json = any(word(option) == "json" for option in options(LEAVES[words]))
    assert has_json != (" ".join(words) in WITHOUT_JSON)


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_a_number_says_what_it_counts(words: tuple[str, ...]) -> None:
    for option in options(LEAVES[words]):
        kind, metavar = shape(option)
        if option.is_flag or isinstance(option.type, click.Choice):
            continue
        assert not metavar.startswith(("INTEGER", "FLOAT")), option.name
        if QUANTITIES.search(word(option)) and kind != "Path":
            assert metavar in UNITS, (option.name, metavar)


def test_help_lists_every_command_by_its_user() -> None:
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(entry.name for entry in entry_points(group="hubbub.commands"))
    assert len(SECTIONS["First steps"]) == 5
    shown = CliRunner().invoke(main, ["--help"]).stdout
    assert re.findall(r"^(\S.*):$", shown, re.MULTILINE)[1:] == list(SECTIONS)
    assert re.findall(r"^  ([a-z-]+) ", shown.partition("First steps:")[2], re.MULTILINE) == listed


MOST_OPTIONS = 16


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_help_lists_many_options_by_section(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(main, [*words, "--help"]).stdout
    sections = dict(re.findall(r"^(\S.*):\n((?:  .*\n)+)", shown, re.MULTILINE))
    sizes = [len(re.findall(r"^  -", text, re.MULTILINE)) for name, text in sections.items() if "xample" not in name]
    assert len(sizes) > 1 if sum(sizes) > MOST_OPTIONS else len(sizes) == 1
    assert len(sizes) == 1 or max(sizes) <= 9
    for section in ("Addresses and access", "Storage", "Rates of one network", "Log"):
        assert (section in sections) == (words in {("serve",), ("doctor",)})


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options_as_documented(shell: str) -> None:
    page = (DOCS / "reference" / "configuration.md").read_text(encoding="utf-8")
    assert f"_HUBBUB_COMPLETE={shell}_source hubbub" in page
    hubbub = Path(sys.executable).with_name("hubbub")

    def run(**variables: str) -> str:
        return subprocess.run([hubbub], env=os.environ | variables, capture_output=True, text=True, check=False).stdout

    assert "hubbub" in run(_HUBBUB_COMPLETE=f"{shell}_source")
    typed = {"COMP_WORDS": "hubbub decode --confi", "COMP_CWORD": "--confi" if shell == "fish" else "2"}
    assert "--confidence" in run(_HUBBUB_COMPLETE=f"{shell}_complete", **typed)


@pytest.mark.parametrize(
    ("arguments", "near"),
    [(["decod"], "'decode'"), (["token", "creat"], "'create'"), (["decode", "--candidate"], "--candidates")],
)
def test_a_wrong_name_is_answered_with_a_near_one(arguments: list[str], near: str) -> None:
    refused = CliRunner().invoke(main, arguments)
    assert refused.exit_code == 2
    assert "Did you mean" in refused.output
    assert near in refused.output


@pytest.mark.parametrize("command", ["decode", "watch"])
def test_error_without_candidates_names_only_options_of_the_command(command: str, tmp_path: Path) -> None:
    """As each error does in the tests of the folders `cli` (`tests/conftest.py`)."""
    metric = Metric.string("page", Params(num_bits=8, num_hashes=1, num_cohorts=2, prob_p=0.25, prob_q=0.75, prob_f=0))
    files = [str(tmp_path / f"{day}.parquet") for day in ("2026-03-02", "2026-03-03")]
    for path in files:
        write_summary(BitCounts(metric, [9, 9], np.full((2, 8), 4), periods=(Path(path).stem,)), path)
    more = ["--database", str(tmp_path / "watch.sqlite"), "--open-after", "0"] if command == "watch" else []
    result = CliRunner().invoke(main, [command, *files, *more])
    assert (result.exit_code, "Pass candidates (--candidates FILE)" in result.stderr) == (1, True)
    found = main.get_command(click.Context(main), command)
    assert found is not None
    assert missing_options(result.stderr, found) == set()
    others = missing_options("Pass --candidates, --map, or run `hubbub audit --trials`.", found)
    assert others == (set() if command == "decode" else {"--map"})
