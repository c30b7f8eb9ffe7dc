"""Recordings of sets: the items of a period add up; the answer about one item is reported, or a row of the whole set."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hubbub import (
    DefinitionError,
    Encoder,
    Group,
    InvalidValueError,
    Metric,
    ParameterError,
    PrivSet,
    Secret,
    UnaryResponse,
    parse_definitions,
)
from hubbub.encoding.sealed_values import Sealer
from hubbub.metrics.kinds.sets import AskedItemKind, WholeSetKind
from hubbub.sdk.storage.state_reader import read_state
from hubbub.testing import SeededBytes, deliver
from tests.client.conftest import Rig, require_balanced
from tests.support.enumerate_rows import set_distribution

ITEMS = ("spelling", "preview", "vim")
PLAIN: dict[str, Any] = {"prob_p": 0, "prob_q": 1, "prob_f": 0}
PLUGINS = Metric.set("plugins", ITEMS, UnaryResponse(**PLAIN))
PACKAGES = tuple(f"package-{number}" for number in range(100))
WHOLE = Metric.set("packages", PACKAGES, PrivSet(num_values=104, max_items=4, num_ones=9, prob_hit=0.75))
TABLE = """
[[metric]]
name = "packages"
kind = "set"
items = ["a", "b", "c"]
mechanism = "privset"
max_items = 2
num_ones = 1
prob_hit = 0.75
description = "Packages in use"
owner = "a@example.org"
expires = 2099-01-01
"""


def answers(rig: Rig) -> list[tuple[int, int]]:
    """Item that the client is asked about, and its bit, of each report."""
    return [
        (cohort, row) for batch in rig.transport.batches for cohort, row in zip(batch.cohorts, batch.rows, strict=True)
    ]


def test_sets_of_a_period_add_up(rig: Rig) -> None:
    client = rig.agreed(PLUGINS)
    values: list[Any] = [{"spelling"}, frozenset(), ["preview"], None, ("vim", "vim")]
    for value in values:
        client.record("plugins", value)
    rig.clock.move(days=1)
    client.record("plugins", [])
    rig.clock.move(days=1)
    deliver(client)
    asked = {cohort for cohort, _ in answers(rig)}
    assert [bit for _, bit in answers(rig)] == [1, 0, 0]  # all items, an empty set, and a day without a recording
    assert len(asked) == 1
    counts = client.accounting()
    assert (counts.recorded, counts.chosen, counts.superseded) == (6, 2, 4)
    require_balanced(counts)


@pytest.mark.parametrize("packages", [(0, 99), (98, 97, 99), (99, 0, 60, 53, 1, 99)])
def test_whole_sets_of_a_period_add_up(packages: tuple[int, ...], rig: Rig) -> None:
    """Regression: bits were kept as a double, which has 53 of them."""
    client = rig.agreed(WHOLE)
    for package in packages:
        client.record("packages", {PACKAGES[package]})
    client.record("packages", None)
    (draft,) = read_state(rig.state).drafts.values()
    sealer = Sealer(WHOLE, Secret((rig.state / "secret").read_bytes()), bytes)
    assert sealer.open(draft.report.sealed) == sum(1 << package for package in set(packages))
    rig.clock.move(days=1)
    deliver(client)
    batch = rig.transport.batches[0]
    assert sum(byte.bit_count() for byte in batch.rows) == 9
    require_balanced(client.accounting())


def test_whole_set_has_the_enumerated_law(unseen_seed: int) -> None:
    """G-tests at 1e-6 of the rows of 6,000 clients each, also of those with more than two items."""
    metric, rng = parse_definitions(TABLE)["packages"], np.random.default_rng(unseen_seed)
    mechanism = metric.params.mechanism
    assert isinstance(mechanism, PrivSet)
    for value, own in ((None, ()), ({"b"}, (1,)), (["c", "a", "a"], (0, 2)), (("a", "b", "c"), (0, 1, 2))):
        seen = Counter(
            int.from_bytes(Encoder(metric, Secret(rng.bytes(32)), rng.bytes).encode(value).to_bytes()[-1:], "little")
            for _ in range(6_000)
        )
        observed = np.array([seen[1 << bit] for (bit,) in combinations(range(5), 1)])
        law = np.array(set_distribution(mechanism, own))
        assert observed.sum() == 6_000
        assert stats.power_divergence(observed, law * 6_000, lambda_="log-likelihood").pvalue > 1e-6


def test_true_set_repeats_until_the_set_or_the_epoch_changes() -> None:
    """The blanks of a client, and the items that stand for a larger set, are no new draw in each report."""
    metric = Metric.set(
        "packages", PACKAGES, PrivSet(num_values=104, max_items=4, num_ones=1, prob_hit=1 - 2**-24), hold=2
    )
    encoder = Encoder(metric, Secret(bytes(32)), SeededBytes("rows"))
    for value in (PACKAGES[:2], PACKAGES):
        rows = [{encoder.encode(value, epoch).to_bytes() for _ in range(200)} for epoch in (1, 1, 2)]
        assert rows[0] == rows[1] != rows[2]
        assert len(rows[0]) == 4


@pytest.mark.parametrize(
    "metric", [PLUGINS, Metric.set("plugins", ITEMS, PrivSet(num_values=5, max_items=2, num_ones=1, prob_hit=0.75))]
)
@pytest.mark.parametrize(
    "value",
    [
        "spelling",
        {"spelling", "emacs"},
        {"spelling": 1},
        [1],
        5,
        True,
        b"vim",
        iter(ITEMS),
        (item for item in ITEMS),
        [["vim"]],
        ["vim", {}],
        ["vim", None],
        ["\ud800"],
        ["vim"] * 10**6 + ["emacs"],
        range(10**12),
    ],
    ids=lambda value: type(value).__name__,
)
def test_anything_but_known_items_is_counted_as_invalid(value: Any, metric: Metric, rig: Rig) -> None:
    client = rig.agreed(metric)
    client.record("plugins", value)
    client.record("plugins", {"vim"})
    counts = client.accounting()
    assert (counts.ignored["invalid"], counts.chosen) == (1, 1)
    with pytest.raises(InvalidValueError) as caught:
        Encoder(metric, Secret.generate()).encode(value)
    assert "emacs" not in str(caught.value)


def test_a_change_of_another_item_is_no_other_value(rig: Rig) -> None:
    client = rig.agreed(Metric.set("plugins", ITEMS, UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5)))
    units = set()
    for day in range(6):
        client.record("plugins", ITEMS[: day % 4])
        rig.clock.move(days=1)
        deliver(client)
        (account,) = client.ledger().accounts
        units.add(account.units)
    assert max(units) == 2


@pytest.mark.parametrize("number", [2, 3, 30, 256])
def test_each_item_is_asked_about_equally_often(number: int) -> None:
    """8 bytes of the metric's own stream: the largest surplus of an item is 2**-56 of its share."""
    metric, random_bytes = (
        Metric.set("plugins", [f"i{n}" for n in range(number)], UnaryResponse(**PLAIN)),
        SeededBytes("items"),
    )
    cohorts = [Encoder(metric, Secret(random_bytes(32))).cohort for _ in range(200 * number)]
    counts = [cohorts.count(item) for item in range(number)]
    statistic = sum((count - 200) ** 2 / 200 for count in counts)
    assert statistic < number + 6 * (2 * number) ** 0.5 + 20
    assert min(counts) > 0


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (["a"], "needs 2 to 256 items, got 1"),
        ([f"i{n}" for n in range(257)], "needs 2 to 256 items, got 257"),
        (["a", "b", "a"], "items must be distinct, got a more than once"),
        (["a", ""], "an item must be a non-empty string, got ''"),
        (["a", "b,c"], "an item must not contain a comma, got 'b,c'"),
        (["a", "\ud800"], "items must be encodable as UTF-8"),
    ],
)
def test_wrong_items_are_refused(items: list[str], message: str) -> None:
    with pytest.raises(DefinitionError, match=f"plugins: .*{message}"):
        Metric.set("plugins", items, UnaryResponse(**PLAIN))


