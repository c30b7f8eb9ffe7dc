"""Reports and counts are deleted only for a metric that the definitions contain and an option names."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from shutil import copyfile

import pytest

from hubbub import Definitions
from hubbub_aggregator.pipeline.folding import fold, read_summary
from hubbub_aggregator.pipeline.retention import upkeep, warn_of_reports_without_rule
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_aggregator.store.tokens import Scope, Token, hash_secret
from tests.aggregator.conftest import FakeClock, MakeBatch, StartAggregator

TODAY, START = "2024-06-15", datetime(2024, 6, 15, 12, tzinfo=UTC)
END = datetime(2024, 6, 16, tzinfo=UTC)
CLOSES = END + timedelta(days=30)
RETAIN = Settings(keep_reports={"homepage": 1000, "carrier": 1000})
OPTIONS = [  # reports do not outlive their counts
    (reports, counts)
    for reports, counts in product((None, 0, 2, 35), (None, 0, 35))
    if reports is None or counts is None or reports <= counts
]
DAYS = (0, 1, 3, 31, 60)


@pytest.fixture(scope="module")
def retained(definitions: Definitions, make_batch: MakeBatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with three counted and retained reports of `homepage` and of `carrier`, a token and a session."""
    path = tmp_path_factory.mktemp("retained") / "reports.db"
    with closing(SqlStore.open(path)) as store:
        store.append([make_batch(definitions["homepage"]), make_batch(definitions["carrier"])])
        upkeep(store, definitions, RETAIN, START)
        store.add_token(Token("old", frozenset([Scope.READ])), hash_secret("old"))
        assert store.add_session(hash_secret("cookie"), "old", 1 << 40, 0)
    return path


@pytest.fixture
def copies(retained: Path, tmp_path: Path) -> Iterator[Iterator[SqlStore]]:
    """Stores of fresh copies of the database."""

    def open_copies() -> Generator[SqlStore, None, None]:
        while True:
            with closing(SqlStore.open(Path(copyfile(retained, tmp_path / "reports.db")))) as store:
                yield store

    stores = open_copies()
    yield stores
    stores.close()


def without(definitions: Definitions, *names: str) -> Definitions:
    return Definitions([metric for metric in definitions.versions() if metric.name not in names])


def named(option: int | None) -> Mapping[str, int]:
    return {} if option is None else {"homepage": option}


@pytest.mark.parametrize("is_defined", [True, False])
@pytest.mark.parametrize(("keep_reports", "keep_counts"), OPTIONS)
def test_upkeep_deletes_only_what_an_option_names(
    copies: Iterator[SqlStore],
    definitions: Definitions,
    make_batch: MakeBatch,
    keep_reports: int | None,
    keep_counts: int | None,
    is_defined: bool,
) -> None:
    """Options absent, 0 and N; the metric defined and removed; days until after the last limit. `carrier` is never named."""
    settings = Settings(keep_counts=named(keep_counts), keep_reports=named(keep_reports))
    homepage, carrier = definitions["homepage"], definitions["carrier"]
    defined = definitions if is_defined else without(definitions, "homepage", "carrier")
    for days in DAYS:
        store, now = next(copies), START + timedelta(days=days)
        store.append([make_batch(homepage), make_batch(carrier)])
        for _ in range(2):
            upkeep(store, defined, settings, now)
        drops_counts = is_defined and keep_counts is not None and now >= max(CLOSES, END + timedelta(days=keep_counts))
        drops_reports = drops_counts or (
            is_defined and keep_reports is not None and (keep_reports == 0 or now >= END + timedelta(days=keep_reports))
        )
        keeps_new = is_defined and bool(keep_reports) and not drops_reports
        assert read_summary(store, homepage).num_reports == (0 if drops_counts else 6), days
        assert store.num_retained(homepage.digest) == (0 if drops_reports else 6 if keeps_new else 3), days
        assert read_summary(store, carrier).num_reports == 6, days
        assert store.num_retained(carrier.digest) == 3, "without the option, new reports are counted only"
        assert [token.name for token in store.tokens()] == ["old"]
        assert store.session(hash_secret("cookie"), 0) is not None


def test_service_without_the_option_keeps_retained_reports(
    start: StartAggregator, store: SqlStore, definitions: Definitions, make_batch: MakeBatch
) -> None:
    """Neither a start nor 20 rounds of upkeep delete them; the pages and the export say that there is no rule."""
    homepage = definitions["homepage"]
    store.append([make_batch(homepage)])
    fold(store, homepage, keeps_reports=lambda _period: True)
    aggregator = start(store, fold_interval=0.01)
    clock = aggregator.clock
    assert isinstance(clock, FakeClock)
    clock.now = START + timedelta(days=5)
    for _ in range(20):
        assert aggregator.post(make_batch(homepage, period="2024-06-20")).status == 202
    refused = aggregator.get("/v1/metrics/homepage/reports")
    assert refused.status == 404
    assert "neither retained nor exported; `hubbub serve --keep-reports homepage=N` does both" in refused.json["detail"]
    page = aggregator.get("/metric/homepage", accept="text/html").page
    assert "3 retained reports of earlier batches stay stored until --keep-reports names the metric" in page
    assert store.num_retained(homepage.digest) == 3


def test_reports_without_a_rule_are_named_with_both_ways_out(
    copies: Iterator[SqlStore], definitions: Definitions, caplog: pytest.LogCaptureFixture
) -> None:
    store = next(copies)
    digest = definitions["homepage"].digest[:12]

    def warnings(defined: Definitions, **keep_reports: int) -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            warn_of_reports_without_rule(store, defined, Settings(keep_reports=keep_reports))
        return [record.getMessage() for record in caplog.records]

    assert warnings(definitions, homepage=3, carrier=0) == []
    [warned] = warnings(definitions, carrier=0)
    assert warned == (
        f"3 retained reports of homepage ({digest}) stay stored without a rule: --keep-reports does not name homepage, so new reports "
        "are counted only. Pass --keep-reports homepage=N to keep reports until N periods after the end of their period, or "
        "--keep-reports homepage=0 to delete them"
    )
    [removed] = warnings(without(definitions, "homepage"), homepage=3, carrier=0)
    assert "the definitions have no version with this digest. To change this, put its table back" in removed
    assert len(warnings(definitions)) == 2
