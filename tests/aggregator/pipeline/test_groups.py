"""Metrics with a group in an aggregator: each value is counted by itself, their sum is the metric, and nothing is counted twice."""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Collection
from contextlib import closing
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

from hubbub import Batch, Definitions, Metric, UnaryResponse
from hubbub.cli import main
from hubbub.errors import SummaryError
from hubbub.metrics.group import Group
from hubbub.summary import BitCounts, PatternCounts, read_collected
from hubbub_aggregator.api.dashboard.privacy_figures import last_central_epsilon
from hubbub_aggregator.pipeline.folding import fold, read_summary
from hubbub_aggregator.pipeline.retention import upkeep
from hubbub_aggregator.segments import folding
from hubbub_aggregator.segments.object_store import ObjectStore
from hubbub_aggregator.segments.segment_store import open_segment_store
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.period_figures import StoredFigures
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_decoder.data.pull import pull_summary
from hubbub_decoder.errors import PullError
from hubbub_decoder.planning.definition import toml_lines
from tests.aggregator.conftest import NOON, TODAY
from tests.support.every_kind import METRICS, NOISE, PARAMS, VERSION

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch, StartAggregator

NAMES = ("browser", "dark", "size", "delay")
GROUPED = [replace(metric, group=VERSION) for metric in METRICS if metric.name in NAMES]
PAGE = Metric.string("homepage", PARAMS, group=Group("arm", ("a", "b", "other")))
PLAIN = Metric.boolean("plain", UnaryResponse(**NOISE))


@pytest.fixture
def definitions() -> Definitions:
    return Definitions([*GROUPED, PAGE, PLAIN])


def random_batches(make_batch: MakeBatch, metrics: list[Metric], seed: int, number: int = 40) -> list[Batch]:
    """Batches of random values and periods; some are sent twice."""
    rng, batches = np.random.default_rng(seed), list[Batch]()
    for _ in range(number):
        if batches and rng.random() < 0.2:
            batches.append(batches[rng.integers(len(batches))])
            continue
        metric = metrics[rng.integers(len(metrics))]
        value = metric.group.values[rng.integers(len(metric.group.values))] if metric.group else ""
        period = (TODAY, "2024-06-14")[rng.integers(2)]
        sizes = {"n": int(rng.integers(1, 6)), "period": period, "group": value}
        batches.append(make_batch(metric, batch_id=uuid.UUID(bytes=rng.bytes(16), version=4), **sizes))
    return batches


def expected(batches: list[Batch], metric: Metric, value: str | None) -> BitCounts:
    """Counts of the batches of a metric with a value, None: any, each once."""
    of_value = metric if value is None else metric.in_group(value)
    total = BitCounts.empty(of_value)
    for batch in {batch.batch_id: batch for batch in batches}.values():
        if batch.metric == metric.name and value in (None, batch.group):
            total = total + BitCounts.from_rows(of_value, batch.cohorts, batch.rows, [batch.period])
    return total


def test_each_value_is_counted_once_and_the_sum_is_the_metric(
    start: StartAggregator, store: SqlStore, definitions: Definitions, make_batch: MakeBatch, unseen_seed: int
) -> None:
    aggregator, metrics = start(store), list(definitions.versions())
    batches = random_batches(make_batch, metrics, unseen_seed)
    seen: defaultdict[uuid.UUID, int] = defaultdict(int)
    for number, batch in enumerate(batches):
        assert aggregator.post(batch).status == (202 if not seen[batch.batch_id] else 200)
        seen[batch.batch_id] += 1
        if number % 10 == 0:
            for collection in definitions.collections():
                fold(store, collection)
    for metric in metrics:
        for value in (None, *(metric.group.values if metric.group else ())):
            query = "" if value is None else f"?group={value}"
            found = aggregator.summary(metric.name, query).bit_counts()
            assert found == expected(batches, metric, value)
            assert found.metric == metric.in_group(value)
    assert aggregator.stored() == sum(len(batch) for batch in {batch.batch_id: batch for batch in batches}.values())


