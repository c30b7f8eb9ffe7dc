"""Batch decoding: results, what is kept, what is decoded again, and processes that die."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from click.testing import CliRunner

from hubbub import Metric, Params, UnaryResponse
from hubbub.cli import main
from hubbub.summary import BitCounts, read_summary, write_summary
from hubbub_decoder import decode, simulate
from hubbub_decoder.batch_decoding import run as batch_run
from hubbub_decoder.batch_decoding.run import Outcome, ProcessDiedError, Status, map_in_processes, run_tasks
from hubbub_decoder.batch_decoding.tasks import content_hash, find_tasks
from hubbub_decoder.cli.decode_all import finish
from hubbub_decoder.kinds.operations import operations_of
from hubbub_decoder.options import Options
from hubbub_decoder.results_store.store import ResultsStore
from tests.support.every_kind import METRICS

PARAMS = Params(num_bits=16, num_hashes=1, num_cohorts=8, prob_p=0.25, prob_q=0.75, prob_f=0.25)
PAGE = Metric.string("page", PARAMS)
DAYS = ("2026-03-02", "2026-03-03", "2026-03-04")


def write_day(directory: Path, day: str, metric: Metric = PAGE, seed: int = 1, name: str = "") -> Path:
    people = {"a": 600, "b": 300} if metric.num_bits > 1 else {"true": 900}
    summary = simulate(metric, people, np.random.default_rng(seed), no_value=100, periods=[day])
    path = directory / f"{metric.name}-{day}{name}.parquet"
    directory.mkdir(parents=True, exist_ok=True)
    write_summary(summary, path)
    return path


@pytest.fixture
def summaries(tmp_path: Path) -> Path:
    folder = tmp_path / "summaries"
    for seed, day in enumerate(DAYS):
        write_day(folder, day, seed=seed)
    (tmp_path / "candidates").mkdir()
    (tmp_path / "candidates" / "page.txt").write_text("a\nb\nc\n")
    return folder


def run(summaries: Path, **options: object) -> dict[str, Outcome]:
    place = summaries.parent
    found = find_tasks(summaries, place / "candidates", Options(**options))  # type: ignore[arg-type]
    with ResultsStore(place / "results.sqlite") as store:
        return {outcome.name: outcome for outcome in run_tasks(*found, store, 1, place / "out")}


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode without a pool of processes."""
    monkeypatch.setattr(
        batch_run, "map_in_processes", lambda function, items, _: [(item, function(item)) for item in items]
    )


def name_of(day: str, metric: Metric = PAGE) -> str:
    return f"{metric.name}@{metric.digest[:8]}/{day}"


@pytest.mark.slow
def test_each_result_is_that_of_decode(summaries: Path) -> None:
    outcomes = run(summaries)
    assert {outcome.status for outcome in outcomes.values()} == {Status.DECODED}
    for day in DAYS:
        decoding = decode(read_summary(summaries / f"page-{day}.parquet"), ["a", "b", "c"])
        saved = json.loads((summaries.parent / "out" / f"{name_of(day)}.json").read_text())
        assert saved == json.loads(json.dumps(decoding.to_dict()))
        assert outcomes[name_of(day)].num_reports == 1_000
        assert outcomes[name_of(day)].num_detected == len(decoding.detected)


@pytest.mark.slow
def test_only_what_has_changed_is_decoded_again(summaries: Path) -> None:
    def decoded(**options: object) -> set[str]:
        outcomes = run(summaries, **options)
        assert {outcome.status for outcome in outcomes.values()} <= {Status.DECODED, Status.UNCHANGED}
        return {name.rpartition("/")[2] for name, outcome in outcomes.items() if outcome.status is Status.DECODED}

    assert decoded() == {*DAYS}
    assert decoded() == set()
    write_day(summaries, DAYS[1], seed=9)
    assert decoded() == {DAYS[1]}
    write_day(summaries, DAYS[0], seed=9, name="-second")  # added to the first file of this day
    assert decoded() == {DAYS[0]}
    assert decoded(confidence=0.9) == {*DAYS}
    (summaries.parent / "candidates" / "page.txt").write_text("a\nb\n")
    assert decoded(confidence=0.9) == {*DAYS}
    assert decoded(confidence=0.9) == set()


