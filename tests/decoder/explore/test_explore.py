"""`hubbub explore`: what the pages show for every kind of metric, what they refuse, and what becomes of hostile and failing jobs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote_plus
from urllib.request import urlopen

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from hubbub import Metric, Params, UnaryResponse
from hubbub.cli import main
from hubbub.metrics.group import Group
from hubbub.summary import BitCounts, read_collected, read_summary, write_summary
from hubbub.text import format_count
from hubbub_decoder import compare, decode, decode_each, simulate
from hubbub_decoder.explore import answers as answering
from hubbub_decoder.explore.cache import Cache
from hubbub_decoder.explore.front_page import Card, render_explore
from hubbub_decoder.report.highlights import Highlight, Highlights, State
from hubbub_decoder.results.table_result import TableResult
from hubbub_decoder.simulation import JointPopulation
from tests.support.every_kind import METRICS
from tests.support.explored import (
    DAYS,
    FORM,
    NOW,
    PAGE,
    PARAMS,
    SAME_ORIGIN,
    TEXT,
    Explored,
    InProcess,
    folder,
    text_of,
    write,
)
from tests.support.report_pages import HOSTILE


def test_view_of_periods_marks_events_and_reads_their_file_again(place: Path) -> None:
    """The other views and the downloads are not computed again for another list of events; a damaged file says so."""
    path, view = place / "releases.csv", f"{folder(PAGE)}/?from={DAYS[0]}&to={DAYS[1]}&show=periods"
    path.write_text(f"date,label\n{DAYS[1]},<b>released\n2025-01-01,before\n")
    with Explored(place, events=[path]) as explored:
        assert "A dashed line marks the first day that ends after an event: 1 2026-03-09: &lt;b&gt;released" in text_of(
            explored.get(view)
        )
        others = (
            f"{folder(PAGE)}/?from={DAYS[0]}&to={DAYS[1]}",
            f"{folder(PAGE)}/data.csv?from={DAYS[0]}&to={DAYS[1]}&show=periods",
        )
        assert not any("released" in text_of(explored.get(other)) for other in others)
        path.write_text(f"date,label\n{DAYS[1]},2.1 and 2.2\n")
        assert "2026-03-09: 2.1 and 2.2" in text_of(explored.get(view))
        path.write_text("date,label\n9.3.2026,2.1\n")
        damaged = explored.get(view)
        assert (damaged.status, "date must be a day YYYY-MM-DD, got &#39;9.3.2026,2.1&#39;" in text_of(damaged)) == (
            503,
            True,
        )
        assert explored.get(others[0]).status == 200


def test_files_have_the_numbers_of_decode_compare_and_decode_each(explored: Explored) -> None:
    first, second, _ = (read_summary(path) for path in sorted((explored.place / "summaries").iterdir()))
    assert isinstance(first, BitCounts)
    assert isinstance(second, BitCounts)
    names = ["a", "b", "absent"]
    expected: dict[str, TableResult[Any]] = {
        f"from={DAYS[0]}&to={DAYS[0]}": decode(first, names),
        f"from={DAYS[0]}&to={DAYS[1]}": decode(first + second, names),
        f"from={DAYS[0]}&to={DAYS[1]}&show=periods": decode_each([first, second], names),
        f"from={DAYS[1]}&show=change": compare(first, second, names),
    }
    names_of_files: set[str] = set()
    for query, result in expected.items():
        for suffix in (".csv", ".json", ".parquet"):
            found = explored.get(f"{folder(PAGE)}/data{suffix}?{query}")
            assert (found.status, found.body) == (200, result.to_bytes(suffix)), (query, suffix)
            names_of_files.add(found.headers["content-disposition"])
            assert found.headers["content-disposition"].endswith(f'{suffix}"')
        assert explored.get(f"{folder(PAGE)}/data.png?{query}").body.startswith(b"\x89PNG")
        assert b"<svg" in explored.get(f"{folder(PAGE)}/data.svg?{query}").body
        page = explored.get(f"{folder(PAGE)}/?{query}")
        assert page.status == 200
        assert "First &lt;page&gt;" in page.body.decode()
    assert len(names_of_files) == 3 * len(expected)  # no download replaces another one


def test_the_form_of_a_change_goes_on_to_compare_with_the_period_before(explored: Explored) -> None:
    """Else another period would be compared with the one before the last choice."""
    page = explored.get(f"{folder(PAGE)}/?show=change&from={DAYS[1]}").body.decode()
    assert re.findall(r'<option value="([^"]*)" selected', page)[-2:] == ["", ""]
    page = explored.get(f"{folder(PAGE)}/?show=change&from={DAYS[2]}&since_from={DAYS[0]}").body.decode()
    assert re.findall(r'<option value="([^"]*)" selected', page)[-2:] == [DAYS[0], ""]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_kind_has_pages_or_a_reason(tmp_path: Path, metric: Metric) -> None:
    (tmp_path / "summaries").mkdir()
    (tmp_path / "candidates").mkdir()
    if metric.kind.needs_candidates:
        (tmp_path / "candidates" / f"{metric.name}.txt").write_text("linux\nmail\n")
    values: dict[str, JointPopulation] = {
        "os": {"linux": 3_000},
        "browser": {"firefox": 3_000},
        "dark": {"true": 3_000},
        "updated": {"true": 3_000},
        "theme": {"dark": 3_000},
        "delay": {"5": 3_000},
        "size": {"5": 3_000},
        "plugins": {"spelling": 3_000},
        "packages": {"git,vim": 3_000},
        "os_and_page": {("linux", "mail"): 3_000},
        "theme_and_page": {("dark", "mail"): 3_000},
    }
    for seed, day in enumerate(DAYS):
        write(tmp_path, metric, day, values.get(metric.name, {"mail": 3_000}), seed)
    with Explored(tmp_path) as explored:
        statuses = {
            query: explored.get(f"{folder(metric)}/?{query}")
            for query in (
                "",
                "show=change",
                f"show=periods&from={DAYS[0]}&to={DAYS[2]}",
                f"from={DAYS[0]}&to={DAYS[2]}",
            )
        }
        front = text_of(explored.get("/"))
    task = next(iter(explored.explorer.read()[0].values())).tasks[0]
    if statuses[""].status == 200:
        found = Highlights.of(decode(read_collected(task.files[0]), ["linux", "mail"] if task.candidates else None))
        assert all(share.low <= share.share <= share.high for share in found.shares)
        assert found.shares or found.mean
    for query, response in statuses.items():
        if response.status != 200:
            assert response.status in (400, 503), query
            assert metric.name in text_of(response)
            assert "unexpected" not in text_of(response), text_of(response)
    assert (statuses[""].status == 200) is (metric.name not in ("os_and_page", "theme_and_page", "words"))
    assert metric.name in front


@pytest.mark.parametrize(
    ("closed", "still_arriving", "shown"),
    [
        ([40], [], 0),
        ([40], [20], 1),
        ([40], [19], 0),
        ([40], [30, 5], 1),
        ([40], [5, 30], 2),
        ([40, 0], [1], 2),
        ([40, 0], [0], 1),
        ([0, 40], [19], 1),
        ([100, 10], [6], 2),
        ([], [30], 0),
        ([], [30, 40, 19], 1),
        ([], [40, 20], 1),
        ([], [0, 0], 1),
    ],
)
def test_the_newest_period_with_enough_reports_is_shown_first(
    tmp_path: Path, closed: list[int], still_arriving: list[int], shown: int
) -> None:
    """It has at least half as many reports as the last closed one, or as the largest one while none is closed."""
    for name in ("summaries", "candidates"):
        (tmp_path / name).mkdir()
    metric = Metric.boolean("dark", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.25), period="week")
    ends = date(2026, 3, 2), date(2026, 3, 9)  # of the closed ones, and of the others
    days = [str(ends[0] - timedelta(weeks=back)) for back in reversed(range(len(closed)))]
    days += [str(ends[1] + timedelta(weeks=ahead)) for ahead in range(len(still_arriving))]
    for day, number in zip(days, [*closed, *still_arriving], strict=True):
        write(tmp_path, metric, day, {"true": number})
    is_open, number = shown >= len(closed), [*closed, *still_arriving][shown]
    with Explored(tmp_path) as explored:
        fill(explored)
        card = text_of(explored.get("/")).partition("1 of 1 metrics")[2]
        assert f"week of {days[shown]}, {format_count(number, 'report')}{', still arriving' * is_open}" in card
        assert card.count("still arriving") == 2 * is_open  # on the card, and in the sentence of the page
        page = explored.get(f"{folder(metric)}/")
        chosen = re.findall(r'<option value="([^"]*)" selected>([^<]*)', page.body.decode())[:2]
        assert chosen == [(days[shown], f"{days[shown]}{' (still arriving)' * is_open}")] * 2
        assert ("Reports of this week are still arriving" in text_of(page)) is (is_open and number > 0)


@pytest.mark.parametrize("number", [None, "many", 1.5, [3]])
def test_a_file_that_has_no_number_of_reports_is_no_summary(explored: Explored, number: object) -> None:
    path = next((explored.place / "summaries").glob(f"*{DAYS[2]}*"))
    table = pq.read_table(path)
    about = json.loads(table.schema.metadata[b"hubbub"]) | {"num_reports": number}
    pq.write_table(table.replace_schema_metadata({"hubbub": json.dumps(about)}), path)
    shown = text_of(explored.get("/"))
    assert f"{path.name}not a hubbub summary" in shown
    assert f"Reporting period: {DAYS[1]}" in text_of(explored.get(f"{folder(PAGE)}/"))


def test_what_is_still_arriving_says_in_plain_words_what_reading_it_twice_reveals(explored: Explored) -> None:
    later = "2026-03-17"
    write(explored.place, PAGE, later, {"a": 1_000})  # too few to be shown first
    plain = "the difference between the two results comes only from the people whose reports arrived in between"
    for query, said in {
        f"from={DAYS[1]}": "",
        "": "Reports of this day are still arriving",
        f"from={DAYS[1]}&to={DAYS[2]}": "Reports of 1 of these 2 days are still arriving",
        f"from={DAYS[0]}&to={DAYS[2]}&show=periods": "Reports of 1 of these 3 days are still arriving",
        f"from={DAYS[2]}&show=change": "Reports of 1 of these 2 days are still arriving",
        f"from={DAYS[2]}&to={later}": "Reports of these 2 days are still arriving",
    }.items():
        page = explored.get(f"{folder(PAGE)}/?{query}")
        before, _, details = text_of(page).partition("What this means in figures")
        assert (said in before, plain in before) == (True, bool(said)), query
        assert ("the local one, instead of the central epsilon" in details) is bool(said), query
        assert not said or "epsilon" not in before, query  # whoever reads the sentence does not need the word
    assert "Central epsilon of these counts" in text_of(explored.get(f"{folder(PAGE)}/?from={DAYS[1]}"))
    front = text_of(explored.get("/"))
    assert plain in front
    for day in (DAYS[2], later):
        next((explored.place / "summaries").glob(f"*{day}*")).unlink()
    assert plain not in text_of(explored.get("/"))


def test_a_page_says_whether_it_can_be_trusted(explored: Explored) -> None:
    shown = text_of(explored.get(f"{folder(PAGE)}/"))
    assert "Can these results be trusted? The reports fit the metric" in shown
    assert "Forged reports that a detection would need:" in shown.partition("Estimates")[0]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("from=2026-03-03", "page has no period 2026-03-03. Did you mean"),
        (f"from={DAYS[1]}&to={DAYS[0]}", f"{DAYS[1]} is after {DAYS[0]}"),
        (f"show=change&from={DAYS[0]}", f"There is no period before {DAYS[0]}"),
        (
            f"show=change&from={DAYS[1]}&since_from={DAYS[0]}&since_to={DAYS[1]}",
            f"{DAYS[1]}, with which it is compared, is not before {DAYS[1]}",
        ),
        (
            f"show=change&from={DAYS[0]}&since_from={DAYS[1]}",
            f"{DAYS[1]}, with which it is compared, is not before {DAYS[0]}",
        ),
        (f"show=change&from={DAYS[1]}&since_from={DAYS[1]}&since_to={DAYS[0]}", f"{DAYS[1]} is after {DAYS[0]}"),
        ("show=highlights", "show=highlights is none of sum, periods, change"),
        ("show=<b>", "show=&lt;b&gt; is none of"),
        ("strings=" + "0" * 64, "The strings of this address are not kept any more"),
        ("strings=../../etc/passwd", "The strings of this address are not kept any more"),
    ],
)
def test_an_address_of_nothing_says_what_there_is(explored: Explored, query: str, said: str) -> None:
    response = explored.get(f"{folder(PAGE)}/?{query}")
    assert response.status == 400
    assert said in text_of(response)
    assert "<h1>page</h1>" in response.body.decode()
    chosen = re.findall(r'<option value="([^"]*)" selected', response.body.decode())
    assert len(chosen) == 5  # its form has what the address chooses
    for field, value in parse_qsl(query):
        assert field == "strings" or value not in (*DAYS, "change") or value in chosen
    assert f'name="strings" value="{"0" * 64}"' in response.body.decode() or "0" * 64 not in query
    assert "Download:" not in text_of(response)


@pytest.mark.parametrize(
    "path", ["/page@00000000/", "/a/b/c", "/page/data.csv", f"{folder(PAGE)}/data.exe", f"{folder(PAGE)}/strings"]
)
def test_unknown_addresses_are_pages_too(explored: Explored, path: str) -> None:
    response = explored.get(path)
    assert response.status == (405 if path.endswith("strings") else 404)
    assert f"<h1>{'page' if path.endswith('exe') else 'Metrics'}</h1>" in response.body.decode()


def test_files_with_the_same_period_are_not_added_up(explored: Explored) -> None:
    counts = simulate(PAGE, {"a": 100}, np.random.default_rng(1), periods=list(DAYS[:2]))
    write_summary(counts, explored.place / "summaries" / "both.parquet")
    response = explored.get(f"{folder(PAGE)}/?from={DAYS[0]}&to={DAYS[1]}")
    assert response.status == 400
    assert "Two of the files" in text_of(response)
    assert explored.get(f"{folder(PAGE)}/?from={DAYS[0]}..{DAYS[1]}").status == 200


def test_more_strings_are_decoded_with_the_usual_ones(explored: Explored) -> None:
    sent = explored.post(f"{folder(PAGE)}/strings?from={DAYS[0]}", b"strings=more%0Aa")
    page, address = f"{folder(PAGE)}", sent.headers["location"].removeprefix("./")
    rows = json.loads(explored.get(f"{page}/data.json{address}").body)["estimates"]
    assert sorted(row["candidate"] for row in rows) == ["a", "absent", "b", "more"]
    assert "page.txt" in text_of(explored.get(f"{page}/{address}"))


def test_strings_are_decoded_at_an_address_that_has_them(explored: Explored) -> None:
    (explored.place / "candidates" / "page.txt").unlink()
    response = explored.get(f"{folder(PAGE)}/")
    assert response.status == 400
    assert "cannot be shown" in text_of(response)
    assert "More strings" in text_of(response)  # so it has a way out
    for given in (
        "unlisted\r\n\r\nb",
        "שלום\n<script>alert(1)</script>\n=1+1\n" + "x" * 10_000,
        "\n".join(HOSTILE).replace("\x00", ""),
    ):
        sent = explored.post(f"{folder(PAGE)}/strings?from={DAYS[0]}", f"strings={quote_plus(given)}".encode())
        assert sent.status == 303
        address = sent.headers["location"].removeprefix("./")
        assert f"from={DAYS[0]}" in address
        page = explored.get(f"{folder(PAGE)}/{address}")
        assert page.status == 200
        assert "<script>alert" not in page.body.decode()
        rows = json.loads(explored.get(f"{folder(PAGE)}/data.json{address}").body)["estimates"]
        assert {row["candidate"] for row in rows} == {line for line in given.replace("\r\n", "\n").split("\n") if line}


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (403, b"strings=a", (FORM, (b"origin", b"http://evil.example"))),
        (403, b"strings=a", (FORM, (b"origin", b"null"))),
        (403, b"strings=a", (FORM,)),
        (413, b"strings=" + b"a%0A" * 300_000, (FORM, SAME_ORIGIN)),
        (415, b"\x1f\x8b" + bytes(1_000), (FORM, SAME_ORIGIN, (b"content-encoding", b"gzip"))),
        (415, b"PK\x03\x04", ((b"content-type", b"multipart/form-data; boundary=x"), SAME_ORIGIN)),
        (400, b"strings=%FF", (FORM, SAME_ORIGIN)),
        (400, b"strings=\xff", (FORM, SAME_ORIGIN)),
        (400, b"strings=a&b=c", (FORM, SAME_ORIGIN)),
        (400, b"strings=%0A%0D%0A", (FORM, SAME_ORIGIN)),
        (400, b"", (FORM, SAME_ORIGIN)),
    ],
)
def test_a_hostile_form_costs_one_refused_request(
    explored: Explored, status: int, body: bytes, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    assert explored.post(f"{folder(PAGE)}/strings", body, *headers).status == status
    assert not list((explored.place / "cache").glob("*.txt"))
    assert explored.get(f"{folder(PAGE)}/").status == 200


def test_pages_are_for_browsers_of_this_machine(explored: Explored) -> None:
    for host, status in (
        ("evil.example", 400),
        ("localhost.evil.example", 400),
        ("10.0.0.1:8001", 400),
        ("127.0.0.1:8001", 200),
        ("[::1]:8001", 400),
        ("localhost", 200),
    ):
        assert explored.caller.call("GET", "/", host=host).status == status, host
    response = explored.get(f"{folder(PAGE)}/")
    assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "samesite=strict" in response.headers["set-cookie"].lower()
    policy = re.search(r'content="(default-src[^"]*)"', response.body.decode())
    assert policy is not None
    assert "script-src &#39;sha256-" in policy[1] or "script-src 'sha256-" in policy[1]
    assert "nonce" not in policy[1]


@pytest.mark.parametrize("host", ["localhost", "telemetry.example.org"])
@pytest.mark.parametrize(
    "path", ["/v1/reports", "/v1/strings", "/v1/", "/", f"{folder(PAGE)}/", f"{folder(PAGE)}/strings"]
)
def test_uploads_get_no_answer_of_an_aggregator(explored: Explored, path: str, host: str) -> None:
    """A proxy that forwards uploads to these pages by mistake loses none: neither accepted, nor refused as an aggregator refuses."""
    headers = (b"content-type", b"application/json"), (b"authorization", b"Bearer hubbub_x")
    response = explored.caller.call("POST", path, headers, [b'{"format": 1}'], host=host)
    assert response.status >= 400
    assert "problem+json" not in response.headers.get("content-type", "")
    assert b"/problems/" not in response.body


def fill(explored: Explored) -> None:
    """Let the background decode what the cards show."""
    versions, _ = explored.explorer.read()
    for job in list(explored.explorer.unknown_highlights(versions, NOW)):
        explored.cache.add_answer(job.key, job.inputs, job.answer())


def test_cards_are_found_filtered_and_sorted(explored: Explored) -> None:
    dark = Metric.boolean(
        "dark", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.25), description="Dark mode", owner="apps"
    )
    rare = Metric.string("rare", PARAMS, owner="apps")
    (explored.place / "candidates" / "rare.txt").write_text("x\n")
    write(explored.place, PAGE, DAYS[2], {"a": 1_600, "b": 1_000})  # no unlisted string, of which a warning would speak
    write(explored.place, dark, DAYS[0], {"true": 9_000})
    write(explored.place, rare, DAYS[0], {"x": 3})
    write(explored.place, Metric.joint("both", (dark, TEXT)), DAYS[0], {("true", "a"): 1_000})
    (explored.place / "summaries" / "broken.parquet").write_bytes(b"PAR1")
    fill(explored)
    shown = text_of(explored.get("/"))
    assert "4 of 4 metrics " in shown
    assert "broken.parquetnot a hubbub summary" in shown
    assert f"{DAYS[2]}, 2,600 reports, still arriving, owner web" in shown

    def names(query: str) -> list[str]:
        return re.findall(r'<h2><a href="(\w+)@', explored.get(f"/?{query}").body.decode())

    assert names("") == ["rare", "dark", "page", "both"]  # the most urgent state first: a warning, good, not decoded
    assert names("sort=name") == ["both", "dark", "page", "rare"]
    assert names("sort=reports") == ["dark", "page", "rare", "both"]
    assert names("sort=newest+period") == ["page", "both", "dark", "rare"]
    assert names("sort=nonsense") == names("")
    assert names("owner=apps") == ["rare", "dark"]
    assert names("kind=string&owner=apps") == ["rare"]
    assert names("state=good") == ["dark", "page"]
    assert names("q=DARK+mode") == ["dark"]
    assert names("q=%3Cscript%3E" * 100) == []


def test_cards_show_what_is_known_on_a_scale_to_100_percent(tmp_path: Path) -> None:
    for name in ("summaries", "candidates"):
        (tmp_path / name).mkdir()
    response = UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.25)
    many, few = (Metric.boolean(name, response) for name in ("many", "few"))
    pages = [f"https://example.org/products/catalogue/{name}/index.html" for name in ("search", "mail", "news")]
    (tmp_path / "candidates" / "page.txt").write_text("\n".join(pages))
    for day in DAYS[:2]:
        write(tmp_path, many, day, {"true": 34_000, "false": 166_000})
        write(tmp_path, few, day, {"true": 40, "false": 40})
        write(tmp_path, PAGE, day, dict.fromkeys(pages, 3_000))
    with Explored(tmp_path) as explored:
        fill(explored)
        html = explored.get("/").body.decode()
    states, cards = dict[str, str](), dict[str, str]()
    for card in html.split("<article")[1:]:
        (name,) = re.findall(r'<h2><a href="(\w+)@', card)
        cards[name], states[name] = card, re.findall(r'class="pill \w+">([^<]*)', card)[0]
    assert (states["many"], states["few"]) == ("good", "few reports")
    widths = [float(width) for width in re.findall(r'<b style="width:\s*([\d.]+)%', cards["many"])]
    assert widths == [pytest.approx(17, abs=2)]
    labels = re.findall(r'<bdi title="([^"]*)">([^<]*)', cards["page"])
    assert sorted(labels) == sorted((page, f"…{page.partition('catalogue/')[2]}") for page in pages)


def test_a_page_names_its_own_form_for_an_unlisted_string(explored: Explored) -> None:
    shown = text_of(explored.get(f"{folder(PAGE)}/"))
    assert "Enter such a list under More strings on this page." in shown
    assert "--more-candidates" not in shown
    assert "match_unlisted" not in shown


def test_one_period_says_how_to_choose_more(explored: Explored) -> None:
    shown = text_of(explored.get(f"{folder(PAGE)}/?show=periods"))
    assert 'One day has no trend, so there is no chart. Choose an earlier one under "From the day".' in shown


def test_two_versions_of_a_metric_are_told_apart(explored: Explored) -> None:
    other = Metric.string(
        "page", Params(num_bits=64, num_hashes=2, num_cohorts=8, prob_p=0.25, prob_q=0.75, prob_f=0.0)
    )
    write(explored.place, other, DAYS[0], {"a": 1_000})
    shown = text_of(explored.get("/"))
    assert f"page@{other.digest[:8]}" in shown
    assert f"page@{PAGE.digest[:8]}" in shown


def test_an_answer_is_computed_once_and_again_when_a_file_changes(explored: Explored) -> None:
    process = explored.process
    assert isinstance(process, InProcess)
    first = explored.get(f"{folder(PAGE)}/").body
    assert explored.get(f"{folder(PAGE)}/").body == first
    jobs = [job for job in process.jobs if job.suffix == ".html"]
    assert len(jobs) == 1
    write(explored.place, PAGE, DAYS[1], {"a": 10_000}, seed=9)
    second = text_of(explored.get(f"{folder(PAGE)}/"))
    assert "10,000" in second
    assert jobs[0].inputs[0] not in {
        line for path in kept(explored) for line in json.loads(path.read_bytes().partition(b"\n")[0])
    }


def kept(explored: Explored) -> list[Path]:
    return [path for path in (explored.place / "cache").iterdir() if path.suffix == ""]


def test_answers_of_deleted_summaries_are_deleted(explored: Explored) -> None:
    explored.get(f"{folder(PAGE)}/")
    sent = explored.post(f"{folder(PAGE)}/strings", b"strings=a")
    explored.get(f"{folder(PAGE)}/{sent.headers['location'].removeprefix('./')}")
    assert kept(explored)
    write(
        explored.place,
        Metric.boolean("dark", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.25)),
        DAYS[0],
        {"true": 10},
    )
    for path in (explored.place / "summaries").glob("page-*"):
        path.unlink()
    explored.get("/")
    assert not kept(explored)


def test_kept_files_are_private_and_their_size_is_bounded(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", most_bytes=1_000)
    for number in range(20):
        cache.add_answer(f"{number:02}", [], b"x" * 100)
        cache.answer("00")
        time.sleep(0.002)  # times of files tell their order
    files = list((tmp_path / "cache").iterdir())
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert sum(path.stat().st_size for path in files) <= 1_000
    assert {path.name for path in files} > {"00", "19"}  # used last
    assert cache.answer("05") is None


def test_random_damage_of_kept_files_changes_no_page(explored: Explored, unseen_seed: int) -> None:
    rng = np.random.default_rng(unseen_seed)
    sent = explored.post(f"{folder(PAGE)}/strings", b"strings=a")
    paths = [
        f"{folder(PAGE)}/?from={DAYS[0]}",
        f"{folder(PAGE)}/data.csv",
        f"{folder(PAGE)}/{sent.headers['location'].removeprefix('./')}",
        "/",
    ]
    fill(explored)
    before = [explored.get(path).body for path in paths]
    for _ in range(30):
        for path in (explored.place / "cache").iterdir():
            content, kind = bytearray(path.read_bytes()), rng.integers(4)
            if kind == 0 and path.suffix == "":
                path.write_bytes(content[: rng.integers(len(content))])
            elif kind == 1 and path.suffix == "":
                content[rng.integers(len(content))] ^= 1 << rng.integers(8)
                path.write_bytes(content)
        assert [explored.get(path).body for path in paths[:-1]] == before[:-1]
        assert explored.get("/").status == 200
        write(
            explored.place,
            Metric.boolean("dark", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.25)),
            DAYS[0],
            {"true": int(rng.integers(1, 99))},
        )
    (entered,) = (explored.place / "cache").glob("*.txt")
    entered.write_text("b\n")
    assert explored.get(paths[2]).status == 400  # not the strings of this address


def test_files_that_cannot_be_read_cost_their_own_page_alone(
    explored: Explored, monkeypatch: pytest.MonkeyPatch
) -> None:
    dark = Metric.boolean("dark", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.25))
    write(explored.place, dark, DAYS[0], {"true": 10_000})
    hash_of = explored.explorer.summaries.hash_of

    def fails(path: Path) -> str:
        if path.name == "page.txt":
            raise PermissionError(13, "Permission denied", str(path))
        return hash_of(path)

    monkeypatch.setattr(explored.explorer.summaries, "hash_of", fails)
    front = explored.get("/")
    assert front.status == 200
    assert "page.txt cannot be read: Permission denied." in text_of(front)
    refused = explored.get(f"{folder(PAGE)}/")
    assert (refused.status, "page.txt cannot be read: Permission denied." in text_of(refused)) == (503, True)
    assert explored.get(f"{folder(dark)}/").status == 200


def test_a_full_disk_costs_the_cache_alone(explored: Explored, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device", "cache")

    monkeypatch.setattr(explored.cache, "_write", fails)
    assert explored.get(f"{folder(PAGE)}/").status == 200
    refused = explored.post(f"{folder(PAGE)}/strings", b"strings=a")
    assert (refused.status, "No space left on device" in text_of(refused)) == (503, True)


def test_a_period_without_reports_says_so(explored: Explored) -> None:
    empty = BitCounts(PAGE, [0] * 8, [[0] * 32] * 8, periods=("2026-03-10",))
    write_summary(empty, explored.place / "summaries" / "empty.parquet")
    next((explored.place / "summaries").glob(f"*{DAYS[2]}*")).unlink()
    fill(explored)
    shown = text_of(explored.get("/"))
    assert "no reports 2026-03-10, 0 reports" in shown
    assert "holds no report" in text_of(explored.get(f"{folder(PAGE)}/"))


class Blocked(InProcess):
    """Answers nothing until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    async def answer(self, job: str) -> bytes:
        await self.go.wait()
        return await super().answer(job)


