"""The page at `/` and its sign-in, over HTTP: who sees it, what the cookie is, how it ends, what is answered otherwise."""

from __future__ import annotations

import re
from contextlib import ExitStack
from datetime import date, timedelta
from http.cookies import SimpleCookie
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
from tests.aggregator.test_refusals import assert_refused
from tests.aggregator.test_tokens import given

from hubbub import Definitions, Metric, Refusal
from hubbub.summary.oddities import Oddity
from hubbub_aggregator import sessions
from hubbub_aggregator.lifecycle import upkeep
from hubbub_aggregator.page.overview import PeriodRow, chart_of, odd_in_words
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.sql_store import SqlStore
from hubbub_aggregator.tokens import Scope, hash_of

if TYPE_CHECKING:
    from tests.aggregator.conftest import Aggregator, Answer, MakeBatch, StartAggregator

HTML = "text/html,*/*;q=0.8"  # what browsers accept


def sign_in(aggregator: Aggregator, bearer: str, **headers: str) -> Answer:
    body = urlencode({"token": bearer.removeprefix("Bearer ")}).encode()
    asked = {"content_type": "application/x-www-form-urlencoded", "accept": HTML} | headers
    answer = aggregator.http.request(
        "POST",
        aggregator.url + "/sign-in",
        body=body,
        headers={name.replace("_", "-"): value for name, value in asked.items()},
        redirect=False,
    )
    return _answer(answer)


def get(aggregator: Aggregator, path: str = "/", **headers: str) -> Answer:
    return _answer(aggregator.http.request("GET", aggregator.url + path, headers=headers, redirect=False))


def sign_out(aggregator: Aggregator, **headers: str) -> Answer:
    return _answer(aggregator.http.request("POST", aggregator.url + "/sign-out", headers=headers, redirect=False))


def _answer(answer: Any) -> Answer:
    from tests.aggregator.conftest import Answer

    return Answer(answer.status, answer.headers, answer.data)


def cookie_of(answer: Answer) -> Any:
    [(_, morsel)] = SimpleCookie(answer.headers["set-cookie"]).items()
    return morsel


def signed_in(aggregator: Aggregator, bearer: str) -> dict[str, str]:
    morsel = cookie_of(sign_in(aggregator, bearer))
    return {"cookie": f"{morsel.key}={morsel.value}", "accept": HTML}


def test_a_browser_is_sent_to_the_form_and_every_other_reader_is_told_to_bring_a_token(
    start: StartAggregator, store: SqlStore
) -> None:
    aggregator = start(store, local_reads_without_token=False)
    sent = get(aggregator, accept=HTML)
    assert (sent.status, sent.headers["location"]) == (303, "/sign-in")
    assert_refused(get(aggregator), Refusal.UNAUTHORIZED)
    form = get(aggregator, "/sign-in")
    assert (form.status, b'name="token"' in form.body) == (200, True)
    page = get(aggregator, authorization=given(store, Scope.READ))
    assert (page.status, b"<h1>hubbub aggregator</h1>" in page.body) == (200, True)


def test_where_reads_are_open_the_page_is_too(start: StartAggregator, store: SqlStore) -> None:
    aggregator = start(store)
    assert get(aggregator).status == 200
    assert get(aggregator, "/sign-in").headers["location"] == "/"


def test_a_token_is_changed_for_a_cookie_that_no_script_and_no_other_site_can_use_and_is_not_the_token(
    start: StartAggregator, store: SqlStore
) -> None:
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
def test_the_cookie_travels_over_tls_only_unless_a_browser_on_this_machine_asks_directly(
    start: StartAggregator, sqlite_store: SqlStore, headers: dict[str, str], name: str, secure: object
) -> None:
    aggregator = start(sqlite_store, local_reads_without_token=False)
    cookie = cookie_of(sign_in(aggregator, given(sqlite_store, Scope.READ), **headers))
    assert (cookie.key, cookie["secure"]) == (name, secure)


def test_every_worker_and_a_restarted_service_know_who_is_signed_in(
    start: StartAggregator, store: SqlStore, database: str, closed_last: ExitStack
) -> None:
    cookie = signed_in(start(store, local_reads_without_token=False), given(store, Scope.READ))
    other = SqlStore.open(database)
    closed_last.callback(other.close)
    assert get(start(other, local_reads_without_token=False), **cookie).status == 200


