"""The client without extras: few dependencies, fast import, and every command names the extra that it needs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from importlib.metadata import requires, version
from pathlib import Path

import pytest

from hubbub.cli import SECTIONS
from hubbub.text import DISTRIBUTION, SERVER_DISTRIBUTION, install_hint
from tests.support.paths import REPOSITORY

ENCODE = """
from hubbub import Encoder, Metric, Params, Secret
params = Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=.25, prob_q=.75, prob_f=.5)
print(len(Encoder(Metric.string("homepage", params), Secret.generate()).encode("https://example.org/").bits))
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both wheels, from a copy without untracked files."""
    place = tmp_path_factory.mktemp("wheels")
    kept = ("client", "aggregator", "decoder", "pyproject.toml", "README.md", "LICENSE")
    source = place / "source"
    source.mkdir()
    for name in kept:
        original = REPOSITORY / name
        copy: Callable[[Path, Path], object] = shutil.copytree if original.is_dir() else shutil.copy
        copy(original, source / name)
    for folder in (source / "client", source):
        build = (sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", place / "dist")
        subprocess.run(build, cwd=folder, check=True)
    return place / "dist"


@pytest.fixture(scope="module", params=["newest", "oldest"])
def bare(request: pytest.FixtureRequest, wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment after `pip install hubbub-telemetry`, with the newest dependencies or the oldest that it admits."""
    admitted = [requirement for requirement in requires(DISTRIBUTION) or () if "extra ==" not in requirement]
    pins = [requirement.replace(">=", "==") for requirement in admitted] if request.param == "oldest" else []
    place = tmp_path_factory.mktemp("bare")
    venv.create(place / "venv", with_pip=True)
    python = place / "venv" / "bin" / "python"
    options = ("--quiet", "--disable-pip-version-check", "--find-links", wheels)
    subprocess.run([python, "-m", "pip", "install", *options, DISTRIBUTION, *pins], check=True)
    return python


@pytest.mark.slow
def test_bare_install_encodes_without_extras(bare: Path) -> None:
    done = subprocess.run([bare, "-c", ENCODE], capture_output=True, text=True, check=True)
    assert done.stdout == "128\n"
    listed = subprocess.run([bare, "-m", "pip", "list", "--format=freeze"], capture_output=True, text=True, check=True)
    names = {line.partition("==")[0] for line in listed.stdout.split()}
    assert names - {"pip", "setuptools"} == {DISTRIBUTION, "bitarray", "click", "mmh3", "urllib3"}


