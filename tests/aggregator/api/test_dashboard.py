"""Dashboard over HTTP: sign-in, cookie, sessions, and the content of the pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from http.cookies import SimpleCookie
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
from sqlalchemy import event

from hubbub import Definitions, Metric, Params, ProblemType, UnaryResponse, parse_definitions
from hubbub_aggregator.api.authentication import SESSION_LENGTH
from hubbub_aggregator.api.dashboard.metric_page import PeriodLine, build_chart, describe_implausible
from hubbub_aggregator.api.dashboard.overview import Sort
from hubbub_aggregator.database.engine import transaction
from hubbub_aggregator.pipeline.folding import compute_figures
from hubbub_aggregator.pipeline.retention import upkeep
from hubbub_aggregator.settings import SettingError, Settings
from hubbub_aggregator.store.period_figures import PeriodFigures, StoredFigures
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_aggregator.store.tokens import Scope, hash_secret
from tests.aggregator.api.test_problem_responses import assert_refused
from tests.aggregator.api.test_tokens import given
from tests.aggregator.conftest import DEFINITIONS, NOON, running
from tests.support.many_metrics import fill, many_definitions

if TYPE_CHECKING:
    from tests.aggregator.conftest import Aggregator, HttpResponse, MakeBatch, StartAggregator

HTML = "text/html,*/*;q=0.8"  # the Accept header of browsers


def sign_in(aggregator: Aggregator, bearer: str, **headers: str) -> HttpResponse:
    body = urlencode({"token": bearer.removeprefix("Bearer ")}).encode()
    request_headers = {"content_type": "application/x-www-form-urlencoded", "accept": HTML} | headers
    answer = aggregator.http.request(
        "POST",
        aggregator.url + "/sign-in",
        body=body,
        headers={name.replace("_", "-"): value for name, value in request_headers.items()},
        redirect=False,
    )
    return _http_response(answer)


def get(aggregator: Aggregator, path: str = "/", **headers: str) -> HttpResponse:
    return _http_response(aggregator.http.request("GET", aggregator.url + path, headers=headers, redirect=False))


def sign_out(aggregator: Aggregator, **headers: str) -> HttpResponse:
    return _http_response(
        aggregator.http.request("POST", aggregator.url + "/sign-out", headers=headers, redirect=False)
    )


def _http_response(answer: Any) -> HttpResponse:
    from tests.aggregator.conftest import HttpResponse

    return HttpResponse(answer.status, answer.headers, answer.data)


def cookie_of(answer: HttpResponse) -> Any:
    [(_, morsel)] = SimpleCookie(answer.headers["set-cookie"]).items()
    return morsel


def signed_in(aggregator: Aggregator, bearer: str) -> dict[str, str]:
    morsel = cookie_of(sign_in(aggregator, bearer))
    return {"cookie": f"{morsel.key}={morsel.value}", "accept": HTML}


def test_page_without_token_redirects_browsers_and_refuses_programs(start: StartAggregator, store: SqlStore) -> None:
    aggregator = start(store, local_reads_without_token=False)
    sent = get(aggregator, accept=HTML)
    assert (sent.status, sent.headers["location"]) == (303, "/sign-in")
    assert_refused(get(aggregator), ProblemType.UNAUTHORIZED)
    form = get(aggregator, "/sign-in")
    assert (form.status, b'name="token"' in form.body) == (200, True)
    page = get(aggregator, authorization=given(store, Scope.READ))
    assert (page.status, b"<h1>hubbub aggregator</h1>" in page.body) == (200, True)


def test_page_needs_no_token_at_the_local_listener(start: StartAggregator, store: SqlStore) -> None:
    aggregator = start(store)
    assert get(aggregator).status == 200
    assert get(aggregator, "/sign-in").headers["location"] == "/"


def test_sign_in_sets_a_protected_cookie_without_the_token(start: StartAggregator, store: SqlStore) -> None:
    aggregator, bearer = start(store, local_reads_without_token=False), given(store, Scope.READ)
    answer = sign_in(aggregator, bearer)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = cookie_of(answer)
    assert (cookie["httponly"], cookie["samesite"], cookie["path"], cookie["max-age"]) == (True, "strict", "/", "43200")
    assert cookie.value not in bearer
    page = get(aggregator, cookie=f"{cookie.key}={cookie.value}", accept=HTML)
    assert (page.status, b"Sign out" in page.body) == (200, True)
    assert get(aggregator, cookie=f"{cookie.key}={bearer.removeprefix('Bearer ')}", accept=HTML).status == 303


@pytest.mark.parametrize(
    ("headers", "name", "secure"),
    [
        ({}, "hubbub", ""),
        ({"host": "localhost:8000"}, "hubbub", ""),
        ({"host": "[::1]:8000"}, "hubbub", ""),
        ({"host": "telemetry.example.org"}, "__Host-hubbub", True),
        ({"host": "127.example.org"}, "__Host-hubbub", True),
        ({"x_forwarded_for": "192.0.2.1"}, "__Host-hubbub", True),
        ({"x_forwarded_proto": "https"}, "__Host-hubbub", True),
    ],
)
def test_cookie_is_secure_except_for_direct_local_requests(
    start: StartAggregator, sqlite_store: SqlStore, headers: dict[str, str], name: str, secure: object
) -> None:
    aggregator = start(sqlite_store, local_reads_without_token=False)
    cookie = cookie_of(sign_in(aggregator, given(sqlite_store, Scope.READ), **headers))
    assert (cookie.key, cookie["secure"]) == (name, secure)


def test_sessions_are_valid_in_other_processes_and_after_a_restart(
    start: StartAggregator, store: SqlStore, database: str, closed_last: ExitStack
) -> None:
    cookie = signed_in(start(store, local_reads_without_token=False), given(store, Scope.READ))
    other = SqlStore.open(database)
    closed_last.callback(other.close)
    assert get(start(other, local_reads_without_token=False), **cookie).status == 200


def test_revoking_a_token_ends_its_sessions(start: StartAggregator, store: SqlStore) -> None:
    aggregator = start(store, local_reads_without_token=False)
    cookie = signed_in(aggregator, given(store, Scope.READ))
    assert get(aggregator, **cookie).status == 200
    assert store.revoke_token("a")
    assert get(aggregator, **cookie).status == 303
    given(store, Scope.READ)  # another token of the same name does not restore the sessions
    assert get(aggregator, **cookie).status == 303


def test_sessions_expire_after_12_hours(start: StartAggregator, store: SqlStore) -> None:
    aggregator = start(store, local_reads_without_token=False)
    cookie = signed_in(aggregator, given(store, Scope.READ))
    aggregator.clock.now += SESSION_LENGTH - timedelta(seconds=1)
    assert get(aggregator, **cookie).status == 200
    aggregator.clock.now += timedelta(seconds=1)
    assert get(aggregator, **cookie).status == 303


def test_sign_out_invalidates_all_copies_of_the_cookie(start: StartAggregator, store: SqlStore) -> None:
    aggregator = start(store, local_reads_without_token=False)
    cookie = signed_in(aggregator, given(store, Scope.READ))
    answer = sign_out(aggregator, **cookie)
    assert (answer.status, answer.headers["location"], cookie_of(answer)["max-age"]) == (303, "/sign-in", "0")
    assert get(aggregator, **cookie).status == 303
    assert sign_out(aggregator).status == 303  # also without a session


def test_sign_in_again_ends_the_earlier_session(start: StartAggregator, store: SqlStore) -> None:
    aggregator, bearer = start(store, local_reads_without_token=False), given(store, Scope.READ)
    first = signed_in(aggregator, bearer)
    assert sign_in(aggregator, bearer, cookie=first["cookie"]).status == 303
    assert get(aggregator, **first).status == 303


def test_database_contains_only_a_hash_of_the_cookie(
    start: StartAggregator, sqlite_store: SqlStore, tmp_path: Path
) -> None:
    cookie = signed_in(start(sqlite_store, local_reads_without_token=False), given(sqlite_store, Scope.READ))["cookie"]
    secret = cookie.partition("=")[2]
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("reports.db*"))
    assert hash_secret(secret) in stored
    assert secret.encode() not in stored


def test_sign_in_with_a_wrong_token_shows_the_reason(start: StartAggregator, store: SqlStore) -> None:
    aggregator = start(store, local_reads_without_token=False)
    wrong = {
        ProblemType.UNAUTHORIZED: ("hubbub_nonsense", "token is unknown"),
        ProblemType.FORBIDDEN: (given(store, Scope.METRICS), "does not have scope read"),
    }
    for refusal, (token, reason) in wrong.items():
        answer = sign_in(aggregator, token)
        assert (answer.status, answer.headers.get("set-cookie")) == (refusal.status, None)
        assert 'role="alert"' in answer.page
        assert reason in answer.page
        assert_refused(sign_in(aggregator, token, accept="*/*"), refusal)
    assert sign_in(aggregator, "", accept="*/*").status == 401
    assert_refused(sign_in(aggregator, "x" * (1 << 21), accept="*/*"), ProblemType.TOO_LARGE)


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},  # another host of the same domain
        {"origin": "https://example.org"},
        {"origin": "null"},
        {"origin": "https://example.org", "sec_fetch_site": "cross-site"},
    ],
)
def test_rejects_forms_of_other_sites(start: StartAggregator, sqlite_store: SqlStore, headers: dict[str, str]) -> None:
    aggregator, bearer = start(sqlite_store, local_reads_without_token=False), given(sqlite_store, Scope.READ)
    assert_refused(sign_in(aggregator, bearer, accept="*/*", **headers), ProblemType.CROSS_SITE)
    cookie = signed_in(aggregator, bearer)
    refused = sign_out(aggregator, cookie=cookie["cookie"], **{n.replace("_", "-"): v for n, v in headers.items()})
    assert_refused(refused, ProblemType.CROSS_SITE)
    assert get(aggregator, **cookie).status == 200


def test_accepts_own_form_behind_a_proxy_that_changes_the_host(start: StartAggregator, sqlite_store: SqlStore) -> None:
    aggregator, bearer = start(sqlite_store, local_reads_without_token=False), given(sqlite_store, Scope.READ)
    outside = {"origin": "https://telemetry.example.org", "x_forwarded_for": "192.0.2.1"}
    assert sign_in(aggregator, bearer, sec_fetch_site="same-origin", **outside).status == 303
    assert sign_in(aggregator, bearer, host="telemetry.example.org", **outside).status == 303


def test_sign_in_is_rate_limited(start: StartAggregator, sqlite_store: SqlStore) -> None:
    aggregator = start(sqlite_store, local_reads_without_token=False, client_rate=0.001, client_burst_seconds=3_000)
    guesses = [sign_in(aggregator, "hubbub_guess", x_forwarded_for="192.0.2.1") for _ in range(4)]
    assert [guess.status for guess in guesses] == [401, 401, 401, 429]
    assert int(guesses[-1].headers["retry-after"]) > 0


def test_pages_show_the_figures_of_stored_batches(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch
) -> None:
    """Reports of every version and period, folded or not; refused batches; retention."""
    aggregator = start(store, fold_interval=1000.0, keep_counts={"carrier": 12}, free=lambda: 3 << 30)
    definitions = aggregator.definitions
    for metric in definitions.versions():
        if metric.name == "from_jfk":
            assert aggregator.post(make_batch(metric, n=500, period="2024-06-10")).status == 202
    for n, period in ((400, "2024-06-14"), (30, "2024-06-15")):
        assert aggregator.post(make_batch(definitions["homepage"], n=n, period=period)).status == 202
    upkeep(store, definitions, Settings(), aggregator.clock())
    assert aggregator.post(make_batch(definitions["homepage"], n=4, period="2024-06-15")).status == 202
    assert aggregator.post(make_batch(definitions["homepage"], period="2024-01-01")).status == 410
    assert aggregator.post(b"{}").status == 400
    page = get(aggregator).page
    assert '<dd id="reports">1,434</dd>' in page
    closed = r'href="/problems/period-closed">period-closed</a></td><td class="word"><a href="/metric/homepage">homepage</a></td>'
    assert re.search(closed + r'<td class="n">1<', page)
    assert re.search(
        r'href="/problems/malformed">malformed</a></td><td class="word">not known</td><td class="n">1<', page
    )
    for words in ("no reports yet", "expired on 2024-06-15", "1 batch refused", "3 GiB", "ready: batches are stored"):
        assert words in page
    homepage, from_jfk, carrier, gone = (
        get(aggregator, f"/metric/{name}").page for name in ("homepage", "from_jfk", "carrier", "gone")
    )
    assert "2024-06-14: 400 reports, still open" in homepage
    assert "2024-06-15: 34 reports, still open" in homepage
    assert re.search(r'href="/problems/period-closed">period-closed</a></td><td class="n">1<', homepage)
    assert "<dt>Epsilon per value</dt><dd>4.395<small>" in homepage
    assert "<dt>Lifetime epsilon</dt><dd>39.551<small>" in homepage
    assert "2024-06-10: 1,000 reports, still open" in from_jfk
    assert "no permanent noise" in from_jfk
    assert from_jfk.count("500 reports</small>") == 2, "of each version"
    assert "Counts are dropped 12 days after the end of their day." in carrier
    assert "No reports." in carrier
    assert "expired on 2024-06-15" in gone


def test_one_report_is_in_the_singular(start: StartAggregator, sqlite_store: SqlStore, make_batch: MakeBatch) -> None:
    aggregator = start(sqlite_store)
    assert aggregator.post(make_batch(aggregator.definitions["homepage"], n=1, period="2024-06-14")).status == 202
    pages = get(aggregator).page + get(aggregator, "/metric/homepage").page
    assert "1 report in 1 period<" in pages
    assert not re.search(r"(?<![\d,])(?<!to )1 (reports|periods)", re.sub("<[^>]*>", "", pages))


def test_page_shows_why_batches_are_not_stored(start: StartAggregator, sqlite_store: SqlStore) -> None:
    assert "not ready: free disk space is below" in get(start(sqlite_store, free=lambda: 1)).page


def test_metric_page_shows_purpose_and_review(start: StartAggregator, sqlite_store: SqlStore) -> None:
    bare = Metric.boolean("b", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
    reviewed = replace(bare, name="a", purpose="Choose a theme", review="https://example.org/reviews/1")
    with running(Definitions([reviewed, bare]), sqlite_store, Settings(local_reads_without_token=True)) as aggregator:
        page, without = (get(aggregator, f"/metric/{name}").page for name in ("a", "b"))
    assert "Purpose: Choose a theme" in page
    assert '<a href="https://example.org/reviews/1" rel="noreferrer">https://example.org/reviews/1</a>' in page
    assert 'id="registry"' not in without


def test_page_escapes_texts_of_definitions(start: StartAggregator, sqlite_store: SqlStore) -> None:
    script = "<script>alert(1)</script>"
    bad = Metric.boolean(
        "b", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), description=script, owner='"><b>', purpose=script
    )
    with running(Definitions([bad]), sqlite_store, Settings(local_reads_without_token=True)) as aggregator:
        pages = [get(aggregator).body, get(aggregator, "/metric/b").body]
        pages.append(get(aggregator, "/?q=%3Cscript%3E%22%3E").body)
        pages.append(get(aggregator, "/metric/%3Cscript%3E", accept=HTML).body)
        pages.append(get(aggregator, "/sign-in?to=%22%3E%3Cscript%3E").body)
    assert not [page for page in pages if b"<script" in page or b'"><b>' in page]
    assert all(b"&lt;script&gt;" in page for page in (*pages[:2], *pages[2:4]))


def test_chart_shows_the_last_90_periods_with_empty_ones() -> None:
    metric = Metric.boolean("b", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
    first = date(2024, 1, 1)
    lines = [
        PeriodLine(str(first + timedelta(days=day)), 10 * (day + 1), day > 98, day == 50) for day in (0, 50, 97, 99)
    ]
    chart = build_chart(metric, lines)
    assert (len(chart.bars), chart.first, chart.last, chart.top) == (90, "2024-01-11", "2024-04-09", 1000)
    assert [(bar.line.period, bar.height, bar.line.is_open) for bar in chart.bars if bar.line.reports] == [
        ("2024-02-20", 51.0, False),
        ("2024-04-07", 98.0, False),
        ("2024-04-09", 100.0, True),
    ]
    assert [bar.line.period for bar in chart.bars if bar.line.is_implausible] == ["2024-02-20"]


@pytest.mark.parametrize(("bars", "dates"), [(1, 1), (2, 1), (7, 1), (8, 3), (90, 3)])
def test_chart_labels_its_axes(bars: int, dates: int) -> None:
    metric, first = Metric.boolean("b", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5)), date(2024, 1, 1)
    chart = build_chart(metric, [PeriodLine(str(first + timedelta(days=day)), 301, False) for day in range(bars)])
    assert [(tick.position, tick.text) for tick in chart.values] == [(0, "400"), (50, "200"), (100, "0")]
    assert {bar.height for bar in chart.bars} == {75.25}
    assert len(chart.dates) == dates
    assert chart.dates[0].text.startswith("2024-01-01")
    assert chart.dates[-1].text.endswith(str(first + timedelta(days=bars - 1)))


def test_chart_adds_periods_of_another_kind() -> None:
    """An older version of the metric has periods of a day, the current version of a week."""
    weekly = Metric.boolean("b", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), period="week")
    lines = [PeriodLine("2024-06-03", 5, False), PeriodLine("2024-06-05", 7, True), PeriodLine("2024-06-10", 1, True)]
    bars = build_chart(weekly, lines).bars
    assert [(bar.line.period, bar.line.reports) for bar in bars] == [("2024-06-03", 12), ("2024-06-10", 1)]


def test_describe_implausible_lists_each_kind_once() -> None:
    params = Params.one_hot(1, prob_p=0.25, prob_q=0.75, prob_f=0.5)
    found = [("2024-06-03", "shape"), ("2024-06-04", "shape"), ("2024-06-04", "cohorts"), ("2024-06-04", "shape")]
    shape, cohorts = describe_implausible((period, kind, params.blocks) for period, kind in found)
    assert shape.startswith("2024-06-04 and 1 earlier period: the distribution of the number of ones")
    assert cohorts.startswith("2024-06-04: the cohort sizes differ")


def test_overview_sorts_metrics_by_severity_of_problems(store: SqlStore, make_batch: MakeBatch) -> None:
    """At noon of June 15, reports of June 13 should have arrived."""
    definitions = many_definitions(8)
    silent, fine, implausible, refused, often_refused, empty, *_ = names = list(definitions)
    with running(definitions, store, Settings(local_reads_without_token=True, fold_interval=1000.0)) as aggregator:
        for name in names:
            period = "2024-06-12" if name == silent else "2024-06-13"
            if name != empty:
                store.append([make_batch(definitions[name], period=period)])
        upkeep(store, definitions, Settings(), NOON)
        digest = definitions[implausible].digest
        store.put_figures([StoredFigures(digest, "2024-06-13", 1, PeriodFigures(3, 1, ("shape",)), is_stale=False)])
        store.add_refusals({(refused, "period-closed"): 1, (often_refused, "padding-set"): 2, ("", "malformed"): 9})
        page = get(aggregator).page
        with_problems = get(aggregator, "/?problems=1").page
    shown = re.findall(r'<tr><th scope="row"><a href="/metric/([^"]+)">', page)
    assert shown[:5] == [implausible, often_refused, refused, silent, empty]
    assert shown[5:] == sorted(shown[5:])
    assert "no reports since 2024-06-12" in page
    assert len(shown) == 8
    assert re.findall(r'<tr><th scope="row"><a href="/metric/([^"]+)">', with_problems) == shown[:5]
    assert fine in shown[5:]


def test_overview_sorts_by_each_column(store: SqlStore) -> None:
    definitions = many_definitions(12)
    names = list(definitions)
    for days, name in enumerate(names):
        fill(store, Definitions([definitions[name]]), NOON.date() - timedelta(days=days), 1 + days % 3)
    owner, days_ago = {name: definitions[name].owner for name in names}, {name: n for n, name in enumerate(names)}
    reports = {name: 20_000 * (1 + n % 3) for n, name in enumerate(names)}
    keys: dict[str, Callable[[str], Any]] = {
        "name": str,
        "owner": owner.__getitem__,
        "latest": lambda name: -days_ago[name],
        "reports": reports.__getitem__,
    }
    with running(definitions, store, Settings(local_reads_without_token=True)) as aggregator:
        for sort in Sort:
            page = get(aggregator, f"/?q=example&sort={sort}").page
            shown = re.findall(r'<tr><th scope="row"><a href="/metric/([^"]+)">', page)
            if sort is not Sort.PROBLEMS:
                assert shown == sorted(sorted(names), key=keys[sort.column], reverse=sort.is_descending), sort
                (direction,) = re.findall(r'aria-sort="(\w+)"><a href="([^"]+)#metrics"', page)
                reverse = sort.column if sort.is_descending else f"-{sort.column}"
                assert direction == (
                    "descending" if sort.is_descending else "ascending",
                    f"/?q=example&amp;sort={reverse}",
                )
        assert_refused(get(aggregator, "/?sort=colour"), ProblemType.INVALID_QUERY)


def test_overview_shows_owner_freshness_and_trend(store: SqlStore, make_batch: MakeBatch) -> None:
    """Folded and unfolded reports, of two versions, of the last 14 weeks."""
    older, current = (metric for metric in parse_definitions(DEFINITIONS).versions() if metric.name == "from_jfk")
    with running(
        Definitions([older, current]), store, Settings(local_reads_without_token=True, fold_interval=1000.0)
    ) as aggregator:
        store.append([make_batch(older, n=7, period="2024-03-04"), make_batch(older, n=5, period="2024-03-11")])
        store.append([make_batch(current, n=20, period="2024-06-03")])
        upkeep(store, aggregator.definitions, Settings(), NOON)
        store.append([make_batch(older, n=10, period="2024-06-03"), make_batch(current, n=3, period="2024-06-10")])
        page = get(aggregator).page
    (text,) = re.findall(r'<svg class="spark" role="img" aria-label="([^"]+)"', page)
    assert text == "14 weeks to 2024-06-10: 0 to 30 reports, last 3"
    heights = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="0.8" height="([\d.]+)"/>', page)
    assert heights == [("0.1", "16.7"), ("12.1", "100.0"), ("13.1", "10.0")]
    assert '<td data-label="owner">owner@example.org</td>' in page
    assert '<td class="n" data-label="latest">2024-06-10<small>5 days ago</small></td>' in page


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("editor", ["editor.first_page", "editor.language"]),
        ("EDITOR", ["editor.first_page", "editor.language"]),
        ("language editor", ["editor.language"]),
        ("sync@example.org", ["sync.first_page"]),
        ("opens first", [f"{area}.first_page" for area in ("billing", "editor", "search", "sync")]),
        ("%", []),
        (" ", 11),
        ("x" * 10_000, []),
    ],
)
def test_search_requires_every_word(sqlite_store: SqlStore, query: str, found: list[str] | int) -> None:
    with running(many_definitions(11), sqlite_store, Settings(local_reads_without_token=True)) as aggregator:
        answer = get(aggregator, "/?" + urlencode({"q": query}))
    shown = re.findall(r'<tr><th scope="row"><a href="/metric/([^"]+)">', answer.page)
    assert answer.status == 200
    assert (len(shown) if isinstance(found, int) else [name for name in shown if name in found]) == found
    assert isinstance(found, int) or query == "opens first" or shown == found


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/", "/?q=editor&problems=1", "/metric/editor.first_page", "/metrics"])
def test_pages_run_a_constant_number_of_statements(store: SqlStore, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Count SQL statements; reading a summary fails the test."""

    def fail(*_: object) -> None:
        raise AssertionError("a summary was read")

    monkeypatch.setattr(store, "read", fail)
    monkeypatch.setattr(store, "reports", fail)
    counts = []
    for last, num_metrics, num_periods in (("2024-05-01", 1, 2), ("2024-06-15", 12, 25)):
        definitions = many_definitions(num_metrics)
        fill(store, definitions, date.fromisoformat(last), num_periods)
        with running(definitions, store, Settings(local_reads_without_token=True, fold_interval=1000.0)) as aggregator:
            statements = statements_of(store, partial(get, aggregator, path))
        assert not [statement for statement in statements if "summary" in statement]
        counts.append(len(statements))
    assert counts[0] == counts[1] <= 12


