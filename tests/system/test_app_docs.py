"""docs/how-to/writing-metrics.md and docs/how-to/consent.md: their definitions, code and commands run."""

from __future__ import annotations

import math
import os
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubbub.cli import main
from hubbub.metrics.definitions import parse_definitions
from hubbub.metrics.kinds import KindWord
from hubbub.privacy.plain_words import certainty_percent
from tests.support.paths import DOCS, REPOSITORY

METRICS_PAGE = (DOCS / "how-to" / "writing-metrics.md").read_text(encoding="utf-8")
CONSENT_PAGE = (DOCS / "how-to" / "consent.md").read_text(encoding="utf-8")
NEAR = str(datetime.now(UTC).date() + timedelta(days=180))


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, flags=re.DOTALL)


def definitions_text() -> str:
    return "\n".join(blocks(METRICS_PAGE, "toml")).replace("2027-11-01", NEAR)


def run(code: str, folder: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if key not in ("DO_NOT_TRACK", "XDG_STATE_HOME")}
    environment |= {"HOME": str(folder), "PYTHONPATH": str(folder)}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_page_has_a_definition_of_every_kind() -> None:
    definitions = parse_definitions(definitions_text())
    assert {metric.kind.word for metric in definitions.values()} == set(KindWord)
    assert any(metric.kind.has_own_cohort for metric in definitions.values())
    assert any(not metric.kind.has_shares for metric in definitions.values())


def test_check_accepts_the_definitions_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "metrics.toml").write_text(definitions_text())
    (command,) = re.findall(r"^    hubbub (metrics check .+)$", METRICS_PAGE, flags=re.MULTILINE)
    arguments = [
        str(tmp_path / argument) if argument == "metrics.toml" else argument for argument in shlex.split(command)
    ]
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path / 'metrics.toml'}: valid: 9 definitions, 9 metrics\n")


def test_code_of_the_page_records_every_kind(tmp_path: Path) -> None:
    pytest.importorskip("platformdirs", reason="platformdirs is not installed")
    (tmp_path / "my_app").mkdir()
    (tmp_path / "my_app" / "__init__.py").touch()
    (tmp_path / "my_app" / "metrics.toml").write_text(definitions_text())
    record, load, create = blocks(METRICS_PAGE, "python")
    figures = "sum(client.accounting().ignored.values()), client.accounting().recorded, len(client.ledger().accounts)"
    printed = run(f"{load}{create}{record}print({figures}, client)", tmp_path)
    assert printed.startswith("0 13 9 ")
    expected = "Library/Application Support" if sys.platform == "darwin" else ".local/state"
    assert printed.endswith(f" <hubbub.Client '{tmp_path}/{expected}/my-app/hubbub'>\n")


def test_notice_of_the_page_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("metrics.toml").write_text((REPOSITORY / "examples" / "app_metrics.toml").read_text())
    (block,) = blocks(CONSENT_PAGE, "console")
    command, _, shown = block.partition("\n")
    done = CliRunner().invoke(main, shlex.split(command.removeprefix("$ hubbub ")))
    assert done.stdout == shown


def test_table_of_certainties_is_exact() -> None:
    rows = re.findall(r"^\| ([\d.]+)(?: and more)? \| ([^|]+) \| ([^|]+) \|$", CONSENT_PAGE, flags=re.MULTILINE)
    assert len(rows) == 3
    for epsilon, certainty, words in rows:
        exact = 100 / (1 + math.exp(-float(epsilon)))
        if certainty.startswith("more than"):
            assert exact > 99.9
            continue
        assert float(certainty.split()[0]) == pytest.approx(exact, abs=0.06)
        assert words == "a guess" or f"{certainty_percent(float(epsilon) - 0.002):g} %" in words


def test_code_asks_once_and_shows_the_page(tmp_path: Path) -> None:
    (tmp_path / "metrics.toml").write_text((REPOSITORY / "examples" / "app_metrics.toml").read_text())
    ask, show = blocks(CONSENT_PAGE, "python")
    code = f"asked = []\ndef ask_user(text):\n    asked.append(text)\n    return True\n{ask}{show}"
    code += (
        "print(len(asked), client.consent.level, client.consent.text == text, '<!doctype' in page, state.consent.level)"
    )
    assert run(code, tmp_path) == "1 on True True on\n"
    assert run(code, tmp_path) == "0 on True True on\n"  # the second start does not ask