def test_an_asymmetric_response_of_one_bit_is_refused() -> None:
    with pytest.raises(ParameterError, match="one bit"):
        Metric.set("plugins", ITEMS, UnaryResponse(prob_p=0.25, prob_q=0.75, permanent_p=0.1, permanent_q=0.5))


def test_definition_is_read_from_toml_and_json() -> None:
    table = 'name = "plugins"\nkind = "set"\nitems = ["a", "b"]\nprob_p = 0.25\nprob_q = 0.75\nprob_f = 0.5\n'
    described = 'description = "Plugins in use"\nowner = "a@example.org"\nexpires = 2099-01-01\n'
    metric = parse_definitions(f"[[metric]]\n{table}{described}")["plugins"]
    assert Metric.from_dict(metric.to_dict()) == metric
    assert (
        metric.digest == Metric.set("plugins", ("a", "b"), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5)).digest
    )
    assert (
        metric.digest != Metric.set("plugins", ("b", "a"), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5)).digest
    )
    for wrong, message in (('items = "a"', "items must be a list"), ("edges = [0, 1]", "unknown key 'edges'")):
        text = table.replace('items = ["a", "b"]', wrong)
        with pytest.raises(DefinitionError, match=message):
            parse_definitions(f"[[metric]]\n{text}{described}")


