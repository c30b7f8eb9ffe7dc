"""Recordings of sets: the items of a period add up, and only the answer about one item is kept."""

from __future__ import annotations

from typing import Any

import pytest

from hubbub import (
    DefinitionError,
    Encoder,
    InvalidValueError,
    Metric,
    ParameterError,
    Secret,
    UnaryResponse,
    parse_definitions,
)
from hubbub.testing import SeededBytes, deliver
from tests.client.conftest import Rig, require_balanced

ITEMS = ("spelling", "preview", "vim")
PLAIN: dict[str, Any] = {"prob_p": 0, "prob_q": 1, "prob_f": 0}
PLUGINS = Metric.set("plugins", ITEMS, UnaryResponse(**PLAIN))


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


@pytest.mark.parametrize(
    "value", ["spelling", {"spelling", "emacs"}, {"spelling": 1}, [1], 5, True, b"vim", iter(ITEMS)]
)
def test_anything_but_known_items_is_counted_as_invalid(value: Any, rig: Rig) -> None:
    client = rig.agreed(PLUGINS)
    client.record("plugins", value)
    client.record("plugins", {"vim"})
    counts = client.accounting()
    assert (counts.ignored["invalid"], counts.chosen) == (1, 1)
    with pytest.raises(InvalidValueError) as caught:
        Encoder(PLUGINS, Secret.generate()).encode(value)
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
