"""Random histories of `hubbub publish`: what was published stays, byte for byte, until --withhold or --withdraw names it, or the run fails.

A history is a sequence of nights. Before each night, summaries and candidates come, change, are damaged or vanish, and the options differ.
Some nights are killed at one of their writes, and run again. A model of a few lines says after each night which pages there are; their figures
are those of `decode` for closed counts, and `--check` has said what would change.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from hubbub import Metric, UnaryResponse
from hubbub.cli import main
from hubbub.errors import SummaryError
from hubbub.metrics.group import Group
from hubbub.metrics.metric import folder_of
from hubbub.privacy import epsilon
from hubbub.summary import BitCounts, Summary, read_collected, summary_to_bytes
from hubbub_decoder import simulate
from hubbub_decoder.batch_decoding import run as batch_run
from hubbub_decoder.batch_decoding import tasks
from hubbub_decoder.publishing.names import page_name
from hubbub_decoder.results_store.store import PeriodKey
from tests.decoder.publishing.conftest import decode_once
from tests.decoder.publishing.interruptions import kill_before_write
from tests.decoder.publishing.test_publish import DARK, DAYS, PAGE, files

ARM = Metric.boolean(
    "arm", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.25), group=Group("arm", ("a", "b", "other"))
)
SERIES: Mapping[str, Metric] = {
    "page": PAGE,
    "dark": DARK,
    "arm-a": ARM.in_group("a"),
    "arm-b": ARM.in_group("b"),
    "arm-other": ARM.in_group("other"),
    "arm": ARM,
}
"""Metrics of the summaries; "arm" is the sum of the arms. Arm b has few reports, and is protected by the last one."""
CHANGED = Metric.boolean("dark", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5))
REPORTS, SMALL, OPEN = 3_000, 500, 1_700
MOVED = 6
OPTIONS = [*("page", "dark", "arm"), *(f"{name}/{day}" for name in ("page", "dark", "arm") for day in DAYS)]


@cache
def content(series: str, day: str, version: int) -> bytes:
    """A summary; version 2 has few reports, version 3 is of a changed definition, version 4 is cut off, version 5 is of an open period.

    In version 6, the reports of arm a are in arm b, and the sum is that of version 0.
    """
    if series == "arm":
        return summary_to_bytes(sum_of_arms(day, version))[: -9 if version == 4 else None]
    data = summary_to_bytes(simulated(series, day, version))
    return data[:-9] if version == 4 else data


def sum_of_arms(day: str, version: int) -> BitCounts:
    first, *others = (
        simulated(series, day, 0 if version in (3, MOVED) else version) for series in SERIES if "arm-" in series
    )
    return reduce(add, others, first)


@cache
def simulated(series: str, day: str, version: int) -> BitCounts:
    if version == MOVED:
        first = simulated("arm-a", day, 0)
        moved = {"arm-a": replace(first, reports=first.reports * 0, ones=first.ones * 0)}
        moved["arm-b"] = replace(first + simulated("arm-b", day, 0), metric=SERIES["arm-b"])
        return moved.get(series) or simulated(series, day, 0)
    metric = CHANGED if version == 3 else SERIES[series]
    people = {2: SMALL, 5: OPEN}.get(version, SMALL if series == "arm-b" else REPORTS)
    values = {"a": people // 2} if metric.name == "page" else {"true": people // 2}
    rng = np.random.default_rng([version, DAYS.index(day), [*SERIES].index(series)])
    counts = simulate(metric, values, rng, no_value=people - people // 2, periods=[day])
    return replace(counts.bit_counts(), closed=version != 5)


def decode_all_but(failing: str, summary: Summary, candidates: Any, **options: Any) -> Any:
    """`decode_once`, which raises for a series."""
    if failing and summary.metric == SERIES[failing]:
        raise SummaryError("it was chosen to fail")
    return decode_once(summary, candidates, **options)


@dataclass
class Night:
    """Inputs of a run.

    summaries  : version of each series and day; none: no file
    candidates : "approved", "missing", "damaged", "results" (a table) or "no option"
    vanishing  : series whose file is deleted after its counts were read
    failing    : series that cannot be decoded
    """

    summaries: dict[tuple[str, str], int]
    candidates: str = "approved"
    min_reports: int = 1_000
    vanishing: str = ""
    failing: str = ""
    withhold: list[str] = field(default_factory=list)
    withdraw: list[str] = field(default_factory=list)
    replace: list[str] = field(default_factory=list)


def random_nights(rng: np.random.Generator) -> list[Night]:
    """Nights of which the first one publishes what is closed; later ones change a few things each."""
    summaries = {(series, day): 0 for series in SERIES for day in DAYS}
    for series in ("page", "dark"):
        summaries[series, DAYS[1]] = int(rng.choice([0, 5]))
    nights = [Night({key: version for key, version in summaries.items() if version >= 0})]
    for _ in range(6):
        for key in summaries:
            if rng.random() < 0.25:
                summaries[key] = int(rng.choice([0, 0, 0, 1, 2, 3, 4, 5, -1]))
        replaced, failing = list[str](), ""
        if rng.random() < 0.5:  # all files of a group together, as they are pulled
            day, version = str(rng.choice(DAYS)), int(rng.choice([0, 1, MOVED]))
            summaries |= {(series, day): version for series in SERIES if series.startswith("arm")}
            if version == MOVED and rng.random() < 0.5:
                summaries["arm-a", day] = -1
            if rng.random() < 0.5:
                replaced, failing = [f"arm/{day}"], str(rng.choice(["arm", "arm-a", "page"]))
        if rng.random() < 0.05:
            summaries = dict.fromkeys(summaries, -1)
        night = Night(
            {key: version for key, version in summaries.items() if version >= 0}, failing=failing, replace=replaced
        )
        if rng.random() < 0.4:
            night.candidates = str(rng.choice(["missing", "damaged", "results", "no option"]))
        night.min_reports = int(rng.choice([1_000, 1_000, 1_000, 100, 4_000]))
        if rng.random() < 0.2:
            night.vanishing = str(rng.choice([*SERIES]))
        if rng.random() < 0.2:
            night.failing = str(rng.choice([*SERIES]))
        for chosen, share in ((night.withhold, 0.25), (night.withdraw, 0.12), (night.replace, 0.25)):
            if rng.random() < share:
                chosen.append(str(rng.choice(OPTIONS)))
        other = [f"{SERIES[series].name}/{day}" for (series, day), version in night.summaries.items() if version == 1]
        if other and rng.random() < 0.5:
            night.replace.append(str(rng.choice(other)))
        nights.append(night)
    return nights


def prepare(place: Path, night: Night) -> list[str]:
    """Write the inputs of a night, and return the arguments of the command."""
    for name in ("summaries", "candidates"):
        shutil.rmtree(place / name, ignore_errors=True)
        (place / name).mkdir()
    for (series, day), version in night.summaries.items():
        (place / "summaries" / f"{series}-{day}.parquet").write_bytes(content(series, day, version))
    data = {"approved": b"a\nb\n", "damaged": b"a\n\xff\n", "results": b"candidate,share\na,0.5\n"}.get(
        night.candidates
    )
    if data is not None:
        (place / "candidates" / ("page.csv" if night.candidates == "results" else "page.txt")).write_bytes(data)
    arguments = ["publish", str(place / "summaries"), "--out-dir", str(place / "site"), "--jobs", "1", "--json"]
    arguments += [] if night.candidates == "no option" else ["--candidates", str(place / "candidates")]
    arguments += ["--min-reports", str(night.min_reports)]
    for option in ("withhold", "withdraw", "replace"):
        arguments += [text for name in getattr(night, option) for text in (f"--{option}", name)]
    return arguments


def named(page: str, names: Sequence[str]) -> bool:
    """Whether METRIC or METRIC/PERIOD names a page METRIC@DIGEST/PERIOD."""
    folder, _, day = page.partition("/")
    metric = folder.partition("@")[0]
    return metric in names or f"{metric}/{day}" in names


def pages(shown: Mapping[str, bytes]) -> dict[str, tuple[bytes, Any]]:
    """Page and entry in the JSON file of each period that a site shows."""
    entries = {}
    for name, data in shown.items():
        if name.startswith("v1/") and name.endswith(".json") and name != "v1/index.json":
            document = json.loads(data)
            for period in document["periods"]:
                definition = Metric.from_dict(document["definitions"][period["digest"]])
                folder = folder_of(definition.in_group(period["group"] or None))
                entries[f"{folder}/{period['period']}"] = period
    found = {name.removesuffix(".html"): data for name, data in shown.items() if "@" in name and "index" not in name}
    in_feed = {name for name in entries if f"{name}.html".encode() in shown["feed.xml"]}
    assert found.keys() == entries.keys() == in_feed
    return {name: (data, entries[name]) for name, data in found.items()}


def page_of(series: str, day: str) -> str:
    return f"{folder_of(SERIES[series])}/{day}"


def has_inputs(night: Night, page: str) -> bool:
    """Whether the inputs of a night are those of the first one for a page; arms are published together."""
    day = page.partition("/")[2]
    group = ["arm-a", "arm-b", "arm-other", "arm"]
    parts = {page_of(one, day): group if one in group else [one] for one in SERIES}
    series = parts.get(page, [])  # none: a page of a changed definition
    return (
        bool(series)
        and all(night.summaries.get((one, day)) == 0 and one not in (night.vanishing, night.failing) for one in series)
        and (night.candidates == "approved" or series != ["page"])
        and night.min_reports <= (SMALL if page == page_of("arm-b", day) else REPORTS)
    )


def most(name: str) -> float:
    """Epsilon of a report on its client, of the metric of a page."""
    return epsilon(next(metric for metric in (CHANGED, *SERIES.values()) if name.startswith(folder_of(metric))))


def checked(place: Path, arguments: Sequence[str]) -> dict[str, str]:
    """Kind of change of each page that `--check` names; it changes no file."""
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in place.rglob("*") if path.is_file()}
    done = CliRunner().invoke(main, [*arguments, "--check"])
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in place.rglob("*") if path.is_file()} == before
    if done.stderr.startswith("Error"):
        return {}
    return {change["name"]: change["kind"] for change in json.loads(done.stdout)["changes"]}


def vanished(night: Night) -> set[str]:
    """Pages of the files that vanish in a night."""
    series = [one for one in SERIES if night.vanishing and one.startswith(night.vanishing)]
    return {f"{folder_of(metric)}/{day}" for one in series for metric in (SERIES[one], CHANGED) for day in DAYS}


def assert_foreseen(
    foreseen: Mapping[str, str], before: Mapping[str, Any], after: Mapping[str, Any], unforeseen: set[str]
) -> None:
    """What `--check` said, less what could not be decoded, or whose file vanished after it."""
    for kind, wanted in (("appears", after.keys() - before.keys()), ("disappears", before.keys() - after.keys())):
        assert {name for name, foretold in foreseen.items() if foretold == kind} - unforeseen == wanted - unforeseen
    changed = {name for name in before.keys() & after.keys() if before[name] != after[name]}
    assert changed <= {name for name, kind in foreseen.items() if kind == "changes"}


def assert_no_report_is_in_two_values(shown: Mapping[str, tuple[bytes, Any]]) -> None:
    """The values of a group on a site have no more reports than their sum, unless its epsilon is that of several releases."""
    for day in DAYS:
        entries = {name: entry for name, (_, entry) in shown.items() if name.endswith(day) and entry["metric"] == "arm"}
        whole = entries.pop(page_of("arm", day), None)
        if whole is not None and whole["composed_epsilon"] < most(page_of("arm", day)):
            assert sum(entry["num_reports"] for entry in entries.values()) <= whole["num_reports"]


def figures(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    """Number of reports and shares of a page, which are others for other counts."""
    return entry["num_reports"], *(estimate["share"] for estimate in entry["estimates"])


def assert_arms_are_of_one_night(shown: Mapping[str, Any], published: Mapping[str, Any], night: Night) -> None:
    """If the page of one arm or of their sum is new or has other counts than before, all that are shown are of tonight's counts."""
    for day in DAYS:
        pages_of_day = {name: figures(shown[name][1]) for name in shown if name in arms_of(day)}
        before = {name: figures(published[name][1]) for name in pages_of_day if name in published}
        if pages_of_day != before:
            for name in pages_of_day:
                assert_is_of_closed_counts(shown[name][1], name, night)


