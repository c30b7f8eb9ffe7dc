"""Download of a summary: request, checks of the response, and errors."""

from __future__ import annotations

import json
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pytest

from hubbub import Metric, Params
from hubbub.summary import BitCounts, summary_to_bytes
from hubbub_decoder import PullError
from hubbub_decoder.data.pull import authorization, pull_periods, pull_summary
from hubbub_decoder.simulation import simulate

METRIC = Metric.string("homepage", Params(num_bits=8, num_hashes=1, num_cohorts=2, prob_p=0.25, prob_q=0.75, prob_f=0))


class FakeAggregator(Protocol):
    """Type of the fixture `aggregator`."""

    url: str
    status: int
    headers: dict[str, str]
    body: bytes
    requests: list[str]


@pytest.fixture
def counts(aggregator: FakeAggregator) -> BitCounts:
    counts = simulate(METRIC, {"a": 100}, np.random.default_rng(0))
    aggregator.body = summary_to_bytes(counts)
    return counts


def test_returns_the_summary_and_counts_its_bytes(aggregator: FakeAggregator, counts: BitCounts) -> None:
    sizes: list[int] = []
    assert pull_summary(aggregator.url, "homepage", count_bytes=sizes.append) == counts
    assert sum(sizes) == len(aggregator.body)
    assert aggregator.requests == ["/v1/metrics/homepage/summary"]


def test_requests_periods_digest_and_kind(aggregator: FakeAggregator, counts: BitCounts) -> None:
    pull_summary(
        aggregator.url + "/", "homepage", periods=["2026-03-01", "2026-03-02"], digest=METRIC.digest, kind="bits"
    )
    requested = urlsplit(aggregator.requests[0])
    assert requested.path == "/v1/metrics/homepage/summary"
    assert parse_qsl(requested.query) == [
        ("period", "2026-03-01"),
        ("period", "2026-03-02"),
        ("digest", METRIC.digest),
        ("kind", "bits"),
    ]


def test_error_contains_the_problem_detail(aggregator: FakeAggregator) -> None:
    aggregator.status, aggregator.headers = 404, {"Content-Type": "application/problem+json; charset=utf-8"}
    aggregator.body = json.dumps({"title": "Unknown metric", "detail": "no metric 'homepage' here"}).encode()
    with pytest.raises(PullError, match="answered 404: no metric 'homepage' here"):
        pull_summary(aggregator.url, "homepage")


@pytest.mark.parametrize("body", [b"<html>", b'"text"', b"", b"[1]"])
def test_error_without_problem_detail_contains_the_status(aggregator: FakeAggregator, body: bytes) -> None:
    aggregator.status, aggregator.body = 404, body
    for content_type in ("text/html", "application/problem+json"):
        aggregator.headers = {"Content-Type": content_type}
        with pytest.raises(PullError, match="answered 404: Not Found"):
            pull_summary(aggregator.url, "homepage")


def test_does_not_follow_redirects(aggregator: FakeAggregator) -> None:
    aggregator.status, aggregator.headers = 302, {"Location": "https://elsewhere.example/"}
    with pytest.raises(PullError, match=r"redirect to 'https://elsewhere\.example/'"):
        pull_summary(aggregator.url, "homepage")
    assert len(aggregator.requests) == 1


def test_rejects_a_response_that_is_not_a_summary(aggregator: FakeAggregator) -> None:
    aggregator.body = b"<html>Welcome to this hotel's network</html>"
    with pytest.raises(PullError, match="sent a response that is not a summary"):
        pull_summary(aggregator.url, "homepage")


def test_rejects_a_truncated_response(aggregator: FakeAggregator, counts: BitCounts) -> None:
    aggregator.headers = {"Content-Length": str(len(aggregator.body) + 10)}
    with pytest.raises(PullError, match="no response from http"):
        pull_summary(aggregator.url, "homepage")