@pytest.mark.slow
def test_candidates_of_many_tasks_are_hashed_once(summaries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []

    def counted(path: Path) -> str:
        hashed.append(path.name)
        return content_hash(path)

    monkeypatch.setattr(batch_run, "content_hash", counted)
    run(summaries)
    assert sorted(hashed) == [*(f"page-{day}.parquet" for day in DAYS), "page.txt"]


@pytest.mark.slow
@pytest.mark.parametrize("candidates", ["a\nb\nc\n", "a\nb\na\n"], ids=["distinct", "repeated"])
def test_process_reads_the_candidates_of_a_metric_once(
    summaries: Path, monkeypatch: pytest.MonkeyPatch, candidates: str
) -> None:
    """The results are those of `decode` with the file's lines, also its warning of repeated candidates."""
    place, lines = summaries.parent, candidates.split()
    (place / "candidates" / "page.txt").write_text(candidates)
    tasks, _ = find_tasks(summaries, place / "candidates", Options())
    read = Mock(return_value=lines)
    monkeypatch.setattr(batch_run, "read_candidates", read)
    for task, day in zip(tasks, DAYS, strict=True):
        _, document = batch_run._decode(task)
        expected = decode(read_summary(summaries / f"page-{day}.parquet"), lines).to_dict()
        saved = json.loads(document)
        assert saved == json.loads(json.dumps(expected))
        assert any(warning["kind"] == "repeated_candidates" for warning in saved["warnings"]) == (len({*lines}) < 3)
    read.assert_called_once()


def test_tasks_that_decode_cannot_estimate_are_skipped_with_the_remedy(tmp_path: Path) -> None:
    chains = {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.5}
    write_day(tmp_path, DAYS[0])
    tasks, _ = find_tasks(tmp_path, None, Options())
    with ResultsStore(None) as store:
        [outcome] = run_tasks(tasks, [], store, 1, tmp_path / "out")
    assert (outcome.status, outcome.reason) == (
        Status.SKIPPED,
        "no candidates: add page.txt to the directory of --candidates",
    )
    assert not list((tmp_path / "out").rglob("*.json"))
    write_day(tmp_path, DAYS[0], Metric.boolean("paid", UnaryResponse(**chains)))
    tasks, _ = find_tasks(tmp_path, None, Options())
    assert [task.reason_to_skip is None for task in tasks] == [False, True]  # page, paid


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_exit_code_is_0_if_only_the_definition_skips(metric: Metric) -> None:
    """Of every kind: a night does not fail because of what no night can decode, and does for missing candidates."""
    other = operations_of(metric).other_command()
    reason = operations_of(metric).reason_to_skip(has_candidates=True)
    assert bool(other) is (reason is not None)
    assert reason is None or f"`{other}`" in reason
    for command, exit_code in ((other, 0 if other else 1), ("", 1)):
        outcome = Outcome("name", Status.SKIPPED, "reason", other_command=command)
        code = 0
        try:
            finish([outcome, Outcome("other", Status.DECODED)], as_json=False)
        except SystemExit as ended:
            code = int(str(ended.code))
        assert code == exit_code


@pytest.mark.usefixtures("in_this_process")
def test_an_unchanged_outcome_says_what_the_decoded_one_said(summaries: Path) -> None:
    first = read_summary(summaries / f"page-{DAYS[0]}.parquet")
    write_summary(replace(first, closed=not first.closed), summaries / f"page-{DAYS[0]}.parquet")
    decoded, unchanged = run(summaries), run(summaries)
    assert {outcome.closed for outcome in decoded.values()} == {False, True}
    assert unchanged == {
        name: replace(outcome, status=Status.UNCHANGED, seconds=0) for name, outcome in decoded.items()
    }


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("names", [["a", "b", "c"], ["c", "b", "a"]])
def test_of_periods_with_the_same_ends_one_has_the_result(tmp_path: Path, names: list[str]) -> None:
    """It is the one with all days between, whatever its file is called; each other file is named with the rule, also on the next run."""
    days = ["2026-03-02", "2026-03-03", "2026-03-04", "2026-03-05"]
    paid, name = Metric.boolean("paid", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5)), f"{days[0]}..{days[-1]}"
    (tmp_path / "in").mkdir()
    for number, (file, periods) in enumerate(zip(names, (days, [days[0], *days[2:]], days[::3]), strict=True), 1):
        counts = simulate(paid, {"true": number * 100}, np.random.default_rng(number), periods=periods)
        write_summary(counts, tmp_path / "in" / f"{file}.parquet")
    arguments = ["decode-all", str(tmp_path / "in"), "--out-dir", str(tmp_path / "out"), "--jobs", "1"]
    for printed in ("1 decoded, 2 failed\n", "1 unchanged, 2 failed\n"):
        done = CliRunner().invoke(main, arguments)
        assert (done.exit_code, done.stdout) == (1, printed)
        reasons = " ".join(done.stderr.split())
        for file in names[1:]:
            assert f"{file}.parquet has the same first and last period as {tmp_path}/in/{names[0]}.parquet" in reasons
        with ResultsStore(tmp_path / "out" / "results.sqlite") as store:
            assert {key.period: about.num_reports for key, about in store.known_results().items()} == {name: 400}
        saved = json.loads((tmp_path / "out" / f"{name_of(name, paid)}.json").read_text())
        assert (saved["num_reports"], saved["periods"]) == (400, days)


