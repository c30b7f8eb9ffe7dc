"""No target of the Makefile and no script changes or deletes a path that a user may own."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.paths import REPOSITORY

OWNED = (
    *(".venv/pyvenv.cfg", ".venv/bin/hubbub", ".env/mine", "venv/pyvenv.cfg", "build/mine", "build/docs/mine"),
    *(
        "build/release/mine",
        "build/newest/mine",
        "build/oldest.txt",
        "build/python3.13/mine",
        "dist/mine",
        "demo-out/mine",
    ),
    *("node_modules/mine", "clients/typescript/node_modules/mine", "clients/typescript/dist/mine", "mine"),
    *(".mypy_cache/mine", ".ruff_cache/mine", ".pytest_cache/mine", ".hypothesis/mine"),
)
"""Files of a user, in places that a rule for a Python or Node project might clear."""

READ = (
    *(
        "Makefile",
        "pyproject.toml",
        "client/pyproject.toml",
        "constraints.txt",
        "constraints-spark.txt",
        "clients/typescript/package-lock.json",
    ),
    *("clients/typescript/build.mjs", "clients/typescript/tsconfig.json"),
)
"""Files that the rules of the Makefile name as prerequisites."""

MADE = ("make-out/", "demo-out/", "clients/typescript/node_modules/", "clients/typescript/dist/")
"""Folders in which make may add files."""

PROGRAM = """#!/bin/bash
# Stands for Python, npm and all programs of an environment: makes and deletes the same folders, and does nothing else.
environment() {
    mkdir -p "$1/bin" && echo stub > "$1/pyvenv.cfg" || exit 1
    for program in python pip pytest uv hubbub ruff mypy sphinx-build; do cp "$STUB" "$1/bin/$program"; done
}
name=$(basename "$0")
case "$name $*" in
*" -m venv --clear "*) rm -rf "${@: -1}"; environment "${@: -1}";;
*" -m venv "*) environment "${@: -1}";;
"uv venv "*) rm -rf "${@: -1}"; environment "${@: -1}";;
"npm ci "*) rm -rf node_modules; mkdir node_modules;;
"npm run "*) mkdir -p dist;;
"sphinx-build "*) mkdir -p "${@: -1}";;
python*" -c "*print*) echo "${name#python}";;
esac
exit 0
"""

STUBS = ("python3", "python3.11", "python3.12", "python3.13", "python3.14", "npm", "java")
TARGETS = re.search(r"^\.PHONY: (.*)$", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
"""Line with all targets that make no file of their name."""


class Checkout:
    """A checkout with stubs instead of programs, in which make really runs."""

    def __init__(self, place: Path) -> None:
        self.place, programs = place / "checkout", place / "programs"
        for name in READ:
            (self.place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, self.place / name)
        programs.mkdir()
        for name in STUBS:
            (programs / name).write_text(PROGRAM)
            (programs / name).chmod(0o755)
        self.environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(place), "STUB": str(programs / "npm")}

    def add(self, *names: str) -> None:
        for name in names:
            (self.place / name).parent.mkdir(parents=True, exist_ok=True)
            (self.place / name).write_text("written by the user")

    def files(self) -> dict[str, bytes]:
        return {
            str(file.relative_to(self.place)): file.read_bytes() for file in self.place.rglob("*") if file.is_file()
        }

    def make(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", *arguments],
            cwd=self.place,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def targets() -> list[str]:
    assert TARGETS is not None
    return TARGETS.group(1).split()


@pytest.mark.parametrize("target", [*targets(), "bench-client", "bench-scale"])
def test_a_target_leaves_files_of_a_user_alone(target: str, checkout: Checkout) -> None:
    """It may refuse, with a message, where a user's folder is in its way."""
    checkout.add(*OWNED)
    before = checkout.files()
    done = checkout.make(target)
    after = checkout.files()
    assert {name: after.get(name) for name in before} == before
    assert {name for name in after.keys() - before.keys() if not name.startswith(MADE)} == set()
    assert done.returncode == 0 or "move it away" in done.stderr, done.stderr


def test_all_targets_are_tested() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    rules = re.findall(r"^([a-z][\w.-]*(?: [a-z][\w.-]*)*):(?!=)", makefile, re.MULTILINE)
    named = {target for rule in rules for target in rule.split() if ":=" not in rule}
    assert len(named) > 25
    assert {target for target in named if not target.startswith("bench-")} == set(targets())


@pytest.mark.parametrize(
    "target", ["check", "clean", "docs", "demo", "newest", "oldest", "release-check", "typescript"]
)
def test_a_folder_named_like_that_of_make_is_left_alone(target: str, checkout: Checkout) -> None:
    checkout.add("make-out/mine", "make-out/venv/mine")
    before = checkout.files()
    done = checkout.make(target)
    assert checkout.files() == before
    assert "make-out exists, but make did not make it: move it away" in done.stderr