def test_idle_upkeep_runs_a_constant_number_of_statements(store: SqlStore) -> None:
    counts = []
    for last, num_metrics, num_periods in (("2024-05-01", 1, 2), ("2024-06-15", 12, 25)):
        definitions, statements = many_definitions(num_metrics), list[tuple[str, Any]]()
        fill(store, definitions, date.fromisoformat(last), num_periods)
        upkeep(store, definitions, Settings(), NOON)
        with noted(store, statements):
            upkeep(store, definitions, Settings(), NOON)
        counts.append(len(statements))
    assert counts[0] == counts[1] <= 12


def statements_of(store: SqlStore, act: Callable[[], HttpResponse]) -> list[str]:
    """Return the SQL of a request; an earlier request has done one-time setup."""
    statements: list[tuple[str, Any]] = []
    assert act().status == 200
    with noted(store, statements):
        assert act().status == 200
    return [statement for statement, _ in statements if not statement.startswith(("BEGIN", "SET TRANSACTION"))]


@contextmanager
def noted(store: SqlStore, statements: list[tuple[str, Any]]) -> Iterator[None]:
    """Record each statement and its parameters."""

    def note(*arguments: Any) -> None:
        statements.append((arguments[2], arguments[3]))

    event.listen(store._engine, "before_cursor_execute", note)
    try:
        yield
    finally:
        event.remove(store._engine, "before_cursor_execute", note)