def test_a_page_waits_and_one_asker_has_one_job(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubbub_decoder.explore.app._PATIENCE", 0.01)
    monkeypatch.setattr(answering, "MAX_WAITING", 3)
    process = Blocked()
    with Explored(place, process) as explored:  # the background has a job, too
        first, second = f"{folder(PAGE)}/", f"{folder(PAGE)}/?from={DAYS[0]}"
        for _ in range(2):  # loading a page again is no other job
            waiting = explored.get(first, cookie="hubbub_explore=one")
            assert (waiting.status, waiting.headers["refresh"]) == (202, "3")
            assert "The reports are being decoded. This page loads again by itself." in text_of(waiting)
        refused = explored.get(second, cookie="hubbub_explore=one")
        assert (refused.status, refused.headers["retry-after"]) == (429, "3")
        assert "Another page of yours is being decoded" in text_of(refused)
        assert explored.get(second, cookie="hubbub_explore=two").status == 202
        full = explored.get(f"{folder(PAGE)}/?from={DAYS[1]}", cookie="hubbub_explore=three")
        assert full.status == 429
        assert "3 pages wait" in text_of(full)
        process.go.set()
        while explored.get(first, cookie="hubbub_explore=one").status != 200:
            pass
        while explored.get(second, cookie="hubbub_explore=one").status != 200:
            pass


def test_a_failed_job_is_not_tried_again_at_once(explored: Explored) -> None:
    process = explored.process
    assert isinstance(process, InProcess)
    fill(explored)
    process.problem = "Decoding took too long."
    before = len(process.jobs)
    for _ in range(3):
        response = explored.get(f"{folder(PAGE)}/")
        assert response.status == 503
        assert "Decoding took too long." in text_of(response)
        assert "From the day" in text_of(response)
    assert len(process.jobs) == before + 1


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    made = tmp_path / "temporary"
    made.mkdir()
    return made


@pytest.fixture
def served(place: Path, temporary: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [
        sys.executable,
        "-m",
        "hubbub",
        "explore",
        str(place / "summaries"),
        "--candidates",
        str(place / "candidates"),
    ]
    environment = os.environ | {"TMPDIR": str(temporary)}
    with subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True, env=environment) as running:
        assert running.stdout is not None
        yield running, running.stdout.readline().split()[0]
        running.terminate()


def test_the_command_serves_until_it_is_told_to_end(served: tuple[subprocess.Popen[str], str], temporary: Path) -> None:
    running, url = served
    while "still being decoded" in (page := urlopen(url).read().decode()):  # noqa: S310  (ours)
        time.sleep(0.1)
    assert "page" in page
    while (response := urlopen(f"{url}{folder(PAGE)[1:]}/")).status == 202:  # noqa: S310  (ours; still being decoded)
        time.sleep(0.1)
    assert response.status == 200
    running.terminate()
    assert running.wait(20) == 0
    assert not list(temporary.iterdir())


def test_a_directory_without_summaries_has_a_page_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "summaries").mkdir()
    with Explored(tmp_path) as explored:
        page = explored.get("/")
        assert (page.status, "hubbub pull URL --all" in text_of(page)) == (200, True)
        missing = explored.get(f"{folder(PAGE)}/")
        assert (missing.status, "after the next hubbub pull" in text_of(missing)) == (404, True)
        write(tmp_path, PAGE, DAYS[0], {"a": 100})
        assert "There is no summary yet" not in text_of(explored.get("/"))


