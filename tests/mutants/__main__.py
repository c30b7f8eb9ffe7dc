"""Change the code in one place after the other, run the tests in which a reader looks first, and record which test fails.

python -m tests.mutants sample [--each 52] [--seed 1]     choose mutants, evenly over the modules, and write mutants.csv
python -m tests.mutants run [--jobs 2] [--only survived] [TEXT]          run all mutants of mutants.csv (or: make mutants)

A mutant is killed by the first test that fails. The tests of its two folders run, those that reach the changed code, quick ones first,
until LIMIT_SECONDS of tests have passed. A mutant whose code no longer exists is left out, and named. For one that changes nothing that
matters, write "accepted: " and the reason in place of the result.
"""

from __future__ import annotations

import argparse
import builtins
import compileall
import csv
import importlib
import json
import os
import py_compile
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.areas import AREAS, ROOT
from tests.mutants.mutation import Mutant, mutants_of, mutate, with_probes

TABLE = Path(__file__).with_name("mutants.csv")
COPIED = ("client", "aggregator", "decoder", "tests", "docs", "examples", "deploy", "benchmarks")
LIMIT_SECONDS = 12.0
"""Seconds of tests for one mutant, as measured without a change."""
TIMEOUT_SECONDS = 120.0
"""A mutant that takes longer is killed: the code no longer ends."""
SLOW_SECONDS = 8.0
"""A test that takes longer is not one that a reader runs first."""
PRELOADED = "numpy scipy.stats scipy.optimize scipy.sparse click sqlalchemy uvicorn starlette.applications urllib3 hypothesis bitarray mmh3"
OPTIONS = [
    "-q",
    "-x",
    "--no-header",
    "--tb=no",
    "-p",
    "no:cacheprovider",
    "-m",
    "not slow",
    "--hypothesis-seed=0",
    "-W",
    "ignore:Module already imported",
]

SURVIVED = "survived"
ACCEPTED = "accepted: "
"""Begins a result that somebody wrote: why no test needs to fail. Such a mutant does not run."""

Table = dict[Mutant, str]


class Reach:
    """A pytest plugin: seconds of each test, and the numbers of the probes that it reached."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, Any]] = {}
        self.reached: set[int] = set()
        self.failed: list[str] = []
        vars(builtins)["_probe"] = self.reach

    def reach(self, number: int) -> bool:
        self.reached.add(number)
        return True

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid.startswith("tests/") or isinstance(item, pytest.DoctestItem)]

    def pytest_collection_finish(self) -> None:
        self.tests["import"] = {"seconds": 0.0, "reached": sorted(self.reached)}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self.reached.clear()
        start = sum(os.times()[:4])
        yield
        self.tests[item.nodeid] = {"seconds": sum(os.times()[:4]) - start, "reached": sorted(self.reached)}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


class Choice:
    """A pytest plugin: runs the given tests only, file by file in the given order, and records the first that fails."""

    def __init__(self, tests: list[str]) -> None:
        self.tests = set(tests)
        self.order = {file: i for i, file in enumerate(dict.fromkeys(map(_file_of, tests)))}
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self.tests]
        items[:] = sorted(chosen, key=lambda item: self.order[_file_of(item.nodeid)])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed = self.failed or f"{report.nodeid} (import)"


def _file_of(nodeid: str) -> str:
    return nodeid.split("::")[0]


def read_table(path: Path) -> Table:
    """Mutants and results: the test that fails, `SURVIVED`, `ACCEPTED` with a reason, or "" before the first run."""
    with path.open(encoding="utf-8", newline="") as file:
        return {
            Mutant(row["area"], row["file"], row["scope"], row["before"], row["after"], int(row["occurrence"])): row[
                "killed_by"
            ]
            for row in csv.DictReader(file)
        }


def write_table(table: Table, path: Path) -> None:
    """Write mutants and results."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["area", "file", "scope", "before", "after", "occurrence", "killed_by"])
        for mutant, killed_by in table.items():
            writer.writerow(
                [mutant.area, mutant.file, mutant.scope, mutant.before, mutant.after, mutant.occurrence, killed_by]
            )


def sample(size: int, seed: int) -> Table:
    """`size` mutants of every area: from its modules in turn, each time an operator of one kind and then a place for it."""
    rng = random.Random(seed)  # noqa: S311  (no secret)
    table: Table = {}
    for area, described in AREAS.items():
        pools: dict[str, dict[str, list[Mutant]]] = {}
        for file in described.files():
            kinds = pools.setdefault(file, defaultdict(list))
            for mutant, change in mutants_of(area, file, (ROOT / file).read_text(encoding="utf-8")).items():
                kinds[change.operator].append(mutant)
        chosen: list[Mutant] = []
        while len(chosen) < size:
            for file in rng.sample(sorted(pools), len(pools)):
                kinds = pools[file]
                if kinds and len(chosen) < size:
                    kind = rng.choice(sorted(kinds))
                    chosen.append(kinds[kind].pop(rng.randrange(len(kinds[kind]))))
                    if not kinds[kind]:
                        del kinds[kind]
        table |= dict.fromkeys(sorted(chosen, key=lambda one: (one.file, one.scope, one.before, one.after)), "")
    return table