def test_a_value_in_two_batches_of_one_id_is_two_collections(store: SqlStore, make_batch: MakeBatch) -> None:
    first = make_batch(PAGE, group="a")
    second = replace(first, group="b")
    assert [outcome.value for outcome in store.append([first, second, first])] == ["stored", "stored", "duplicate"]
    assert store.contains(first)
    assert not store.contains(replace(first, group="other"))
    assert not store.contains(replace(first, group="\ud800"))


@pytest.mark.parametrize(
    ("metric", "value", "detail"),
    [
        (PAGE, "", "group must be one of a, b, other, got ''"),
        (PAGE, "c", "group must be one of a, b, other, got 'c'"),
        (PAGE, "A", "group must be one of a, b, other, got 'A'"),
        (PLAIN, "a", "plain has no group: leave it out, got 'a'"),
    ],
)
def test_other_values_are_refused(
    metric: Metric, value: str, detail: str, start: StartAggregator, store: SqlStore, make_batch: MakeBatch
) -> None:
    answer = start(store).post(make_batch(metric, group=value))
    assert (answer.status, answer.json["type"].rpartition("/")[2]) == (422, "wrong-group")
    assert detail in answer.json["detail"]
    assert list(store.open_periods()) == []


@pytest.mark.parametrize("value", ["1", "null", "[]", '{"a": 1}', '"a","group":"b"', '"a","\\u0067roup":"b"'])
def test_a_group_that_is_no_text_or_repeated_is_malformed(
    value: str, start: StartAggregator, store: SqlStore, make_batch: MakeBatch
) -> None:
    body = make_batch(PAGE, group="a").to_json().replace(b'"group":"a"', b'"group":%b' % value.encode())
    answer = start(store).post(body)
    assert (answer.status, answer.json["type"].rpartition("/")[2]) == (400, "malformed")


def test_digests_of_values_are_no_definitions(start: StartAggregator, store: SqlStore, make_batch: MakeBatch) -> None:
    """A client names the definition and the value; a value's own digest is the aggregator's."""
    answer = start(store).post(make_batch(PAGE.in_group("a")))
    assert answer.status == 409


def test_queries(start: StartAggregator, store: SqlStore, make_batch: MakeBatch) -> None:
    aggregator = start(store, keep_reports={"homepage": 2})
    aggregator.post(make_batch(PAGE, group="a"))
    assert aggregator.summary("homepage", f"?digest={PAGE.digest}&group=a").num_reports == 3
    assert aggregator.summary("homepage", "?group=b").num_reports == 0
    for query, detail in (("group=c", "has no value 'c'"), ("group=", "has no value ''")):
        answer = aggregator.get(f"/v1/metrics/homepage/summary?{query}")
        assert (answer.status, detail in answer.json["detail"]) == (422, True)
    assert "plain has no group" in aggregator.get("/v1/metrics/plain/summary?group=a").json["detail"]
    answer = aggregator.get("/v1/metrics/homepage/reports")
    assert "exported for one value of its group, a, b, other" in answer.json["detail"]
    assert aggregator.get("/v1/metrics/homepage/reports?group=a").status == 200


def test_a_sum_of_one_value_is_of_all_values(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch, tmp_path: Path
) -> None:
    aggregator = start(store)
    aggregator.post(make_batch(PAGE, n=4, group="b"))
    command = ["pull", aggregator.url, "homepage", "--by-group", "--out", str(tmp_path / "homepage.parquet")]
    assert CliRunner().invoke(main, command).exit_code == 0
    assert read_collected(tmp_path / "homepage.parquet") == aggregator.summary("homepage")
    assert read_collected(tmp_path / "homepage-b.parquet").metric == PAGE.in_group("b")


