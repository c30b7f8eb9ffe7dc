"""The sum over a group is decoded, and shown, only if its values add up to the file of all values: by `decode-all` and by `explore`."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from hubbub import Metric, UnaryResponse
from hubbub.cli import main
from hubbub.summary import BitCounts, write_summary
from hubbub_decoder import decode, simulate
from hubbub_decoder.batch_decoding import run as batch_run
from tests.support.every_kind import VERSION
from tests.support.explored import Explored, folder, text_of

METRIC = Metric.boolean("dark", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5), group=VERSION)
DAMAGES = (
    "none",
    "empty value",
    "no value",
    "missing",
    "cut",
    "of another night",
    "other ones",
    "sum missing",
    "sum cut",
)


def draw_values(rng: np.random.Generator, days: list[str]) -> dict[str, BitCounts]:
    """Counts of each value of which there is a file: of the days in which it has reports, at least one value."""
    present = {value: [day for day in days if rng.random() < 0.7] for value in VERSION.values}
    present[str(rng.choice(VERSION.values))] = days
    return {
        value: simulate(METRIC.in_group(value), {"true": 40}, rng, periods=of_value).bit_counts()
        for value, of_value in present.items()
        if of_value
    }


def write_group(place: Path, start: int, damage: str, days: list[str], rng: np.random.Generator) -> BitCounts | None:
    """Write the files of a download; return the sum if it has all values."""
    values = draw_values(rng, days)
    whole = replace(reduce(add, values.values()), metric=METRIC)
    chosen = str(rng.choice([*values]))
    found, sum_file = values[chosen], place / f"dark-{start}.parquet"
    match damage:
        case "empty value":
            empty = next((value for value in VERSION.values if value not in values), None)
            if empty is not None:
                none = replace(found, reports=found.reports * 0, ones=found.ones * 0)
                values[empty] = replace(none, metric=METRIC.in_group(empty))
        case "no value":
            values = {}
        case "missing":
            del values[chosen]
        case "of another night":
            values[chosen] = found + simulate(found.metric, {"true": 3}, rng, periods=found.periods[:1]).bit_counts()
        case "other ones":  # of as many reports in each cohort
            values[chosen] = replace(found, ones=found.ones + (1 if found.ones.sum() < found.num_reports else -1))
    for value, counts in values.items():
        write_summary(counts, place / f"dark-{start}-{value}.parquet")
    if damage != "sum missing":
        write_summary(whole, sum_file)
    cut = {"cut": place / f"dark-{start}-{chosen}.parquet", "sum cut": sum_file}.get(damage)
    if cut is not None:
        cut.write_bytes(cut.read_bytes()[:-9])
    is_alone = damage in ("missing", "cut") and len(draw_names(place, start, cut)) == 0
    return whole if damage in ("none", "empty value", "no value") or is_alone else None


def draw_names(place: Path, start: int, cut: Path | None) -> list[Path]:
    """Files of values that can be read."""
    return [path for path in place.glob(f"dark-{start}-*.parquet") if path != cut]


@pytest.mark.parametrize("number", range(12))
def test_a_sum_has_all_values_or_fails_with_the_reason(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unseen_seed: int
) -> None:
    """Random downloads by value. A value's file has the periods in which it has reports, and a value without reports may have none."""
    monkeypatch.setattr(
        batch_run, "map_in_processes", lambda function, items, _: [(item, function(item)) for item in items]
    )
    rng = np.random.default_rng([unseen_seed, number])
    place, out = tmp_path / "summaries", tmp_path / "out"
    place.mkdir()
    (tmp_path / "candidates").mkdir()
    expected: dict[str, BitCounts | None] = {}
    for start in (2, 5, 8, 11):
        days = [f"2026-03-{day:02}" for day in range(start, start + int(rng.integers(1, 4)))]
        name = days[0] if len(days) == 1 else f"{days[0]}..{days[-1]}"
        expected[name] = write_group(place, start, str(rng.choice(DAMAGES)), days, rng)
    done = CliRunner().invoke(main, ["decode-all", str(place), "--out-dir", str(out), "--jobs", "1", "--json"])
    outcomes = {found["name"]: found for found in json.loads(done.stdout)["outcomes"]}
    of_sums = {
        name.partition("/")[2]: found for name, found in outcomes.items() if name.startswith(f"{folder(METRIC)[1:]}/")
    }
    assert of_sums.keys() == expected.keys()
    assert done.exit_code == (
        0 if all(expected.values()) and {found["status"] for found in outcomes.values()} == {"decoded"} else 1
    )
    with Explored(tmp_path) as explored:
        for name, whole in expected.items():
            status, reason = of_sums[name]["status"], of_sums[name]["reason"]
            page = explored.get(f"{folder(METRIC)}/data.csv?from={name}")
            saved = out / f"{folder(METRIC)[1:]}" / f"{name}.json"
            if whole is not None:
                assert (status, reason, page.status) == ("decoded", "", 200)
                decoding = decode(whole)
                assert page.body == decoding.to_bytes(".csv")
                assert json.loads(saved.read_text()) == json.loads(json.dumps(decoding.to_dict()))
            else:
                assert (status, page.status, saved.exists()) == ("failed", 503, False)
                assert "hubbub pull --by-group" in reason
                assert reason.replace("`", "") in text_of(page).replace("&#39;", "'")
        values = {name for name in outcomes if name.startswith(f"{folder(METRIC)[1:]}-")}
        for name in values:
            assert outcomes[name]["status"] == ("skipped" if "no report" in outcomes[name]["reason"] else "decoded")
            if outcomes[name]["status"] == "decoded":
                place_of_page, _, period = name.partition("/")
                assert explored.get(f"/{place_of_page}/?from={period}").status == 200
    before = {path: path.read_bytes() for path in out.rglob("*.json")}
    done = CliRunner().invoke(main, ["decode-all", str(place), "--out-dir", str(out), "--jobs", "1", "--json"])
    again = {found["name"]: found["status"] for found in json.loads(done.stdout)["outcomes"]}
    assert again == {
        name: "unchanged" if found["status"] == "decoded" else found["status"] for name, found in outcomes.items()
    }
    assert {path: path.read_bytes() for path in out.rglob("*.json")} == before


