"""Integrity checks find damage anywhere in a database."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from hubbub import Definitions
from hubbub.cli import main
from hubbub.cli.findings import Health
from hubbub_aggregator.cli.database_checks import check_damage
from hubbub_aggregator.database.engine import open_existing
from hubbub_aggregator.database.integrity import find_damage
from hubbub_aggregator.database.schema import SCHEMA_VERSION
from hubbub_aggregator.pipeline.folding import fold
from hubbub_aggregator.store.sql_store import SqlStore
from tests.aggregator.conftest import DEFINITIONS
from tests.support.databases import sql

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch

PAGE = 4096


@pytest.fixture
def filled(database: str, definitions: Definitions, make_batch: MakeBatch) -> str:
    """A database with ids and summaries on many pages, and segments."""
    store = SqlStore.open(database)
    for metric in (definitions["homepage"], definitions["carrier"]):
        store.append([make_batch(metric) for _ in range(400)])
        fold(store, metric)
        store.append([make_batch(metric, n=2_000)])
    store.close()
    return database


def found(database: str) -> list[str]:
    with open_existing(database, read_only=True) as engine:
        return find_damage(engine)


def checked(database: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["db", "check", "--database", database])
    return result.exit_code, result.output


def test_check_of_an_undamaged_database_finds_nothing(filled: str) -> None:
    assert found(filled) == []
    assert list(check_damage(filled)) == []
    assert checked(filled) == (0, f"schema version {SCHEMA_VERSION}: no damage found\n")


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_check_finds_any_overwritten_page(filled: str, tmp_path: Path) -> None:
    """Once passed by `db check`, doctor and /readyz, while nothing could be folded or read."""
    data, bad = Path(filled).read_bytes(), tmp_path / "bad.db"
    rng = random.Random(0)  # noqa: S311  (any bytes will do)
    pages = len(data) // PAGE
    assert pages >= 20
    for page in range(1, pages):  # without the first the file is no database
        bad.write_bytes(data[: page * PAGE] + rng.randbytes(PAGE) + data[(page + 1) * PAGE :])
        assert found(str(bad)), page
    code, output = checked(str(bad))
    assert code == 1
    assert (
        "the database is damaged: stop the aggregator, keep the file, and restore the last backup into a new file"
        in output
    )
    as_json = json.loads(CliRunner().invoke(main, ["db", "check", "--database", str(bad), "--json"]).stdout)
    assert as_json["damaged"]
    assert [finding.health for finding in check_damage(str(bad))] == [Health.ERROR]


def test_check_reports_an_unreadable_summary_by_metric_and_period(filled: str) -> None:
    sql(filled, "UPDATE collection SET summary = substr(summary, 1, 100) WHERE metric = 'carrier'")
    assert found(filled) == ["the summary of 'carrier', '2024-06-15', cannot be read"]
    assert checked(filled)[0] == 1


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_doctor_reports_a_damaged_database(filled: str, tmp_path: Path) -> None:
    (tmp_path / "metrics.toml").write_text(DEFINITIONS)
    bad = tmp_path / "bad.db"
    shutil.copy(filled, bad)
    with bad.open("r+b") as file:
        file.seek(bad.stat().st_size // 2 // PAGE * PAGE)
        file.write(bytes(PAGE))
    result = CliRunner().invoke(
        main, ["doctor", str(tmp_path / "metrics.toml"), "--refusal-window", "0", "--database", str(bad), "--json"]
    )
    assert result.exit_code == 1
    assert [finding for finding in json.loads(result.stdout)["findings"] if "damaged: " in finding["observation"]]