def test_revoking_the_token_ends_its_sessions_at_once(start: StartAggregator, store: SqlStore) -> None:
    aggregator = start(store, local_reads_without_token=False)
    cookie = signed_in(aggregator, given(store, Scope.READ))
    assert get(aggregator, **cookie).status == 200
    assert store.revoke_token("a")
    assert get(aggregator, **cookie).status == 303
    given(store, Scope.READ)  # another token of the same name brings nobody back
    assert get(aggregator, **cookie).status == 303


def test_a_session_is_over_after_twelve_hours_whatever_the_browser_kept(
    start: StartAggregator, store: SqlStore
) -> None:
    aggregator = start(store, local_reads_without_token=False)
    cookie = signed_in(aggregator, given(store, Scope.READ))
    aggregator.clock.now += sessions.LENGTH - timedelta(seconds=1)
    assert get(aggregator, **cookie).status == 200
    aggregator.clock.now += timedelta(seconds=1)
    assert get(aggregator, **cookie).status == 303


def test_who_signs_out_is_out_with_every_copy_of_the_cookie(start: StartAggregator, store: SqlStore) -> None:
    aggregator = start(store, local_reads_without_token=False)
    cookie = signed_in(aggregator, given(store, Scope.READ))
    answer = sign_out(aggregator, **cookie)
    assert (answer.status, answer.headers["location"], cookie_of(answer)["max-age"]) == (303, "/sign-in", "0")
    assert get(aggregator, **cookie).status == 303
    assert sign_out(aggregator).status == 303  # who is not signed in may do so too


def test_who_signs_in_again_leaves_no_session_behind(start: StartAggregator, store: SqlStore) -> None:
    aggregator, bearer = start(store, local_reads_without_token=False), given(store, Scope.READ)
    first = signed_in(aggregator, bearer)
    assert sign_in(aggregator, bearer, cookie=first["cookie"]).status == 303
    assert get(aggregator, **first).status == 303


def test_the_database_has_a_hash_of_the_cookie_and_never_the_cookie(
    start: StartAggregator, sqlite_store: SqlStore, tmp_path: Path
) -> None:
    cookie = signed_in(start(sqlite_store, local_reads_without_token=False), given(sqlite_store, Scope.READ))["cookie"]
    secret = cookie.partition("=")[2]
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("reports.db*"))
    assert hash_of(secret) in stored
    assert secret.encode() not in stored


def test_a_wrong_token_gets_the_form_again_with_the_reason_and_a_program_the_problem(
    start: StartAggregator, store: SqlStore
) -> None:
    aggregator = start(store, local_reads_without_token=False)
    wrong = {
        Refusal.UNAUTHORIZED: ("hubbub_nonsense", "not known here"),
        Refusal.FORBIDDEN: (given(store, Scope.METRICS), "has no scope read"),
    }
    for refusal, (token, told) in wrong.items():
        answer = sign_in(aggregator, token)
        assert (answer.status, answer.headers.get("set-cookie")) == (refusal.status, None)
        assert 'role="alert"' in answer.body.decode()
        assert told in answer.body.decode()
        assert_refused(sign_in(aggregator, token, accept="*/*"), refusal)
    assert sign_in(aggregator, "", accept="*/*").status == 401
    assert_refused(sign_in(aggregator, "x" * (1 << 21), accept="*/*"), Refusal.TOO_LARGE)


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
def test_a_form_that_another_site_sent_changes_nothing(
    start: StartAggregator, sqlite_store: SqlStore, headers: dict[str, str]
) -> None:
    aggregator, bearer = start(sqlite_store, local_reads_without_token=False), given(sqlite_store, Scope.READ)
    assert_refused(sign_in(aggregator, bearer, accept="*/*", **headers), Refusal.CROSS_SITE)
    cookie = signed_in(aggregator, bearer)
    refused = sign_out(aggregator, cookie=cookie["cookie"], **{n.replace("_", "-"): v for n, v in headers.items()})
    assert_refused(refused, Refusal.CROSS_SITE)
    assert get(aggregator, **cookie).status == 200


def test_its_own_form_is_taken_whatever_the_proxy_makes_of_the_host(
    start: StartAggregator, sqlite_store: SqlStore
) -> None:
    aggregator, bearer = start(sqlite_store, local_reads_without_token=False), given(sqlite_store, Scope.READ)
    outside = {"origin": "https://telemetry.example.org", "x_forwarded_for": "192.0.2.1"}
    assert sign_in(aggregator, bearer, sec_fetch_site="same-origin", **outside).status == 303
    assert sign_in(aggregator, bearer, host="telemetry.example.org", **outside).status == 303


