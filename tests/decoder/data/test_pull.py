"""Pulling a summary: what is asked, what is believed, and what is said when it is not one."""

from __future__ import annotations

import json
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pytest

from hubbub import Metric, Params
from hubbub.summary import BitCounts, summary_to_bytes
from hubbub_decoder import PullError
from hubbub_decoder.data.pull import pull_summary
from hubbub_decoder.data.simulate import simulate_bit_counts

METRIC = Metric.string("homepage", Params(num_bits=8, num_hashes=1, num_cohorts=2, prob_p=0.25, prob_q=0.75, prob_f=0))


class Answers(Protocol):
    """The fixture `aggregator`."""

    url: str
    status: int
    headers: dict[str, str]
    body: bytes
    asked: list[str]


@pytest.fixture
def counts(aggregator: Answers) -> BitCounts:
    counts = simulate_bit_counts(METRIC, {"a": 100}, np.random.default_rng(0))
    aggregator.body = summary_to_bytes(counts)
    return counts


def test_a_summary_arrives_as_it_was_sent(aggregator: Answers, counts: BitCounts) -> None:
    pieces: list[int] = []
    assert pull_summary(aggregator.url, "homepage", progress=pieces.append) == counts
    assert sum(pieces) == len(aggregator.body)
    assert aggregator.asked == ["/v1/metrics/homepage/summary"]


def test_periods_digest_and_counts_are_asked_for(aggregator: Answers, counts: BitCounts) -> None:
    pull_summary(
        aggregator.url + "/", "homepage", periods=["2026-03-01", "2026-03-02"], digest=METRIC.digest, kind="bits"
    )
    asked = urlsplit(aggregator.asked[0])
    assert asked.path == "/v1/metrics/homepage/summary"
    assert parse_qsl(asked.query) == [
        ("period", "2026-03-01"),
        ("period", "2026-03-02"),
        ("digest", METRIC.digest),
        ("counts", "bits"),
    ]


def test_a_problem_is_told_in_the_aggregators_own_words(aggregator: Answers) -> None:
    aggregator.status, aggregator.headers = 404, {"Content-Type": "application/problem+json; charset=utf-8"}
    aggregator.body = json.dumps({"title": "Unknown metric", "detail": "no metric 'homepage' here"}).encode()
    with pytest.raises(PullError, match="answered 404: no metric 'homepage' here"):
        pull_summary(aggregator.url, "homepage")


@pytest.mark.parametrize("body", [b"<html>", b'"text"', b"", b"[1]"])
def test_an_error_without_words_of_its_own_still_says_the_status(aggregator: Answers, body: bytes) -> None:
    aggregator.status, aggregator.body = 404, body
    for content_type in ("text/html", "application/problem+json"):
        aggregator.headers = {"Content-Type": content_type}
        with pytest.raises(PullError, match="answered 404: Not Found"):
            pull_summary(aggregator.url, "homepage")


def test_a_redirect_is_not_followed(aggregator: Answers) -> None:
    aggregator.status, aggregator.headers = 302, {"Location": "https://elsewhere.example/"}
    with pytest.raises(PullError, match=r"redirect to 'https://elsewhere\.example/'"):
        pull_summary(aggregator.url, "homepage")
    assert len(aggregator.asked) == 1


def test_something_that_is_no_summary_is_refused(aggregator: Answers) -> None:
    aggregator.body = b"<html>Welcome to this hotel's network</html>"
    with pytest.raises(PullError, match="something else than a summary"):
        pull_summary(aggregator.url, "homepage")


def test_a_summary_cut_off_on_the_way_is_refused(aggregator: Answers, counts: BitCounts) -> None:
    aggregator.headers = {"Content-Length": str(len(aggregator.body) + 10)}
    with pytest.raises(PullError, match="no answer"):
        pull_summary(aggregator.url, "homepage")


def test_a_summary_of_another_metric_or_definition_is_refused(aggregator: Answers, counts: BitCounts) -> None:
    with pytest.raises(PullError, match="answered with 'homepage', asked was 'other'"):
        pull_summary(aggregator.url, "other")
    with pytest.raises(PullError, match="asked was 00"):
        pull_summary(aggregator.url, "homepage", digest="00")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://telemetry.example.org", "http is for this machine only"),
        ("http://127.0.0.1.example.org", "http is for this machine only"),
        ("ftp://telemetry.example.org", "not the address of an aggregator"),
        ("telemetry.example.org", "not the address of an aggregator"),
        ("https://telemetry.example.org/?a=1", "without"),
    ],
)
def test_an_address_that_is_unsafe_or_none_is_refused_before_anything_is_sent(url: str, message: str) -> None:
    with pytest.raises(PullError, match=message):
        pull_summary(url, "homepage")


def test_a_password_in_the_address_is_refused_and_not_shown() -> None:
    with pytest.raises(PullError, match=r"^https://\*\*\*@host: .*HUBBUB_TOKEN") as refused:
        pull_summary("https://user:s3cret@host", "homepage")
    assert "s3cret" not in str(refused.value)


def test_a_name_no_metric_can_have_is_refused(aggregator: Answers) -> None:
    with pytest.raises(PullError, match="is not a metric's name"):
        pull_summary(aggregator.url, "../livez")
    assert aggregator.asked == []


def test_nobody_there_is_said() -> None:
    with pytest.raises(PullError, match=r"no answer .*: is the aggregator running there"):
        pull_summary("http://127.0.0.1:9", "homepage")