def test_whole_sets_are_read_from_toml_and_json() -> None:
    metric = parse_definitions(TABLE)["packages"]
    mechanism = PrivSet(num_values=5, max_items=2, num_ones=1, prob_hit=0.75)
    assert isinstance(metric.kind, WholeSetKind)
    assert (metric.num_bits, metric.num_cohorts, metric.kind.distinct_values) == (5, 1, 8)
    assert Metric.from_dict(metric.to_dict()) == metric
    assert metric.digest == Metric.set("packages", ("a", "b", "c"), mechanism).digest
    others = [
        ("max_items = 2", "max_items = 1"),
        ("num_ones = 1", "num_ones = 2"),
        ("0.75", "0.8125"),
        ('"c"]', '"d"]'),
    ]
    digests = {parse_definitions(TABLE.replace(*change))["packages"].digest for change in others}
    assert len({*digests, metric.digest}) == 5
    grouped = Metric.set(
        "packages",
        ("a", "b"),
        PrivSet(num_values=3, max_items=1, num_ones=1, prob_hit=0.75),
        group=Group("v", ("1", "other")),
    )
    assert len(grouped.collections) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("max_items = 2\n", ""), "max_items is missing: pass max_items, num_ones and prob_hit"),
        (("max_items = 2", "max_items = 4"), "max_items must be at most the number of items, got 4 of 3"),
        (("max_items = 2", "max_items = 0"), "max_items must be an integer"),
        (("max_items = 2", "max_items = -1"), "max_items must be an integer|num_values must be"),
        (("max_items = 2", 'max_items = "2"'), "max_items must be an integer"),
        (("max_items = 2", "max_items = 2.0"), "max_items must be an integer"),
        (("max_items = 2", "max_items = 2000"), "at most 1024 with max_items, got 3 and 2000"),
        (("num_ones = 1", "num_ones = 3"), "num_ones must be an integer in"),
        (("prob_hit = 0.75", "prob_hit = 0.4"), "prob_hit must be above 0.4"),
        (("prob_hit = 0.75", "prob_hit = 1"), "prob_hit must be below 1, got 1"),
        (("prob_hit = 0.75", "prob_q = 0.75"), "unknown key 'prob_q'"),
        (('mechanism = "privset"\n', ""), "unknown key"),
        (
            ('["a", "b", "c"]', '["a"]'),
            "needs 2 items or more, and at most 1024 with max_items, got 1 and 2: use a boolean metric",
        ),
        (('["a", "b", "c"]', '["a", "b", "b"]'), "items must be distinct"),
        (('["a", "b", "c"]', str([f"i{n}" for n in range(1023)])), "pass the list as candidates when you decode"),
        (('kind = "set"\nitems', 'kind = "categorical"\ncategories'), "any metric but a set needs UnaryResponse"),
    ],
)
def test_wrong_whole_sets_are_refused(change: tuple[str, str], message: str) -> None:
    assert change[0] in TABLE
    with pytest.raises((DefinitionError, ParameterError), match=message):
        parse_definitions(TABLE.replace(*change).replace("'", '"'))


def test_kind_mechanism_and_bits_belong_together() -> None:
    asked, whole = PLUGINS.to_dict(), parse_definitions(TABLE)["packages"].to_dict()
    assert isinstance(PLUGINS.kind, AskedItemKind)
    for fields, changed, message in (
        (whole, {"items": ["a", "b"]}, "set-row-v1 parameters of 4 bits, got set-row-v1 of 5"),
        (whole, {"hash_scheme": "one-hot"}, "PrivSet reports sets of items, got the hash scheme one-hot"),
        (whole, {"num_bits": 6}, "set-row-v1 parameters of 5 bits, got set-row-v1 of 6"),
        (whole, {"num_cohorts": 2}, "set-row-v1 needs num_hashes = 1 and num_cohorts = 1"),
        (asked, {"hash_scheme": "set-row-v1", "num_cohorts": 1}, "set-row-v1 needs the mechanism privset, got unary"),
        (
            whole,
            {"mechanism": "unary", "prob_p": 0.25, "prob_q": 0.75, "prob_f": 0},
            "set-row-v1 needs the mechanism privset, got unary",
        ),
    ):
        with pytest.raises((DefinitionError, ParameterError), match=message):
            Metric.from_dict({**fields, **changed})
    with pytest.raises(
        DefinitionError, match="part packages must not be a set: a client reports all of them in one row"
    ):
        Metric.joint("both", (WHOLE, Metric.boolean("dark", UnaryResponse(**PLAIN))))
