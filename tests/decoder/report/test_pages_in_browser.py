"""Pages of a report in Chromium: widths, color schemes, contrast, keyboard, hostile candidates, no network."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver.common.keys import Keys

from hubbub.metrics.periods import PeriodKind
from hubbub_decoder import Decoding, Trends, decode, decode_each, simulate
from hubbub_decoder.data.events import Event
from hubbub_decoder.report.decoding_page import render_decoding
from hubbub_decoder.report.metric_page import PeriodRow, render_metric
from hubbub_decoder.report.rendering import inline_scripts
from hubbub_decoder.report.write import write_trend_report
from tests.support.chromium import chromium, requested, require
from tests.support.explored import DAYS as EXPLORED_DAYS
from tests.support.explored import Explored, folder, write
from tests.support.report_pages import DAYS, FAMILY, HOSTILE, NAMES, PAGE, SYSTEM, UNUSUAL

pytestmark = pytest.mark.slow

KINDS = ("string", "noise", "noise-trend", "ordinal", "categories", "trend", "metric", "published")
CHARTS = {
    "string": 2,
    "noise": 0,
    "noise-trend": 0,
    "ordinal": 2,
    "categories": 1,
    "trend": 2,
    "metric": 1,
    "published": 0,
}
SHARED = {"metric", "published"}  # pages that load the script of their directory
_PATIENCE = 20.0


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    require()
    with chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def show(browser: Any, page: Path, width: int = 1400, scheme: str = "light", media: str = "") -> list[str]:
    """Open a page, wait for its charts, and return the addresses that it requested."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features, "media": media})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    requested(browser)
    browser.get_log("browser")
    browser.get(page.as_uri())
    wait_until(lambda: len(find_all(browser, ".chart > :not(p)")) == CHARTS[page.stem])
    return requested(browser)


def find_all(browser: Any, selector: str) -> list[Any]:
    return list(browser.find_elements("css selector", selector))


def rows_of(browser: Any, section: str) -> list[str]:
    """First cells of the visible rows of the table of a section."""
    script = "return [...document.getElementById(arguments[0]).closest('section').querySelectorAll('tbody tr:not([hidden]) th bdi')].map(e => e.textContent)"
    return list(browser.execute_script(script, section))


def tab_to(browser: Any, selector: str) -> Any:
    """Press the tab key until the element has the focus."""
    for _ in range(60):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        if browser.execute_script("return document.activeElement.matches(arguments[0])", selector):
            return browser.switch_to.active_element
    raise AssertionError(f"{selector} is not reached by the tab key")


@pytest.mark.parametrize("kind", KINDS)
def test_page_fits_its_window_and_loads_nothing(browser: Any, pages: dict[str, Path], kind: str) -> None:
    """At 360 pixels; tests/system/test_every_page.py has 390 and 1,280."""
    width = 360
    loaded = show(browser, pages[kind], width, "dark")
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    script = [pages[kind].with_name("report.js").as_uri()] if kind in SHARED else []
    assert [url for url in loaded if not url.startswith("data:")] == [pages[kind].as_uri(), *script]
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    wide = "return [...document.querySelectorAll('.card, .chart > *')].filter(e => e.getBoundingClientRect().right > innerWidth).length"
    assert browser.execute_script(wide) == 0


def show_trend(browser: Any, path: Path, events: Sequence[Event], width: int) -> list[str]:
    """Draw 52 weeks of a category with events, and return the texts above the lines that mark these."""
    first = date(2025, 3, 3)
    weeks = [str(first + timedelta(weeks=number)) for number in range(52)]
    metric, rng = replace(SYSTEM, period=PeriodKind.WEEK), np.random.default_rng(1)
    decodings = [decode(simulate(metric, {"linux": 2_000, "macos": 900}, rng, periods=[week])) for week in weeks]
    rows = [PeriodRow.from_decoding(decoding) for decoding in decodings]
    documents = [decoding.to_dict() for decoding in decodings]
    path.write_text(render_metric(metric, rows, documents, inline_scripts(), events=events))
    show(browser, path, width)
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    boxes = """return [...document.querySelectorAll(".chart g[aria-label=text] text")]
        .map((text) => [text.textContent, text.getBoundingClientRect().left, text.getBoundingClientRect().right])"""
    found = browser.execute_script(boxes)
    ends = [right for _, _, right in found]
    assert all(left >= end for (_, left, _), end in zip(found, [0, *ends[:-1]], strict=True))
    assert all(right <= width for right in ends)
    return [text for text, _, _ in found]