def test_who_guesses_tokens_is_told_when_to_come_back(start: StartAggregator, sqlite_store: SqlStore) -> None:
    aggregator = start(sqlite_store, local_reads_without_token=False, client_rate=0.001, client_burst_seconds=3_000)
    guesses = [sign_in(aggregator, "hubbub_guess", x_forwarded_for="192.0.2.1") for _ in range(4)]
    assert [guess.status for guess in guesses] == [401, 401, 401, 429]
    assert int(guesses[-1].headers["retry-after"]) > 0


def test_the_page_has_the_numbers_of_what_was_sent(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch
) -> None:
    """Folded or not, of every version and period; what was refused; what is kept and until when."""
    aggregator = start(store, fold_every=1000.0, keep={"carrier": 12}, free=lambda: 3 << 30)
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
    page = get(aggregator).body.decode()
    assert '<dd id="reports">1,434</dd>' in page
    assert "2024-06-14: 400 reports, still open" in page
    assert "2024-06-15: 34 reports, still open" in page
    assert "2024-06-10: 1,000 reports, still open" in page
    assert re.search(r'href="/problems/period-closed">period-closed</a></td><td>homepage</td><td class="n">1<', page)
    assert re.search(r'href="/problems/malformed">malformed</a></td><td>unknown</td><td class="n">1<', page)
    assert "counts go 12 days after their day" in page
    for words in (
        "No report yet",
        "expired on 2024-06-15",
        "<dt>Epsilon per value</dt><dd>4.395<small>",
        "<dt>Lifetime epsilon</dt><dd>39.551<small>",
        "no permanent response (f = 0)",
        "3 GiB",
        "ready: batches are stored",
    ):
        assert words in page


def test_what_keeps_batches_out_is_said(start: StartAggregator, sqlite_store: SqlStore) -> None:
    assert "not ready: less is free on the disk" in get(start(sqlite_store, free=lambda: 1)).body.decode()


def test_what_operators_write_cannot_be_markup(start: StartAggregator, sqlite_store: SqlStore) -> None:
    from tests.aggregator.conftest import running

    bad = Metric.boolean("b", prob_p=0, prob_q=1, prob_f=0.5, description="<script>alert(1)</script>", owner='"><b>')
    with running(Definitions([bad]), sqlite_store, Settings(local_reads_without_token=True)) as aggregator:
        page = get(aggregator).body
    assert b"<script" not in page
    assert b"&lt;script&gt;" in page


def test_the_chart_has_the_last_sixty_periods_and_the_empty_ones_between() -> None:
    metric = Metric.boolean("b", prob_p=0, prob_q=1, prob_f=0.5)
    first = date(2024, 1, 1)
    rows = [PeriodRow(str(first + timedelta(days=day)), 10 * (day + 1), day > 98) for day in (0, 50, 97, 99)]
    chart = chart_of(metric, rows)
    assert (len(chart.bars), chart.first, chart.last, chart.highest) == (60, "2024-02-10", "2024-04-09", 1000)
    assert [(bar.period, bar.height, bar.is_open) for bar in chart.bars if bar.reports] == [
        ("2024-02-20", 51.0, False),
        ("2024-04-07", 98.0, False),
        ("2024-04-09", 100.0, True),
    ]


def test_each_kind_of_oddity_is_said_once() -> None:
    found = [("2024-06-03", "shape"), ("2024-06-04", "shape"), ("2024-06-04", "cohorts"), ("2024-06-01", "shape")]
    words = odd_in_words((period, Oddity(kind, f"{kind} of {period}")) for period, kind in found)  # type: ignore[arg-type]
    assert words == ("2024-06-04 and 2 earlier: shape of 2024-06-04", "2024-06-04: cohorts of 2024-06-04")


def test_periods_of_another_kind_are_shown_where_they_belong() -> None:
    """An older version of the metric was asked every day, the current one every week."""
    weekly = Metric.boolean("b", prob_p=0, prob_q=1, prob_f=0.5, period="week")
    rows = [PeriodRow("2024-06-03", 5, False), PeriodRow("2024-06-05", 7, True), PeriodRow("2024-06-10", 1, True)]
    assert [(bar.period, bar.reports) for bar in chart_of(weekly, rows).bars] == [("2024-06-03", 12), ("2024-06-10", 1)]
