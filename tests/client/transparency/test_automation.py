"""Automation pauses a client: nothing new on disk, no request, and consent, ledger and queue stay as they are."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hubbub import Client, Consent, Definitions
from hubbub.cli import main
from hubbub.sdk.runtime.automation import FLAGS, VARIABLES, sign_of_automation, sign_of_program
from hubbub.testing import UNLIMITED, RecordingTransport, Seams, deliver
from tests.client.conftest import HOMEPAGE, SURVEY, Rig
from tests.support.paths import DATA, DOCS

METRICS = DATA / "metrics.toml"
MODES: dict[str, dict[str, Any]] = {
    "threads": {},
    "detached": {"detached": True},
    "subjects": {"per_subject": True},
    "power": {"durability": "power"},
    "renewed": {"renew_identity_when_copied": True},
}


@pytest.mark.parametrize("name", [*FLAGS, *VARIABLES])
def test_signs_of_the_environment(name: str) -> None:
    for value in ("true", "1", "x"):
        assert sign_of_automation({name: value, "PATH": "/bin"}) == name
    for value in ("", " ", *(["false", "0", " False ", "no", "off"] if name in FLAGS else [])):
        assert sign_of_automation({name: value}) is None


@pytest.mark.parametrize(
    ("level", "lifts"), [("on", True), (" Local ", True), ("off", False), ("yes", False), ("", False)]
)
@pytest.mark.parametrize("sign", ["CI", "JENKINS_URL", "PYTEST_VERSION", "pytest", "manage.py test"])
def test_level_that_allows_recording_lifts_the_pause_of_every_sign(
    sign: str, level: str, lifts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for a variable and for the program."""
    for name in (*FLAGS, *VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "argv", ["app.py"])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    monkeypatch.setenv("HUBBUB_CONSENT", level)
    if sign in (*FLAGS, *VARIABLES):
        monkeypatch.setenv(sign, "1")
    else:
        monkeypatch.setattr(sys, "argv", sign.split())
    client = Client(Definitions([HOMEPAGE]), tmp_path, "http://127.0.0.1:1")
    assert client.consent.paused == ("" if lifts else f"automation ({sign})")
    client.close()


@pytest.mark.parametrize(
    ("arguments", "module", "sign"),
    [
        (["/usr/bin/pytest", "tests"], "", "pytest"),
        (["C:/x/pytest.exe"], "", "pytest"),
        (["/x/unittest/__main__.py"], "unittest.__main__", "unittest"),
        (["/x/pytest/__main__.py"], "pytest.__main__", "pytest"),
        (["manage.py", "test", "app"], "", "manage.py test"),
        (["manage.py", "runserver"], "", None),
        (["app.py", "pytest"], "", None),
        (["/x/app/__main__.py"], "app.pytest", None),
        ([], "", None),
    ],
)
def test_signs_of_a_program(arguments: list[str], module: str, sign: str | None) -> None:
    """A runner that runs, not one that is imported or named."""
    assert sign_of_program(arguments, module) == sign


def files_of(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in directory.rglob("*")
        if path.is_file()
    }