def test_rejects_a_summary_of_another_metric_or_definition(aggregator: FakeAggregator, counts: BitCounts) -> None:
    with pytest.raises(PullError, match="sent metric 'homepage' instead of 'other'"):
        pull_summary(aggregator.url, "other")
    with pytest.raises(PullError, match="instead of 00"):
        pull_summary(aggregator.url, "homepage", digest="00")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://telemetry.example.org", "Use https://; http:// is for this machine only"),
        ("http://127.0.0.1.example.org", "Use https://; http:// is for this machine only"),
        ("ftp://telemetry.example.org", "not the address of an aggregator"),
        ("telemetry.example.org", "not the address of an aggregator"),
        ("127.0.0.1:8100", "http://127.0.0.1:8100 on this machine"),
        ("https://telemetry.example.org/?a=1", "without"),
    ],
)
def test_rejects_unencrypted_and_malformed_addresses(url: str, message: str) -> None:
    with pytest.raises(PullError, match=message):
        pull_summary(url, "homepage")


def test_rejects_a_password_in_the_address_without_showing_it() -> None:
    with pytest.raises(PullError, match=r"^https://\*\*\*@host .*HUBBUB_TOKEN") as error:
        pull_summary("https://user:s3cret@host", "homepage")
    assert "s3cret" not in str(error.value)


def test_rejects_an_invalid_metric_name(aggregator: FakeAggregator) -> None:
    with pytest.raises(PullError, match="is not a metric name"):
        pull_summary(aggregator.url, "../livez")
    assert aggregator.requests == []


def test_unreachable_aggregator_is_an_error() -> None:
    message = r"^no response from http://127\.0\.0\.1:9: Failed .* refused\. Check the address, and that the aggregator is running"
    with pytest.raises(PullError, match=message):
        pull_summary("http://127.0.0.1:9", "homepage")


@pytest.mark.parametrize("token", ["s3cret\nx", "s3cret\rx", "s3cret\x1b", "s3cret\x7f", "s3cret\u2026"])
@pytest.mark.parametrize("from_environment", [True, False])
def test_rejects_a_token_that_a_header_cannot_carry_without_showing_it(
    aggregator: FakeAggregator, monkeypatch: pytest.MonkeyPatch, token: str, from_environment: bool
) -> None:
    if from_environment:
        monkeypatch.setenv("HUBBUB_TOKEN", token)
    with pytest.raises(PullError, match=r"^HUBBUB_TOKEN contains a character .*`hubbub token create` printed") as error:
        pull_summary(aggregator.url, "homepage", token=None if from_environment else token)
    assert "s3cret" not in str(error.value)
    assert aggregator.requests == []


@pytest.mark.parametrize("token", ["s3cret\n", " s3cret\r\n"])
def test_strips_white_space_around_the_token(token: str) -> None:
    assert authorization(token) == {"Authorization": "Bearer s3cret"}


@pytest.mark.parametrize(
    "changed",
    [
        {"metric": "../x"},
        {"digest": "../x"},
        {"digest": 1},
        {"period": "2026-03-01/.."},
        {"period": "2026-W10-1"},
        {"num_reports": -1},
        {"num_reports": "many"},
        {"closed": 1},
    ],
)
def test_rejects_a_list_of_periods_with_parts_that_are_no_names(
    aggregator: FakeAggregator, changed: dict[str, object]
) -> None:
    """They become names of files."""
    row = {"metric": "homepage", "digest": "0" * 64, "period": "2026-03-01", "num_reports": 3, "closed": True, "new": 1}
    aggregator.body = json.dumps({"periods": [row]}).encode()
    assert [found.num_reports for found in pull_periods(aggregator.url)] == [3]
    aggregator.body = json.dumps({"periods": [row | changed]}).encode()
    with pytest.raises(PullError, match="not a list of periods"):
        pull_periods(aggregator.url)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"periods": 1}', b'{"periods": [1]}', b'{"periods": [{}]}'])
def test_rejects_what_is_no_list_of_periods(aggregator: FakeAggregator, body: bytes) -> None:
    aggregator.body = body
    with pytest.raises(PullError, match="not a list of periods"):
        pull_periods(aggregator.url)
