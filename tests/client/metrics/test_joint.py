"""Joint metrics: definition, digest, epsilon, encoding by parts, recording."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

from hubbub import (
    DefinitionError,
    Definitions,
    Encoder,
    InvalidValueError,
    Metric,
    Params,
    Secret,
    SummaryError,
    UnaryResponse,
)
from hubbub.cli import main
from hubbub.client import collaborators
from hubbub.encoding.bloom import bloom_bits
from hubbub.encoding.sealed_values import Sealer
from hubbub.metrics.definitions import parse_definitions
from hubbub.privacy import central_epsilon, epsilon, epsilon_permanent
from hubbub.privacy.linkability import mutual_information
from hubbub.privacy.pricing import unit_price
from hubbub.randomness import system_random_bytes
from hubbub.summary import Reports
from hubbub.summary.plausibility import ones_distributions
from hubbub.testing import SeededBytes, deliver
from tests.client.conftest import Rig
from tests.support.enumerate_mechanism import bloom_filters, largest_loss, report_distribution

ALPHA = 1e-6
STRING = Params(num_bits=16, num_hashes=2, num_cohorts=8, prob_p=0.25, prob_q=0.75, prob_f=0.5)
SPARSE = Params(num_bits=13, num_hashes=1, num_cohorts=8, prob_p=0.2, prob_q=0.8, permanent_p=0.1, permanent_q=0.5)
CARRIER, ORIGIN = Metric.string("carrier", STRING), Metric.string("origin", SPARSE)
DELAYED = Metric.boolean("delayed", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5))
FLIGHT = Metric.joint("flight", (CARRIER, ORIGIN, DELAYED))
TOML = """
[[metric]]
name = "flight"
kind = "joint"
description = "Carrier and origin of a flight, together"
owner = "data@example.org"
expires = 2030-01-01

[[metric.part]]
name = "carrier"
kind = "string"
num_bits = 32
num_hashes = 1
num_cohorts = 16
prob_p = 0.25
prob_q = 0.75
prob_f = 0.5