def snapshot(copy: Path) -> Path:
    """Copy the sources to a new folder, compiled so that a file is compiled again exactly if its contents change."""
    copy.mkdir()
    for file in ROOT.glob("*.*"):
        if file.is_file():
            shutil.copy(file, copy)
    for folder in COPIED:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in ("client", "aggregator", "decoder"):
        compileall.compile_dir(copy / folder, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    return copy


def start(copy: Path, arguments: list[str], plugin: Any, result: Path) -> int:
    """Start pytest in a copy, in a process group of its own; return its number. The plugin's values are written to `result`."""
    number = os.fork()
    if number:
        return number
    os.setsid()
    os.chdir(copy)
    os.environ |= {"HUBBUB_TEST_SEED": "mutants", "PYTHONPATH": os.pathsep.join(map(str, _paths(copy)))}
    sys.path[:] = [
        *map(str, _paths(copy)),
        *(place for place in sys.path if Path(place or ".").resolve() not in _paths(ROOT)),
    ]
    for name in [
        module
        for module in sys.modules
        if module.split(".")[0] in ("tests", "hubbub", "hubbub_decoder", "hubbub_aggregator")
    ]:
        del sys.modules[name]
    with (result.with_suffix(".log")).open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    code = int(pytest.main([*OPTIONS, *arguments], [plugin]))
    values = {key: value for key, value in vars(plugin).items() if isinstance(value, dict | str | list)}
    result.write_text(json.dumps({"code": code} | values))
    os._exit(0)


def _paths(root: Path) -> list[Path]:
    return [root / "client", root / "aggregator", root / "decoder", root]


def has_ended(number: int, seconds_left: float) -> bool:
    """Whether a process group has ended; one without time left is killed."""
    ended = os.waitpid(number, os.WNOHANG) != (0, 0)
    if not ended and seconds_left > 0:
        return False
    with suppress(ProcessLookupError):
        os.killpg(number, signal.SIGKILL)  # also what an ended test run has left behind
    if not ended:
        os.waitpid(number, 0)
    return True


def reach(mutants: list[Mutant], copy: Path) -> dict[str, dict[str, Any]]:
    """Seconds of each test of the mutants' areas, and the numbers of the mutants that it reaches, after a run without changes."""
    for file in {mutant.file for mutant in mutants}:
        source = (copy / file).read_text(encoding="utf-8")
        probes = {mutant: number for number, mutant in enumerate(mutants) if mutant.file == file}
        (copy / file).write_text(with_probes(source, probes), encoding="utf-8")
    result = copy.with_name("reach.json")
    folders = sorted({folder for mutant in mutants for folder in AREAS[mutant.area].tests})
    started = start(copy, [*folders, *sorted({mutant.file for mutant in mutants})], Reach(), result)
    while not has_ended(started, 1):
        time.sleep(0.1)
    found: dict[str, Any] = json.loads(result.read_text()) if result.exists() else {"failed": ["pytest did not run"]}
    if found["failed"]:
        sys.exit(f"tests fail without a change: {found['failed']}, see {result.with_suffix('.log')}")
    tests: dict[str, dict[str, Any]] = found["tests"]
    return tests


def tests_for(mutant: Mutant, number: int, tests: dict[str, dict[str, Any]]) -> list[str]:
    """The tests of its area that reach a mutant; all of them if importing the module reaches it.

    Files whose name has a word of the module's name come first, then quick files.
    """
    area = (mutant.file, *(f"{folder}/" for folder in AREAS[mutant.area].tests))
    at_import = number in tests["import"]["reached"]
    reaching = {
        name: entry["seconds"]
        for name, entry in tests.items()
        if name.startswith(area) and entry["seconds"] < SLOW_SECONDS and (at_import or number in entry["reached"])
    }
    files: dict[str, float] = defaultdict(float)
    for name, seconds in reaching.items():
        files[_file_of(name)] += seconds

    def order(name: str) -> tuple[bool, float, str, float]:
        file = _file_of(name)
        return not _words(file) & _words(mutant.file), files[file], file, reaching[name]

    ordered = sorted(reaching, key=order)
    chosen, total = [], 0.0
    for name in ordered:
        total += reaching[name]
        if total > LIMIT_SECONDS:
            break
        chosen.append(name)
    return chosen


def _words(file: str) -> set[str]:
    return set(Path(file).stem.split("_")) - {"test"}


class Run:
    """Mutants that run at the same time, each in its own copy of the sources."""

    def __init__(self, path: Path, jobs: int, place: Path) -> None:
        for name in PRELOADED.split():
            importlib.import_module(name)
        self.path, self.table, self.place = path, read_table(path), place
        self.source = snapshot(place / "source")
        self.copies = [shutil.copytree(self.source, place / f"copy-{i}") for i in range(jobs)]
        self.running: dict[int, tuple[Mutant, Path, float]] = {}
        self.changes = {
            mutant: change
            for area, described in AREAS.items()
            for file in described.files()
            for mutant, change in mutants_of(area, file, self.text(file)).items()
        }

    def text(self, file: str) -> str:
        """Source of a module without a change."""
        return (self.source / file).read_text(encoding="utf-8")

    def run(self, mutants: list[Mutant]) -> None:
        """Run the mutants."""
        tests = reach(mutants, shutil.copytree(self.source, self.place / "reach"))
        for number, mutant in enumerate(mutants):
            chosen = tests_for(mutant, number, tests)
            if not chosen:
                self.record(mutant, "", "no test reaches it")
                continue
            while not self.copies:
                self.collect()
            copy = self.copies.pop()
            (copy / mutant.file).write_text(mutate(self.text(mutant.file), self.changes[mutant]), encoding="utf-8")
            shutil.rmtree(copy / ".hypothesis", ignore_errors=True)  # no examples of an earlier mutant
            files = list(dict.fromkeys(map(_file_of, chosen)))
            started = start(copy, files, Choice(chosen), copy / "result.json")
            self.running[started] = (mutant, copy, time.monotonic())
        while self.running:
            self.collect()

    def collect(self) -> None:
        """Record the mutants whose tests have ended, or have taken too long."""
        time.sleep(0.05)
        for number, (mutant, copy, started) in list(self.running.items()):
            seconds = time.monotonic() - started
            if not has_ended(number, TIMEOUT_SECONDS - seconds):
                continue
            result = copy / "result.json"
            found: dict[str, Any] = (
                json.loads(result.read_text()) if result.exists() else {"failed": "timeout", "code": 1}
            )
            import_fails = found["code"] == pytest.ExitCode.USAGE_ERROR and not found["failed"]
            self.record(mutant, "import of conftest.py" if import_fails else found["failed"], f"{seconds:.1f} s")
            result.unlink(missing_ok=True)
            (copy / mutant.file).write_text(self.text(mutant.file), encoding="utf-8")
            del self.running[number]
            self.copies.append(copy)

    def record(self, mutant: Mutant, killed_by: str, comment: str) -> None:
        """Write the result of a mutant into the table."""
        self.table[mutant] = killed_by or SURVIVED
        write_table(self.table, self.path)
        sys.stdout.write(f"{mutant}: {killed_by or SURVIVED}, {comment}\n")
        sys.stdout.flush()


def run(path: Path, jobs: int, only: str, text: str) -> None:
    """Run the mutants, write the table after each, and print how many are killed."""
    place = Path(tempfile.mkdtemp(prefix="hubbub-mutants-"))
    runs = Run(path, jobs, place)
    table = runs.table
    for mutant in table:
        if mutant not in runs.changes:
            sys.stdout.write(f"gone: {mutant}\n")
    chosen = [
        mutant
        for mutant, killed_by in table.items()
        if mutant in runs.changes
        and text in str(mutant)
        and not killed_by.startswith(ACCEPTED)
        and (killed_by == "" if only == "new" else only == "all" or killed_by in ("", SURVIVED))
    ]
    if chosen:
        runs.run(chosen)
    shutil.rmtree(place)
    accepted = Counter(mutant.area for mutant, result in table.items() if result.startswith(ACCEPTED))
    survived = Counter(mutant.area for mutant, result in table.items() if result in ("", SURVIVED))
    for area, count in Counter(mutant.area for mutant in table).items():
        killed = count - accepted[area] - survived[area]
        sys.stdout.write(f"{area}: {killed} of {count} killed, {accepted[area]} accepted\n")


def main() -> None:
    """Sample or run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, default=TABLE, help="file of mutants and results")
    commands = parser.add_subparsers(required=True, dest="command")
    sampling = commands.add_parser("sample")
    sampling.add_argument("--each", type=int, default=52)
    sampling.add_argument("--seed", type=int, default=1)
    running = commands.add_parser("run")
    running.add_argument("text", nargs="?", default="", help="only mutants whose line contains this")
    running.add_argument("--jobs", type=int, default=1)
    running.add_argument(
        "--only", choices=("all", "survived", "new"), default="all", help="those that no test killed, or that never ran"
    )
    options = parser.parse_args()
    if options.command == "sample":
        write_table(sample(options.each, options.seed), options.table)
    else:
        run(options.table, options.jobs, options.only, options.text)


if __name__ == "__main__":
    main()
