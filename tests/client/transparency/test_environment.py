"""Settings by environment: hostile values never raise and never send more; debug mode prints reports and contacts no other machine."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hubbub import Consent, ParameterError
from hubbub.client import collaborators, debugged_clients
from hubbub.sdk import assembly
from hubbub.sdk.configuration import environment_settings
from hubbub.sdk.recording import recorder
from hubbub.sdk.runtime.safe_logging import holds_journal
from hubbub.sdk.transparency import debug_mode
from hubbub.sdk.upload.retry_policy import NO_RESPONSE, UploadResponse
from hubbub.sdk.upload.transport import HttpTransport
from hubbub.testing import deliver
from hubbub.wire.urls import check_url
from tests.client.conftest import HOMEPAGE, SURVEY, Rig
from tests.contracts.test_values_never_leak import CANARY, METRIC, hidden
from tests.support.http_server import METRICS, served

ELSEWHERE = "https://telemetry.example.org"
HOSTILE_URLS = [
    "http://telemetry.example.org",
    "https://user:hunter2@example.org",
    "https://example.org/?token=hunter2",
    "file:///etc/passwd",
    "https://[::1",
    "https://example.org:99999",
    "https://exa mple.org",
    "https://\u2100.example.org",
    "https://example.org/\ud800",
    "//example.org",
    "javascript:alert(1)",
    "https://" + "a" * 100_000 + "/?b",
    "0",
]
TEXTS = st.text(max_size=30) | st.sampled_from(
    ["1", "off", " ON ", "local", "debug", "https://example.org", *HOSTILE_URLS]
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # the first text loads the tables of Unicode
@given(st.dictionaries(st.sampled_from(["DO_NOT_TRACK", "HUBBUB_CONSENT", "HUBBUB_URL", "HUBBUB_DEBUG"]), TEXTS))
def test_any_value_gives_settings_and_invalid_ones_send_less(environment: dict[str, str]) -> None:
    settings = environment_settings(environment)
    invalid_url = settings.url is None and environment.get("HUBBUB_URL", "").strip()
    if settings.url is not None:
        assert settings.url == check_url(environment["HUBBUB_URL"].strip())
    if invalid_url:
        assert settings.consent is Consent.OFF
    assert bool(invalid_url) == any(text.startswith("HUBBUB_URL") for text in settings.warnings)
    if not settings.is_debug:
        assert environment.get("HUBBUB_DEBUG", "").strip().lower() in ("", "0", "false", "no", "off")
    assert all(len(text) < 400 for text in settings.warnings)
    assert "hunter2" not in "".join(text for text in settings.warnings if not text.startswith("HUBBUB_CONSENT"))


@pytest.mark.parametrize("url", HOSTILE_URLS)
def test_client_sends_nothing_under_an_invalid_url(url: str, rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    client = rig.agreed(environment={"HUBBUB_URL": url})
    client.record("homepage", "x")
    deliver(client)
    assert rig.transport.bodies == []
    assert client.accounting().chosen == 0
    assert client.consent.effective is Consent.OFF
    (line,) = [record.getMessage() for record in caplog.records if "HUBBUB_URL" in record.getMessage()]
    assert "must be an https URL, or http to a loopback address" in line
    assert "hunter2" not in line


def test_url_of_the_environment_replaces_the_apps(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        client = rig.client(transport=None, environment={"HUBBUB_URL": "http://127.0.0.1:9/base/"})
    assert "HUBBUB_URL is set: reports are sent to http://127.0.0.1:9/base" in caplog.text
    transport = collaborators(client).sender._transport
    assert isinstance(transport, HttpTransport)
    assert transport._url == "http://127.0.0.1:9/base/v1/reports"
    assert client._configuration.url == "http://127.0.0.1:9/base"  # the detached process gets it as an argument


@pytest.fixture
def _no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def send(*_: object) -> None:
        pytest.fail("debug mode opened a connection to another machine")

    monkeypatch.setattr(HttpTransport, "send", send)


@pytest.fixture
def _end_debugging() -> Iterator[None]:
    """Remove the handler, the directories and the references that debug mode keeps until the exit of the program."""
    yield
    for client in debugged_clients:
        client._seams.at_exit()
    debugged_clients.clear()
    for handler in logging.getLogger("hubbub").handlers[:]:
        if isinstance(handler, debug_mode._StderrHandler):
            logging.getLogger("hubbub").removeHandler(handler)


debugging = pytest.mark.usefixtures("_end_debugging")


@debugging
@pytest.mark.usefixtures("_no_connection")
@pytest.mark.parametrize("variable", ["1", "true", "perhaps", "\ud800"])
def test_debug_mode_prints_reports_and_never_values(
    variable: str, rig: Rig, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    client = rig.client(METRIC, environment={"HUBBUB_DEBUG": variable, "HUBBUB_URL": ELSEWHERE})
    client.record("homepage", CANARY)
    client.set_consent("on")
    for value in (CANARY, CANARY + "2", 5):
        client.record("homepage", value)
    client.record(CANARY, "homepage")
    client.subject(CANARY).record("homepage", CANARY)
    secret = (collaborators(client).journal.directory / "secret").read_bytes()
    needles = [needle.decode("latin-1") for needle in hidden(client, secret)]
    with collaborators(client).journal as state:
        draft = state.drafts["", METRIC.digest]
    client.close()
    printed = capsys.readouterr().err
    bits = "".join(f"{byte:08b}"[::-1] for byte in draft.report.bits)
    assert bits in re.sub(r"(?<=[01]) (?=[01])", "", printed)
    assert re.search(r"homepage, 2026-11-21: not sent: .*\"cohorts\":\[", printed)
    for text in ("ignored: consent is off", "does not fit the definition", "no such metric is defined"):
        assert text in printed
    assert not [needle for needle in needles if needle in printed + caplog.text]
    assert rig.transport.bodies == []
    assert not rig.state.exists()
    assert ("HUBBUB_DEBUG (" in caplog.text) == (variable not in ("1", "true"))


SENT_AT_EXIT = """
import sys
from hubbub import Client
Client(sys.argv[1], sys.argv[2], sys.argv[3]).set_consent("on")  # no reference is left
"""

DEBUGGED = """
import os, sys
from hubbub import Client
from hubbub.client import collaborators
client = Client(sys.argv[1], sys.argv[2], sys.argv[3])
client.set_consent("on")
client.record("homepage", "https://example.org/")
if os.fork() == 0:
    client.record("homepage", "https://example.org/")
    sys.exit(0)  # runs the exit hooks
