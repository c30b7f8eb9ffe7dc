"""`hubbub doctor --state`: what can be wrong with a client's state is found, and nothing is changed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.paths import DATA

from hubbub import Client
from hubbub.cli import main
from hubbub.cli.findings import Finding, Health
from hubbub.cli.state_checks import check_state
from hubbub.sdk.upload.retry_policy import UploadResponse
from hubbub.testing import RecordingTransport, deliver

METRICS = DATA / "metrics.toml"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A directory as an app leaves it, whose user agreed."""
    directory = tmp_path / "state"
    client = Client(METRICS, directory, "http://127.0.0.1:9", environment={})
    client.set_consent("on", "v1")
    client.record("dark_mode", True)
    client.close()
    return directory


def ill(directory: Path, now: datetime | None = None, environment: Mapping[str, str] | None = None) -> list[Finding]:
    found = check_state(directory, now or datetime.now(UTC), environment or {})
    return [finding for finding in found if finding.health is not Health.OK]


def test_a_state_that_is_well_has_nothing_but_fine_findings_and_is_not_touched(state: Path) -> None:
    before = {path: path.read_bytes() for path in state.iterdir()}
    assert ill(state) == []
    assert {path: path.read_bytes() for path in state.iterdir()} == before


def test_a_secret_that_others_can_read_or_that_is_cut_or_gone_is_wrong(state: Path) -> None:
    secret = state / "secret"
    for mode in (0o640, 0o604):
        secret.chmod(mode)
        (found,) = ill(state)
        assert (found.health, found.check, "chmod 600" in found.next_step) == (Health.ERROR, "secret", True)
    secret.chmod(0o600)
    secret.write_bytes(b"short")
    assert [(each.health, each.check) for each in ill(state)] == [(Health.ERROR, "secret")]
    secret.unlink()
    assert ["is gone" in each.observation for each in ill(state)] == [True]


def test_damage_a_wrong_clock_and_what_is_not_consented_to_are_said(state: Path) -> None:
    assert [each.check for each in ill(state, environment={"DO_NOT_TRACK": "1"})] == ["consent"]
    early = datetime.now(UTC) - timedelta(days=1)
    assert [(each.health, each.check) for each in ill(state, early)] == [(Health.ERROR, "clock")]
    journal = state / "journal"
    data = bytearray(journal.read_bytes())
    data[len(data) // 2] ^= 1
    journal.write_bytes(data)
    assert "journal" in [each.check for each in ill(state)]


REFUSED = UploadResponse(None, request_sent=False, failure="certificate verify failed")
MISMATCH = UploadResponse(409, problem="digest-mismatch")


@pytest.mark.parametrize(
    ("answer", "health", "what", "waits"),
    [
        (UploadResponse(404), Health.WARNING, "3 attempts in a row were in vain, the last: 404", "from 20"),
        (REFUSED, Health.WARNING, "the last: no answer (certificate verify failed)", "from 20"),
        (MISMATCH, Health.ERROR, "of dark_mode, homepage, os wait for another definition", "until the app"),
    ],
)
def test_why_reports_wait_is_said_by_doctor_inspect_and_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, answer: UploadResponse, health: Health, what: str, waits: str
) -> None:
    caplog.set_level("DEBUG", "hubbub")
    directory, transport = tmp_path / "state", RecordingTransport(*[answer] * 9)
    client = Client(METRICS, directory, "http://127.0.0.1:9", environment={}, transport=transport)
    client.set_consent("on")
    client.record("dark_mode", True)
    deliver(client)
    client.close()
    found = [each for each in ill(directory) if each.check == "spool"]
    assert [(each.health, what in each.observation) for each in found] == [(health, True)], found
    shown = CliRunner().invoke(main, ["inspect", str(directory)]).stdout
    assert re.search(rf"^waits: dark_mode of [0-9-]+, {waits}", shown, re.MULTILINE)
    assert ("sent last: {" in shown) == answer.request_sent
    assert answer.description in caplog.text
    assert ("reports wait" in caplog.text) == (answer.status == 404)


def test_a_directory_without_state_is_one_finding_and_exit_code_1(tmp_path: Path, state: Path) -> None:
    said = CliRunner().invoke(main, ["doctor", "--state", str(tmp_path), "--json"])
    told = json.loads(said.stdout)
    assert (said.exit_code, told["has_errors"], len(told["findings"])) == (1, True, 1)
    assert CliRunner().invoke(main, ["doctor", "--state", str(state)]).exit_code == 0


def test_a_secret_of_another_user_is_wrong(state: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a file away")
    os.chown(state / "secret", 1234, 1234)
    (found,) = ill(state)
    assert (found.health, found.check) == (Health.ERROR, "secret")
    assert "belongs to user 1234" in found.observation