def test_page_queries_use_the_index(sqlite_store: SqlStore) -> None:
    """Without the index SQLite would read all pages of all summaries, because the columns follow the summary in each row."""
    definitions = many_definitions(3)
    fill(sqlite_store, definitions, NOON.date(), 3)
    queries: list[Callable[[], object]] = [
        sqlite_store.version_totals,
        sqlite_store.implausible_periods,
        sqlite_store.stale_figures,
        lambda: sqlite_store.period_rows([metric.digest for metric in definitions.values()]),
        lambda: sqlite_store.recent_reports([metric.digest for metric in definitions.values()], "2024-06-01"),
    ]
    for query in queries:
        statements: list[tuple[str, Any]] = []
        with noted(sqlite_store, statements):
            query()
        [(statement, parameters)] = [executed for executed in statements if executed[0].startswith("SELECT")]
        with transaction(sqlite_store._engine, writes=False) as connection:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
        assert "COVERING INDEX ix_collection_figures" in str(plan), plan


@pytest.mark.parametrize("kind", ["summary", "reports"])
def test_downloads_accept_the_cookie_except_from_other_sites(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch, kind: str
) -> None:
    aggregator = start(store, local_reads_without_token=False, keep_reports={"homepage": 5})
    assert aggregator.post(make_batch(aggregator.definitions["homepage"])).status == 202
    path = f"/v1/metrics/homepage/{kind}"
    assert_refused(get(aggregator, path), ProblemType.UNAUTHORIZED)
    assert_refused(get(aggregator, path, cookie="hubbub=guess"), ProblemType.UNAUTHORIZED)
    cookie = signed_in(aggregator, given(store, Scope.READ))
    page = get(aggregator, "/metric/homepage", **cookie).page
    assert f'href="{path}"' in page
    answer = get(aggregator, path, **cookie)
    file = "homepage-2024-06-15.parquet" if kind == "summary" else "homepage-reports-2024-06-15.parquet"
    assert (answer.status, answer.headers["content-disposition"]) == (200, f'attachment; filename="{file}"')
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    for site, status in (("same-origin", 200), ("none", 200), ("same-site", 401), ("cross-site", 401)):
        assert get(aggregator, path, **cookie, **{"sec-fetch-site": site}).status == status
    assert get(aggregator, path, **cookie, authorization="Bearer hubbub_wrong").status == 401, "a token comes first"
    assert get(aggregator, "/metrics", **cookie).status == 401, "the page needs no scope metrics"
    assert store.revoke_token("a")
    assert get(aggregator, path, **cookie).status == 401