@contextmanager
def listener() -> Iterator[tuple[str, Callable[[], bool]]]:
    """Yield the address of a server that never answers, and a function that tells whether anyone connected."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)

        def was_asked() -> bool:
            try:
                server.accept()[0].close()
            except BlockingIOError:
                return False
            return True

        yield f"http://127.0.0.1:{server.getsockname()[1]}", was_asked


def use(client: Client, options: dict[str, Any]) -> None:
    """Everything that a program does with its client."""
    recorder = client.subject("u") if options.get("per_subject") else client
    recorder.record("homepage", "a")
    client.flush(1)
    client.inspect(), client.inspect_html(), client.ledger(), client.accounting()
    client.close()


@pytest.mark.parametrize("mode", MODES)
def test_paused_client_makes_no_file_and_no_request(mode: str, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with listener() as (url, was_asked):
        client = Client(METRICS, tmp_path / "state", url, environment={"CI": "true"}, **MODES[mode])
        assert not client.set_consent("on")
        assert not client.set_consent("local")
        assert client.set_consent("off")
        consent = client.consent
        assert (consent.level, consent.effective, consent.paused) == (Consent.OFF, Consent.OFF, "automation (CI)")
        use(client, MODES[mode])
        assert client.accounting().ignored["consent"] == 1
        assert not was_asked()
    assert list(tmp_path.rglob("*")) == [tmp_path / "state"]


@pytest.mark.parametrize("mode", MODES)
def test_paused_client_leaves_an_existing_directory_as_it_is(mode: str, rig: Rig) -> None:
    """With reports in the queue that are due: none is sent, and the ledger, the queue and the consent stay."""
    with listener() as (url, was_asked):
        first = rig.agreed(HOMEPAGE, SURVEY)
        first.record("homepage", "a")
        first.close()
        rig.clock.move(days=10)
        before, ledger = files_of(rig.state), first.ledger()
        definitions = Definitions([HOMEPAGE, SURVEY])
        options: dict[str, Any] = {
            "seams": Seams(clock=rig.clock),
            "environment": {"GITHUB_ACTIONS": "true"},
            **MODES[mode],
        }
        client = Client(definitions, rig.state, url, policy=UNLIMITED, **options)
        assert (client.consent.level, client.consent.effective) == (Consent.ON, Consent.OFF)
        assert client.consent.paused == "automation (GITHUB_ACTIONS)"
        assert client.ledger() == ledger
        use(client, MODES[mode])
        assert not was_asked()
    assert files_of(rig.state) == before
    again = rig.client(HOMEPAGE, SURVEY)
    assert again.consent.effective is Consent.ON
    deliver(again)
    assert rig.transport.batches


def test_withdrawal_holds_although_the_client_is_paused(rig: Rig) -> None:
    rig.agreed().close()
    client = Client(Definitions([HOMEPAGE]), rig.state, "https://example.org", environment={"CI": "1"})
    assert client.set_consent("off", "v2")
    client.close()
    assert (rig.client().consent.level, rig.client().consent.text) == (Consent.OFF, "v2")
    assert not (rig.state / "secret").exists()


def test_paused_client_in_memory_withdraws_nothing_on_disk(rig: Rig) -> None:
    """The directory is that of another client: a client in memory has none."""
    rig.agreed().close()
    before = files_of(rig.state)
    options: dict[str, Any] = {"environment": {"CI": "1"}, "durability": "memory"}
    assert Client(Definitions([HOMEPAGE]), rig.state, "https://example.org", **options).set_consent("off")
    assert files_of(rig.state) == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_child_of_a_paused_client_is_paused(tmp_path: Path) -> None:
    client = Client(Definitions([HOMEPAGE]), tmp_path / "state", "https://example.org", environment={"CI": "1"})
    child = os.fork()
    if not child:
        client.record("homepage", "a")
        os._exit(0 if client.consent.paused and client.accounting().ignored["consent"] == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        {"environment": {"CI": "true"}, "pause_when_automated": False},
        {"environment": {"CI": "true", "HUBBUB_CONSENT": "on"}},
        {"environment": {"CI": "true"}, "seams": Seams(transport=RecordingTransport())},
        {"environment": {"CI": "false"}},
    ],
)
def test_app_and_environment_can_count_automated_runs(options: dict[str, Any], tmp_path: Path) -> None:
    client = Client(Definitions([HOMEPAGE]), tmp_path, "http://127.0.0.1:1", **options)
    assert client.set_consent("on")
    assert (client.consent.effective, client.consent.paused) == (Consent.ON, "")
    client.record("homepage", "a")
    assert client.accounting().ignored["consent"] == 0
    client.close()


def test_program_of_a_test_runner_is_a_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HUBBUB_CONSENT")
    with_environment = Client(Definitions([HOMEPAGE]), tmp_path / "a", "http://127.0.0.1:1", environment={})
    assert with_environment.consent.paused == ""
    assert Client(Definitions([HOMEPAGE]), tmp_path / "b", "http://127.0.0.1:1").consent.paused.startswith(
        "automation ("
    )
    assert not (tmp_path / "b").exists()


def test_commands_show_the_pause(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.agreed().close()
    for name in ("HUBBUB_CONSENT", *FLAGS, *VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BUILDKITE", "true")
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
    for command in (["inspect", str(rig.state)], ["doctor", "--state", str(rig.state)]):
        shown = " ".join(CliRunner().invoke(main, command).output.split())
        assert "BUILDKITE shows that a machine runs this program" in shown
        assert "a client with this environment is paused: it records, stores and sends nothing" in shown


def test_docs_list_the_variables() -> None:
    page = (DOCS / "how-to" / "embedding.md").read_text()
    section = page.partition("## Automation\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("- unless empty")]
    assert [tuple(re.findall("`([A-Z_]+)`", line)) for line in lines] == [FLAGS, VARIABLES]
