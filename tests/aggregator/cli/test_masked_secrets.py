"""No command of the aggregator prints or logs a secret of a URL: a database, an object store, its endpoint, a proxy."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hubbub.cli import main
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.monitoring.log_output import JsonLines, TextLines
from hubbub_aggregator.segments.object_store import ObjectStore
from hubbub_aggregator.store.sql_store import SqlStore
from tests.aggregator.conftest import DEFINITIONS
from tests.support.random_urls import SecretURL, broken_urls, revealed, valid_urls

SCHEMES = ("postgresql", "postgres", "postgresql+psycopg", "mysql", "sqlite")
CLOSED = ("127.0.0.1:1", "[::1]:1", "127.0.0.1:1,127.0.0.1:2", "")
"""Hosts at which nothing answers; at an empty one, libpq looks for a socket."""
DATABASES = valid_urls(SCHEMES, CLOSED).map(lambda url: url.text) | broken_urls(SCHEMES, CLOSED)
ENDPOINTS = valid_urls(("http",), ("127.0.0.1:1", "[::1]:1", "localhost:1"))


@pytest.fixture
def definitions_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "metrics.toml").write_text(DEFINITIONS)
    return str(tmp_path / "metrics.toml")


def commands(database: str, definitions_file: str) -> list[list[str]]:
    """Return commands that take a database; the service runs on none of these."""
    named = ["--database", database]
    return [
        ["serve", definitions_file, *named],
        ["serve", definitions_file, "--print-config", *named],
        ["doctor", definitions_file, "--refusal-window", "0", *named],
        ["doctor", definitions_file, "--refusal-window", "0", "--json", *named],
        ["token", "list", *named],
        ["db", "check", *named],
        ["db", "upgrade", *named],
        ["db", "copy", database, "other/copy.db"],
        ["db", "backup", database, "--database", "other.db"],
        ["db", "check", f"--database={database}", database],
    ]


def refusal(act: Callable[[str], object], argument: str) -> str:
    with pytest.raises(StoreError) as caught:
        act(argument)
    return str(caught.value)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(DATABASES)
def test_no_command_prints_the_secrets_of_a_database(definitions_file: str, database: str) -> None:
    for arguments in commands(database, definitions_file):
        result = CliRunner().invoke(main, arguments)
        assert isinstance(result.exception, SystemExit | None), (arguments, result.exception)
        assert result.exit_code != 0 or "--print-config" in arguments, arguments
        assert revealed(result.output) == [], arguments
    assert revealed(refusal(SqlStore.open, database)) == []


@pytest.mark.parametrize("database", [" postgresql://u:s3cret@h/y", "postgresql://u:s3cret@h/y\n", " reports.db"])
def test_name_with_a_blank_before_or_after_it_is_refused(database: str, definitions_file: str) -> None:
    for arguments in commands(database, definitions_file):
        result = CliRunner().invoke(main, arguments)
        assert (result.exit_code, revealed(result.output)) == (2, [])
        assert "begins or ends with white space: remove it" in result.stderr


@settings(max_examples=20)
@given(endpoint=ENDPOINTS, proxy=st.none() | ENDPOINTS, place=valid_urls(("s3",), ("bucket",)))
def test_no_error_of_an_object_store_shows_a_secret(
    endpoint: SecretURL, proxy: SecretURL | None, place: SecretURL
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hubbub_aggregator.segments.object_store._MAX_RETRIES", 0)
        patch.setenv("AWS_ENDPOINT_URL", endpoint.text)
        patch.setenv("AWS_ALLOW_HTTP", "true")
        patch.setenv("AWS_ACCESS_KEY_ID", "a")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "tw0kens")
        if proxy is not None:
            patch.setenv("AWS_PROXY_URL", proxy.text)
        with pytest.raises(StoreError) as caught:
            ObjectStore.open(place.text, timedelta(seconds=1)).probe()
        result = CliRunner().invoke(main, ["serve", "x", "--segments", place.text])
        assert revealed(str(caught.value)) == revealed(result.output) == []
        assert "s3://***@bucket" in str(caught.value)


@settings(max_examples=50)
@given(st.sampled_from((TextLines(), JsonLines())), valid_urls((*SCHEMES, "http", "s3"), CLOSED[:-1]))
def test_no_log_line_shows_a_secret(lines: logging.Formatter, url: SecretURL) -> None:
    record = logging.LogRecord("x", logging.ERROR, __file__, 0, "no answer from %s", (url.text,), None)
    record.url = url.text
    shown = lines.format(record)
    assert revealed(shown) == []
    assert f"***@{url.host}{url.path}" in shown
    if isinstance(lines, JsonLines):
        assert json.loads(shown)["message"].startswith(f"no answer from {url.scheme}://")


@pytest.mark.parametrize(
    "value", ['["postgresql://u:s3cret@h/y"]', '" postgresql://u:s3 cret@h/y"', '"mysql://u:tw0kens@h"']
)
def test_invalid_value_of_the_configuration_file_shows_no_secret(value: str, definitions_file: str) -> None:
    Path("hubbub.toml").write_text(f"database = {value}")
    result = CliRunner().invoke(main, ["serve", definitions_file, "--config", "hubbub.toml"])
    assert (result.exit_code, revealed(result.output)) == (2, [])
    assert "database" in result.stderr


def test_printed_configuration_masks_the_place_of_segments(definitions_file: str) -> None:
    result = CliRunner().invoke(
        main, ["serve", definitions_file, "--print-config", "--segments", "s3://s3cret@bucket/p?token=tw0kens"]
    )
    assert 'segments = "s3://***@bucket/p?***"' in result.output


def test_doctor_masks_the_url_of_the_proxy(definitions_file: str) -> None:
    CliRunner().invoke(main, ["db", "create"])
    arguments = [
        "doctor",
        definitions_file,
        "--refusal-window",
        "0",
        "--url",
        "https://u:s3cret@127.0.0.1:1/y?a=tw0kens",
    ]
    for more in ([], ["--json"]):
        result = CliRunner().invoke(main, [*arguments, *more])
        assert revealed(result.output) == []
        assert "no aggregator responds at https://***@127.0.0.1:1/y?***" in result.output