def test_sign_in_redirects_only_to_metrics_and_their_results(start: StartAggregator, sqlite_store: SqlStore) -> None:
    aggregator = start(sqlite_store, local_reads_without_token=False, results_url="/results/")
    bearer = given(sqlite_store, Scope.READ)
    sent = get(aggregator, "/metric/homepage", accept=HTML)
    assert (sent.status, sent.headers["location"]) == (303, "/sign-in?to=/metric/homepage")
    assert b'name="to" value="/metric/homepage"' in get(aggregator, sent.headers["location"]).body
    assert_refused(get(aggregator, "/metric/homepage"), ProblemType.UNAUTHORIZED)
    view = "/results/homepage@01234567/?by=period&from=2024-06-10"
    form = get(aggregator, f"/sign-in?to={view}").page
    assert 'name="to" value="/results/homepage@01234567/?by=period&amp;from=2024-06-10"' in form
    secret = bearer.removeprefix("Bearer ")
    for address, location in (
        ("/metric/homepage", "/metric/homepage"),
        (view, view),
        ("", "/"),
        ("//example.org", "/"),
        ("https://example.org/results/", "/"),
        ("/sign-out", "/"),
        ("/metric/x/../../", "/"),
        ("/metric/a\r\nb", "/"),
        ("/results/a\r\nb", "/"),
    ):
        body = urlencode({"token": secret, "to": address}).encode()
        answer = aggregator.http.request("POST", aggregator.url + "/sign-in", body=body, redirect=False)
        assert (answer.status, answer.headers["location"]) == (303, location)