def test_clean_deletes_what_make_made(checkout: Checkout) -> None:
    checkout.add(*OWNED)
    before = checkout.files()
    assert checkout.make("demo", "docs", "pythons").returncode == 0
    assert (checkout.place / "make-out" / "venv" / "pyvenv.cfg").is_file()
    assert checkout.make("clean").returncode == 0
    assert checkout.files() == before
    assert checkout.make("clean").returncode == 0


def test_an_interrupted_environment_is_finished(checkout: Checkout) -> None:
    """The stamp is written last; what is there is not deleted."""
    assert checkout.make("demo").returncode == 0
    venv = checkout.place / "make-out" / "venv"
    for stamp in (".venv-made", ".demo-installed", "pyvenv.cfg"):
        (venv / stamp).unlink()
    (venv / "downloaded").touch()
    assert checkout.make("demo").returncode == 0
    assert (venv / "pyvenv.cfg").is_file()
    assert (venv / "downloaded").is_file()


def test_an_interrupted_npm_starts_again(checkout: Checkout) -> None:
    """`npm ci` deletes node_modules, so a folder without the stamp is that of an interrupted `npm ci`, or a user's."""
    modules = checkout.place / "clients" / "typescript" / "node_modules"
    npm = Path(checkout.environment["STUB"])
    npm.write_text(PROGRAM.replace("mkdir node_modules", "mkdir node_modules; touch node_modules/half; exit 1"))
    assert checkout.make("typescript").returncode != 0
    npm.write_text(PROGRAM)
    done = checkout.make("typescript")
    assert done.returncode == 0, done.stderr
    assert not (modules / "half").exists()
    shutil.rmtree(modules)
    checkout.add("clients/typescript/node_modules/mine")
    assert "move it away" in checkout.make("typescript").stderr
    assert (modules / "mine").exists()


def test_generated_pages_replace_no_other_page(tmp_path: Path) -> None:
    """The documentation's build writes pages into docs/reference, and deletes those of names that are gone."""
    spec = importlib.util.spec_from_file_location("reference", REPOSITORY / "docs" / "_sphinx" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    commands = tmp_path / "reference" / "commands"
    commands.mkdir(parents=True)
    (tmp_path / "reference" / "api.md").touch()
    (commands / "mine.rst").write_text("written by the user")
    (commands / "gone.rst").write_text(reference.WRITTEN + "gone")
    reference.write_pages(SimpleNamespace(srcdir=tmp_path))
    assert (commands / "mine.rst").read_text() == "written by the user"
    assert not (commands / "gone.rst").exists()
    assert (commands / "decode.rst").read_text().startswith(reference.WRITTEN)


SCRIPTS = (
    "benchmarks",
    "deploy",
    "docs",
    "examples",
    "clients",
    ".ci",
    "tests/mutants",
    "tests/stress",
    "tests/support",
)
"""Folders with programs that run in a checkout; tests delete in `tmp_path` alone."""

DELETES = re.compile(
    r"\b(?:rmtree|unlink|rmdir|removedirs|rmSync|unlinkSync|rmdirSync|rm -[rf]+|mkfs)\b|\bos\.remove\b|\bclear=True|--clear\b(?!-)|git clean"
)
DELETING = {
    "benchmarks/decode_all.py": "results in a temporary folder",
    "benchmarks/environment.py": "an environment in hubbub-benchmarks of the user's cache",
    "benchmarks/studies/journal.py": "copies in a temporary folder",
    "benchmarks/scale.py": "results in a temporary folder",
    "clients/typescript/src/journal.ts": "files of the client's own state",
    "clients/typescript/test-directories.mjs": "a temporary folder that it made",
    "clients/typescript/test/limits.test.mjs": "nothing: it makes unlink never answer",
    "docs/_sphinx/reference.py": "pages that it wrote",
    "tests/mutants/__main__.py": "copies of the sources in a temporary folder",
    "tests/release_check.py": "an earlier release in the folder of make",
    "tests/stress/file_damage.py": "damaged files in a temporary folder",
    "tests/support/container.py": "layers in a temporary folder",
}
"""Scripts that delete, each read: what it deletes."""


def test_every_script_that_deletes_is_known() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--", *SCRIPTS, "tests/*.py"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    scripts = [
        name
        for name in listed
        if name.startswith(SCRIPTS) or name.count("/") == 1
        if name.endswith((".py", ".sh", ".mjs", ".js", ".ts", ".json", "/run")) and "package-lock" not in name
    ]
    assert len(scripts) > 100
    assert {name for name in scripts if DELETES.search((REPOSITORY / name).read_text(encoding="utf-8"))} == set(
        DELETING
    )