def test_a_value_that_is_lost_later_ends_the_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of the sum was "unchanged" as long as its own file was the same."""
    monkeypatch.setattr(
        batch_run, "map_in_processes", lambda function, items, _: [(item, function(item)) for item in items]
    )
    rng, place = np.random.default_rng(1), tmp_path / "summaries"
    place.mkdir()
    assert write_group(place, 2, "none", ["2026-03-02"], rng) is not None
    arguments = ["decode-all", str(place), "--out-dir", str(tmp_path / "out"), "--jobs", "1"]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    next(iter(place.glob("dark-2-*.parquet"))).unlink()
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1
    assert "the values of dark have" in done.stderr


@pytest.mark.parametrize(("damage", "number"), [("none", 0), ("none", 1), ("none", 2), ("missing", 3)])
def test_overlapping_files_of_a_group_count_each_period_once(
    damage: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unseen_seed: int
) -> None:
    """Files of each day beside files of several days, of all values or of each value, too: only sums over a day that lacks a value fail."""
    monkeypatch.setattr(
        batch_run, "map_in_processes", lambda function, items, _: [(item, function(item)) for item in items]
    )
    rng = np.random.default_rng([unseen_seed, number])
    place, out = tmp_path / "summaries", tmp_path / "out"
    place.mkdir()
    (tmp_path / "candidates").mkdir()
    days = [f"2026-03-{day:02}" for day in range(2, 7)]
    of_day = {
        day: {
            value: simulate(METRIC.in_group(value), {"true": 40}, rng, periods=[day]).bit_counts()
            for value in VERSION.values
        }
        for day in days
    }
    spans = [days[:2], days[1:4], days]
    has_values = rng.random(len(spans)) < (0.5 if damage == "none" else 0)
    wholes: dict[str, BitCounts] = {}
    for index, span in enumerate([*([day] for day in days), *spans]):
        name = span[0] if len(span) == 1 else f"{span[0]}..{span[-1]}"
        values = {value: reduce(add, (of_day[day][value] for day in span)) for value in VERSION.values}
        wholes[name] = replace(reduce(add, values.values()), metric=METRIC)
        write_summary(wholes[name], place / f"dark-{name}.parquet")
        if len(span) == 1 or has_values[index - len(days)]:
            for value, counts in values.items():
                write_summary(counts, place / f"dark-{name}-{value}.parquet")
    if damage == "missing":
        (place / f"dark-{days[0]}-{rng.choice(VERSION.values)}.parquet").unlink()
    done = CliRunner().invoke(main, ["decode-all", str(place), "--out-dir", str(out), "--jobs", "1", "--json"])
    outcomes = {found["name"]: found for found in json.loads(done.stdout)["outcomes"]}
    with Explored(tmp_path) as explored:
        for name, whole in wholes.items():
            found = outcomes[f"{folder(METRIC)[1:]}/{name}"]
            page = explored.get(f"{folder(METRIC)}/data.csv?from={name}")
            if damage == "missing" and days[0] in whole.periods:
                assert (found["status"], page.status) == ("failed", 503), name
                assert "hubbub pull --by-group" in found["reason"]
            else:
                assert (found["status"], found["reason"], page.status) == ("decoded", "", 200), name
                assert page.body == decode(whole).to_bytes(".csv")