def test_session_is_valid_for_readers_alone(start: StartAggregator, sqlite_store: SqlStore) -> None:
    aggregator, bearer = start(sqlite_store, local_reads_without_token=False), given(sqlite_store, Scope.READ)
    cookie = signed_in(aggregator, bearer)
    assert get(aggregator, "/session", **cookie).status == 204
    assert aggregator.request("HEAD", "/session", None, **cookie).status == 204
    assert get(aggregator, "/session", authorization=bearer).status == 204
    assert get(aggregator, "/session", accept=HTML).status == 401, "a redirect would be no answer to a proxy"
    assert get(aggregator, "/session", authorization=given(sqlite_store, Scope.METRICS, name="b")).status == 403
    sign_out(aggregator, **cookie)
    assert get(aggregator, "/session", **cookie).status == 401


@pytest.mark.parametrize("results_url", ["/results/", "https://results.example.org/", ""])
def test_metrics_link_to_the_results_of_the_version_with_the_latest_reports(
    start: StartAggregator, sqlite_store: SqlStore, make_batch: MakeBatch, results_url: str
) -> None:
    aggregator = start(sqlite_store, results_url=results_url)
    old, new = (metric for metric in aggregator.definitions.versions() if metric.name == "from_jfk")
    assert aggregator.post(make_batch(old, period="2024-06-10")).status == 202
    links = re.findall(r'href="([^"]*@[0-9a-f]{8}/)"', get(aggregator).page)
    of_old, of_new = (f"{results_url}from_jfk@{metric.digest[:8]}/" for metric in (old, new))
    assert len(links) == (len(aggregator.definitions) if results_url else 0)
    assert (of_old in links) is bool(results_url)
    links = re.findall(r'href="([^"]*@[0-9a-f]{8}/)"', get(aggregator, "/metric/from_jfk").page)
    assert links == ([of_new, of_old] if results_url else [])