def test_the_command_refuses_what_it_cannot_show(tmp_path: Path) -> None:
    assert "is not a directory" in CliRunner().invoke(main, ["explore", str(tmp_path / "none")]).output
    (tmp_path / "empty").mkdir()
    write_summary(simulate(PAGE, {"a": 10}, np.random.default_rng(1)), tmp_path / "empty" / "a.parquet")
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        failed = CliRunner().invoke(main, ["explore", str(tmp_path / "empty"), "--port", port])
    assert failed.exit_code == 1
    assert f"Port {port} of 127.0.0.1 cannot be used" in failed.output
    (tmp_path / "file").touch()
    failed = CliRunner().invoke(
        main, ["explore", str(tmp_path / "empty"), "--port", "0", "--cache", str(tmp_path / "file")]
    )
    assert failed.exit_code == 1
    assert "cannot be written" in failed.output


def test_a_change_without_an_earlier_period_is_that_from_the_first_to_the_last(explored: Explored) -> None:
    shown = text_of(explored.get(f"{folder(PAGE)}/?from={DAYS[0]}&to={DAYS[1]}&show=change"))
    assert f"Change from {DAYS[0]} to {DAYS[1]}" in shown
    assert "it can differ from after minus before, even in sign" in shown
    assert explored.get(f"{folder(PAGE)}/?from={DAYS[0]}&show=change").status == 400