@pytest.mark.parametrize("width", [390, 1280])
def test_marks_of_events_do_not_overlap(browser: Any, tmp_path: Path, width: int) -> None:
    """A few releases have their labels in the chart; of 1,000 events, the numbers that have room; the list below the chart has all."""
    few = [
        Event("2025-05-07", "2.1"),
        Event("2025-05-08", "2.2"),
        Event("2026-01-02", HOSTILE[1]),
        Event("2020-01-01", "1.0"),
    ]
    path = tmp_path / "metric.html"
    assert show_trend(browser, path, few[:2], width) == ["2.1, 2.2"]
    assert show_trend(browser, path, few, width) == (["1", "2"] if width == 390 else ["2.1, 2.2", HOSTILE[1]])
    assert browser.execute_script("return window.attacked ?? null") is None
    names = [element.text for element in find_all(browser, ".events bdi")]
    assert names == ["2.1", "2.2", HOSTILE[1]]
    many = [Event(str(date(2025, 3, 3) + timedelta(days=number % 364)), f"event {number}") for number in range(1_000)]
    shown = show_trend(browser, path, many, width)
    assert 10 < len(shown) <= 52
    assert [*map(int, shown)] == sorted({*map(int, shown)})
    assert len(find_all(browser, ".events bdi")) == 1_000
    box = "return document.querySelector('.events').getBoundingClientRect().height"
    assert browser.execute_script(box) < 200


def axis_of(
    browser: Any, path: Path, people: Sequence[dict[str, int]], names: Sequence[str], width: int
) -> list[float]:
    """Draw categories by day, and return the numbers at the vertical axis, after each interval was found inside of the chart."""
    decodings = [
        decode(simulate(SYSTEM, of_day, np.random.default_rng(day), periods=[DAYS[day]]), names)
        for day, of_day in enumerate(people)
    ]
    rows = [PeriodRow.from_decoding(decoding) for decoding in decodings]
    path.write_text(render_metric(SYSTEM, rows, [decoding.to_dict() for decoding in decodings], inline_scripts()))
    show(browser, path, width)
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    inside = """const chart = document.querySelector(".chart svg"), frame = chart.getBoundingClientRect();
        const boxes = [...chart.querySelectorAll("[aria-label=area] path, [aria-label=dot] path, text")].map((e) => e.getBoundingClientRect());
        return boxes.length > 4 && boxes.every((b) => b.top >= frame.top && b.bottom <= frame.bottom && b.left >= frame.left && b.right <= frame.right);"""
    assert browser.execute_script(inside)
    ticks = "return [...document.querySelectorAll('.chart [aria-label=\"y-axis tick label\"] text')].map((e) => e.textContent)"
    return [float(text.replace("\u2212", "-")) for text in browser.execute_script(ticks)]


@pytest.mark.parametrize("width", [390, 1280])
def test_axis_of_shares_over_time_fits_their_intervals(browser: Any, tmp_path: Path, width: int) -> None:
    """From 0, a change of three points looked flat. With a small share in the chart, and for a share near 0, it begins at 0."""
    people = [{"linux": 90_000 - 1_500 * day, "macos": 9_000, "other": 1_000 + 1_500 * day} for day in range(3)]
    path = tmp_path / "metric.html"
    ticks = axis_of(browser, path, people, ["linux"], width)
    assert 70 <= min(ticks) <= max(ticks) <= 100
    named = "return document.querySelector('.chart svg').getAttribute('aria-label') + document.querySelector('.chart').textContent"
    assert "the axis does not begin at 0" in browser.execute_script(named)
    assert "axis not from 0" in browser.execute_script(named)
    for names in (["other"], ["linux", "other"]):
        assert min(axis_of(browser, path, people, names, width)) == 0
        assert "not from 0" not in browser.execute_script(named)


def test_controls_and_charts_have_names(browser: Any, pages: dict[str, Path]) -> None:
    for kind in KINDS:
        show(browser, pages[kind])
        nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        roles = {"searchbox", "combobox", "checkbox", "button", "link", "region", "navigation", "group", "img"}
        unnamed = [
            node
            for node in nodes
            if node.get("role", {}).get("value") in roles
            and not node["ignored"]
            and not node.get("name", {}).get("value")
        ]
        assert [node["role"]["value"] for node in unnamed if node["role"]["value"] != "group"] == []
        levels = [int(element.tag_name[1]) for element in find_all(browser, "h1, h2, h3")]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert (
            browser.execute_script("return document.querySelectorAll('.chart[tabindex=\"0\"][aria-label]').length")
            == CHARTS[kind]
        )