@pytest.mark.parametrize("content", ["bits", "reports"])
def test_pull_writes_a_file_for_each_value_with_reports(
    content: str, start: StartAggregator, store: SqlStore, make_batch: MakeBatch, tmp_path: Path
) -> None:
    aggregator = start(store, keep_reports={"homepage": 2, "plain": 2})
    batches = [make_batch(PAGE, n=5, group="a"), make_batch(PAGE, n=2, group="b"), make_batch(PLAIN)]
    for batch in batches:
        assert aggregator.post(batch).status == 202
    (tmp_path / "homepage-other.parquet").write_bytes(b"of an earlier day")

    def pull(metric: str) -> dict[str, Any]:
        command = ["pull", aggregator.url, metric, "--by-group", "--content", content, "--json", "--out"]
        ran = CliRunner().invoke(main, [*command, str(tmp_path / f"{metric}.parquet")], catch_exceptions=False)
        assert ran.exit_code == 0, ran.stderr
        read: dict[str, Any] = json.loads(ran.stdout)
        return read

    total = [(None, 7)] if content == "bits" else []
    assert [(file["group"], file["num_reports"]) for file in pull("homepage")["files"]] == [("a", 5), ("b", 2), *total]
    assert [file["num_reports"] for file in pull("plain")["files"]] == [3]
    assert {path.name for path in tmp_path.glob("*.parquet")} == {
        "homepage-a.parquet",
        "homepage-b.parquet",
        "plain.parquet",
        *(["homepage.parquet"] if total else []),
    }
    if total:
        found = read_collected(tmp_path / "homepage.parquet").bit_counts()
        assert found == aggregator.summary("homepage").bit_counts()
    for value in "ab":
        found = read_collected(tmp_path / f"homepage-{value}.parquet").bit_counts()
        assert found == expected(batches, PAGE, value)


def test_a_pull_that_fails_between_values_changes_no_file(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aggregator = start(store)
    for value in "ab":
        aggregator.post(make_batch(PAGE, group=value))

    def failing(*arguments: Any, group: str | None = None, **options: Any) -> BitCounts | PatternCounts:
        if group == "b":
            raise SummaryError("the connection broke")
        return pull_summary(*arguments, group=group, **options)

    (tmp_path / "homepage.parquet").write_bytes(b"the sum of an earlier download")
    command = ["pull", aggregator.url, "homepage", "--by-group", "--out", str(tmp_path / "homepage.parquet")]
    with monkeypatch.context() as patched:
        patched.setattr("hubbub_decoder.data.pull.pull_summary", failing)
        assert CliRunner().invoke(main, command).exit_code == 1
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".parquet"] == ["homepage.parquet"]
    assert CliRunner().invoke(main, command).exit_code == 0
    assert read_collected(tmp_path / "homepage.parquet").num_reports == 6


def test_pull_keeps_final_files_and_repeats_others(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch, tmp_path: Path
) -> None:
    aggregator, file = start(store), tmp_path / "homepage.parquet"
    batch = make_batch(PAGE, n=4, group="a")
    aggregator.post(batch)
    options = ["--period", batch.period, "--by-group", "--out", str(file)]

    def pull(*more: str, url: str = aggregator.url) -> str:
        done = CliRunner().invoke(main, ["pull", url, "homepage", *options, *more])
        assert done.exit_code == 0, done.output
        return done.stderr

    assert "may still grow" in pull()
    aggregator.post(make_batch(PAGE, n=2, group="b"))
    assert "6 reports" in pull()
    for value in "ab":
        store.close_period(PAGE.in_group(value), batch.period)
    assert "6 reports of homepage\n" in pull()
    kept = {path: path.read_bytes() for path in tmp_path.glob("*.parquet")}
    assert len(kept) == 3
    assert "its counts are final" in pull(url="http://127.0.0.1:9")
    assert all(read_collected(path).closed for path in kept)
    for damage in (b"x", None):  # of one value: all are downloaded again
        file.with_stem("homepage-b").write_bytes(damage) if damage else file.with_stem("homepage-b").unlink()
        assert "wrote" in pull()
        assert {path: path.read_bytes() for path in tmp_path.glob("*.parquet")} == kept