def test_values_of_a_group_have_pages_of_their_own_and_one_together(place: Path) -> None:
    """The sum of the values is the metric, and it has one card."""
    metric = replace(PAGE, name="arms", group=Group("arm", ("old", "new", "other")))
    (place / "candidates" / "arms.txt").write_text("a\nb\n")
    arms: dict[str, list[BitCounts]] = {"old": [], "new": []}
    for seed, day in enumerate(DAYS):
        for value, reports in (("old", {"a": 1_000, "b": 2_000}), ("new", {"a": 6_000, "b": 3_000})):
            write(place, metric.in_group(value), day, reports, seed)
            path = place / "summaries" / f"arms-{metric.in_group(value).digest[:8]}-{day}.parquet"
            arms[value].append(read_collected(path).bit_counts())
        together = replace(arms["old"][-1] + arms["new"][-1], metric=metric)
        write_summary(together, place / "summaries" / f"arms-{day}.parquet")
    whole = f"/arms@{metric.digest[:8]}"
    with Explored(place) as explored:
        front = explored.get("/").body.decode()
        assert front.count(f'href="{whole[1:]}/"') == 1
        assert f"{whole[1:]}-new" not in front
        found = explored.get(f"{whole}/data.csv?from={DAYS[0]}&to={DAYS[1]}")
        assert found.body == decode(
            arms["old"][0] + arms["new"][0] + arms["old"][1] + arms["new"][1], ["a", "b"]
        ).to_bytes(".csv")
        found = explored.get(f"{whole}-new/data.csv?from={DAYS[0]}")
        assert found.body == decode(arms["new"][0], ["a", "b"]).to_bytes(".csv")
        by_arm = f"from={DAYS[0]}&to={DAYS[1]}&show=groups"
        found = explored.get(f"{whole}/data.csv?{by_arm}")
        assert found.body == decode_each([*arms["old"][:2], *arms["new"][:2]], ["a", "b"], by="arm").to_bytes(".csv")
        page = explored.get(f"{whole}/?{by_arm}")
        shown = text_of(page)
        assert "One arm alone: old · new" in shown
        assert "Shares by arm" in shown
        assert f"2 arms: old, new; {DAYS[0]} to {DAYS[1]}" in shown
        shares = decode_each([*arms["old"][:2], *arms["new"][:2]], ["a", "b"], by="arm")
        number = {name: sum(decoding[name].share * decoding.num_reports for decoding in shares) for name in "ab"}
        total = sum(decoding.num_reports for decoding in shares)
        assert all(f"{number[name] / total:.2%}" in shown for name in "ab")
        assert f'href="../{whole[1:]}-old/"' in page.body.decode()
        one = explored.get(f"{whole}-old/")
        assert "These are the reports of one arm alone. Show all reports" in text_of(one)
        assert f'href="../{whole[1:]}/"' in one.body.decode()
        assert explored.get(f"{whole}-old/?show=groups").status == 400
        assert explored.get(f"{folder(PAGE)}/?show=groups").status == 400
        assert explored.get(f"{whole}-other/").status == 404


