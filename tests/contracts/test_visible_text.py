"""Random text on every HTML page: no character is invisible or changes the order of others, and each can be read as a code point.

Texts of definitions, senders and analysts reach the pages of the client, the aggregator, the plan and the decoder.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import date
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hubbub import Buckets, Definitions, Metric, UnaryResponse
from hubbub.cli.catalogue import catalogue_pages
from hubbub.pages.html_page import element, page, table
from hubbub.privacy.ledger import Account
from hubbub.sdk.storage.state import State
from hubbub.sdk.transparency.state_page import state_page
from hubbub.summary import BitCounts
from hubbub.text import visible_text
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_decoder import Decoding, Finding, Wishes, compare, decode, plan
from hubbub_decoder.batch_decoding.tasks import UnreadableFile
from hubbub_decoder.explore.front_page import Card, render_explore
from hubbub_decoder.planning.page import render_page
from hubbub_decoder.report.comparison_page import render_comparison
from hubbub_decoder.report.decoding_page import render_decoding
from hubbub_decoder.report.highlights import Highlights
from hubbub_decoder.report.metric_page import PeriodRow, render_metric
from hubbub_decoder.report.rendering import inline_scripts
from tests.aggregator.conftest import running

NOISE: dict[str, Any] = {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.5}
HOSTILE = "a\u202egnp\u2066b\u2069\x00\x07\x1b[31m\x7f\x85\u200b\u2028\ufeffz"
EXPIRES = date(2099, 1, 1)
INVISIBLE = st.characters(categories=["Cc", "Cf", "Zl", "Zp"])
TEXT = st.text(INVISIBLE | st.characters(exclude_categories=["Cs"]), max_size=12).map(lambda text: f"x{text}y")
TEXTS = st.lists(TEXT, min_size=8, max_size=8, unique=True)


def invisible(text: str) -> list[str]:
    """Characters that a page must not have."""
    text = re.sub(
        "(?<=[\u203c-\u3299\ufe0f\U0001f000-\U0001faff])\u200d(?=[\u203c-\u3299\U0001f000-\U0001faff])", "", text
    )
    return [c for c in text if not (c.isprintable() or c in "\n\t" or unicodedata.category(c) == "Zs")]


def metrics(texts: list[str]) -> list[Metric]:
    about: dict[str, Any] = {"description": texts[0], "owner": texts[1], "purpose": texts[2], "expires": EXPIRES}
    return [
        Metric.categorical(
            "choice", tuple(dict.fromkeys((*texts[3:6], "other"))), UnaryResponse(**NOISE), other="other", **about
        ),
        Metric.ordinal("number", Buckets((0, 1, 2), unit=texts[6]), UnaryResponse(**NOISE), **about),
    ]


def markup(texts: list[str]) -> str:
    shown = element("p", texts[0], element("b", texts[1]), texts[2], title=texts[3])
    return page(texts[4], shown, table([texts[5], "n"], [[texts[6], texts[7]]]))


def catalogue(texts: list[str]) -> str:
    return "".join(catalogue_pages(Definitions(metrics(texts)), date(2026, 11, 23)).values())


def state(texts: list[str]) -> str:
    definitions = Definitions(metrics(texts))
    metric = definitions["choice"]
    held = State()
    held.consent_text, held.last_error, held.failures = texts[7], texts[3], 1
    account = Account(texts[4], metric.digest, metric.name, metric.period, "2026-11-23", "value", 1.0, 1, 1)
    refused = account._replace(subject="", refused=texts[5])
    held.accounts.update({account.key: account, refused.key: refused})
    return state_page(held, definitions=definitions)


@cache
def planned() -> Any:
    return plan(Wishes(epsilon=2, num_reports=10_000, num_candidates=10)).description


def of_plan(texts: list[str]) -> str:
    return render_page(
        [replace(planned(), label=texts[0])], toml=texts[1], findings=[Finding("kind", text) for text in texts[2:]]
    )


def decodings(texts: list[str]) -> list[Decoding]:
    return [
        decode(BitCounts(metric, [1000], [[300] * metric.params.num_bits], periods=["2026-11-20"]))
        for metric in metrics(texts)
    ]


def of_decoding(texts: list[str]) -> str:
    shown = (replace(decoding, warnings=(Finding("kind", texts[6], texts[7]),)) for decoding in decodings(texts))
    about: dict[str, Any] = {"provenance": [(texts[3], texts[4])], "path": [(texts[5], "index.html")]}
    return "".join(render_decoding(decoding, inline_scripts(), **about) for decoding in shown)


def of_metric(texts: list[str]) -> str:
    about: dict[str, Any] = {"provenance": [(texts[3], texts[4])], "path": [(texts[5], "index.html")]}
    return "".join(
        render_metric(
            decoding.metric, [PeriodRow.from_decoding(decoding)], [decoding.to_dict()], inline_scripts(), **about
        )
        for decoding in decodings(texts)
    )


def of_comparison(texts: list[str]) -> str:
    counts = [
        [
            BitCounts(metric, [1000], [[ones] * metric.params.num_bits], periods=[day])
            for ones, day in ((300, "2026-11-20"), (500, "2026-11-21"))
        ]
        for metric in metrics(texts)
    ]
    shown = (
        replace(compare(before, after), warnings=(Finding("kind", texts[6], texts[7]),)) for before, after in counts
    )
    return "".join(
        render_comparison(comparison, inline_scripts(), provenance=[(texts[3], texts[4])]) for comparison in shown
    )


def of_front_page(texts: list[str]) -> str:
    cards = [
        Card(decoding.metric, texts[4], decoding.metric.name, (texts[3],), False, "good", (Highlights.of(decoding),))
        for decoding in decodings(texts)
    ]
    return render_explore(cards, [UnreadableFile(Path("a.parquet"), texts[5])], {"q": texts[6]})


PRINTERS: list[Callable[[list[str]], str]] = [
    markup,
    catalogue,
    state,
    of_plan,
    of_decoding,
    of_metric,
    of_comparison,
    of_front_page,
]


def require_visible(shown: str) -> None:
    """No invisible character in the markup, in its entities, or in the data of its charts."""
    for data in re.findall(r'<script type="application/json" id="data">(.*?)</script>', shown, re.DOTALL):
        assert invisible(json.dumps(json.loads(data), ensure_ascii=False)) == []
        assert not re.search(r"\\u00[01]|\\u007f|\\u008|\\u009|\\u20[26]", data.replace("\\\\", ""))
    without_scripts = re.sub(r"<script.*?</script>", "", shown, flags=re.DOTALL)
    assert invisible(without_scripts) == []
    assert invisible(unescape(without_scripts)) == []


@pytest.mark.filterwarnings("ignore:Glyph .* missing from font")  # of the labels in the plan's curves
@pytest.mark.parametrize("printer", PRINTERS, ids=lambda printer: printer.__name__)
def test_pages_show_every_character(printer: Callable[[list[str]], str]) -> None:
    # fewer of pages that draw charts or decode
    examples: dict[Any, int] = {of_plan: 2, of_decoding: 4, of_metric: 4, of_front_page: 4, of_comparison: 4}

    @settings(max_examples=examples.get(printer, 50), suppress_health_check=[HealthCheck.too_slow])
    @given(TEXTS)
    def check(texts: list[str]) -> None:
        require_visible(printer(texts))

    require_visible(shown := printer([f"{HOSTILE}{i}" for i in range(8)]))
    assert "a\\u202egnp\\u2066b" in shown
    check()


@given(st.text(INVISIBLE | st.characters(), max_size=20))
def test_visible_text_is_printable_and_idempotent(text: str) -> None:
    shown = visible_text(text)
    shown.encode()
    assert invisible(shown) == []
    assert visible_text(shown) == shown
    if not invisible(text):
        assert shown == text


def test_every_space_stays() -> None:
    """The space separators of Unicode, which `hubbub.text` lists, and no other character that is not printable."""
    kept = {c for c in map(chr, range(sys.maxunicode + 1)) if not c.isprintable() and visible_text(c) == c}
    assert kept == {
        "\n",
        "\t",
        *(c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) == "Zs"),
    } - {" "}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An aggregator with the hostile text in every field of two metrics."""
    definitions = Definitions(metrics([f"{HOSTILE}{i}" for i in range(8)]))
    path: Path = tmp_path_factory.mktemp("served") / "reports.db"
    with (
        closing(SqlStore.open(str(path))) as store,
        running(definitions, store, Settings(local_reads_without_token=True)) as aggregator,
    ):
        yield aggregator


@pytest.mark.parametrize("path", ["/", "/metric/choice", "/metric/number", "/?q={}", "/metric/{}", "/{}"])
def test_dashboard_shows_every_character(path: str, served: Any) -> None:
    answer = served.get(path.format(quote(HOSTILE)), accept="text/html")
    shown = answer.body.decode()
    assert "<html" in shown
    require_visible(shown)


def test_dashboard_shows_random_text(served: Any) -> None:
    @settings(max_examples=30)
    @given(TEXT)
    def check(text: str) -> None:
        require_visible(served.get(f"/?q={quote(text)}", accept="text/html").body.decode())

    check()