os.wait()
assert (collaborators(client).journal.directory / "journal").exists(), "the child deleted the state of its parent"
assert client.accounting().recorded == 2
print(collaborators(client).journal.directory)
"""


def run_debugged(code: str, url: str, state: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "DO_NOT_TRACK"} | {"HUBBUB_DEBUG": "1"}
    command = [sys.executable, "-c", code, str(METRICS), str(state), url]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environment)


@pytest.mark.slow
def test_debug_mode_sends_to_an_aggregator_on_this_machine(tmp_path: Path) -> None:
    from hubbub_decoder.data.pull import pull_summary

    with served(tmp_path) as url:
        done = run_debugged(DEBUGGED, url, tmp_path / "state")
        assert f"sent to {url}: 202: {{" in done.stderr
        assert pull_summary(url, "homepage").num_reports == 1
        assert "homepage, " in run_debugged(SENT_AT_EXIT, url, tmp_path / "state").stderr
        assert pull_summary(url, "homepage").num_reports == 2
    assert not Path(done.stdout.strip()).exists()
    assert not (tmp_path / "state").exists()
    assert "Traceback" not in done.stderr


@debugging
@pytest.mark.usefixtures("_no_connection")
def test_debug_mode_without_stderr_or_temporary_directory(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr("tempfile.mkdtemp", lambda **_: (_ for _ in ()).throw(OSError(28, "no space")))
    client = rig.client(HOMEPAGE, environment={"HUBBUB_DEBUG": "1", "HUBBUB_URL": ELSEWHERE})
    client.set_consent("on")
    client.record("homepage", CANARY)
    assert client.accounting().chosen == 1
    client.close()
    assert not rig.state.exists()


@debugging
def test_debug_mode_starts_no_upload_after_its_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server on this machine that never answers must not keep the program from ending."""
    now = [100.0]

    def hang(*_: object) -> UploadResponse:
        now[0] += 10
        return NO_RESPONSE

    client = rig.client(HOMEPAGE, SURVEY, environment={"HUBBUB_DEBUG": "1"})
    client.set_consent("on")
    collaborators(client).uploader.stop()
    monkeypatch.setattr(HttpTransport, "send", hang)
    monkeypatch.setattr(assembly, "time", SimpleNamespace(monotonic=lambda: now[0]))
    client.close()
    assert now == [110.0]
    assert "sent to http://127.0.0.1:1: no response: {" in capsys.readouterr().err


@debugging
@pytest.mark.parametrize("limit", [{}, {"DO_NOT_TRACK": "1"}])
def test_debug_mode_prints_while_no_lock_is_held(
    limit: dict[str, str], rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stderr that waits for another thread, which records, must not wait for ever."""
    monkeypatch.setattr(recorder, "WAIT_SECONDS", 60)  # a recording that waits in memory prints later
    held: dict[str, bool] = {}
    monkeypatch.setattr(debug_mode, "print_line", lambda text: held.update({text: holds_journal()}))
    client = rig.client(HOMEPAGE, environment={"HUBBUB_DEBUG": "1"} | limit)
    client.set_consent("on")
    collaborators(client).uploader.stop()
    held.clear()
    client.record("homepage", "x")
    client.record("homepage", 5)
    collaborators(client).journal.run(lambda _: client.record("homepage", "y"))
    client.record("homepage", "z")
    assert len(held) == (1 if limit else 4)
    assert not any(held.values())


@debugging
def test_debug_mode_obeys_do_not_track(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    client = rig.client(HOMEPAGE, environment={"HUBBUB_DEBUG": "1", "DO_NOT_TRACK": "1"})
    client.set_consent("on")
    client.record("homepage", CANARY)
    client.close()
    assert "ignored: consent is off" in capsys.readouterr().err
    assert client.accounting().formed == 0


@debugging
def test_wrong_arguments_leave_no_temporary_directory(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debug_mode, "_temporary_directory", lambda: pytest.fail("a directory was made"))
    for wrong in ({"policy": "strict"}, {"limits": 5}, {"ca_certs": "missing.pem"}, {"state": ""}):
        with pytest.raises(ParameterError):
            rig.client(environment={"HUBBUB_DEBUG": "1"}, **wrong)
