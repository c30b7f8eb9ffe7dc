"""Secrets in URLs are masked in names, in messages, and in the tracebacks of the command."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from hubbub.cli import main
from hubbub.errors import ParameterError
from hubbub.sdk.upload.transport import HttpTransport
from hubbub.wire.urls import check_url, mask_url, mask_urls
from hubbub_decoder.data.pull import pull_summary
from hubbub_decoder.errors import PullError
from tests.support.random_urls import SecretURL, broken_urls, revealed, valid_urls

SCHEMES = ("postgresql", "postgres", "mysql", "http", "https", "s3", "redis+tls")
HOSTS = ("h.example", "127.0.0.1:5432", "[::1]:5432", "h1:1,h2:2", "h1,[::2]")
VALID = valid_urls(SCHEMES, HOSTS)
MESSAGES = st.sampled_from(
    (
        "{}",
        "error sending request for url ({})",
        "{}: the connection failed: is the server running?",
        'cannot copy "{}" -> postgresql://user@host/database',
        "PUT {} in 12 ms\n  builder error",
        "'{}' is not valid",
        "[{}]",
    )
)


@given(VALID)
def test_masked_url_shows_scheme_host_and_path(url: SecretURL) -> None:
    shown = mask_url(url.text)
    assert revealed(shown) == []
    assert shown.startswith(f"{url.scheme}://")
    assert f"***@{url.host}{url.path}" in shown
    assert mask_url(shown) == mask_urls(shown) == shown


@given(broken_urls(SCHEMES, HOSTS))
def test_masked_url_with_mistakes_shows_no_secret(url: str) -> None:
    assert revealed(mask_url(url)) == []


@given(broken_urls(("https", "http"), HOSTS) | valid_urls(("https", "http"), HOSTS).map(lambda url: url.text))
def test_no_error_about_the_url_of_an_aggregator_shows_a_secret(url: str) -> None:
    with pytest.raises(ParameterError) as of_client:
        check_url(url)
    with pytest.raises(PullError) as of_pull:
        pull_summary(url, "homepage")
    assert revealed(f"{of_client.value} {of_pull.value}") == []


@pytest.mark.parametrize(
    "proxy", ["http://u:s3cret/tw0kens@h:1", "http://u:s3cret@127.0.0.1:1", "ftp://u:s3cret@h", "http://u:s3cret@[h"]
)
def test_no_error_about_a_proxy_shows_its_password(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", proxy)
    response = HttpTransport("https://telemetry.example.org").send(b"{}")
    assert response.failure
    assert revealed(response.failure) == []


@example("[{}]", SecretURL("postgresql://u:s3cret@[::1]:5432", "postgresql", "[::1]:5432", ""))
@given(MESSAGES, VALID)
def test_masked_message_shows_no_secret(message: str, url: SecretURL) -> None:
    shown = mask_urls(message.format(url.text))
    assert revealed(shown) == []
    assert f"***@{url.host}{url.path}" in shown
    assert mask_urls(shown) == shown


@given(st.sampled_from(("{} -> {}", "{}: {} failed", "cannot reach {} via {}")), VALID, VALID, st.booleans())
def test_message_of_two_urls_shows_no_secret(message: str, one: SecretURL, other: SecretURL, is_masked: bool) -> None:
    """Of every pair of schemes; the first may be masked already."""
    shown = mask_urls(message.format(mask_url(one.text) if is_masked else one.text, other.text))
    assert revealed(shown) == []


@example("{}", "postgresql", "h.example", ":/[")
@given(MESSAGES, st.sampled_from(SCHEMES), st.sampled_from(HOSTS), st.text("a :/?#@[]()\"',;\n", max_size=8))
def test_masked_message_shows_no_password_that_is_not_encoded(message: str, scheme: str, host: str, text: str) -> None:
    shown = mask_urls(message.format(f"{scheme}://u:{text}s3cret{text}tw0kens@{host}/y"))
    assert revealed(shown) == []


@pytest.mark.parametrize(
    "text",
    [
        "write a path or postgresql://user@host/database",
        "postgresql://u:***@h/y: an @ in a user name or password must be written %40: change the URL",
        "running at http://127.0.0.1:8000 and storing batches",
        "http://[::1]:8000 is not encrypted. Use https://; http:// is for this machine only.",
        "s3://bucket/prefix: there is no object a.parquet",
        "/var/lib/a@b.db -> postgresql://h1:5432,h2/y?host=/run/p: the table token has rows",
        "got 'https://telemetry.example.org': delete the part before the @",
        "",
    ],
)
def test_message_without_secrets_is_not_changed(text: str) -> None:
    assert mask_urls(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "a" * 100_000,
        "https://" + "a" * 100_000 + "/?b",
        "secret" * 16_667 + " " + "_" * 100_000,
        "https://" + "]" * 100_000,
    ],
)
@pytest.mark.parametrize("mask", [mask_url, mask_urls])
def test_time_of_masking_is_linear_in_the_length(mask: Callable[[str], str], text: str) -> None:
    """A quadratic search takes minutes for 100,000 characters, a linear one some milliseconds; `HUBBUB_URL` may be as long."""
    began = time.process_time()
    mask(text)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["db", "check", "{}"],
        ["{}"],
        ["serve", "{}", "--port", "{}"],
        ["serve", "{}"],
        ["metrics", "check", "{}"],
        ["doctor", "--state", "x", "{}"],
        ["pull", "{}", "homepage", "--out", "x"],
        ["fold", "{}", "s3://b/p"],
        ["decode", "{}", "--candidates", "{}"],
    ],
)
@pytest.mark.parametrize("url", ["postgresql://u:s3cret@h/y", "http://u:s3c ret@tw0kens s3cret@h/y?token=tw0kens x"])
def test_no_command_repeats_the_secrets_of_an_argument(arguments: list[str], url: str) -> None:
    result = CliRunner().invoke(main, [argument.format(url) for argument in arguments])
    assert result.exit_code != 0
    assert revealed(result.output) == []


@pytest.mark.parametrize("where", ["", "threading."])
def test_traceback_of_the_command_shows_no_secret(where: str) -> None:
    program = f"""
import sys, threading, hubbub.cli.inspect as inspect
from hubbub.cli import main
from hubbub.errors import ParameterError
from hubbub.sdk.upload.transport import HttpTransport

def fail(*_):
    try:
        raise ValueError("cannot parse postgresql://u:s3cret@h/y")
    except ValueError as problem:
        raise RuntimeError("http://tw0kens@h/y?a=s3cret failed") from problem

def start(*_):
    threading.Thread(target=fail).start()

inspect.command.invoke = {"start" if where else "fail"}
main(["inspect", "x"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "ValueError: cannot parse postgresql://u:***@h/y" in done.stderr
    assert "RuntimeError: http://***@h/y?***" in done.stderr
    assert revealed(done.stderr) == []