@pytest.mark.parametrize(
    "url", ["/", "results/", "/results", "//example.org/", "javascript:alert(1)/", "http://a b/", "/a/?b/"]
)
def test_results_url_must_be_an_address_of_pages(url: str) -> None:
    with pytest.raises(SettingError, match=r"results_url must be https://host/ or a path below / that ends in /"):
        Settings(results_url=url)


def test_undefined_metric_has_no_page(start: StartAggregator, sqlite_store: SqlStore) -> None:
    aggregator = start(sqlite_store)
    assert_refused(get(aggregator, "/metric/nothing"), ProblemType.UNKNOWN_METRIC)
    page = get(aggregator, "/metric/nothing", accept=HTML)
    assert (page.status, b"<h1>Metric not found</h1>" in page.body) == (404, True)


def test_unknown_address_has_a_page_for_browsers(start: StartAggregator, sqlite_store: SqlStore) -> None:
    aggregator = start(sqlite_store)
    assert_refused(get(aggregator, "/nosuch"), ProblemType.NOT_FOUND)
    page = get(aggregator, "/nosuch", accept=HTML)
    assert (page.status, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert b"<h1>Page not found</h1>" in page.body
    assert "content-security-policy" in page.headers


def test_metric_page_shows_stale_figures(store: SqlStore) -> None:
    definitions = many_definitions(1)
    fill(store, definitions, NOON.date(), 3, computed=False)
    with running(definitions, store, Settings(local_reads_without_token=True, fold_interval=1000.0)) as aggregator:
        pages = [get(aggregator).page, get(aggregator, "/metric/editor.first_page").page]
        assert all("The figures of 3 periods are not computed yet" in page for page in pages)
        compute_figures(store, definitions)
        pages = [get(aggregator).page, get(aggregator, "/metric/editor.first_page").page]
    assert not any("not computed yet" in page for page in pages)
    assert all("60,000" in page for page in pages)
