"""`hubbub doctor` of an aggregator: each problem is found, with its impact and the next step."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from hubbub import Definitions, ProblemType
from hubbub.cli import main
from hubbub.cli.findings import Finding, Health
from hubbub_aggregator.cli.database_checks import check_periods, check_refusals, check_tokens
from hubbub_aggregator.cli.deployment_checks import (
    DeploymentOptions,
    check_address,
    check_aggregator,
    check_expiry,
    check_free_space,
)
from hubbub_aggregator.cli.service_checks import Reply, check_proxy, check_service
from hubbub_aggregator.pipeline.folding import fold
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_aggregator.store.tokens import Scope, Token, hash_secret
from tests.aggregator.conftest import DEFINITIONS, NOON
from tests.support.databases import sql

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch, StartAggregator

NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.toml"
    path.write_text(DEFINITIONS.replace("2024-06-15", "2029-06-15"))
    return path


def all_findings(file: Path, database: str | Path, now: datetime = NOW, **settings: Any) -> list[Finding]:
    """Return all findings, with file times that agree with the clock."""
    for path in (file, Path(database)):
        if path.exists():
            os.utime(path, (NOW.timestamp(), NOW.timestamp()))
    options = DeploymentOptions(file, str(database), "127.0.0.1", Settings(**settings))
    return list(check_aggregator(options, now, lambda: None))


@pytest.mark.parametrize(("mode", "expected"), [(0o700, []), (0o750, ["segments"]), (0o705, ["segments"])])
def test_segments_that_other_users_reach_are_a_warning(
    file: Path, tmp_path: Path, mode: int, expected: list[str]
) -> None:
    (place := tmp_path / "segments").mkdir()
    place.chmod(mode)
    options = DeploymentOptions(file, str(tmp_path / "reports.db"), "127.0.0.1", Settings(), segments=str(place))
    found = problems(list(check_aggregator(options, NOW, lambda: None)))
    assert [check for health, check in found if health is Health.WARNING and check == "segments"] == expected


def problems(findings: Sequence[Finding]) -> list[tuple[Health, str]]:
    """Return the findings other than OK; each must have an impact and a next step."""
    not_fine = [finding for finding in findings if finding.health is not Health.OK]
    assert all(finding.observation and finding.impact and finding.next_step for finding in not_fine)
    return [(finding.health, finding.check) for finding in not_fine]


def test_doctor_finds_no_problem_in_a_healthy_aggregator(file: Path, database: str) -> None:
    store = SqlStore.open(database)
    store.add_token(Token("all", frozenset({Scope.READ, Scope.METRICS})), hash_secret("x"))
    store.close()
    findings = all_findings(file, database, now=datetime.now(UTC) if database.startswith("postgres") else NOW)
    assert problems(findings) == []
    assert {"definitions", "address", "clock", "database", "tokens", "periods", "refusals"} <= {
        f.check for f in findings
    }


def test_doctor_reports_invalid_definitions_and_continues(file: Path, tmp_path: Path) -> None:
    file.write_text("[[metric]")
    findings = all_findings(file, tmp_path / "none.db")
    assert problems(findings) == [(Health.ERROR, "definitions"), (Health.ERROR, "database")]
    assert "is not TOML" in findings[0].observation


def test_doctor_names_expired_and_expiring_metrics(definitions: Definitions) -> None:
    assert problems(list(check_expiry(definitions, NOON))) == [(Health.WARNING, "definitions")]
    assert "gone (2024-06-15)" in next(check_expiry(definitions, NOON)).observation
    before = datetime(2024, 6, 1, tzinfo=UTC)
    assert "within 30 days: gone (2024-06-15)" in next(check_expiry(definitions, before)).observation


def test_doctor_warns_of_undefined_metrics_in_keep_counts(file: Path, tmp_path: Path) -> None:
    found = problems(all_findings(file, tmp_path / "none.db", keep_counts={"homepages": 3}))
    assert found == [(Health.WARNING, "retention"), (Health.ERROR, "database")]


@pytest.mark.parametrize(
    ("host", "local_reads_without_token", "found"),
    [
        ("127.0.0.1", False, []),
        ("::1", True, []),
        ("0.0.0.0", False, [Health.WARNING]),  # noqa: S104  (the warning is tested)
        ("example.org", True, [Health.WARNING]),
    ],
)
def test_doctor_warns_of_addresses_reachable_from_outside(
    host: str, local_reads_without_token: bool, found: list[Health]
) -> None:
    assert [
        health
        for health, _ in problems(
            list(check_address(host, Settings(local_reads_without_token=local_reads_without_token)))
        )
    ] == found


@pytest.mark.parametrize(
    ("free", "health"), [(99, Health.ERROR), (100, Health.WARNING), (399, Health.WARNING), (400, Health.OK)]
)
def test_doctor_compares_free_space_with_min_free_disk(free: int, health: Health) -> None:
    assert check_free_space(free, 100).health is health


def test_doctor_finds_a_clock_behind_file_times(file: Path, tmp_path: Path) -> None:
    earlier = datetime(2026, 11, 20, tzinfo=UTC)
    assert (Health.ERROR, "clock") in problems(all_findings(file, tmp_path / "none.db", now=earlier))


def test_doctor_finds_unusable_databases(file: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("this is a text, long enough that it cannot be taken for an empty database")
    assert (Health.ERROR, "database") in problems(all_findings(file, text))
    assert (Health.ERROR, "disk") in problems(all_findings(file, tmp_path / "nowhere" / "reports.db"))
    assert (Health.ERROR, "database") in problems(all_findings(file, tmp_path))
    assert (Health.ERROR, "database") in problems(all_findings(file, "."))
    empty = tmp_path / "empty.db"
    empty.touch()
    assert (Health.WARNING, "database") in problems(all_findings(file, empty))
    assert empty.stat().st_size == 0, "nothing is made"


def test_doctor_repeats_the_advice_of_a_schema_error(file: Path, sqlite_store: SqlStore, tmp_path: Path) -> None:
    sql(str(tmp_path / "reports.db"), "UPDATE alembic_version SET version_num = '0005'")
    (found,) = [finding for finding in all_findings(file, tmp_path / "reports.db") if finding.health is Health.ERROR]
    assert found.observation.endswith(found.next_step)
    assert found.next_step == "create a new one with `hubbub db create`"


@pytest.mark.slow
def test_doctor_finds_a_locked_database(file: Path, sqlite_store: SqlStore, tmp_path: Path) -> None:
    with sqlite_store._engine.execution_options(hubbub_writes=True).connect() as locked:
        locked.exec_driver_sql("SELECT 1")  # begins a transaction that locks the database for writing
        found = [finding for finding in all_findings(file, tmp_path / "reports.db") if finding.health is Health.ERROR]
    assert [finding.check for finding in found] == ["database"]
    assert "locked" in found[0].observation


def test_doctor_warns_of_databases_that_other_users_can_access(
    file: Path, sqlite_store: SqlStore, tmp_path: Path
) -> None:
    database = tmp_path / "reports.db"

    def found() -> list[str]:
        return [
            finding.next_step
            for finding in all_findings(file, database)
            if "other users of this machine" in finding.observation
        ]

    assert found() == []
    Path(f"{database}-wal").chmod(0o644)
    assert found() == [f"chmod go= {database}-wal"]
    tmp_path.chmod(0o777)
    assert found() == [f"chmod go= {database}-wal", f"chmod go-w {tmp_path}"]
    tmp_path.chmod(0o1777)
    assert len(found()) == 1


def test_doctor_warns_of_scopes_without_token(store: SqlStore) -> None:
    assert problems(list(check_tokens(store, Settings(), NOW.date()))) == [(Health.WARNING, "tokens")]
    assert problems(list(check_tokens(store, Settings(require_report_token=True), NOW.date())))[0] == (
        Health.ERROR,
        "tokens",
    )
    assert problems(list(check_tokens(store, Settings(local_reads_without_token=True), NOW.date()))) == []
    store.add_token(Token("reader", frozenset({Scope.READ})), hash_secret("x"))
    assert "no token has scope metrics" in next(check_tokens(store, Settings(), NOW.date())).observation
    store.add_token(Token("b", frozenset({Scope.METRICS}), expires=NOW.date()), bytes(32))
    store.add_token(Token("c", frozenset({Scope.REPORT}), expires=NOW.date() + timedelta(days=14)), bytes(31) + b"c")
    store.add_token(Token("d", frozenset({Scope.REPORT}), expires=NOW.date() + timedelta(days=15)), bytes(31) + b"d")
    found = [finding.observation for finding in check_tokens(store, Settings(), NOW.date())]
    assert found == [
        "b expired on 2026-11-21",
        "c expires on 2026-12-05",
        "no token has scope metrics",
    ], "an expired token is none"


def test_doctor_finds_overdue_periods(store: SqlStore, definitions: Definitions, make_batch: MakeBatch) -> None:
    homepage, carrier = definitions["homepage"], definitions["carrier"]
    without = Definitions([metric for metric in definitions.versions() if metric is not carrier])

    def found(definitions: Definitions, now: datetime, **settings: Any) -> list[tuple[Health, str]]:
        return problems(list(check_periods(store, store, definitions, Settings(**settings), now)))

    store.append([make_batch(homepage), make_batch(carrier)])
    assert found(definitions, NOON) == []
    assert found(without, NOON) == [(Health.WARNING, "periods")]
    assert found(definitions, datetime(2024, 6, 1, tzinfo=UTC)) == [(Health.WARNING, "clock")]
    assert found(definitions, datetime(2024, 7, 17, tzinfo=UTC)) == []
    assert found(definitions, datetime(2024, 7, 18, tzinfo=UTC)) == [(Health.ERROR, "periods")]
    for metric in (homepage, carrier):
        store.close_period(metric, "2024-06-15")
    later = datetime(2024, 9, 1, tzinfo=UTC)
    assert found(definitions, later) == [(Health.ERROR, "periods")], "they are not folded"
    for metric in (homepage, carrier):
        fold(store, metric)
    assert found(definitions, later, keep_counts={"homepage": 90}) == []
    assert found(definitions, later, keep_counts={"homepage": 10}) == [(Health.ERROR, "periods")]


def test_doctor_finds_overdue_retained_reports(
    store: SqlStore, definitions: Definitions, make_batch: MakeBatch
) -> None:
    metric = definitions["homepage"]

    def found(day: int, **retain: int) -> list[str]:
        looked = check_periods(
            store, store, definitions, Settings(keep_reports=retain), datetime(2024, 6, day, tzinfo=UTC)
        )
        return [finding.observation for finding in looked if finding.health is not Health.OK]

    store.append([make_batch(metric)])
    fold(store, metric, keeps_reports=lambda _period: True)
    store.append([make_batch(metric)])  # a later one, not folded yet
    assert found(18, homepage=2) == []
    assert found(19, homepage=2) == ["overdue by more than a day: to drop the reports of homepage 2024-06-15"]
    assert found(17) == ["reports of homepage are retained, but --keep-reports does not name the metric"]
    store.drop_reports(metric.digest, "2024-06-15")
    assert found(20, homepage=2) == found(20) == []


def test_doctor_finds_growing_refusals(store: SqlStore) -> None:
    def during(*refused: tuple[str, ProblemType]) -> Callable[[], None]:
        return lambda: store.add_refusals({(metric, refusal.slug): 5 for metric, refusal in refused})

    during(("homepage", ProblemType.DIGEST_MISMATCH), ("", ProblemType.MALFORMED))()
    quiet = list(check_refusals(store, lambda: None))
    assert problems(quiet) == []
    assert quiet[0].observation.startswith("no refused batches that an operator can fix; most frequent in total: ")
    assert "5 digest-mismatch of homepage" in quiet[0].observation
    grown = list(check_refusals(store, during(("homepage", ProblemType.DIGEST_MISMATCH), ("", ProblemType.MALFORMED))))
    assert problems(grown) == [(Health.WARNING, "refusals")]
    assert "5 more batches of homepage were refused as digest-mismatch" in grown[0].observation
    assert "clients have another definition" in grown[0].next_step


def test_doctor_prints_table_or_json_and_exits_with_1_on_errors(file: Path, tmp_path: Path) -> None:
    database = tmp_path / "reports.db"
    SqlStore.open(database).close()
    arguments = ["doctor", str(file), "--database", str(database), "--refusal-window", "0", "--port", "0"]
    well = CliRunner().invoke(main, arguments)
    assert well.exit_code == 0
    assert [line.split()[0] for line in well.stdout.splitlines() if line[0] != " "].count("warning") == 1
    assert "-> run `hubbub token create NAME --scope read`" in well.stdout
    bad = CliRunner().invoke(main, [*arguments, "--json", "--require-report-token"])
    printed = json.loads(bad.stdout)
    assert (bad.exit_code, printed["has_errors"]) == (1, True)
    assert {"health", "check", "observation", "impact", "next_step"} == set(printed["findings"][0])
    for wrong in (["doctor"], ["doctor", str(file), "--state", str(tmp_path)], [*arguments, "--max-body", "0"]):
        assert CliRunner().invoke(main, wrong).exit_code == 2


def test_doctor_reads_the_options_of_serve(file: Path, tmp_path: Path) -> None:
    (tmp_path / "serve.toml").write_text('min-free-disk = "900000GiB"\nport = 1\nlog-format = "json"\n')
    arguments = ["doctor", str(file), "--config", str(tmp_path / "serve.toml"), "--json", "--refusal-window", "0"]
    result = CliRunner().invoke(main, arguments, env={"HUBBUB_DATABASE": str(tmp_path / "x.db")})
    assert "--min-free-disk is 878.9 TiB" in result.stdout
    assert "x.db does not exist" in result.stdout


def test_doctor_accepts_a_missing_database_that_serve_creates(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def found(*arguments: str) -> dict[str, str]:
        options = ["--json", "--refusal-window", "0", "--port", "0"]
        done = CliRunner().invoke(main, ["doctor", str(file), *options, *arguments])
        (finding,) = [finding for finding in json.loads(done.stdout)["findings"] if finding["check"] == "database"]
        return {key: finding[key] for key in ("health", "observation")}

    text = "hubbub.db does not exist yet: hubbub serve creates it"
    assert found() == {"health": "ok", "observation": text}
    assert found("--database", "hubbub.db", "--create") == {"health": "ok", "observation": text}
    assert found("--database", "hubbub.db") == {"health": "error", "observation": "hubbub.db does not exist"}
    (tmp_path / "hubbub.db").touch(mode=0o600)
    assert found()["health"] == "ok"


PUBLIC = "https://telemetry.example.org"
ALIVE = {"status": "alive", "client_named": True}


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        (None, [(Health.WARNING, "service")]),
        (Reply(200, {"status": "ready"}), []),
        (Reply(503, {"detail": "the database file was removed"}), [(Health.ERROR, "service")]),
        (Reply(507, {"detail": "the disk is full"}), [(Health.ERROR, "service")]),
        (Reply(404, None), [(Health.WARNING, "service")]),
        (Reply(500, []), [(Health.WARNING, "service")]),
    ],
)
def test_doctor_finds_a_service_that_is_not_ready(reply: Reply | None, found: list[tuple[Health, str]]) -> None:
    findings = list(check_service("http://127.0.0.1:8000", lambda _url: reply))
    assert problems(findings) == found
    assert not found or reply is None or reply.status in (404, 500) or reply.json["detail"] in findings[0].observation


@pytest.mark.parametrize(
    ("replies", "found"),
    [
        ({}, [(Health.ERROR, "proxy")]),
        ({"/livez": Reply(502, None)}, [(Health.ERROR, "proxy")]),
        ({"/livez": Reply(200, ALIVE), "/": Reply(401, {}), "/metrics": Reply(401, {})}, []),
        ({"/livez": Reply(200, ALIVE | {"client_named": False})}, [(Health.WARNING, "proxy")]),
        ({"/livez": Reply(200, ALIVE), "/": Reply(303, None), "/metrics": Reply(200, None)}, [(Health.ERROR, "proxy")]),
    ],
)
def test_doctor_finds_proxies_without_client_address_or_with_unauthenticated_reads(
    replies: dict[str, Reply], found: list[tuple[Health, str]]
) -> None:
    assert problems(list(check_proxy(PUBLIC, lambda url: replies.get(url.removeprefix(PUBLIC))))) == found


def test_doctor_reports_a_database_that_was_moved_while_it_is_served(
    file: Path, start: StartAggregator, sqlite_store: SqlStore, tmp_path: Path
) -> None:
    port = int(start(sqlite_store).url.rpartition(":")[2])
    database = tmp_path / "reports.db"

    def found() -> list[Finding]:
        options = DeploymentOptions(file, str(database), "127.0.0.1", Settings(), port)
        return [finding for finding in check_aggregator(options, NOW, lambda: None) if finding.check == "service"]

    assert problems(found()) == []
    database.rename(tmp_path / "away.db")
    assert problems(found()) == [(Health.ERROR, "service")]
    assert "a file of the database was removed, replaced or truncated" in found()[0].observation
    (tmp_path / "away.db").rename(database)
    assert problems(found()) == []
