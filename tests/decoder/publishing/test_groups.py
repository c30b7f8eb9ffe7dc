"""What `hubbub publish` shows of the values of a group: no difference of published counts has fewer reports than a published period."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import reduce
from itertools import chain, combinations
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub import Metric, UnaryResponse
from hubbub.errors import SummaryError
from hubbub.metrics.group import Group
from hubbub.privacy import epsilon
from hubbub.privacy.central import release_epsilon
from hubbub.summary import BitCounts, read_summary, write_summary
from hubbub_decoder import decode, simulate
from hubbub_decoder.batch_decoding import run as batch_run
from hubbub_decoder.batch_decoding.tasks import Task
from hubbub_decoder.options import Options
from hubbub_decoder.publishing.complete_period import CompletePeriod
from hubbub_decoder.publishing.groups import reasons_to_withhold, smallest_cohorts
from hubbub_decoder.publishing.plan import PeriodStatus
from hubbub_decoder.results_store.store import FileStamp, PeriodKey, SummaryFile
from tests.decoder.publishing.conftest import decode_once
from tests.decoder.publishing.test_publish import DAYS, PAGE, document, files, place, run, statuses  # noqa: F401  (a fixture)
from tests.support.paths import DOCS
from tests.support.report_pages import visible_page_text

VALUES = ("a", "b", "c", "d", "other")
DARK = Metric.boolean("dark", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.25), group=Group("arm", VALUES))
ARMS = replace(PAGE, name="arms", group=Group("arm", VALUES))
MIN_REPORTS = 100


def complete(metric: Metric, cohorts: list[int], day: str = DAYS[0]) -> CompletePeriod:
    task = Task(metric, (day,), (), None, Options(), sum(cohorts))
    ones = np.zeros(metric.num_bits, int)
    file = SummaryFile("", FileStamp(0, 0, 0, 0), "", metric, day, True, "", np.array(cohorts), ones)
    return CompletePeriod(task, PeriodKey.of(metric, day), file)


sizes = st.lists(st.sampled_from([0, 1, 30, 60, 99, 100, 150, 1_000]), min_size=len(VALUES), max_size=len(VALUES))


@settings(max_examples=300)
@given(sizes)
def test_no_difference_reveals_few_reports(numbers: list[int]) -> None:
    """All sums and differences that a reader can form: of the published counts, those with the sum leave the withheld ones together."""
    values = [complete(DARK.in_group(value), [number]) for value, number in zip(VALUES, numbers, strict=True)]
    whole = complete(DARK, [sum(numbers)])
    withheld = reasons_to_withhold([whole, *values], MIN_REPORTS)
    shown = [value for value in values if value.key not in withheld]
    hidden = [value.num_reports for value in values if value.key in withheld and value.num_reports]
    assert all(value.num_reports >= MIN_REPORTS for value in shown)
    if whole.key in withheld:
        assert not shown
    elif shown and hidden:
        assert len(hidden) >= 2
        assert sum(hidden) >= MIN_REPORTS
    for kept in chain.from_iterable(combinations(shown, n) for n in range(1, len(shown) + 1)):
        rest = sum(numbers) - sum(value.num_reports for value in kept)
        assert rest == 0 or rest >= MIN_REPORTS
    if min(numbers) >= MIN_REPORTS:
        assert not withheld


@settings(max_examples=200)
@given(st.lists(st.lists(st.integers(0, 300), min_size=8, max_size=8), min_size=len(VALUES), max_size=len(VALUES)))
def test_the_sum_costs_what_its_smallest_part_costs(cohorts: list[list[int]]) -> None:
    """The parts are the published values, and the withheld ones together: a reader knows the counts of each."""
    values = [complete(ARMS.in_group(value), numbers) for value, numbers in zip(VALUES, cohorts, strict=True)]
    whole = complete(ARMS, np.sum(cohorts, axis=0).tolist())
    withheld = reasons_to_withhold([whole, *values], MIN_REPORTS)
    found = smallest_cohorts([whole, *values], withheld)
    parts = [value.cohorts for value in values if value.key in found]
    parts.append(np.sum([value.cohorts for value in values if value.key not in found], axis=0) + np.zeros(8, int))
    smallest = min(int(part[part > 0].min()) for part in parts if part.any()) if np.any(cohorts) else 0
    if whole.key in found:
        assert found[whole.key] == smallest
    for value in values:
        if value.key in found:
            assert found[value.key] == value.cohorts[value.cohorts > 0].min()


def write_arms(directory: Path, numbers: dict[str, int], day: str = DAYS[0]) -> dict[str, BitCounts]:
    counts = {}
    for seed, (value, number) in enumerate(numbers.items()):
        metric = ARMS.in_group(value)
        made = simulate(
            metric, {"a": number // 2}, np.random.default_rng(seed), no_value=number - number // 2, periods=[day]
        )
        counts[value] = replace(made.bit_counts(), closed=True)
        write_summary(counts[value], directory / "summaries" / f"arms-{value}-{day}.parquet")
    write_summary(reduce(add, counts.values()), directory / "summaries" / f"arms-{day}.parquet")
    (directory / "candidates" / "arms.txt").write_text("a\nb\n")
    return counts


@pytest.mark.usefixtures("place")
def test_a_site_has_a_page_for_each_value(place: Path) -> None:  # noqa: F811
    counts = write_arms(place, {"a": 4_000, "b": 3_000, "c": 900, "d": 1_500})
    results = run(place)
    folder = f"arms@{ARMS.digest[:8]}"
    assert [name for name in results if name.startswith("arms")] == [
        f"arms{value} {DAYS[0]}" for value in ("-a", "-b", "-c", "-d", "")
    ]
    site = files(place / "site")
    pages = {name.partition("/")[0] for name in site if name.startswith("arms")}
    assert pages == {folder, f"{folder}-a", f"{folder}-b"}
    entries: list[dict[str, Any]] = document(place, "arms")["periods"]
    assert [entry["group"] for entry in entries] == [None, "a", "b"]
    whole = counts["a"] + counts["b"] + counts["c"] + counts["d"]
    alone = [decode(evidence, ["a", "b"]) for evidence in (whole, counts["a"], counts["b"])]
    assert [[e["share"] for e in entry["estimates"]] for entry in entries] == [
        [e.share for e in found] for found in alone
    ]
    hidden = counts["c"].reports + counts["d"].reports
    smallest = min(int(cohorts.min()) for cohorts in (counts["a"].reports, counts["b"].reports, hidden))
    assert entries[0]["central_epsilon"] == release_epsilon(ARMS, smallest)
    assert entries[1]["central_epsilon"] == release_epsilon(ARMS, int(counts["a"].reports.min()))
    text = visible_page_text(place / "site" / folder / "index.html")
    assert "One arm alone: a · b · c (withheld) · d (withheld)" in " ".join(text.split())
    front = site["index.html"].decode()
    assert front.count(f'href="{folder}/index.html"') == 2
    assert f"{folder}-a" not in front
    entry = json.loads(site["v1/index.json"])["metrics"][0]
    assert (entry["metric"], entry["num_reports"]) == ("arms", whole.num_reports)
    assert "Periods that are not here are withheld" in site[f"{folder}-a/index.html"].decode()
    assert "Periods that are not here" not in site[f"{folder}/index.html"].decode()
    run(place)
    assert files(place / "site") == site


@pytest.mark.usefixtures("place")
def test_values_of_a_group_have_the_digest_that_the_store_and_the_definitions_have(place: Path) -> None:  # noqa: F811
    """The JSON and the CSV can be joined with the store, whose key is the digest of the definition and the value of its group."""
    write_arms(place, {"a": 4_000, "b": 3_000, "c": 900, "d": 1_500})
    run(place)
    published = document(place, "arms")
    assert published["definitions"] == {ARMS.digest: ARMS.to_dict()}
    on_site = [(entry["digest"], entry["group"] or "", entry["period"]) for entry in published["periods"]]
    with closing(sqlite3.connect(place / "site.files" / "private" / "results.sqlite")) as store:
        stored = store.execute("SELECT digest, group_value, period FROM results WHERE digest = ?", (ARMS.digest,))
        assert sorted(on_site) == sorted(stored)
    lines = (place / "site" / "v1" / "arms.csv").read_text().splitlines()
    column = lines[0].split(",").index("digest")
    assert {line.split(",")[column] for line in lines[1:]} == {ARMS.digest}


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    "damage", ["missing", "damaged", "of another night", "open", "other ones", "no sum", "damaged sum", "twice"]
)
def test_nothing_is_published_of_an_incomplete_group(place: Path, damage: str) -> None:  # noqa: F811
    """Without the file of one value, subtraction revealed the counts of its 300 reports."""
    write_arms(place, {"a": 4_000, "b": 3_000, "c": 300, "d": 1_500})
    file = place / "summaries" / f"arms-{'' if 'sum' in damage else 'c-'}{DAYS[0]}.parquet"
    counts = read_summary(file)
    match damage:
        case "missing" | "no sum":
            file.unlink()
        case "damaged" | "damaged sum":
            file.write_bytes(file.read_bytes()[:-9])
        case "of another night":
            people = simulate(counts.metric, {"a": 50}, np.random.default_rng(9), no_value=150, periods=[DAYS[0]])
            write_summary(replace(people, closed=True), file)
        case "open":
            write_summary(replace(counts, closed=False), file)
        case "other ones":  # of as many reports in each cohort
            found = counts.bit_counts()
            write_summary(BitCounts(found.metric, found.reports, found.ones[:, ::-1], found.periods, closed=True), file)
        case "twice":
            write_summary(counts, file.with_name("again.parquet"))
    results = run(place)
    of_arms = {name: result for name, result in results.items() if name.startswith("arms")}
    assert not any(result.status is PeriodStatus.PUBLISHED for result in of_arms.values())
    assert any(result.status is PeriodStatus.FAILED for result in of_arms.values())
    assert not any(name.startswith("arms") for name in files(place / "site"))
    assert any("arm" not in name and result.status is PeriodStatus.PUBLISHED for name, result in results.items())


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_an_incomplete_group_leaves_what_was_published(place: Path, damage: str) -> None:  # noqa: F811
    write_arms(place, {"a": 4_000, "b": 3_000, "c": 1_300})
    run(place)
    before, file = files(place / "site"), place / "summaries" / f"arms-c-{DAYS[0]}.parquet"
    file.write_bytes(b"x") if damage == "damaged" else file.unlink()
    results = run(place)
    assert {result.status for name, result in results.items() if name.startswith("arms")} == {PeriodStatus.FAILED}
    assert files(place / "site") == before


@pytest.mark.usefixtures("place")
def test_values_are_not_published_beside_an_older_sum(place: Path) -> None:  # noqa: F811
    """The sum of an earlier night, less the values of this one, gave the 20 reports between; no page said so."""
    write_arms(place, {"a": 3_000, "b": 2_000})
    for value in "ab":
        (place / "summaries" / f"arms-{value}-{DAYS[0]}.parquet").unlink()
    run(place)
    before = files(place / "site")
    write_arms(place, {"a": 3_000, "b": 2_020})
    results = run(place)
    assert {result.status for name, result in results.items() if name.startswith("arms")} == {PeriodStatus.FAILED}
    assert files(place / "site") == before
    run(place, replaced={"arms"})
    entries = document(place, "arms")["periods"]
    assert [entry["group"] for entry in entries] == [None, "a", "b"]
    assert {entry["composed_epsilon"] for entry in entries} == {epsilon(ARMS)}
    run(place, withdrawn={f"dark/{DAYS[0]}"})
    assert {entry["composed_epsilon"] for entry in document(place, "arms")["periods"]} == {epsilon(ARMS)}


@settings(max_examples=100)
@given(sizes, sizes)
def test_the_choice_of_one_night_never_opens_that_of_another(numbers: list[int], others: list[int]) -> None:
    """The value that protects a small one depends on the list and on its own period: more periods change nothing."""
    both = [
        [complete(DARK.in_group(value), [number], day) for value, number in zip(VALUES, of_day, strict=True)]
        for of_day, day in zip((numbers, others), DAYS, strict=True)
    ]
    alone = reasons_to_withhold(both[0], MIN_REPORTS)
    together = reasons_to_withhold([*both[0], *both[1]], MIN_REPORTS)
    assert {key: text for key, text in together.items() if key.period == DAYS[0]} == alone
    for key, text in alone.items():
        if text.startswith("it protects"):
            shown = [value.key.group_value for value in both[0] if value.key not in alone]
            assert all(VALUES.index(value) < VALUES.index(key.group_value) for value in shown)


@settings(max_examples=300)
@given(sizes, st.sets(st.sampled_from(VALUES)))
def test_values_that_readers_know_protect_no_other(numbers: list[int], published: set[str]) -> None:
    """They stay whatever the minimum is now, so the values that are new, or all of them together, are withheld for the small ones."""
    values = [complete(DARK.in_group(value), [number]) for value, number in zip(VALUES, numbers, strict=True)]
    whole = complete(DARK, [sum(numbers)])
    known = {value.key for value in values if value.key.group_value in published}
    withheld = reasons_to_withhold([whole, *values], MIN_REPORTS, known)
    hidden = [value for value in values if value.key in withheld.keys() - known]
    assert set(withheld.keys() & known) == {
        value.key for value in values if value.key in known and value.num_reports < MIN_REPORTS
    }
    assert all(value.num_reports >= MIN_REPORTS for value in values if value.key not in {*withheld, *known})
    rest = sum(value.num_reports for value in hidden)
    if whole.key not in withheld:
        assert rest == 0 or rest >= MIN_REPORTS
        parts = [value.num_reports for value in values if value not in hidden] + [rest]
        assert smallest_cohorts([whole, *values], withheld, known)[whole.key] == min(filter(None, parts))


@pytest.mark.usefixtures("place")
def test_another_minimum_is_no_change_of_the_counts(place: Path) -> None:  # noqa: F811
    """A higher minimum takes nothing off the site, so readers still know each value; the nights fail until --withdraw names the period."""
    counts = write_arms(place, {"a": 4_000, "b": 3_000, "c": 1_200, "d": 1_500})
    small = f"arms@{ARMS.digest[:8]}-c/{DAYS[0]}.html"
    run(place, min_reports=1_400)
    assert small not in files(place / "site")
    run(place, min_reports=1_000)
    before = files(place / "site")
    assert small in before
    results = run(place, min_reports=1_400)
    assert files(place / "site") == before
    assert [name for name, status in statuses(results).items() if status == "failed"] == [f"arms-c {DAYS[0]}"]
    entry = document(place, "arms")["periods"][0]
    assert entry["releases"] == 1
    smallest = min(int(count.reports.min()) for count in counts.values())  # all were published on the second night
    assert entry["composed_epsilon"] == release_epsilon(ARMS, smallest) == entry["central_epsilon"]


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("state", ["gone", "empty"])
@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_published_over_a_value_that_is_lost(place: Path, state: str, replaced: bool) -> None:  # noqa: F811
    """The reports of a published value were in another one: two published values, less each other, gave 400 reports."""
    counts = write_arms(place, {"a": 2_000, "b": 400, "c": 1_000})
    run(place)
    before, file = files(place / "site"), place / "summaries" / f"arms-a-{DAYS[0]}.parquet"
    moved = counts["a"] + counts["b"]
    write_summary(replace(moved, metric=ARMS.in_group("b")), file.with_name(f"arms-b-{DAYS[0]}.parquet"))
    if state == "gone":
        file.unlink()
    else:
        empty = replace(counts["a"], reports=counts["a"].reports * 0, ones=counts["a"].ones * 0)
        write_summary(empty, file)
    results = run(place, replaced={"arms"} if replaced else ())
    assert files(place / "site") == before
    assert statuses(results) | {f"arms-{value} {DAYS[0]}": "failed" for value in "abc"} == statuses(results)
    write_arms(place, {"a": 2_000, "b": 400, "c": 1_000})
    run(place)
    assert files(place / "site") == before


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("cause", ["raises", "vanishes"])
@pytest.mark.parametrize("lost", ["a", "b", ""])
def test_counts_of_a_group_are_replaced_together_or_not(
    place: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    cause: str,
    lost: str,
) -> None:
    """When one value could not be decoded, the others and the sum had new counts beside its old ones."""
    write_arms(place, {"a": 2_000, "b": 3_000, "c": 1_500})
    run(place)
    before = files(place / "site")
    write_arms(place, {"a": 2_100, "b": 3_200, "c": 1_500, "d": 1_000})
    failing = ARMS.in_group(lost or None)

    def decode_others(summary: BitCounts, candidates: Any, **options: Any) -> Any:
        if summary.metric == failing:
            raise SummaryError("it was chosen to fail")
        return decode_once(summary, candidates, **options)

    def read_all_but_it(task: Task) -> Any:
        if task.metric == failing and task.counts is not None:
            task.files[0].unlink(missing_ok=True)
        return read(task)

    read = Task.read
    with monkeypatch.context() as patched:
        patched.setattr(
            *((batch_run, "decode", decode_others) if cause == "raises" else (Task, "read", read_all_but_it))
        )
        results = run(place, replaced={"arms"})
    assert files(place / "site") == before
    published = {
        name for name, status in statuses(results).items() if name.startswith("arms") and status == "published"
    }
    assert published == {f"arms-c {DAYS[0]}"}  # its counts are the same
    write_arms(place, {"a": 2_100, "b": 3_200, "c": 1_500, "d": 1_000})
    assert set(statuses(run(place, replaced={"arms"})).values()) == {"published"}
    assert {entry["composed_epsilon"] for entry in document(place, "arms")["periods"]} == {epsilon(ARMS)}


@pytest.mark.usefixtures("place")
def test_no_value_is_replaced_beside_a_sum_that_is_withheld(place: Path) -> None:  # noqa: F811
    """Together, b and c have fewer reports than a published period needs, so the new sum is withheld, and the old one stays."""
    write_arms(place, {"a": 2_000, "b": 600, "c": 600})
    run(place)
    before = files(place / "site")
    write_arms(place, {"a": 2_500, "b": 300, "c": 300})
    results = run(place, replaced={"arms"})
    assert files(place / "site") == before
    assert statuses(results)[f"arms-a {DAYS[0]}"] == statuses(results)[f"arms {DAYS[0]}"] == "failed"


@pytest.mark.usefixtures("place")
def test_readers_do_not_forget_the_values_of_a_sum(place: Path) -> None:  # noqa: F811
    """When the smallest value had other counts, and nobody had accepted them, the sum that was decoded anew had a lower epsilon than before."""
    sizes = {"a": 1_000, "b": 5_000, "c": 5_000}
    counts = write_arms(place, sizes)
    more = simulate(ARMS.in_group("b"), {"a": 900}, np.random.default_rng(9), no_value=900, periods=[DAYS[0]])
    for value, number in (("b", more + counts["b"]), ("", sum(counts.values(), more))):
        name = f"arms-{value}-{DAYS[0]}" if value else f"arms-{DAYS[0]}"
        write_summary(replace(number, closed=True), place / "summaries" / f"{name}.parquet")
    run(place)
    smallest = min(int(counts[value].reports.min()) for value in "abc")
    before = document(place, "arms")["periods"][0]
    assert before["central_epsilon"] == release_epsilon(ARMS, smallest)
    for value, number in (("a", more + counts["a"]), ("b", counts["b"])):
        moved = replace(number, metric=ARMS.in_group(value), closed=True)
        write_summary(moved, place / "summaries" / f"arms-{value}-{DAYS[0]}.parquet")
    (place / "candidates" / "arms.txt").write_text("a\nb\nc\n")
    run(place)
    after = document(place, "arms")["periods"][0]
    assert len(after["estimates"]) > len(before["estimates"])
    assert after["central_epsilon"] == before["central_epsilon"]
    with closing(sqlite3.connect(place / "site.files" / "private" / "results.sqlite", isolation_level=None)) as store:
        recorded = store.execute("SELECT epsilon FROM releases WHERE digest = ? AND group_value = ''", (ARMS.digest,))
        assert [epsilon for (epsilon,) in recorded] == [before["central_epsilon"]] * 2


@pytest.mark.usefixtures("place")
def test_documented_epsilons_are_those_of_the_site(place: Path) -> None:  # noqa: F811
    """A value beside a replaced one had the epsilon of its own releases alone in the documented query."""
    page = (DOCS / "reference" / "results-schema.md").read_text(encoding="utf-8")
    (query,) = [found for found in re.findall(r"```sql\n(.*?)```", page, re.DOTALL) if "epsilon" in found]
    write_arms(place, {"a": 1_100, "b": 2_000, "c": 3_000, "d": 400, "other": 5_000})
    write_arms(place, {"a": 1_200, "b": 2_000}, DAYS[1])
    columns = "metric", "group", "period", "releases", "central_epsilon", "composed_epsilon"
    for night in range(3):
        if night == 1:
            write_arms(place, {"a": 1_100, "b": 2_100, "c": 3_000, "d": 400, "other": 5_000})
        run(place, replaced={"arms"} if night == 1 else (), withdrawn={f"page/{DAYS[0]}"} if night == 2 else ())
        shown = [period for name in ("page", "arms", "dark") for period in document(place, name)["periods"]]
        with closing(
            sqlite3.connect(place / "site.files" / "private" / "results.sqlite", isolation_level=None)
        ) as store:
            found = store.execute(query).fetchall()
        wanted = {tuple(period[name] for name in columns) for period in shown}
        assert {(metric, *others) for metric, _, *others in found} == wanted
        assert len(found) == len(wanted) == len(shown)
        composed = {row["composed_epsilon"] for row in shown if row["metric"] == "arms" and row["period"] == DAYS[0]}
        assert (composed == {epsilon(ARMS)}) is (night > 0)