def arms_of(day: str) -> set[str]:
    return {page_of(series, day) for series in SERIES if series.startswith("arm")}


def is_sum_beside_more_values(name: str, shown: Mapping[str, Any], published: Mapping[str, Any]) -> bool:
    """Whether a page is of the arms together, and the first one of an arm has come: a reader then knows more of the sum."""
    folder, _, day = name.partition("/")
    new = shown.keys() - published.keys()
    return folder == folder_of(ARM) and any(page.startswith(f"{folder}-") and page.endswith(day) for page in new)


def assert_epsilon_rises(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Of a page whose other figures stay."""
    risen = {name: after[name] for name in ("central_epsilon", "composed_epsilon")}
    assert all(value >= before[name] for name, value in risen.items())
    assert after == {**before, **risen}


def killed_at(write: int, place: Path, arguments: Sequence[str]) -> None:
    """Run in a child that is killed before a write, unless it has fewer."""
    if not (child := os.fork()):
        kill_before_write(write, place)
        CliRunner().invoke(main, arguments)
        os._exit(0)
    os.waitpid(child, 0)


def assert_is_of_closed_counts(entry: Mapping[str, Any], name: str, night: Night) -> None:
    """The figures of a page that is new tonight are those of `decode` for the closed counts of tonight's summary."""
    (counts,) = [
        found
        for (series, day), version in night.summaries.items()
        if day == entry["period"] and version != 4
        for found in [sum_of_arms(day, version) if series == "arm" else simulated(series, day, version)]
        if name == f"{folder_of(found.metric)}/{day}"
    ]
    assert counts.closed
    decoding = decode_once(counts, ["a", "b"] if counts.metric.name == "page" else None)
    assert entry["num_reports"] == counts.num_reports
    assert [estimate["share"] for estimate in entry["estimates"]] == [estimate.share for estimate in decoding]


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # of Python 3.12 and later, with threads
@pytest.mark.parametrize("number", [*range(6), *(pytest.param(more, marks=pytest.mark.slow) for more in range(6, 200))])
def test_what_was_published_stays_or_the_run_fails(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unseen_seed: int
) -> None:
    rng = np.random.default_rng([unseen_seed, number])
    monkeypatch.setattr(
        batch_run, "map_in_processes", lambda function, items, _: [(item, function(item)) for item in items]
    )
    site, published, withdrawn, nights = tmp_path / "site", dict[str, Any](), list[str](), random_nights(rng)
    last, versions = dict[str, Any](), dict[str, set[Any]]()
    original = set[str]()  # pages that were first published from the inputs of the first night
    for night in nights:
        arguments = prepare(tmp_path, night)
        monkeypatch.setattr(tasks, "read_collected", read_collected)
        foreseen = checked(tmp_path, arguments)

        def read(path: Path, gone: str = night.vanishing) -> Any:
            found = read_collected(path)
            if gone and path.name.startswith(gone):
                path.unlink()
            return found

        monkeypatch.setattr(tasks, "read_collected", read)
        monkeypatch.setattr(batch_run, "decode", partial(decode_all_but, night.failing))
        batch_run._candidates.cache_clear()
        if rng.random() < 0.3:
            killed_at(int(rng.integers(1, 150)), tmp_path, arguments)
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code in (0, 1), done.output
        assert "Traceback" not in done.stderr
        shown = pages(files(site))
        assert {OPEN, 3 * OPEN}.isdisjoint(entry["num_reports"] for _, entry in shown.values())
        if done.stderr.startswith("Error: No summary and no published page is of"):
            assert shown == last  # an option names what was never published, and whose file is gone
            continue
        assert (done.exit_code == 0) if night is nights[0] else done.stdout, done.output
        withdrawn += night.withdraw
        results = {period["name"]: period for period in json.loads(done.stdout)["periods"]}
        for name, before in published.items():
            if named(name, [*night.withhold, *withdrawn]):
                assert name not in shown
                continue
            if is_sum_beside_more_values(name, shown, published) and not named(name, night.replace):
                assert_epsilon_rises(before[1], shown[name][1])
                continue
            if name not in shown or shown[name] != before:
                assert named(name, night.replace), name
                more = shown[name][1]["releases"] - before[1]["releases"]
                assert more in (0, 1)  # 0: the counts of an earlier release, or only those of another value changed
            if results[name]["status"] == "failed":
                assert done.exit_code == 1
                composed = shown[name][1]["composed_epsilon"]  # rises if another value of the group is replaced
                assert shown[name][1] == before[1] | {"composed_epsilon": composed}
                assert shown[name] == before if composed == before[1]["composed_epsilon"] else composed == most(name)
                assert "What was published stays" in results[name]["reason"], results[name]
                protects = (
                    night.min_reports > SMALL and "it protects b, with too few reports" in results[name]["reason"]
                )
                has_original = name in original and before[1]["releases"] == 1
                assert not (has_original and has_inputs(night, name)) or "differ" in results[name]["reason"] or protects
            else:
                assert results[name]["status"] == "published"
        assert not any(named(name, [*night.withhold, *withdrawn]) for name in shown)
        for name in shown.keys() - published.keys():
            assert results[name]["status"] == "published"
            if has_inputs(night, name):
                original.add(name)
        for name, (_, entry) in shown.items():
            if name not in published or entry["estimates"] != published[name][1]["estimates"]:
                assert_is_of_closed_counts(entry, name, night)
            versions.setdefault(name, set()).add(figures(entry))
            assert entry["releases"] >= len(versions[name])
            assert entry["composed_epsilon"] >= entry["central_epsilon"] * (1 - 1e-12)  # the latter is rounded up
            assert entry["releases"] == 1 or entry["composed_epsilon"] == most(name)
        assert_no_report_is_in_two_values(shown)
        assert_arms_are_of_one_night(shown, published, night)
        unforeseen = {name for name, result in results.items() if result["status"] == "failed"} | vanished(night)
        assert_foreseen(foreseen, last, shown, unforeseen)
        last = shown
        statuses = {result["status"] for result in results.values()}
        assert done.exit_code == ("failed" in statuses)
        if done.exit_code != 1:
            assert all(
                named(name, [*night.withhold, *withdrawn]) or results[name]["status"] == "published"
                for name in published
            )
        published = {name: value for name, value in published.items() if not named(name, withdrawn)} | shown
    with closing(
        sqlite3.connect(tmp_path / "site.files" / "private" / "results.sqlite", isolation_level=None)
    ) as store:
        kept = store.execute(
            "SELECT metric, digest, group_value, period FROM results JOIN definitions USING (digest, group_value)"
        )
        assert {page_name(name, PeriodKey(*key)) for name, *key in kept} == {
            name for name in published if not named(name, withdrawn)
        }