def test_keyboard_filters_sorts_and_reads_the_chart(
    browser: Any, pages: dict[str, Path], decodings: list[Decoding]
) -> None:
    show(browser, pages["string"])
    assert len(rows_of(browser, "estimates")) == 1_000
    search = tab_to(browser, "#estimates ~ form input[type=search]")
    search.send_keys("site-98")
    wanted = [e.candidate for e in decodings[0] if e.candidate.startswith("site-98")]
    assert rows_of(browser, "estimates") == wanted
    assert find_all(browser, "form output")[0].text == f"{len(wanted)} of 1,000 candidates"
    tab_to(browser, "th button")
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert rows_of(browser, "estimates") == sorted(wanted)
    assert find_all(browser, "th[aria-sort]")[0].get_attribute("aria-sort") == "ascending"
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert rows_of(browser, "estimates") == sorted(wanted, reverse=True)
    search = find_all(browser, "input[type=search]")[0]
    search.clear()
    find_all(browser, "select[name=sort] option")[2].click()  # share, descending
    find_all(browser, "input[name=detected]")[0].send_keys(Keys.SPACE)
    assert len(rows_of(browser, "estimates")) == len(decodings[0].detected)
    chart = find_all(browser, ".chart")[0]
    chart.send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    second = decodings[0][1]
    wait_until(lambda: find_all(browser, ".readout")[0].text)
    expected = (
        f"{second.candidate}: {second.share:z.2%}, 95% interval {second.low:z.2%} .. {second.high:z.2%}, detected"
    )
    wait_until(lambda: find_all(browser, ".readout")[0].text == expected)


def test_chart_shows_the_filtered_rows(browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages["string"])
    labels = "return [...document.querySelectorAll('.chart')[0].querySelectorAll('[aria-label=\"y-axis tick label\"] text')].map(e => e.textContent)"
    assert len(browser.execute_script(labels)) == 30
    find_all(browser, "input[type=search]")[0].send_keys("site-1")
    shown = rows_of(browser, "estimates")
    assert browser.execute_script(labels) == shown[:30]
    find_all(browser, "select[name=most]")[0].send_keys(Keys.ARROW_UP)
    assert browser.execute_script(labels) == shown[:10]


@pytest.mark.parametrize("width", [390, 1280])
def test_labels_keep_emoji_and_spaces_and_are_not_clipped(browser: Any, pages: dict[str, Path], width: int) -> None:
    show(browser, pages["string"], width)
    rows = rows_of(browser, "estimates")
    assert {UNUSUAL[0], UNUSUAL[1]} <= {*rows}
    for whole in (FAMILY, UNUSUAL[3][:2]):
        (long,) = [label for label in rows if label.startswith(whole) and "..." in label]
        head, tail = long.partition(" (")[0].split("...")
        assert (head.replace(whole, ""), tail.replace(whole, "")) == ("", "")
    script = """
        const [chart] = document.querySelectorAll('.chart svg');
        return [...chart.querySelectorAll('[aria-label="y-axis tick label"] text')].map((text) =>
            [text.textContent, text.getBoundingClientRect().left - chart.getBoundingClientRect().left, text.getComputedTextLength()])"""
    labels = browser.execute_script(script)
    assert len(labels) == 30
    assert min(left for _, left, _ in labels) >= 0
    assert all(not re.search("\u200d(…|$)|^\u200d", text) for text, _, _ in labels)
    (spaced,) = [(text, length) for text, _, length in labels if text.startswith("   ")]
    plain = browser.execute_script(
        f"const c = document.createElement('canvas').getContext('2d'); c.font = '12px system-ui'; return c.measureText({spaced[0].strip()!r}).width"
    )
    assert spaced[1] > plain + 6


@pytest.mark.parametrize("kind", ["string", "metric"])
def test_hostile_candidates_stay_text(browser: Any, pages: dict[str, Path], kind: str) -> None:
    show(browser, pages[kind])
    assert browser.execute_script("return window.attacked === undefined && document.images.length === 0")
    scripts = "return document.querySelectorAll('script').length"
    assert browser.execute_script(scripts) == (4 if kind == "string" else 2)
    labels = rows_of(browser, "estimates" if kind == "string" else "trends")
    assert {*HOSTILE[:4], "exe.\\u202egnp", "שלום עולם"} <= {*labels}
    text = browser.execute_script("return document.body.innerText")
    assert not {"\u202e", "\u2066", "\u2067", "\u2028", "\x1b"} & {*text}
    assert max(map(len, labels)) < 100


