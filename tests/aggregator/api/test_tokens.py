"""Tokens: hashes, scopes, expiry, last use, rotation and revocation."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from hubbub.cli import main
from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.api import authentication
from hubbub_aggregator.api.authentication import TokenAuthorizer
from hubbub_aggregator.cli.token import command as token
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_aggregator.store.tokens import Scope, Token, hash_secret, new_token
from tests.aggregator.api.test_problem_responses import assert_refused
from tests.aggregator.conftest import NOON

if TYPE_CHECKING:
    from tests.aggregator.conftest import Aggregator, HttpResponse, MakeBatch, StartAggregator

SUMMARY = "/v1/metrics/homepage/summary"


def given(store: SqlStore, *scopes: Scope, name: str = "a") -> str:
    secret = new_token()
    assert store.add_token(Token(name, frozenset(scopes)), hash_secret(secret))
    return f"Bearer {secret}"


def sign_in(aggregator: Aggregator, secret: str) -> HttpResponse:
    from tests.aggregator.api import test_dashboard

    return test_dashboard.sign_in(aggregator, secret)


def signed_in(aggregator: Aggregator, secret: str) -> dict[str, str]:
    from tests.aggregator.api import test_dashboard

    return test_dashboard.signed_in(aggregator, secret)


@pytest.mark.parametrize(("path", "scope"), [(SUMMARY, Scope.READ), ("/metrics", Scope.METRICS)])
def test_reading_requires_a_token_with_its_scope(
    start: StartAggregator, store: SqlStore, path: str, scope: Scope
) -> None:
    aggregator = start(store, local_reads_without_token=False)
    for headers in ({}, {"authorization": f"Bearer {new_token()}"}, {"authorization": "Basic YTpi"}):
        answer = aggregator.get(path, **headers)
        assert_refused(answer, ProblemType.UNAUTHORIZED)
        assert answer.headers["www-authenticate"] == "Bearer"
    assert aggregator.get(path, authorization=given(store, scope)).status == 200
    store.revoke_token("a")
    others = set(Scope) - {scope}
    assert_refused(aggregator.get(path, authorization=given(store, *others)), ProblemType.FORBIDDEN)


def test_public_routes_require_no_token(start: StartAggregator, store: SqlStore, make_batch: MakeBatch) -> None:
    aggregator = start(store, local_reads_without_token=False)
    assert aggregator.post(make_batch(aggregator.definitions["homepage"])).status == 202
    for path in ("/v1/metrics", "/livez", "/readyz", "/problems/malformed", "/openapi.json"):
        assert aggregator.get(path).status == 200


def test_require_report_token_refuses_batches_without_token(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch
) -> None:
    aggregator = start(store, require_report_token=True)
    batch = make_batch(aggregator.definitions["homepage"])
    assert_refused(aggregator.post(batch), ProblemType.UNAUTHORIZED)
    assert aggregator.stored() == 0
    assert aggregator.post(batch, authorization=given(store, Scope.REPORT)).status == 202


def test_revoked_token_is_refused_within_5_seconds(store: SqlStore) -> None:
    now = 0.0
    authorizer = TokenAuthorizer(store.token, clock=lambda: now)
    authorization = given(store, Scope.READ)
    authorizer.require(Scope.READ, authorization)
    assert store.revoke_token("a")
    now = 4.9
    authorizer.require(Scope.READ, authorization)  # cached: the store is not asked for every request
    now = 5.0
    with pytest.raises(RefusedError) as refused:
        authorizer.require(Scope.READ, authorization)
    assert refused.value.problem_type is ProblemType.UNAUTHORIZED


def test_database_contains_only_a_hash_of_the_token(sqlite_store: SqlStore, tmp_path: Path) -> None:
    secret = given(sqlite_store, Scope.READ).removeprefix("Bearer ")
    sqlite_store.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("reports.db*"))
    assert hash_secret(secret) in stored
    assert secret.encode() not in stored


def test_token_command_creates_lists_and_revokes(store: SqlStore, database: str) -> None:
    where = ("--database", database)
    run = CliRunner().invoke
    made = run(token, ["create", "analysts", "--scope", "read", "--scope", "metrics", "--json", *where])
    secret = json.loads(made.stdout)["token"]
    today = datetime.now(UTC).date()
    assert store.token(hash_secret(secret)) == Token("analysts", frozenset({Scope.READ, Scope.METRICS}), created=today)
    assert (
        "exists already: rotate it, revoke it" in run(token, ["create", "analysts", "--scope", "read", *where]).output
    )
    listed = run(token, ["list", "--json", *where])
    assert json.loads(listed.stdout) == [
        {
            "name": "analysts",
            "scopes": ["metrics", "read"],
            "created": str(today),
            "last_used": None,
            "expires": None,
            "expired": False,
        }
    ]
    assert run(token, ["list", *where]).stdout.splitlines() == [
        "name      scopes        created     last_used  expires",
        f"analysts  metrics,read  {today}  never      never",
    ]
    revoked = run(token, ["revoke", "analysts", "--json", *where])
    assert (revoked.exit_code, json.loads(revoked.stdout)) == (0, {"revoked": "analysts"})
    assert store.token(hash_secret(secret)) is None
    assert run(token, ["revoke", "analysts", *where]).exit_code == 1
    run(token, ["create", "analysts", "--scope", "read", *where])
    done = run(token, ["revoke", "analysts", *where])
    assert done.stdout == "revoked the token 'analysts': a running aggregator refuses it within 5 seconds\n"
    assert run(token, ["create", "not a name", "--scope", "read", *where]).exit_code == 2


@pytest.mark.parametrize("command", [["list"], ["revoke", "analysts"], ["rotate", "analysts"]])
def test_token_command_creates_no_database(tmp_path: Path, command: list[str]) -> None:
    result = CliRunner().invoke(main, ["token", *command, "--database", str(tmp_path / "report.db")])
    assert (result.exit_code, result.stdout) == (1, "")
    assert (
        "report.db: the file does not exist: check the path, and that its volume is mounted; before the first"
        in result.stderr
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:8000"}, 200),
        ({"host": "telemetry.example.org"}, 401),
        ({"x_forwarded_for": "127.0.0.1"}, 401),
        ({"forwarded": "for=192.0.2.1"}, 401),
        ({"x_forwarded_proto": "https"}, 401),
    ],
)
def test_reads_without_token_require_direct_local_requests(
    start: StartAggregator, sqlite_store: SqlStore, headers: dict[str, str], status: int
) -> None:
    aggregator = start(sqlite_store, local_reads_without_token=True)
    for path in ("/metrics", "/v1/metrics/homepage/summary", "/"):
        assert aggregator.get(path, **headers).status == status


@pytest.mark.parametrize("door", ["bearer", "session"])
def test_rejects_expired_token_from_its_day_on(start: StartAggregator, store: SqlStore, door: str) -> None:
    """The time is noon of June 15. A token that expires on June 16 is valid for exactly 12 more hours."""
    aggregator = start(store, local_reads_without_token=False)
    secret = new_token()
    expires = NOON.date() + timedelta(days=1)
    assert store.add_token(Token("short", frozenset({Scope.READ}), expires=expires), hash_secret(secret))
    headers = {"authorization": f"Bearer {secret}"} if door == "bearer" else signed_in(aggregator, secret)
    assert aggregator.get("/", **headers).status == 200
    aggregator.clock.now = NOON + timedelta(hours=12, seconds=-1)
    assert aggregator.get("/", **headers).status == 200
    aggregator.clock.now += timedelta(seconds=1)
    if door == "bearer":
        answer = aggregator.get("/", **headers)
        assert_refused(answer, ProblemType.UNAUTHORIZED)
        assert "'short' expired on 2024-06-16" in answer.json["detail"]
        assert answer.headers["www-authenticate"] == "Bearer"
    else:
        form = sign_in(aggregator, secret)
        assert (form.status, "expired on 2024-06-16" in form.page) == (401, True)
        for path in ("/", SUMMARY):
            assert aggregator.http.request("GET", aggregator.url + path, headers=headers, redirect=False).status != 200


def test_rejects_batches_with_an_expired_token(start: StartAggregator, store: SqlStore, make_batch: MakeBatch) -> None:
    aggregator, secret = start(store, require_report_token=True), new_token()
    assert store.add_token(Token("apps", frozenset({Scope.REPORT}), expires=NOON.date()), hash_secret(secret))
    batch = make_batch(aggregator.definitions["homepage"])
    assert_refused(aggregator.post(batch, authorization=f"Bearer {secret}"), ProblemType.UNAUTHORIZED)
    assert aggregator.stored() == 0


def test_last_use_is_stored_once_per_day(store: SqlStore) -> None:
    """Many requests per day cause one write per day, and none for a refused token."""
    secret, today, now, written = new_token(), NOON.date(), 0.0, list[date]()
    store.add_token(Token("a", frozenset({Scope.READ}), expires=today + timedelta(days=3)), hash_secret(secret))

    def used(hashed: bytes, day: date) -> None:
        written.append(day)
        store.record_token_use(hashed, day)

    authorizer = TokenAuthorizer(store.token, lambda: now, lambda: today, used)
    for _ in range(5):
        for _ in range(20):
            now += 3
            with suppress(RefusedError):
                authorizer.require(Scope.READ, f"Bearer {secret}")
        today += timedelta(days=1)
    assert written == [NOON.date() + timedelta(days=n) for n in range(3)]
    assert store.tokens()[0].last_used == written[-1]
    store.record_token_use(hash_secret(secret), NOON.date())
    assert store.tokens()[0].last_used == written[-1], "never back"


def test_token_is_valid_even_if_its_use_cannot_be_stored(store: SqlStore) -> None:
    tried: list[date] = []

    def away(_hashed: bytes, day: date) -> None:
        tried.append(day)
        raise StoreError("the database is read-only")

    secret = given(store, Scope.READ)
    TokenAuthorizer(store.token, record_use=away).require(Scope.READ, secret)
    assert len(tried) == 1


def test_sign_in_records_token_use(start: StartAggregator, store: SqlStore) -> None:
    aggregator = start(store, local_reads_without_token=False)
    signed_in(aggregator, given(store, Scope.READ))
    assert [token.last_used for token in store.tokens()] == [NOON.date()]


def test_rotating_ends_the_old_secret_and_its_sessions(start: StartAggregator, store: SqlStore, database: str) -> None:
    aggregator, where = start(store, local_reads_without_token=False), ("--database", database)
    run = CliRunner().invoke
    made = run(token, ["create", "analysts", "--scope", "read", "--expires", "2999-01-01", *where])
    old, session = made.stdout.strip(), signed_in(aggregator, made.stdout.strip())
    assert store.tokens()[0].last_used == NOON.date()
    rotated = json.loads(run(token, ["rotate", "analysts", "--json", *where]).stdout)
    new = rotated.pop("token")
    assert rotated == {"name": "analysts", "scopes": ["read"], "expires": "2999-01-01"}
    assert store.token(hash_secret(old)) is None
    [listed] = store.tokens()
    assert (listed.created, listed.last_used, listed.expires) == (datetime.now(UTC).date(), None, date(2999, 1, 1))
    assert aggregator.get("/", authorization=f"Bearer {old}").status == 401
    assert aggregator.get("/", authorization=f"Bearer {new}").status == 200
    redirected = aggregator.http.request("GET", aggregator.url + "/", headers=session, redirect=False)
    assert (redirected.status, redirected.headers["location"]) == (303, "/sign-in")
    assert run(token, ["rotate", "nobody", *where]).exit_code == 1
    assert run(token, ["rotate", "analysts", "--expires", "never", *where]).exit_code == 0
    assert store.tokens()[0].expires is None


def test_rejects_sign_in_with_a_token_rotated_meanwhile(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = given(store, Scope.READ).removeprefix("Bearer ")
    add_session, added = store.add_session, list[bytes]()

    def rotated_first(hashed: bytes, token: str, expires: int, now: int) -> bool:
        added.append(hashed)
        assert store.rotate_token(Token("a", frozenset({Scope.READ})), bytes(32))
        return add_session(hashed, token, expires, now)

    monkeypatch.setattr(store, "add_session", rotated_first)
    with pytest.raises(RefusedError, match="rotated just now"):
        authentication.sign_in(store, lambda: NOON, secret)
    assert store.session(added[0], now=int(NOON.timestamp())) is None


def test_rotating_an_expired_token_requires_a_new_date(store: SqlStore, database: str) -> None:
    where = ("--database", database)
    store.add_token(Token("old", frozenset({Scope.READ}), expires=date(2024, 1, 1)), bytes(32))
    refused = CliRunner().invoke(token, ["rotate", "old", *where])
    assert (refused.exit_code, "expired on 2024-01-01" in refused.output) == (1, True)
    assert store.token(bytes(32)) is not None, "the old secret is left as it is"
    listed = CliRunner().invoke(token, ["list", *where]).stdout
    assert listed.splitlines()[1].split() == ["old", "read", "unknown", "never", "2024-01-01", "(expired)"]
    assert CliRunner().invoke(token, ["rotate", "old", "--expires", "2999-01-01", *where]).exit_code == 0


@pytest.mark.parametrize("expires", ["2024-01-01", "tomorrow", "2999-13-01", str(datetime.now(UTC).date())])
def test_rejects_expiry_that_is_not_in_the_future(tmp_path: Path, expires: str) -> None:
    command = ["create", "a", "--scope", "read", "--expires", expires, "--database", str(tmp_path / "r.db")]
    result = CliRunner().invoke(token, command)
    assert (result.exit_code, "--expires" in result.output) == (2, True)
    assert not (tmp_path / "r.db").exists()


def test_pull_sends_its_token(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull = pytest.importorskip("hubbub_decoder.data.pull")
    aggregator = start(store, local_reads_without_token=False)
    assert aggregator.post(make_batch(aggregator.definitions["homepage"])).status == 202
    secret = given(store, Scope.READ).removeprefix("Bearer ")
    with pytest.raises(pull.PullError, match="answered 401: send `Authorization"):
        pull.pull_summary(aggregator.url, "homepage")
    assert pull.pull_summary(aggregator.url, "homepage", token=secret).num_reports == 3
    monkeypatch.setenv("HUBBUB_TOKEN", secret)
    assert pull.pull_summary(aggregator.url, "homepage").num_reports == 3