[[metric.part]]
name = "origin"
kind = "categorical"
categories = ["EWR", "JFK", "LGA"]
prob_p = 0.25
prob_q = 0.75
prob_f = 0.5
"""


def test_definitions_file_states_parts() -> None:
    flight = parse_definitions(TOML)["flight"]
    assert [part.name for part in flight.components] == ["carrier", "origin"]
    assert (flight.num_bits, flight.num_cohorts, flight.row_bytes) == (35, 16, 5)
    assert Metric.from_dict(json.loads(json.dumps(flight.to_dict()))) == flight


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("num_cohorts = 16", "num_cohorts = 12", "flight: part carrier: num_cohorts must be a power of two"),
        (
            "prob_f = 0.5\n\n",
            "prob_f = 0\n\n",
            "either all parts of a joint metric or none must have a permanent response",
        ),
        ('name = "origin"', 'name = ["a"]', r"flight: part \['a'\]: a metric's name must have"),
        ('name = "origin"', "name = 3", "flight: part 3: a metric's name must have"),
        ('name = "origin"', 'name = "carrier"', "the parts must have distinct names, got carrier, carrier"),
        ("num_hashes = 1", "num_hashes = 1\nhold = 7", "flight: part carrier: unknown key 'hold'"),
        ('kind = "joint"', 'kind = "joint"\nprob_p = 0.5', "flight: unknown key 'prob_p'"),
        ('kind = "categorical"', 'kind = "joint"', "part origin: .*list its parts|part origin: part is missing"),
        (TOML[TOML.index('[[metric.part]]\nname = "origin"') :], "", "must have 2 or 3 parts, got 1"),
        ("num_bits = 32", "num_bits = 1022", "at most 1024 bits together, got 1025"),
    ],
)
def test_invalid_parts_are_named(old: str, new: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        parse_definitions(TOML.replace(old, new, 1))


def test_string_parts_share_their_cohorts() -> None:
    other = Params(num_bits=16, num_hashes=2, num_cohorts=16, prob_p=0.25, prob_q=0.75, prob_f=0.5)
    with pytest.raises(DefinitionError, match="must have one num_cohorts, got 8 and 16"):
        Metric.joint("flight", (CARRIER, Metric.string("origin", other)))


def test_digest_covers_every_field_of_every_part() -> None:
    changed = [
        Metric.joint("flight", (CARRIER, ORIGIN)),
        Metric.joint("flight", (ORIGIN, CARRIER, DELAYED)),
        Metric.joint(
            "flight", (CARRIER, ORIGIN, Metric.boolean("late", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5)))
        ),
        Metric.joint(
            "flight", (CARRIER, ORIGIN, Metric.boolean("delayed", UnaryResponse(prob_p=0.2, prob_q=0.75, prob_f=0.5)))
        ),
        Metric.joint("flights", (CARRIER, ORIGIN, DELAYED)),
        Metric.joint("flight", (CARRIER, ORIGIN, DELAYED), hold=7),
    ]
    assert len({FLIGHT.digest, *(metric.digest for metric in changed)}) == 7


@dataclass(frozen=True)
class Blocks:
    """Blocks of bits that are too few for a string metric."""

    blocks: tuple[Params, ...]


def test_blocks_are_the_parameters_of_the_parts() -> None:
    assert FLIGHT.blocks == (STRING, SPARSE, DELAYED.params)
    assert FLIGHT.kind.first_bits == (0, STRING.num_bits, STRING.num_bits + SPARSE.num_bits)
    with pytest.raises(DefinitionError, match=r"use metric\.blocks or metric\.components"):
        _ = FLIGHT.params


@pytest.mark.parametrize("t", [1, 2])
@pytest.mark.parametrize("response", [{"prob_f": 0.5}, {"permanent_p": 0.1, "permanent_q": 0.5}])
def test_epsilon_equals_enumeration_of_both_parts_outputs(response: dict[str, Any], t: int) -> None:
    """The worst pair of joint values over every output of both parts in t reports, to 1e-12."""
    string = Params(num_bits=3, num_hashes=1, num_cohorts=1, prob_p=0.25, prob_q=0.75, **response)
    boolean = Params.one_hot(1, prob_p=0.1, prob_q=0.6, prob_f=0.25)
    of_string = report_distribution(string, bloom_filters(3, {0, 1}), t)
    of_boolean = report_distribution(boolean, bloom_filters(1, {0, 1}), t)
    both = np.einsum("ux,vy->uvxy", of_string, of_boolean).reshape(len(of_string) * len(of_boolean), -1)
    joint: Any = Blocks((string, boolean))
    assert abs(epsilon(joint, t) - largest_loss(both)) < 1e-12
    assert epsilon_permanent(joint) == math.fsum((epsilon_permanent(string), epsilon_permanent(boolean)))


def test_figures_of_parts_add_up() -> None:
    assert unit_price(FLIGHT).unit == "value"
    assert unit_price(FLIGHT).epsilon == pytest.approx(
        sum(unit_price(part).epsilon for part in FLIGHT.components), abs=1e-12
    )
    assert mutual_information(FLIGHT) == pytest.approx(sum(mutual_information(p) for p in FLIGHT.components))
    assert FLIGHT.kind.distinct_values == math.inf
    two = Metric.joint(
        "two", (DELAYED, Metric.categorical("os", ("a", "b"), UnaryResponse(prob_p=0.1, prob_q=0.9, prob_f=0.5)))
    )
    assert two.kind.distinct_values == 6
    assert 0 < central_epsilon(FLIGHT, 10_000, 1e-9) < epsilon(FLIGHT)
    laws = ones_distributions(FLIGHT.blocks)
    assert laws.shape == (3 * 2 * 2, 31)
    assert np.allclose(laws.sum(axis=1), 1)


def test_mixed_permanent_noise_is_refused() -> None:
    with pytest.raises(DefinitionError, match="either all parts of a joint metric or none"):
        Metric.joint("mixed", (CARRIER, Metric.boolean("paid", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0))))


@pytest.mark.parametrize(
    ("value", "same_as"),
    [
        ({"carrier": "UA", "origin": "EWR", "delayed": True}, ("UA", "EWR", True)),
        ({"origin": "EWR"}, (None, "EWR", None)),
        (None, (None, None, None)),
        ({}, (None, None, None)),
    ],
)
def test_bits_of_parts_follow_each_other(value: Any, same_as: tuple[Any, ...]) -> None:
    bits = bloom_bits(FLIGHT, value, 3)
    first, second, third = (bloom_bits(p, v, 3) for p, v in zip(FLIGHT.components, same_as, strict=True))
    assert bits == bloom_bits(FLIGHT, same_as, 3) == first | second << 16 | third << 29
    assert bits.value_digest == b"".join(part_bits.value_digest.ljust(16, b"\0") for part_bits in (first, second))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("secret", "accepts a tuple or a mapping of carrier, origin, delayed, or None, got str"),
        (("secret", "b"), r"must have 3 values \(carrier, origin, delayed\), got 2"),
        ({"secret": "b"}, "keys that are no parts of the metric: use carrier, origin, delayed only"),
        (("a", "b", "secret"), "flight: part delayed: a boolean metric accepts True, False or None, got a str"),
        (["secret"], "accepts a tuple or a mapping"),
    ],
)
def test_invalid_joint_values_are_refused_without_the_value(value: Any, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message) as problem:
        bloom_bits(FLIGHT, value, 0)
    assert "secret" not in str(problem.value)


def test_change_of_one_part_draws_every_part_again() -> None:
    """The carrier stays: its 16 permanent bits are another response, as they are for another carrier. The ledger charges once for both."""
    values = [("UA", "EWR", True), ("UA", "JFK", True), ("UA", "EWR", False), ("DL", "EWR", True), ("UA", "EWR", None)]
    rows = []
    for number in range(50):
        encoder = Encoder(FLIGHT, Secret(bytes([number]) * 32))
        rows.append([encoder._permanent_response(encoder.bloom_bits(value)) for value in values])
    of_carrier = [tuple(row[at] & 0xFFFF for row in rows) for at in range(len(values))]
    assert len(set(of_carrier)) == 4
    assert of_carrier[2] == of_carrier[4]  # of a boolean, False is "no value"


def test_values_with_equal_bits_have_responses_and_tags_of_their_own() -> None:
    """The origin has an asymmetric response: among 40 strings on 13 bits, equal bits do not mean an equal response or tag."""
    secret = Secret(bytes(32))
    encoder, sealer = Encoder(FLIGHT, secret), Sealer(FLIGHT, secret, system_random_bytes)
    values = [encoder.bloom_bits(("UA", f"v{i}", None)) for i in range(40)]
    assert len(set(values)) <= 13
    assert len({sealer.tag(value) for value in values}) == 40
    assert len({encoder._permanent_response(value) for value in values}) > 13
    for value in (*values, encoder.bloom_bits(None), encoder.bloom_bits(("UA", None, True))):
        opened = sealer.open(sealer.seal(value))
        assert opened == value
        respond = encoder._permanent_response
        assert respond(opened) == respond(value)


def test_encoder_output_has_the_law_of_independent_parts(unseen_seed: int) -> None:
    """8,000 clients with one value: the joint law of a categorical part (2 bits) and a boolean, chi-squared over 8 outputs."""
    parts = (
        Metric.categorical("os", ("a", "b"), UnaryResponse(prob_p=0.3, prob_q=0.8, permanent_p=0.2, permanent_q=0.6)),
        Metric.boolean("paid", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5)),
    )
    metric, random_bytes = Metric.joint("device", parts), SeededBytes(unseen_seed)
    secrets = (Secret.generate(random_bytes) for _ in range(8000))
    seen = Counter(Encoder(metric, secret, random_bytes).encode(("b", True)).to_bytes()[0] for secret in secrets)
    ones = [(parts[0].params.mechanism.p_star, parts[0].params.mechanism.q_star, parts[1].params.mechanism.q_star)][0]
    law = [math.prod(p if report >> i & 1 else 1 - p for i, p in enumerate(ones)) for report in range(8)]
    assert stats.chisquare([seen[report] for report in range(8)], 8000 * np.array(law)).pvalue > ALPHA


def test_clients_record_joint_values_and_charge_each_combination(rig: Rig) -> None:
    client = rig.agreed(FLIGHT)
    for value in (("UA", "EWR", True), {"carrier": "UA", "origin": "EWR", "delayed": True}, ("UA", "JFK", True)):
        client.record("flight", value)
        rig.clock.move(days=1)
    client.record("flight", "UA")
    deliver(client)
    batches = [batch for batch in rig.transport.batches if batch.metric == "flight"]
    assert len(batches) == 4  # the fourth has no value
    assert {len(batch.rows) for batch in batches} == {FLIGHT.row_bytes}
    assert client.accounting().ignored["invalid"] == 1
    assert "flight" in str(client.ledger())
    assert client.inspect(last=1)
    with collaborators(client).journal as state:
        assert [account.units for account in state.accounts.values()] == [3]


def test_reports_split_into_parts() -> None:
    """Every offset of a part in its row: the bits of each part of random joint rows, against unpacked bits."""
    rng = np.random.default_rng(0)
    for first, second in itertools.product((8, 9, 15, 16, 23), (8, 11, 13)):
        parts = tuple(
            Metric.string(name, Params(num_bits=k, num_hashes=1, num_cohorts=4, prob_p=0.2, prob_q=0.8, prob_f=0.5))
            for name, k in (("one", first), ("two", second))
        )
        metric = Metric.joint("both", parts)
        bits = rng.random((50, first + second)) < 0.5
        rows = np.packbits(bits, axis=1, bitorder="little")
        reports = Reports(metric, rng.integers(4, size=50), rows)
        for name, columns in (("one", bits[:, :first]), ("two", bits[:, first:])):
            assert np.array_equal(reports.part(name).rows, np.packbits(columns, axis=1, bitorder="little"))
        for name in ("one", "two"):
            expected = reports.part(name).bit_counts()
            counted = reports.bit_counts().part(name)
            assert np.array_equal(counted.ones, expected.ones)
            assert np.array_equal(counted.reports, expected.reports)


def test_counts_of_a_one_hot_part_have_one_cohort() -> None:
    """A string part of 8 bits in 4 cohorts and a boolean, 9 bits together: patterns and bits give the same counts."""
    string = Metric.string("s", Params(num_bits=8, num_hashes=1, num_cohorts=4, prob_p=0.2, prob_q=0.8, prob_f=0.5))
    metric, rng = Metric.joint("both", (string, DELAYED)), np.random.default_rng(0)
    rows = np.packbits(rng.random((60, 9)) < 0.5, axis=1, bitorder="little")
    reports = Reports(metric, rng.integers(4, size=60), rows)
    for counts in (reports.bit_counts(), reports.pattern_counts()):
        part = counts.part("delayed")
        assert (part.reports.tolist(), part.ones.tolist()) == ([60], [[int(rows[:, 1].sum())]])
        assert counts.part("s").metric.digest == string.digest
    for unknown, message in (("t", "its parts are s, delayed"), ("", "its parts are")):
        with pytest.raises(SummaryError, match=message):
            reports.part(unknown)
    with pytest.raises(SummaryError, match="only a joint metric has parts"):
        reports.part("s").part("s")


def test_commands_show_and_encode_joint_metrics(tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    path.write_text(TOML)
    run = CliRunner().invoke
    shown = run(main, ["metrics", "show", str(path)], catch_exceptions=False)
    assert shown.exit_code == 0
    assert "bits of carrier: k = 32 bits, h = 1 hash, m = 16 cohorts" in shown.output
    assert "epsilon" in shown.output
    assert "value of origin: one of 3 categories: EWR, JFK, LGA" in shown.output
    assert run(main, ["metrics", "check", str(path)]).exit_code == 0
    encoded = run(main, ["encode", str(path), "flight", '{"carrier": "UA", "origin": "JFK"}', "--json"])
    assert encoded.exit_code == 0
    assert len(json.loads(encoded.stdout)[0]["bits"]) == 35
    refused = run(main, ["encode", str(path), "flight", "UA"])
    assert refused.exit_code != 0
    assert "must be a JSON object of its parts" in refused.output


def test_definitions_hold_joint_and_single_versions() -> None:
    definitions = Definitions([CARRIER, FLIGHT])
    assert definitions["flight"].components[0] == definitions["carrier"]
