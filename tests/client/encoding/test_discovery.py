"""Metrics with `discover`: groups, fragments, their epsilon, and what stays the same for other metrics."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hubbub import DefinitionError, Encoder, Metric, Params, Secret, UnaryResponse, parse_definitions
from hubbub.encoding.bloom import bloom_bits
from hubbub.errors import HubbubError
from hubbub.metrics.discovery import END, Discovery
from hubbub.metrics.periods import Period, PeriodKind
from hubbub.privacy import epsilon, epsilon_permanent
from hubbub.testing import SeededBytes
from hubbub.wire.batch import Batch
from hubbub_decoder.discovery.discover import discovery_of
from tests.support.enumerate_mechanism import report_distribution

ALPHA = 1e-6
PARAMS = Params(num_bits=8, num_hashes=1, num_cohorts=64, prob_p=0.25, prob_q=0.75, permanent_p=0.1, permanent_q=0.5)
DISCOVER = Discovery(longest=5, step=2, first=2, alphabet="abcd", held_out=0.25)
METRIC = Metric.string("words", PARAMS, discover=DISCOVER)
VALUES = ["a", "ab", "abc", "abd", "abcda", "abcdab", "b"]
TABLE = """
[[metric]]
name = "words"
kind = "string"
description = "Words"
owner = "telemetry@example.org"
expires = 2099-01-01
num_bits = 8
num_hashes = 1
num_cohorts = 64
prob_p = 0.25
prob_q = 0.75
permanent_p = 0.1
permanent_q = 0.5
[metric.discover]
longest = 5
step = 2
first = 2
alphabet = "abcd"
held_out = 0.25
"""


def test_parses_the_discover_table() -> None:
    metric = parse_definitions(TABLE)["words"]
    assert discovery_of(metric) == DISCOVER
    assert metric.digest == METRIC.digest
    assert Metric.from_dict(json.loads(json.dumps(metric.to_dict()))) == metric


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("longest = 5\n", "", "words: discover: longest is missing"),
        ("longest = 5", "longest = 0", "words: discover: longest must be an integer in [1, 256], got 0"),
        (
            "longest = 5",
            "longest = 5\nlength = 3",
            "words: discover: unknown key 'length': the table has longest, step",
        ),
        ("step = 2", "step = 2.0", "words: discover: step must be an integer in [1, 8], got 2.0"),
        ("first = 2", "first = 7", "words: discover: first must be an integer in [1, 6], got 7"),
        ('"abcd"', '"abca"', "words: discover: alphabet must be a string of 2 or more distinct characters, got 'abca'"),
        ('"abcd"', "3", "words: discover: alphabet must be a string of 2 or more distinct characters, got 3"),
        ('first = 2\nalphabet = "abcd"', "first = 3", "first = 3 with 243 symbols has 14,348,907 prefixes to compare"),
        (
            "step = 2",
            'step = 2\nmethod = "ngrams"',
            "words: discover: unknown key 'method': the table has longest, step",
        ),
        ("held_out = 0.25", "held_out = 1", "words: discover: held_out must be a number in (0, 1), got 1"),
        ("held_out = 0.25", "held_out = 0.1", "of num_cohorts = 64 the smallest group has 6: raise num_cohorts"),
        ("longest = 5", "longest = 20", "each of the 11 prefix groups and the held-out group needs 8 cohorts"),
        (
            "[metric.discover]",
            "discover = 3\n[[metric]]",
            "words: discover must be a table with longest and step, got 3",
        ),
        (
            "num_cohorts = 64",
            'num_cohorts = 64\nhash_scheme = "google-md5"',
            "words: hash_scheme = 'google-md5' is that of google/rappor",
        ),
    ],
)
def test_rejects_an_invalid_discover_table(old: str, new: str, message: str) -> None:
    assert old in TABLE
    with pytest.raises(DefinitionError, match=r".") as raised:
        parse_definitions(TABLE.replace(old, new))
    assert message in str(raised.value)


def test_categorical_metric_rejects_discover() -> None:
    with pytest.raises(TypeError, match="discover"):
        Metric.categorical("c", ("a", "b"), UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), discover=DISCOVER)  # type: ignore[call-arg]


def test_metric_without_discover_has_no_trace_of_it() -> None:
    plain = Metric.string(METRIC.name, METRIC.params)
    assert "discover" not in plain.to_dict()
    assert plain.digest != METRIC.digest


def test_groups_partition_the_cohorts_evenly() -> None:
    for longest in range(1, 40):
        for step in range(1, 5):
            discover = Discovery(longest=longest, step=step, alphabet="ab")
            groups = len(discover.lengths) + 1
            cohorts = [discover.cohorts(group, 256) for group in range(groups)]
            assert [c for in_group in cohorts for c in in_group] == list(range(256))
            assert all(discover.group(c, 256) == group for group in range(groups) for c in cohorts[group])
            sizes = [len(in_group) for in_group in cohorts[:-1]]
            assert max(sizes) - min(sizes) <= 1
            assert discover.lengths[-1] == longest + 1


@pytest.mark.parametrize("alphabet", [None, "ab\N{LATIN SMALL LETTER E WITH ACUTE}"])
def test_fragments_of_a_string_are_its_prefixes_and_end_with_the_marker(alphabet: str | None) -> None:
    """Fragments of two values are equal only where the values agree on all of the group's symbols, their end included."""
    discover = Discovery(longest=4, step=2, alphabet=alphabet)
    texts = [
        "",
        "a",
        "b",
        "ab",
        "a\N{LATIN SMALL LETTER E WITH ACUTE}",
        "abab",
        "ababa",
        "ababb",
        "\N{LATIN SMALL LETTER E WITH ACUTE}" * 3,
    ]
    for group, length in enumerate(discover.lengths):
        for text in texts:
            symbols: list[Any] = list(text.encode() if alphabet is None else text)
            fragment = discover.fragment(text.encode(), group)
            assert fragment.endswith(END) == (len(symbols) < length)
            for other in texts:
                others: list[Any] = list(other.encode() if alphabet is None else other)
                same = [*symbols, None][:length] == [*others, None][:length]
                assert (fragment == discover.fragment(other.encode(), group)) == same
    assert [discover.fragment(text.encode(), len(discover.lengths)) for text in texts] == [t.encode() for t in texts]