@pytest.mark.parametrize("options", [[], ["--by-group"]], ids=["sum", "values"])
def test_pull_keeps_reports_that_the_aggregator_has_deleted(
    options: list[str],
    start: StartAggregator,
    store: SqlStore,
    make_batch: MakeBatch,
    tmp_path: Path,
) -> None:
    """An answer without reports replaced a file of an earlier version by an empty one, with exit code 0."""
    aggregator, file = start(store), tmp_path / "homepage.parquet"
    batches = [make_batch(PAGE, n=4, group="a"), make_batch(PAGE, n=2, group="b")]
    for batch in batches:
        aggregator.post(batch)
    command = ["pull", aggregator.url, "homepage", "--period", batches[0].period, "--out", str(file), "--allow-missing"]
    assert CliRunner().invoke(main, [*command, *options]).exit_code == 0
    before = {path: read_collected(path).num_reports for path in tmp_path.glob("*.parquet")}
    for value in "ab":
        store.close_period(PAGE.in_group(value), batches[0].period)
    assert read_summary(store, PAGE).closed
    for value in "ab":
        store.purge(PAGE.in_group(value).digest, batches[0].period)
        assert not read_summary(store, PAGE).closed
        for more in ([], ["--by-group"], ["--json"]):
            done = CliRunner().invoke(main, [*command, *options, *more])
            assert done.exit_code == 0, done.output
            assert {path: read_collected(path).num_reports for path in before} == before
    assert "may still grow" not in done.stderr


def test_periods_of_all_values_are_closed_and_purged(
    store: SqlStore, definitions: Definitions, make_batch: MakeBatch
) -> None:
    store.append([make_batch(PAGE, group=value) for value in ("a", "b")] + [make_batch(PLAIN)])
    settings = Settings(keep_counts={"homepage": 40})
    upkeep(store, definitions, settings, NOON)
    assert store.segments_waiting() == 0
    assert read_summary(store, PAGE).num_reports == 6
    upkeep(store, definitions, settings, NOON + timedelta(days=32))
    assert store.open_periods() == []
    assert store.append([make_batch(PAGE, group="a")])[0].value == "closed"
    upkeep(store, definitions, settings, NOON + timedelta(days=42))
    assert (read_summary(store, PAGE).num_reports, read_summary(store, PLAIN).num_reports) == (0, 3)


def test_pages_have_the_sum_and_a_link_for_each_value(
    start: StartAggregator, store: SqlStore, definitions: Definitions, make_batch: MakeBatch
) -> None:
    aggregator = start(store, fold_interval=3600)
    for value, number in (("a", 5), ("b", 2)):
        aggregator.post(make_batch(PAGE, n=number, group=value))
    page = aggregator.get("/metric/homepage").page
    assert '<a href="/v1/metrics/homepage/summary?group=a">Counts of a</a> <span class="dim">5 reports</span>' in page
    assert "7 reports in 1 period" in page
    assert "arm, sent in clear with each report: a, b, other" in page
    overview = aggregator.get("/").page
    assert overview.count('href="/metric/homepage"') == 1
    assert 'metric="homepage"' in aggregator.get("/metrics").body.decode()
    assert len(aggregator.get("/v1/metrics").json["metrics"]) == len(definitions)
    upkeep(store, definitions, Settings(), NOON)
    sizes = {
        TODAY: min(read_summary(store, collection).bit_counts().reports.max() for collection in PAGE.collections[:2])
    }
    central = last_central_epsilon(store, Settings(), PAGE, sizes, NOON + timedelta(days=5))
    assert central is not None
    assert central.reports == sizes[TODAY]


def test_segments_are_folded_by_value(
    definitions: Definitions,
    make_batch: MakeBatch,
    tmp_path: Path,
    unseen_seed: int,
) -> None:
    metrics = [PAGE, *GROUPED[:2]]
    batches = random_batches(make_batch, metrics, unseen_seed)
    with closing(
        open_segment_store(tmp_path / "db", ObjectStore.open(str(tmp_path / "segments")), uuid.uuid4)
    ) as store:
        store.append(batches)
    (tmp_path / "metrics.toml").write_text(toml(metrics))
    command = [
        "fold",
        str(tmp_path / "metrics.toml"),
        str(tmp_path / "segments"),
        "--out-dir",
        str(tmp_path / "out"),
        "--json",
    ]
    ran = CliRunner().invoke(main, command, catch_exceptions=False)
    assert {result["status"] for result in json.loads(ran.stdout)} == {"folded"}
    found: dict[str, BitCounts] = {}
    for path in (tmp_path / "out").iterdir():
        counts = read_collected(path).bit_counts()
        key = counts.metric.digest
        found[key] = found[key] + counts if key in found else counts
    for metric in metrics:
        for value in {batch.group for batch in batches if batch.metric == metric.name}:
            assert found[metric.in_group(value).digest] == expected(batches, metric, value)
        if metric.group is not None:
            values = [found[one.digest] for one in metric.collections if one is not metric and one.digest in found]
            assert np.array_equal(found[metric.digest].ones, sum(one.ones for one in values))


