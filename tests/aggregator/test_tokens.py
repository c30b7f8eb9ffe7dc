"""Who may read: tokens, hashed, with scopes, revocable; and who may send, where that takes one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from tests.aggregator.test_refusals import assert_refused

from hubbub.cli import main
from hubbub.errors import RefusedError
from hubbub.refusals import Refusal
from hubbub_aggregator.sql_store import SqlStore
from hubbub_aggregator.token_cli import command as token
from hubbub_aggregator.tokens import Doorkeeper, Scope, Token, hash_of, new_token

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch, StartAggregator

SUMMARY = "/v1/metrics/homepage/summary"


def given(store: SqlStore, *scopes: Scope) -> str:
    secret = new_token()
    assert store.add_token(Token("a", frozenset(scopes)), hash_of(secret))
    return f"Bearer {secret}"


@pytest.mark.parametrize(("path", "scope"), [(SUMMARY, Scope.READ), ("/metrics", Scope.METRICS)])
def test_reading_takes_a_token_with_the_scope_for_it(
    start: StartAggregator, store: SqlStore, path: str, scope: Scope
) -> None:
    aggregator = start(store, local_reads_without_token=False)
    for headers in ({}, {"authorization": f"Bearer {new_token()}"}, {"authorization": "Basic YTpi"}):
        answer = aggregator.get(path, **headers)
        assert_refused(answer, Refusal.UNAUTHORIZED)
        assert answer.headers["www-authenticate"] == "Bearer"
    assert aggregator.get(path, authorization=given(store, scope)).status == 200
    store.revoke_token("a")
    others = set(Scope) - {scope}
    assert_refused(aggregator.get(path, authorization=given(store, *others)), Refusal.FORBIDDEN)


def test_what_clients_and_their_reviewers_need_takes_no_token(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch
) -> None:
    aggregator = start(store, local_reads_without_token=False)
    assert aggregator.post(make_batch(aggregator.definitions["homepage"])).status == 202
    for path in ("/v1/metrics", "/livez", "/readyz", "/problems/malformed", "/openapi.json"):
        assert aggregator.get(path).status == 200


def test_sending_takes_a_token_where_the_operator_says_so(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch
) -> None:
    aggregator = start(store, closed_reports=True)
    batch = make_batch(aggregator.definitions["homepage"])
    assert_refused(aggregator.post(batch), Refusal.UNAUTHORIZED)
    assert aggregator.stored() == 0
    assert aggregator.post(batch, authorization=given(store, Scope.REPORT)).status == 202


def test_a_revoked_token_is_worthless_within_5_seconds(store: SqlStore) -> None:
    now = 0.0
    door = Doorkeeper(store.token, clock=lambda: now)
    authorization = given(store, Scope.READ)
    door.require(Scope.READ, authorization)
    assert store.revoke_token("a")
    now = 5.0
    with pytest.raises(RefusedError) as refused:
        door.require(Scope.READ, authorization)
    assert refused.value.refusal is Refusal.UNAUTHORIZED


def test_the_database_has_a_hash_and_never_the_token(sqlite_store: SqlStore, tmp_path: Path) -> None:
    secret = given(sqlite_store, Scope.READ).removeprefix("Bearer ")
    sqlite_store.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("reports.db*"))
    assert hash_of(secret) in stored
    assert secret.encode() not in stored


def test_the_command_creates_lists_and_revokes(store: SqlStore, database: str) -> None:
    where = ("--database", database)
    run = CliRunner().invoke
    made = run(token, ["create", "analysts", "--scope", "read", "--scope", "metrics", "--json", *where])
    secret = json.loads(made.stdout)["token"]
    assert store.token(hash_of(secret)) == Token("analysts", frozenset({Scope.READ, Scope.METRICS}))
    assert "revoke it first" in run(token, ["create", "analysts", "--scope", "read", *where]).output
    listed = run(token, ["list", "--json", *where])
    assert json.loads(listed.stdout) == [{"name": "analysts", "scopes": ["metrics", "read"]}]
    assert secret not in run(token, ["list", *where]).output
    revoked = run(token, ["revoke", "analysts", "--json", *where])
    assert (revoked.exit_code, json.loads(revoked.stdout)) == (0, {"revoked": "analysts"})
    assert store.token(hash_of(secret)) is None
    assert run(token, ["revoke", "analysts", *where]).exit_code == 1
    assert run(token, ["create", "not a name", "--scope", "read", *where]).exit_code == 2


@pytest.mark.parametrize("asked", [["list"], ["revoke", "analysts"]])
def test_a_database_that_is_not_there_is_not_made_to_look_for_tokens_in_it(tmp_path: Path, asked: list[str]) -> None:
    said = CliRunner().invoke(main, ["token", *asked, "--database", str(tmp_path / "report.db")])
    assert (said.exit_code, said.stdout) == (1, "")
    assert "report.db: there is no such file: give the --database of an aggregator" in said.stderr
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
def test_open_reads_are_for_who_asks_directly(
    start: StartAggregator, sqlite_store: SqlStore, headers: dict[str, str], status: int
) -> None:
    aggregator = start(sqlite_store, local_reads_without_token=True)
    for path in ("/metrics", "/v1/metrics/homepage/summary", "/"):
        assert aggregator.get(path, **headers).status == status


def test_a_puller_shows_its_token(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull = pytest.importorskip("hubbub_decoder.pull")
    aggregator = start(store, local_reads_without_token=False)
    assert aggregator.post(make_batch(aggregator.definitions["homepage"])).status == 202
    secret = given(store, Scope.READ).removeprefix("Bearer ")
    with pytest.raises(pull.PullError, match="answered 401: send `Authorization"):
        pull.pull_summary(aggregator.url, "homepage")
    assert pull.pull_summary(aggregator.url, "homepage", token=secret).num_reports == 3
    monkeypatch.setenv("HUBBUB_TOKEN", secret)
    assert pull.pull_summary(aggregator.url, "homepage").num_reports == 3