def test_card_draws_the_largest_share_with_its_intervals_on_an_axis_that_fits() -> None:
    """Columns from 0 to 100 % hid a change of five points."""
    spans = [(0.81, 0.80, 0.82), (0.78, 0.77, 0.79), (0.75, 0.74, 0.76)]
    history = tuple(Highlights(9_000, (Highlight("true", *span),), 1, "", State.GOOD) for span in spans)
    dark = next(metric for metric in METRICS if metric.name == "dark")
    card = Card(dark, "dark/", "dark", DAYS[-1:], False, "good", (None, *history))
    page = render_explore([card], [], {})
    assert "Largest share over 3 periods with its intervals, from 74.00% to 82.00%" in page
    assert "74.00% to 82.00%</small>" in page
    heights = [
        (float(y), float(height))
        for y, height in re.findall(r'<rect x="\d+" y="([-.\d]+)" width="6" height="([.\d]+)"', page)
    ]
    assert [y for y, _ in heights[::2]] == [0, 9, 18]
    assert all(0 <= y <= y + height <= 24 for y, height in heights)
    near_0 = (replace(history[0], shares=(Highlight("true", 0.01, 0.005, 0.02),)), *history)
    assert "from 0.00% to 82.00%" in render_explore([replace(card, history=near_0)], [], {})
    assert 'class="spark"' not in render_explore([replace(card, history=history[:1])], [], {})