@pytest.mark.parametrize("fault", ["damaged", "came during the run", "earlier names"])
def test_fold_writes_no_sum_that_lacks_a_value(
    fault: str, make_batch: MakeBatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [make_batch(PAGE, group=value) for value in ("a", "b")]
    objects = ObjectStore.open(str(tmp_path / "segments"))
    with closing(open_segment_store(tmp_path / "db", objects, uuid.uuid4)) as store:
        store.append(batches)
    (tmp_path / "metrics.toml").write_text(toml([PAGE]))
    command = ["fold", str(tmp_path / "metrics.toml"), str(tmp_path / "segments"), "--out-dir", str(tmp_path / "out")]
    found = folding.folders(objects)
    if fault == "damaged":
        (segment,) = objects.names(f"{found[1].path}/segments")
        objects.delete([segment])
        objects.create(segment, b"damaged")
    elif fault == "came during the run":
        listed = iter([found[:1], found])
        monkeypatch.setattr(folding, "folders", lambda _: next(listed))
    else:
        (tmp_path / "out").mkdir()
        for folder in found:
            (tmp_path / "out" / f"homepage@{folder.digest[:8]}-{TODAY}.parquet").write_bytes(b"x")
    done = CliRunner().invoke(main, command)
    assert done.exit_code == (1 if fault == "damaged" else 0), done.output
    written = [read_collected(path) for path in (tmp_path / "out").iterdir()]
    sums = [counts.num_reports for counts in written if counts.metric.digest == PAGE.digest]
    assert sums == ([sum(len(batch) for batch in batches)] if fault == "earlier names" else [])
    assert len(written) == (3 if fault == "earlier names" else 1)


def toml(metrics: list[Metric]) -> str:
    """Definitions of these metrics."""
    texts: dict[str, Any] = {"description": "d", "owner": "o", "expires": date(2030, 1, 1)}
    return "\n".join(line for metric in metrics for line in toml_lines(replace(metric, **texts)))


def test_pull_all_takes_each_period_and_value_once(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch, tmp_path: Path
) -> None:
    aggregator, place = start(store), tmp_path / "summaries"
    early, late = "2024-06-13", "2024-06-14"
    for batch in (
        make_batch(PAGE, n=4, group="a", period=early),
        make_batch(PAGE, n=2, group="b", period=early),
        make_batch(PAGE, n=5, group="a", period=late),
        make_batch(PLAIN, n=3, period=early),
        make_batch(PLAIN, n=6, period=late),
    ):
        assert aggregator.post(batch).status == 202

    def pull(*more: str, code: int = 0, url: str = aggregator.url) -> dict[str, Any]:
        command = ["pull", url, "--all", "--out-dir", str(place), "--json", *more]
        ran = CliRunner().invoke(main, command)
        assert ran.exit_code == code, ran.output
        read: dict[str, Any] = json.loads(ran.stdout) if ran.stdout else {}
        return read

    page, plain = (f"{metric.name}@{metric.digest[:8]}" for metric in (PAGE, PLAIN))
    assert pull() == {"files": [], "kept": 0, "open": 4, "failed": []}
    for metric in (PAGE, PLAIN):
        store.close_period(metric.collections[0], early)
    assert len(pull()["files"]) == 4
    assert {path.name for path in place.iterdir()} == {
        f"{page}-{early}.parquet",
        f"{page}-{early}-a.parquet",
        f"{page}-{early}-b.parquet",
        f"{plain}-{early}.parquet",
    }
    kept = {path: path.stat().st_mtime_ns for path in place.iterdir()}
    first = pull("--open")
    assert (len(first["files"]), first["kept"]) == (3, 2)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    again = pull("--open")
    assert (again["files"], again["kept"]) == ([], 4), "the same number of reports is not downloaded again"
    aggregator.post(make_batch(PLAIN, n=1, period=late))
    assert [(file["metric"], file["num_reports"]) for file in pull("--open")["files"]] == [("plain", 7)]
    for metric, period in ((PAGE, early), (PAGE, late), (PLAIN, late)):
        assert read_collected(place / f"{metric.name}@{metric.digest[:8]}-{period}.parquet") == aggregator.summary(
            metric.name, f"?period={period}"
        )
    store.close_period(PLAIN, late)
    assert [file["closed"] for file in pull()["files"]] == [True], "a file of the open period is not final"
    pull(code=1, url="http://127.0.0.1:9")


def test_pull_all_continues_after_a_failure_and_then_exits_with_1(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aggregator, day = start(store), "2024-06-13"
    for batch in (make_batch(PAGE, group="a", period=day), make_batch(PLAIN, period=day)):
        aggregator.post(batch)
    command = ["pull", aggregator.url, "--all", "--open", "--out-dir", str(tmp_path)]

    def failing(url: str, metric: str, **options: Any) -> BitCounts | PatternCounts:
        if metric == "homepage" and options["group"] == "a":
            raise PullError("the connection broke")
        return pull_summary(url, metric, **options)

    with monkeypatch.context() as patched:
        patched.setattr("hubbub_decoder.data.pull.pull_summary", failing)
        ran = CliRunner().invoke(main, command)
    assert (ran.exit_code, "1 of 2 periods could not be downloaded" in ran.stderr) == (1, True)
    assert f"failed: homepage of {day}: the connection broke" in ran.stderr
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".parquet"] == [
        f"plain@{PLAIN.digest[:8]}-{day}.parquet"
    ]
    assert CliRunner().invoke(main, command).exit_code == 0
    assert len([*tmp_path.glob("homepage*")]) == 2


def test_pull_all_finds_files_of_other_names_and_counts_no_period_twice(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch, tmp_path: Path
) -> None:
    aggregator, days = start(store), ("2024-06-13", "2024-06-14")
    for day in days:
        aggregator.post(make_batch(PAGE, group="a", period=day))
        aggregator.post(make_batch(PLAIN, period=day))
    one = ["pull", aggregator.url, "homepage", "--by-group", "--period", days[0], "--out", str(tmp_path / "x.parquet")]
    assert CliRunner().invoke(main, one).exit_code == 0
    both = ["pull", aggregator.url, "plain", "--out", str(tmp_path / "both.parquet")]
    assert CliRunner().invoke(main, both).exit_code == 0
    ran = CliRunner().invoke(main, ["pull", aggregator.url, "--all", "--open", "--out-dir", str(tmp_path)])
    assert (ran.exit_code, "2 of 4 periods could not be downloaded" in ran.stderr) == (1, True)
    assert f"both.parquet also has reports of plain of {days[0]}, which would be counted twice" in ran.stderr
    page = f"homepage@{PAGE.digest[:8]}-{days[1]}"
    assert {path.name for path in tmp_path.glob("*.parquet")} == {
        "both.parquet",
        "x.parquet",
        "x-a.parquet",
        f"{page}.parquet",
        f"{page}-a.parquet",
    }


def test_explore_downloads_open_periods_first(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory need not exist. Without the aggregator nothing is shown, because it would be old."""
    aggregator, shown = start(store), list[list[str]]()
    aggregator.post(make_batch(PLAIN, period="2024-06-13"))

    def serve(directory: Path, *_: Any, **__: Any) -> None:
        shown.append([path.name for path in directory.glob("*.parquet")])

    monkeypatch.setattr("hubbub_decoder.explore.serving.serve", serve)
    place = str(tmp_path / "summaries")
    for url, code in ((aggregator.url, 0), ("http://127.0.0.1:9", 1)):
        assert CliRunner().invoke(main, ["explore", place, "--pull", url]).exit_code == code
    assert shown == [[f"plain@{PLAIN.digest[:8]}-2024-06-13.parquet"]]


def test_a_period_that_begins_while_the_periods_are_listed_is_open(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    aggregator, read = start(store), store.period_rows

    def period_rows(digests: Collection[str]) -> list[StoredFigures]:
        assert aggregator.post(make_batch(PLAIN)).status == 202
        return read(digests)

    monkeypatch.setattr(store, "period_rows", period_rows)
    assert [found["closed"] for found in aggregator.get("/v1/periods").json["periods"]] == [False]