def test_encoder_reports_the_fragment_of_its_group() -> None:
    plain = Metric.string(METRIC.name, METRIC.params)
    for number in range(100):
        encoder = Encoder(METRIC, Secret(SeededBytes(f"fragment {number}")(32)))
        group = DISCOVER.group(encoder.cohort, 64)
        for value in VALUES:
            fragment = DISCOVER.fragment(value.encode(), group)
            if not fragment.endswith(END):
                assert encoder.bloom_bits(value) == bloom_bits(plain, fragment.decode(), encoder.cohort)


def test_group_depends_on_secret_and_name_only_and_is_uniform(unseen_seed: int) -> None:
    random_bytes = SeededBytes(unseen_seed)
    other = replace(METRIC, name="others")
    later = Metric.string(METRIC.name, replace_params(prob_q=0.8), discover=DISCOVER, period=PeriodKind.WEEK)
    counts, agree = np.zeros(64), 0
    for _ in range(6400):
        secret = Secret.generate(random_bytes)
        cohort = Encoder(METRIC, secret).cohort
        counts[cohort] += 1
        agree += Encoder(other, secret).cohort == cohort
    assert {Encoder(METRIC, secret).encode(value).cohort for value in (*VALUES, None)} == {cohort}
    assert Encoder(later, secret).cohort == cohort
    assert stats.chisquare(counts).pvalue > ALPHA
    assert stats.binomtest(agree, 6400, 1 / 64).pvalue > ALPHA


def replace_params(**changes: Any) -> Params:
    sizes: dict[str, Any] = {name: getattr(PARAMS, name) for name in ("num_bits", "num_hashes", "num_cohorts")}
    return Params(**sizes | PARAMS.mechanism.fields | changes)


@pytest.mark.parametrize("reports", [1, 2])
@pytest.mark.parametrize("hashes", [1, 2])
def test_epsilon_of_a_discovery_metric_equals_enumeration(hashes: int, reports: int) -> None:
    """The output is the cohort (and with it the group) and the bits of all reports: the loss over every pair of values is epsilon.

    The cohort has probability 1 / m for each value, so it adds nothing. In each cohort the bits have the law of the fragment.
    """
    params = replace_params(num_hashes=hashes)
    metric = Metric.string("words", params, discover=DISCOVER)
    filters = [[int(bloom_bits(metric, value, cohort)) for value in (*VALUES, None)] for cohort in range(64)]
    union = sorted({bloom for in_cohort in filters for bloom in in_cohort})
    logs = np.log(report_distribution(params, union, reports) / params.num_cohorts)
    largest = 0.0
    for in_cohort in filters:
        law = logs[[union.index(bloom) for bloom in in_cohort]]
        largest = max(largest, float((law.max(axis=0) - law.min(axis=0)).max()))
    assert math.isclose(largest, epsilon(params, reports), abs_tol=1e-12)
    assert largest < epsilon_permanent(params)


@pytest.mark.parametrize("response", [{"prob_f": 0.5}, {"permanent_p": 0.1, "permanent_q": 0.5}])
def test_values_with_one_fragment_have_responses_of_their_own(response: dict[str, float]) -> None:
    """Else the permanent bits would show whether a changed value kept its prefix, which no epsilon bounds."""
    params = Params(num_bits=128, num_hashes=1, num_cohorts=64, prob_p=0, prob_q=1, **response)  # type: ignore[arg-type]
    metric = Metric.string("words", params, discover=DISCOVER)
    equal = 0
    for number in range(60):
        encoder = Encoder(metric, Secret(SeededBytes(f"shared {number}")(32)))
        equal += encoder.bloom_bits("abca") == encoder.bloom_bits("abcb")
        first, again, other = (encoder.encode(value).bits for value in ("abca", "abca", "abcb"))
        assert first == again
        assert first != other
    assert equal > 10


def test_batch_rejects_a_cohort_that_no_group_has() -> None:
    period = Period.containing(METRIC.period, date(2026, 1, 1))
    report = Encoder(METRIC, Secret.generate()).encode("ab")
    batch = Batch.from_reports(METRIC, period, [report])
    batch.require_fit(METRIC, 10)
    with pytest.raises(HubbubError, match="cohorts must be below 64, got 64"):
        replace(batch, cohorts=bytes([64])).require_fit(METRIC, 10)