def test_file_that_is_no_summary_fails_alone(summaries: Path) -> None:
    whole = (summaries / f"page-{DAYS[0]}.parquet").read_bytes()
    (summaries / "cut.parquet").write_bytes(whole[:-9])
    (summaries / "empty.parquet").write_bytes(b"")
    tasks, unreadable = find_tasks(summaries, None, Options())
    assert [file.path.name for file in unreadable] == ["cut.parquet", "empty.parquet"]
    assert len(tasks) == 3
    with ResultsStore(None) as store:
        outcomes = list(run_tasks([], unreadable, store, 1))
    assert [outcome.status for outcome in outcomes] == [Status.FAILED] * 2


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no such names")
def test_file_whose_name_is_not_utf_8_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / os.fsdecode(b"\xff.parquet")).write_bytes(b"damaged")
    result = CliRunner().invoke(
        main, ["decode-all", str(tmp_path / "in"), "--out-dir", str(tmp_path / "out"), "--jobs", "1"]
    )
    assert (result.exit_code, result.stdout) == (1, "1 failed\n"), result.exception
    assert "\\udcff.parquet: " in result.stderr


def test_a_period_without_reports_is_skipped(summaries: Path) -> None:
    """`hubbub pull` of such a period writes a file, and a nightly run must not fail because of it."""
    empty = BitCounts(
        PAGE, reports=np.zeros(8, dtype=np.int64), ones=np.zeros((8, 16), dtype=np.int64), periods=("2026-03-05",)
    )
    write_summary(empty, summaries / "page-2026-03-05.parquet")
    outcome = run(summaries)[name_of("2026-03-05")]
    assert (outcome.status, outcome.reason) == (Status.SKIPPED, "no report has arrived")


def test_versions_of_a_metric_and_periods_have_results_of_their_own(tmp_path: Path) -> None:
    other = Metric.string("page", PARAMS, period="week")
    write_day(tmp_path, "2026-03-02")
    write_day(tmp_path / "regions", "2026-03-02", seed=2)
    write_day(tmp_path, "2026-03-02", other, name="-week")
    tasks, _ = find_tasks(tmp_path, None, Options())
    assert {task.name: len(task.files) for task in tasks} == {
        name_of("2026-03-02"): 2,
        name_of("2026-03-02", other): 1,
    }


@pytest.mark.slow
def test_item_that_ends_its_process_takes_no_other_result_with_it() -> None:
    """Each item is an expression that a process evaluates."""
    items = [f"2 * {number}" for number in range(8)]
    items[3] = "__import__('os')._exit(9)"
    results = dict(map_in_processes(eval, items, 2))
    assert isinstance(results.pop(items[3]), ProcessDiedError)
    assert results == {item: 2 * number for number, item in enumerate(items) if number != 3}


@pytest.mark.slow
def test_command_prints_counts_and_ends_with_1_after_a_failure(summaries: Path) -> None:
    place = summaries.parent
    arguments = [
        str(summaries),
        "--candidates",
        str(place / "candidates"),
        "--out-dir",
        str(place / "out"),
        "--jobs",
        "1",
    ]
    done = CliRunner().invoke(main, ["decode-all", *arguments])
    assert (done.exit_code, done.stdout) == (0, "3 decoded\n")
    (summaries / "cut.parquet").write_bytes(b"PAR1")
    done = CliRunner().invoke(main, ["decode-all", *arguments])
    assert (done.exit_code, done.stdout) == (1, "3 unchanged, 1 failed\n")
    assert "cut.parquet: not a hubbub summary" in done.stderr


@pytest.mark.parametrize("argument", ["missing", "file"])
def test_command_refuses_a_path_without_summaries(tmp_path: Path, argument: str) -> None:
    (tmp_path / "file").touch()
    done = CliRunner().invoke(main, ["decode-all", str(tmp_path / argument), "--out-dir", str(tmp_path / "out")])
    assert done.exit_code != 0
    assert f"{argument} is not a directory" in done.stderr


@pytest.mark.parametrize("out", [".", "results"])
def test_command_refuses_parquet_results_among_the_summaries(summaries: Path, out: str) -> None:
    given = ["decode-all", str(summaries), "--out-dir", str(summaries / out), "--format", "parquet"]
    refused = CliRunner().invoke(main, given)
    assert refused.exit_code == 2
    assert "the next run would take its .parquet results for summaries" in refused.stderr
    assert not (summaries / "results.sqlite").exists()
    assert not (summaries / "results").exists()
