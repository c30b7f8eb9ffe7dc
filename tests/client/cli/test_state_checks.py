"""`hubbub doctor --state`: detects problems of a state directory without changing it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubbub import Client
from hubbub.cli import main
from hubbub.cli.findings import Finding, Health
from hubbub.cli.state_checks import check_state
from hubbub.sdk.upload.retry_policy import UploadResponse
from hubbub.testing import RecordingTransport, Seams, deliver
from tests.support.paths import DATA

METRICS = DATA / "metrics.toml"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """State directory of an app after the user gave consent."""
    directory = tmp_path / "state"
    client = Client(METRICS, directory, "http://127.0.0.1:9", environment={})
    client.set_consent("on", "v1")
    client.record("dark_mode", True)
    client.close()
    return directory


def problems(
    directory: Path, now: datetime | None = None, environment: Mapping[str, str] | None = None
) -> list[Finding]:
    found = check_state(directory, now or datetime.now(UTC), environment or {})
    return [finding for finding in found if finding.health is not Health.OK]


def test_healthy_state_has_only_ok_findings_and_is_unchanged(state: Path) -> None:
    before = {path: path.read_bytes() for path in state.iterdir()}
    assert problems(state) == []
    assert {path: path.read_bytes() for path in state.iterdir()} == before


def test_readable_truncated_or_missing_secret_is_an_error(state: Path) -> None:
    secret = state / "secret"
    for mode in (0o640, 0o604):
        secret.chmod(mode)
        (found,) = problems(state)
        assert (found.health, found.check, "chmod 600" in found.next_step) == (Health.ERROR, "secret", True)
    secret.chmod(0o600)
    secret.write_bytes(b"short")
    assert [(problem.health, problem.check) for problem in problems(state)] == [(Health.ERROR, "secret")]
    secret.unlink()
    assert ["does not exist" in problem.observation for problem in problems(state)] == [True]


def test_reports_missing_consent_wrong_clock_and_damaged_journal(state: Path) -> None:
    assert [problem.check for problem in problems(state, environment={"DO_NOT_TRACK": "1"})] == ["consent"]
    early = datetime.now(UTC) - timedelta(days=1)
    assert [(problem.health, problem.check) for problem in problems(state, early)] == [(Health.ERROR, "clock")]
    journal = state / "journal"
    data = bytearray(journal.read_bytes())
    data[len(data) // 2] ^= 1
    journal.write_bytes(data)
    assert "journal" in [problem.check for problem in problems(state)]


REFUSED = UploadResponse(None, request_sent=False, failure="certificate verify failed")
MISMATCH = UploadResponse(409, problem="digest-mismatch")


@pytest.mark.parametrize(
    ("answer", "health", "observation", "queued"),
    [
        (
            UploadResponse(404),
            Health.WARNING,
            "the last 3 upload attempts failed, last error: unrecognized answer: status 404",
            "to be sent after 20",
        ),
        (REFUSED, Health.WARNING, "last error: no response: certificate verify failed", "to be sent after 20"),
        (
            UploadResponse(404, "unknown-metric"),
            Health.ERROR,
            "the aggregator has no metric of this name; last error: 404",
            "to be sent after 20",
        ),
        (UploadResponse(401, "unauthorized"), Health.ERROR, "requires a report token", "to be sent after 20"),
        (UploadResponse(403, "forbidden"), Health.ERROR, "requires a report token", "to be sent after 20"),
        (MISMATCH, Health.ERROR, "of dark_mode, homepage, os are held", "to be sent after 20"),
    ],
)
def test_doctor_inspect_and_log_name_the_reason_of_queued_reports(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    answer: UploadResponse,
    health: Health,
    observation: str,
    queued: str,
) -> None:
    caplog.set_level("DEBUG", "hubbub")
    directory, transport = tmp_path / "state", RecordingTransport(*[answer] * 9)
    client = Client(METRICS, directory, "http://127.0.0.1:9", environment={}, seams=Seams(transport=transport))
    client.set_consent("on")
    client.record("dark_mode", True)
    deliver(client)
    client.close()
    found = [problem for problem in problems(directory) if problem.check == "queue"]
    assert [(problem.health, observation in problem.observation) for problem in found] == [(health, True)], found
    shown = CliRunner().invoke(main, ["inspect", str(directory)]).stdout
    assert re.search(rf"^queued: dark_mode of [0-9-]+, {queued}", shown, re.MULTILINE)
    assert ("last sent: {" in shown) == answer.request_sent
    assert answer.description in caplog.text
    assert ("Reports are kept" in caplog.text) == (answer.status in (401, 403, 404))
    assert (observation in caplog.text) == (observation == "requires a report token")
    assert f"queue        {found[0].observation}\n" in shown


def test_directory_without_state_is_one_error_with_exit_code_1(tmp_path: Path, state: Path) -> None:
    result = CliRunner().invoke(main, ["doctor", "--state", str(tmp_path), "--json"])
    report = json.loads(result.stdout)
    assert (result.exit_code, report["has_errors"], len(report["findings"])) == (1, True, 1)
    assert CliRunner().invoke(main, ["doctor", "--state", str(state)]).exit_code == 0


def test_secret_of_another_user_is_an_error(state: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a file away")
    os.chown(state / "secret", 1234, 1234)
    (found,) = problems(state)
    assert (found.health, found.check) == (Health.ERROR, "secret")
    assert "belongs to user 1234" in found.observation