def test_policy_blocks_scripts_and_requests(browser: Any, pages: dict[str, Path]) -> None:
    for kind in ("string", "metric"):
        show(browser, pages[kind])
        browser.execute_script(
            "const s = document.createElement('script'); s.textContent = 'window.attacked = 1'; document.body.append(s)"
        )
        assert browser.execute_script("return window.attacked === undefined")
        blocked = "const done = arguments[0]; fetch('http://127.0.0.1:1/').then(() => done('sent'), (error) => done(String(error)))"
        assert "fetch" in browser.execute_async_script(blocked)
        messages = [entry["message"] for entry in browser.get_log("browser")]
        assert sum("Content Security Policy" in message for message in messages) >= 2


def test_printed_page_is_light_and_complete(browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages["string"], 800, "dark", "print")
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not any(label.is_displayed() for label in find_all(browser, "form.search label"))
    clipped = "return [...document.querySelectorAll('.scroll')].filter(e => e.scrollHeight > e.clientHeight + 1).length"
    assert browser.execute_script(clipped) == 0


def test_trend_chart_draws_the_first_rows(browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages["metric"])
    keys = [element.text for element in find_all(browser, ".keys .key")]
    assert keys[:2] == ["search", "mail"]
    assert len(keys) == 8
    find_all(browser, "input[type=search]")[0].send_keys("mail")
    assert [element.text for element in find_all(browser, ".keys .key")] == ["mail"]
    assert len(NAMES) == 1_000


def test_heading_sorts_the_changes(browser: Any, pages: dict[str, Path], trends: Trends) -> None:
    show(browser, pages["trend"])
    heading = "#changes ~ .scroll th:nth-child(4) button"
    find_all(browser, heading)[0].click()
    assert trends.overall is not None
    comparisons = (trends.overall, *reversed(trends.comparisons))
    changes = [change for comparison in comparisons for change in comparison.detected]
    expected = [change.candidate for change in sorted(changes, key=lambda change: -change.change)]
    assert rows_of(browser, "changes") == expected
    find_all(browser, heading)[0].click()
    assert rows_of(browser, "changes") == expected[::-1]


def test_page_sent_alone_says_what_its_chart_needs(browser: Any, pages: dict[str, Path], tmp_path: Path) -> None:
    show(browser, pages["metric"])
    assert find_all(browser, ".chart > p") == []
    alone = tmp_path / "metric.html"
    alone.write_bytes(pages["metric"].read_bytes())
    browser.get(alone.as_uri())
    (text,) = find_all(browser, ".chart > p")
    assert "report.js" in text.text
    assert text.is_displayed()
    assert not find_all(browser, "form.search")[0].is_displayed()  # its controls would do nothing


@pytest.mark.parametrize("width", [390, 1280])
def test_labels_of_pages_of_one_site_differ(browser: Any, tmp_path: Path, width: int) -> None:
    """At any width, in the chart of intervals and in the keys of the trends."""
    names = [
        f"https://example.org/products/of/the/catalogue/{name}/index.html"
        for name in ("search", "mail", "news", "maps")
    ]
    days = [simulate(PAGE, dict.fromkeys(names, 9_000), np.random.default_rng(1), periods=[day]) for day in DAYS[:2]]
    (tmp_path / "categories.html").write_text(render_decoding(decode(days[0], names), inline_scripts()))
    write_trend_report(decode_each(days, names), tmp_path / "metric.html")
    for page, selector in (("categories", '[aria-label="y-axis tick label"] text'), ("metric", "figcaption bdi")):
        show(browser, tmp_path / f"{page}.html", width)
        labels = browser.execute_script(
            f"return [...document.querySelectorAll('{selector}')].map((each) => each.textContent)"
        )
        assert (page, len(labels), len({*labels})) == (page, len(names), len(names))
        assert all(label.startswith("…") for label in labels)


def test_selects_without_an_effect_are_not_shown(browser: Any, pages: dict[str, Path], tmp_path: Path) -> None:
    for kind, number in (("string", 1), ("categories", 0)):  # the chart has all three rows of the categories
        show(browser, pages[kind])
        assert len(find_all(browser, "select[name=most]")) == number
    for name in ("summaries", "candidates"):
        (tmp_path / name).mkdir()
    for day in EXPLORED_DAYS:
        write(tmp_path, SYSTEM, day, {"linux": 2_000, "macos": 500})
    with Explored(tmp_path) as explored:
        (tmp_path / "noise.html").write_bytes(explored.get(f"{folder(SYSTEM)}/").body)
    show(browser, tmp_path / "noise.html")
    for value, is_shown in (("sum", False), ("change", True), ("periods", False)):
        browser.execute_script(f"document.querySelector('select[name=show]').value = '{value}'")
        for select in ("since_from", "since_to"):
            assert find_all(browser, f"select[name={select}]")[0].is_displayed() is is_shown
        assert find_all(browser, "select[name=from]")[0].is_displayed()
