"""Sets of any strings: items are hashed by cohort, and a report is a row of the buckets of the whole set."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hubbub import (
    DefinitionError,
    Encoder,
    InvalidValueError,
    Metric,
    ParameterError,
    PrivSet,
    Secret,
    UnaryResponse,
    parse_definitions,
)
from hubbub.encoding.bloom import bloom_bits
from hubbub.encoding.sealed_values import Sealer
from hubbub.hashing import murmur3_v1
from hubbub.metrics.kinds.sets import HashedSetKind
from hubbub.privacy import epsilon
from hubbub.sdk.storage.state_reader import read_state
from hubbub.testing import deliver
from tests.client.conftest import Rig, require_balanced
from tests.support.enumerate_rows import set_distribution

ROWS = PrivSet(num_values=8, max_items=2, num_ones=2, prob_hit=0.75)
PACKAGES = Metric.set("packages", None, ROWS, num_cohorts=16)
TABLE = """
[[metric]]
name = "packages"
kind = "set"
num_bits = 8
num_cohorts = 16
mechanism = "privset"
max_items = 2
num_ones = 2
prob_hit = 0.75
description = "Packages in use"
owner = "a@example.org"
expires = 2099-01-01
"""


def bucket(item: str, cohort: int) -> int:
    return murmur3_v1.bit_positions(item.encode(), cohort, ROWS.num_items, 1)[0]


def test_items_of_a_set_are_the_buckets_of_their_hashes_in_every_cohort() -> None:
    """None of them is a blank, the last two bits, and items with the same hash are one bit."""
    items, collisions = [f"v{number}" for number in range(6)], 0
    for cohort in range(16):
        expected = {bucket(item, cohort) for item in items}
        bits = bloom_bits(PACKAGES, items, cohort)
        assert {bit for bit in range(8) if bits >> bit & 1} == expected <= set(range(6))
        assert bits == bloom_bits(PACKAGES, set(items), cohort)
        collisions += len(expected) < len(items)
    assert collisions > 8
    assert bloom_bits(PACKAGES, [], 0) == bloom_bits(PACKAGES, None, 0) == 0


def test_rows_have_the_enumerated_law_of_the_buckets(unseen_seed: int) -> None:
    """G-tests at 1e-6 of the rows of 6,000 clients of one cohort each: of one bucket with two items, of two, and of more than a row stands for."""
    rng, rows = np.random.default_rng(unseen_seed), list(combinations(range(8), 2))
    by_bucket: dict[int, list[str]] = {}
    for number in range(100):
        by_bucket.setdefault(bucket(f"v{number}", 3), []).append(f"v{number}")
    (a, items), (b, others), (c, more), *_ = sorted(by_bucket.items())
    for value, own in (
        (items[:2], (a,)),
        ([items[0], others[0]], (a, b)),
        ([*items[:2], *others[:3], more[0]], (a, b, c)),
    ):
        bits = bloom_bits(PACKAGES, value, 3)
        seen = Counter(
            int.from_bytes(Encoder(PACKAGES, Secret(rng.bytes(32)), rng.bytes).encode(bits).to_bytes()[-1:], "little")
            for _ in range(6_000)
        )
        observed = np.array([seen[1 << i | 1 << j] for i, j in rows])
        assert observed.sum() == 6_000
        law = np.array(set_distribution(ROWS, own)) * 6_000
        assert stats.power_divergence(observed, law, lambda_="log-likelihood").pvalue > 1e-6


def test_loss_is_that_of_the_rows_for_any_two_sets() -> None:
    """Over all sets of buckets, which colliding items also have: the largest ratio of two laws is e^epsilon."""
    laws = [set_distribution(ROWS, own) for size in range(5) for own in combinations(range(6), size)]
    worst = max(math.log(x / y) for one in laws for other in laws for x, y in zip(one, other, strict=True))
    assert worst == pytest.approx(epsilon(PACKAGES), rel=1e-12)


def test_definition_is_read_from_toml_and_json() -> None:
    metric = parse_definitions(TABLE)["packages"]
    assert isinstance(metric.kind, HashedSetKind)
    assert (metric.num_bits, metric.num_cohorts, metric.kind.distinct_values) == (8, 16, math.inf)
    assert Metric.from_dict(metric.to_dict()) == metric
    assert metric.digest == PACKAGES.digest
    others = [
        ("num_bits = 8", "num_bits = 9"),
        ("num_cohorts = 16", "num_cohorts = 8"),
        ("max_items = 2", "max_items = 1"),
    ]
    digests = {parse_definitions(TABLE.replace(*change))["packages"].digest for change in others}
    assert len({*digests, metric.digest}) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("num_bits = 8\n", ""), "items is missing: a set metric names its items, or has mechanism"),
        (("num_cohorts = 16\n", ""), "items is missing: a set metric names its items, or has mechanism"),
        (("num_bits = 8", 'num_bits = 8\nitems = ["a", "b"]'), "num_bits was given together with items"),
        (("num_cohorts = 16", "num_cohorts = 12"), "num_cohorts must be a power of two"),
        (("num_cohorts = 16", "num_cohorts = 512"), "num_cohorts must be a power of two"),
        (("num_bits = 8", "num_bits = 7"), "set-hash-v1 needs num_bits of 8 or more, got 7"),
        (("num_bits = 8", "num_bits = 2000"), "num_values must be an integer"),
        (("max_items = 2", "max_items = 5"), "max_items must be an integer"),
        (
            (
                'mechanism = "privset"\nmax_items = 2\nnum_ones = 2\nprob_hit = 0.75',
                "prob_p = 0.25\nprob_q = 0.75\nprob_f = 0",
            ),
            "items is missing: a set metric names its items, or has mechanism",
        ),
    ],
)
def test_wrong_definitions_are_refused(change: tuple[str, str], message: str) -> None:
    assert change[0] in TABLE
    with pytest.raises((DefinitionError, ParameterError), match=message):
        parse_definitions(TABLE.replace(*change))


def test_items_mechanism_and_cohorts_belong_together() -> None:
    fields = PACKAGES.to_dict()
    for changed, message in (
        ({"items": ["a", "b"]}, "set-hash-v1 parameters, got set-hash-v1 and 2 items"),
        ({"num_hashes": 2}, "set-hash-v1 needs num_hashes = 1"),
        (
            {"mechanism": "unary", "prob_p": 0.25, "prob_q": 0.75, "prob_f": 0},
            "set-hash-v1 needs the mechanism privset",
        ),
    ):
        with pytest.raises((DefinitionError, ParameterError), match=message):
            Metric.from_dict({**fields, **changed})
    with pytest.raises(DefinitionError, match="a set metric without items needs the mechanism privset, got unary"):
        Metric.set("packages", None, UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0))
    with pytest.raises(DefinitionError, match="num_cohorts = 8 is for a set without items"):
        Metric.set("packages", ("a", "b"), PrivSet(num_values=3, max_items=1, num_ones=1, prob_hit=0.75), num_cohorts=8)
    with pytest.raises(DefinitionError, match="part packages must not be a set"):
        Metric.joint("both", (PACKAGES, Metric.boolean("dark", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))))


@pytest.mark.parametrize("value", ["curl", b"curl", 3, {"curl": 1}, [1], {None}, ["\ud800"], [["curl"]]], ids=repr)
def test_anything_but_strings_is_invalid(value: Any, rig: Rig) -> None:
    client = rig.agreed(PACKAGES)
    client.record("packages", value)
    client.record("packages", ["curl", "a name, with a comma", ""])
    counts = client.accounting()
    assert (counts.ignored["invalid"], counts.chosen) == (1, 1)
    with pytest.raises(InvalidValueError) as caught:
        Encoder(PACKAGES, Secret.generate()).encode(value)
    assert "curl" not in str(caught.value)


def test_sets_of_a_period_add_up(rig: Rig) -> None:
    client = rig.agreed(PACKAGES)
    client.record("packages", ["curl"])
    client.record("packages", ["git", "vim"])
    (draft,) = read_state(rig.state).drafts.values()
    secret = Secret((rig.state / "secret").read_bytes())
    true_bits = bloom_bits(PACKAGES, ["curl", "git", "vim"], secret.cohort(16))
    assert Sealer(PACKAGES, secret, bytes).open(draft.report.sealed) == true_bits
    rig.clock.move(days=1)
    deliver(client)
    batch = rig.transport.batches[0]
    assert batch.cohorts[0] == secret.cohort(16)
    assert sum(byte.bit_count() for byte in batch.rows) == 2
    require_balanced(client.accounting())