@pytest.mark.slow
def test_bare_install_names_missing_extras(bare: Path) -> None:
    hubbub = bare.parent / "hubbub"
    shown = subprocess.run([hubbub, "--help"], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^  ([a-z-]+)  ", shown.partition("App:")[2], re.MULTILINE) == [*SECTIONS["App"], "doctor"]
    assert shown.endswith(f"\n{install_hint('all')}\n")
    metrics = REPOSITORY / "tests" / "data" / "metrics.toml"
    encoded = subprocess.run([hubbub, "encode", metrics, "homepage", "x"], capture_output=True, text=True, check=True)
    assert encoded.stdout.startswith("cohort ")
    for arguments, extra in (
        (["serve", metrics], "aggregator"),
        (["simulate", metrics, "homepage", "--reports", "10", "--out", "s.parquet"], "decoder"),
        (["demo"], "decoder"),
        (["doctor", metrics], "aggregator"),
        (["doctor", metrics, "--database", "reports.db"], "aggregator"),
    ):
        lacking = subprocess.run([hubbub, *arguments], capture_output=True, text=True, check=False, cwd=bare.parent)
        assert lacking.returncode == 1, lacking.stderr
        assert f"run pip install 'hubbub-telemetry[{extra}]'" in lacking.stderr
        assert len(lacking.stderr.splitlines()) == 1
    for arguments in (["doctor", "--help"], ["serv"]):
        done = subprocess.run([hubbub, *arguments], capture_output=True, text=True, check=False)
        assert ("--state" in done.stdout) if done.returncode == 0 else ("Did you mean 'serve'" in done.stderr)


@pytest.mark.slow
def test_named_command_adds_the_server_of_the_installed_version(bare: Path, wheels: Path) -> None:
    """`pip install` of the extra keeps the installed client."""
    (requirement,) = re.findall("run pip install '(.*)'", install_hint("decoder"))
    options = ("--disable-pip-version-check", "--dry-run", "--quiet", "--report", "-", "--find-links", wheels)
    done = subprocess.run([bare, "-m", "pip", "install", *options, requirement], capture_output=True, check=True)
    added = {item["metadata"]["name"] for item in json.loads(done.stdout)["install"]}
    assert added >= {SERVER_DISTRIBUTION, "numpy", "scipy", "pyarrow"}
    assert DISTRIBUTION not in added


def test_commands_of_another_version_name_the_installation(tmp_path: Path) -> None:
    """`pip install --upgrade hubbub-telemetry` warns about the server that it leaves behind, and installs the client."""
    other = tmp_path / f"{SERVER_DISTRIBUTION.replace('-', '_')}-9.9.dist-info"
    other.mkdir()
    (other / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {SERVER_DISTRIBUTION}\nVersion: 9.9\n")
    (other / "entry_points.txt").write_text("[hubbub.commands]\nserve = hubbub_aggregator.cli.serve:command\n")
    command = [sys.executable, "-m", "hubbub", "serve", "metrics.toml"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}  # before the installed ones
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    own = version(DISTRIBUTION)
    assert done.returncode == 1
    assert f"`hubbub serve` is in {SERVER_DISTRIBUTION} 9.9, but {DISTRIBUTION} is {own}." in done.stderr
    assert f"run pip install '{DISTRIBUTION}[aggregator]=={own}'" in done.stderr


KEPT = """
import sys
from hubbub import Client
with Client(sys.argv[1], sys.argv[2], "http://127.0.0.1:9", environment={}) as client:
    client.set_consent("on")
    client.record("homepage", "x")
"""


@pytest.mark.slow
def test_bare_install_checks_state_directory(bare: Path, tmp_path: Path) -> None:
    hubbub, state = bare.parent / "hubbub", tmp_path / "state"
    subprocess.run([bare, "-c", KEPT, str(REPOSITORY / "tests" / "data" / "metrics.toml"), str(state)], check=True)
    environment = {name: value for name, value in os.environ.items() if name != "DO_NOT_TRACK"}
    command = [str(hubbub), "doctor", "--state", str(state), "--json"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert checked.stderr == ""
    found = {finding["check"]: finding["health"] for finding in json.loads(checked.stdout)["findings"]}
    assert found == dict.fromkeys(("clock", "secret", "journal", "consent", "queue", "ledger", "machine"), "ok")
    (state / "secret").write_bytes(b"short")
    assert subprocess.run(command, capture_output=True, check=False, env=environment).returncode == 1


def test_no_document_installs_hubbub_from_pypi() -> None:
    """The name `hubbub` on PyPI belongs to another project; ours is `hubbub-telemetry`."""
    install_command = re.compile(r"pip3? install\b[^\n`]*\bhubbub\b(?![/-])")
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    tested = [REPOSITORY / name for name in listed.splitlines() if not name.startswith(("tests/", "docs/progress/"))]
    wrong = [
        f"{file.relative_to(REPOSITORY)}: {found.group()}"
        for file in tested
        if file.suffix in (".py", ".md", ".toml", ".j2", ".yml", ".txt", ".sh") or file.name == "Makefile"
        for found in install_command.finditer(file.read_text(encoding="utf-8"))
    ]
    assert wrong == []


START = """
import sys
from hubbub import Client
Client(sys.argv[1], sys.argv[2], "http://127.0.0.1:9", environment={})
print(*sys.modules)
"""
NEVER_IMPORTED = {
    "numpy": "summaries alone are arrays",
    "pyarrow": "summaries alone are Parquet files",
    "click": "an app runs no command",
    "hubbub.summary": "clients add nothing up",
    "sqlite3": "the state of a client is a journal",
    "importlib.metadata": "the commands alone look for entry points",
    "decimal": "prices are compared as floats, and printed by commands",
    "fractions": "certificates are computed by commands",
    "hubbub.mechanisms.blanket": "central epsilons are computed by commands and by the decoder",
    "hubbub.privacy.guarantee": "guarantees are printed by commands and by the notice of consent",
    "hubbub.sdk.transparency.state_reports": "`Client.inspect` and `Client.ledger` import it",
    "urllib3": "the first upload imports it",
    "http": "the first upload imports it",
    "socket": "the first upload imports it",
    "ssl": "the first upload imports it",
    "email": "the first dated response imports it",
    "uuid": "the first batch imports it",
    "subprocess": "a detached client imports it",
}
"""Modules that a starting app does not wait for, with the reason."""


def test_first_client_imports_no_heavy_module(tmp_path: Path) -> None:
    command = [sys.executable, "-c", START, str(REPOSITORY / "tests" / "data" / "metrics.toml"), str(tmp_path)]
    imported = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert "hubbub.sdk.upload.transport" in imported
    assert {name: NEVER_IMPORTED[name] for name in imported if name in NEVER_IMPORTED} == {}
