"""Encoder: the noise of every bit of every cohort, and permanent responses."""

from __future__ import annotations

import itertools
import json
import logging
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from hubbub import Encoder, InvalidValueError, Metric, Params, PeriodKind, Secret, UnaryResponse
from hubbub.encoding.bloom import bloom_bits
from hubbub.encoding.responses import InstantaneousResponse, PermanentResponse
from hubbub.errors import DefinitionError, HubbubError, ParameterError
from hubbub.metrics.kinds import BloomBits, Value
from hubbub.randomness import system_random_bytes
from hubbub.testing import SeededBytes
from tests.support.paths import DATA

ALPHA = 1e-6

STRING = Metric.string(
    "homepage", Params(num_bits=13, num_hashes=2, num_cohorts=4, prob_p=0.25, prob_q=0.75, prob_f=0.5)
)
ODD = Metric.string("odd", Params(num_bits=24, num_hashes=3, num_cohorts=2, prob_p=0.39, prob_q=0.61, prob_f=0.2))
CATEGORICAL = Metric.categorical(
    "os", ("linux", "macos", "other"), UnaryResponse(prob_p=0.2, prob_q=0.9, prob_f=0.25), other="other"
)
ASYMMETRIC = Metric.string(
    "asymmetric",
    Params(num_bits=13, num_hashes=2, num_cohorts=4, prob_p=0.25, prob_q=0.75, permanent_p=0.07, permanent_q=0.5),
)
UNEVEN = Metric.categorical(
    "uneven", ("a", "b", "c"), UnaryResponse(prob_p=0.1, prob_q=0.6, permanent_p=0.3, permanent_q=0.9)
)
BOOLEAN = Metric.boolean("from_jfk", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5))
SHAPES: list[tuple[Metric, Value]] = [
    (STRING, "https://example.org/"),
    (STRING, None),
    (ODD, "ünïcode"),
    (CATEGORICAL, "macos"),
    (ASYMMETRIC, "https://example.org/"),
    (ASYMMETRIC, None),
    (UNEVEN, "b"),
    (BOOLEAN, True),
    (BOOLEAN, False),
]

Rows = NDArray[np.bool_]


def rates_p_value(rows: Rows, cohorts: NDArray[np.int64], expected: NDArray[np.float64]) -> float:
    """Return the Bonferroni p-value of the worst cell: exact binomial, every cohort x every bit."""
    worst, cells = 1.0, expected.size
    for cohort, chances in enumerate(expected):
        here = rows[cohorts == cohort]
        for ones, chance in zip(here.sum(axis=0).tolist(), chances.tolist(), strict=True):
            worst = min(worst, stats.binomtest(ones, len(here), chance).pvalue)
    return min(1.0, worst * cells)


def unpacked(bits: int, num_bits: int) -> list[bool]:
    return [bool(bits >> i & 1) for i in range(num_bits)]


def true_bits(metric: Metric, value: Value) -> NDArray[np.bool_]:
    params = metric.params
    return np.array(
        [unpacked(bloom_bits(metric, value, cohort), params.num_bits) for cohort in range(params.num_cohorts)]
    )


@pytest.mark.parametrize(("metric", "value"), SHAPES)
def test_reported_bits_have_rates_p_star_and_q_star_in_every_cohort(
    metric: Metric, value: Value, unseen_seed: int
) -> None:
    """2,000 new clients per cohort. alpha = 1e-6; a bit without its PRR or IRR is off by > 9 sigma."""
    random_bytes = SeededBytes(unseen_seed)
    rows, cohorts = [], []
    for _ in range(2000 * metric.num_cohorts):
        report = Encoder(metric, Secret.generate(random_bytes), random_bytes).encode(value)
        rows.append(report.bits.tolist())
        cohorts.append(report.cohort)
    expected = np.where(true_bits(metric, value), metric.params.mechanism.q_star, metric.params.mechanism.p_star)
    assert rates_p_value(np.array(rows, bool), np.array(cohorts), expected) > ALPHA


@pytest.mark.slow
def test_rates_check_detects_one_bit_without_noise(unseen_seed: int) -> None:
    """The p-value of the check falls below alpha for each single bit of each stage.

    A bit has its noise from no other bit, so one set of reports has all cases: only one bit is exchanged for that of another stage.
    """
    random_bytes = SeededBytes(unseen_seed)
    cohorts, stages = [], []
    instantaneous = InstantaneousResponse(STRING.params.blocks, random_bytes)
    for _ in range(1500 * STRING.params.num_cohorts):
        secret = Secret.generate(random_bytes)
        cohort = secret.cohort(STRING.params.num_cohorts)
        bloom = bloom_bits(STRING, "https://example.org/", cohort)
        permanent = PermanentResponse(STRING, secret)(bloom)
        cohorts.append(cohort)
        stages.append(
            [unpacked(bits, 13) for bits in (instantaneous(permanent), bloom, permanent, instantaneous(bloom))]
        )
    expected = np.where(
        true_bits(STRING, "https://example.org/"), STRING.params.mechanism.q_star, STRING.params.mechanism.p_star
    )
    reported, *without = np.array(stages, bool).swapaxes(0, 1)
    assert rates_p_value(reported, np.array(cohorts), expected) > ALPHA
    for left_out, stage in zip(("both", "irr", "prr"), without, strict=True):
        for bit in range(13):
            broken = reported.copy()
            broken[:, bit] = stage[:, bit]
            assert rates_p_value(broken, np.array(cohorts), expected) < ALPHA, (left_out, bit)


@pytest.mark.parametrize("metric", [STRING, ODD, CATEGORICAL, BOOLEAN, ASYMMETRIC, UNEVEN])
def test_permanent_bits_are_one_with_their_probabilities_at_every_position(metric: Metric, unseen_seed: int) -> None:
    """PRR alone, over 10,000 secrets, for Bloom bits all zero and all one. alpha = 1e-6."""
    random_bytes = SeededBytes(unseen_seed)
    k = metric.num_bits
    for bloom, chance in (
        (0, metric.params.mechanism.permanent_p),
        ((1 << k) - 1, metric.params.mechanism.permanent_q),
    ):
        rows = np.array(
            [
                unpacked(PermanentResponse(metric, Secret.generate(random_bytes))(BloomBits(bloom)), k)
                for _ in range(10_000)
            ]
        )
        expected = np.full((1, k), chance)
        assert rates_p_value(rows, np.zeros(len(rows), int), expected) > ALPHA / 2


@pytest.mark.parametrize("metric", [STRING, ODD, CATEGORICAL, BOOLEAN])
def test_instantaneous_bits_are_one_with_probability_p_or_q_at_every_position(metric: Metric, unseen_seed: int) -> None:
    """IRR alone, 10,000 reports of permanent bits all zero, all one and alternating. alpha = 1e-6."""
    k = metric.num_bits
    respond = InstantaneousResponse(metric.params.blocks, SeededBytes(unseen_seed))
    for prr in (0, (1 << k) - 1, 0x5555_5555 & ((1 << k) - 1)):
        rows = np.array([unpacked(respond(prr), k) for _ in range(10_000)])
        expected = np.where([unpacked(prr, k)], metric.params.mechanism.prob_q, metric.params.mechanism.prob_p)
        assert rates_p_value(rows, np.zeros(len(rows), int), expected) > ALPHA / 3


@pytest.mark.parametrize("stage", ["prr", "asymmetric prr", "irr"])
def test_noise_of_bits_is_pairwise_independent(stage: str, unseen_seed: int) -> None:
    """All pairs of the 13 bits, 2 x 2 tables of 20,000 draws, Bonferroni at alpha = 1e-6."""
    random_bytes = SeededBytes(unseen_seed)
    respond = InstantaneousResponse(STRING.params.blocks, random_bytes)
    draw: Callable[[], int] = {
        "prr": lambda: PermanentResponse(STRING, Secret.generate(random_bytes))(BloomBits(0)),
        "asymmetric prr": lambda: PermanentResponse(ASYMMETRIC, Secret.generate(random_bytes))(BloomBits(0b1010101)),
        "irr": lambda: respond(0),
    }[stage]
    rows = np.array([unpacked(draw(), 13) for _ in range(20_000)], int)
    pairs = [(i, j) for i in range(13) for j in range(i)]
    for i, j in pairs:
        table = np.bincount(rows[:, i] * 2 + rows[:, j], minlength=4).reshape(2, 2)
        assert stats.chi2_contingency(table).pvalue > ALPHA / len(pairs), (i, j)


def test_permanent_response_of_a_value_never_changes() -> None:
    """Another encoder with the same secret returns the same bits, so averaging does not remove the noise."""
    secret = Secret(bytes(range(32)))
    again = Secret(bytes(range(32)))
    responses = {
        PermanentResponse(STRING, equal_secret)(BloomBits(0b101)) for equal_secret in (secret, again) for _ in range(50)
    }
    assert len(responses) == 1


@pytest.mark.parametrize(
    "responses",
    [
        ({"prob_f": 0.98}, {"prob_f": 0.97}),
        (
            {"permanent_p": 0.49, "permanent_q": 0.52},
            {"permanent_p": 0.48, "permanent_q": 0.52},
            {"permanent_p": 0.49, "permanent_q": 0.53},
            {"permanent_p": 0.49, "permanent_q": 0.51},  # symmetric
        ),
    ],
    ids=["symmetric", "asymmetric"],
)
def test_permanent_noise_differs_by_value_metric_version_epoch_and_client(
    responses: tuple[dict[str, Any], ...],
) -> None:
    """Noise of 128 bits coincides with probability below 2**-60."""

    def noise(
        true: int = 0b11,
        name: str = "a",
        num_hashes: int = 2,
        hold: int | None = None,
        epoch: int | None = None,
        secret: int = 0,
        response: dict[str, Any] = responses[0],
    ) -> int:
        params = Params(num_bits=128, num_hashes=num_hashes, num_cohorts=1, prob_p=0.25, prob_q=0.75, **response)
        respond = PermanentResponse(Metric.string(name, params, hold=hold), Secret(bytes([secret] * 32)))
        return respond(BloomBits(true), epoch) ^ true

    noises = [
        noise(true=0b101),
        noise(secret=1),
        noise(name="b"),
        noise(num_hashes=3),
        *(noise(response=response) for response in responses),
        noise(hold=7, epoch=0),
        noise(hold=7, epoch=1),
    ]
    assert len(set(noises)) == len(noises)
    assert {noise() for _ in range(20)} == {noise()}


def test_encoder_rejects_permanent_noise_without_a_finite_epsilon() -> None:
    shape: dict[str, Any] = {"num_bits": 16, "num_hashes": 1, "num_cohorts": 4, "prob_p": 0.2, "prob_q": 0.8}
    for b, a in ((0.0, 0.5), (0.5, 1.0)):
        one_sided = Metric.string("m", Params(**shape, permanent_p=b, permanent_q=a))
        with pytest.raises(
            DefinitionError, match=rf"permanent_p must be above 0 and permanent_q below 1, got {b:g} and {a:g}"
        ):
            Encoder(one_sided, Secret.generate())
    Encoder(Metric.string("m", Params(**shape, permanent_p=0, permanent_q=1)), Secret.generate())


def test_permanent_response_depends_on_the_digest_and_on_no_field_outside_it() -> None:
    """The ledger has one account for each digest. A new expiry date or description does not cost a second permanent response."""
    shape: dict[str, Any] = {"num_bits": 64, "num_hashes": 2, "num_cohorts": 64, "prob_p": 0.25, "prob_q": 0.75}
    plain, secret = Metric.string("a", Params(**shape, prob_f=0.5)), Secret(bytes(32))
    same = replace(plain, description="new", owner="team", purpose="p", expires=date(2030, 1, 1))
    others = [
        replace(plain, period=PeriodKind.WEEK),
        *(
            Metric.string("a", Params(**shape | change, prob_f=0.5))
            for change in ({"prob_p": 0.2}, {"prob_q": 0.8}, {"num_cohorts": 16}, {"num_hashes": 1})
        ),
    ]
    responses = [PermanentResponse(metric, secret)(BloomBits(0b11)) for metric in (plain, same, *others)]
    assert responses[0] == responses[1]
    assert len(set(responses)) == 1 + len(others)


def test_boolean_metric_equals_the_two_coin_survey() -> None:
    """f = .5, p = 0, q = 1: the report is the permanent response itself, the truth with probability 3/4."""
    survey = Metric.boolean("smokes", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
    for number in range(100):
        encoder = Encoder(survey, Secret.generate(SeededBytes(number)))
        assert len({encoder.encode(True).bits.tobytes() for _ in range(20)}) == 1


def test_encoder_matches_its_golden_vectors() -> None:
    """Cohort, Bloom bits, PRR and report bytes are pinned, for other clients too."""
    vectors = json.loads((DATA / "encoder_vectors.json").read_text())["vectors"]
    assert len(vectors) >= 20
    for vector in vectors:
        metric = Metric.from_dict(vector["metric"])
        secret = Secret(bytes.fromhex(vector["secret"]))
        cohort = secret.cohort(metric.num_cohorts)
        bloom = bloom_bits(metric, vector["value"], cohort)
        width = metric.row_bytes
        assert cohort == vector["cohort"]
        assert bloom.to_bytes(width, "little").hex() == vector["bloom"]
        prr = PermanentResponse(metric, secret)(bloom, vector["epoch"])
        assert prr.to_bytes(width, "little").hex() == vector["prr"]
        encoder = Encoder(metric, secret, _scripted(bytes.fromhex(vector["coins"])))
        assert encoder.encode(vector["value"], vector["epoch"]).to_bytes().hex() == vector["irr"]


def _scripted(drawn: bytes) -> Callable[[int], bytes]:
    left = bytearray(drawn)

    def random_bytes(num_bytes: int) -> bytes:
        taken = bytes(left[:num_bytes])
        del left[:num_bytes]
        return taken.ljust(num_bytes, b"\0")

    return random_bytes


@pytest.mark.parametrize(
    ("metric", "value", "message"),
    [
        (STRING, 7, "homepage: a string metric accepts a str or None, got an int"),
        (STRING, b"canary", "got a bytes"),
        (STRING, "canary \ud800", "cannot be encoded as UTF-8"),
        (BOOLEAN, "canary", "accepts True, False or None, got a str"),
        (BOOLEAN, 1, "got an int"),
        (
            Metric.categorical("os", ("a", "b"), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5)),
            "canary",
            "none of the 2 categories",
        ),
    ],
)
def test_rejects_invalid_value_without_repeating_it(metric: Metric, value: Value, message: str) -> None:
    """The value is neither in the message nor in the chained exceptions."""
    with pytest.raises(InvalidValueError) as caught:
        Encoder(metric, Secret.generate()).encode(value)
    assert message in str(caught.value)
    shown = "".join(traceback.format_exception_only(caught.value))
    assert "canary" not in shown
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)  # not only hidden: crash reporters look


def test_no_value_has_no_bits_and_unknown_category_is_other() -> None:
    assert bloom_bits(STRING, None, 0) == bloom_bits(CATEGORICAL, None, 0) == bloom_bits(BOOLEAN, None, 0) == 0
    assert bloom_bits(BOOLEAN, False, 0) == 0
    assert bloom_bits(CATEGORICAL, "solaris", 0) == bloom_bits(CATEGORICAL, "other", 0) == 0b100


def test_requires_epoch_with_hold_and_rejects_it_without() -> None:
    held = Metric.boolean("held", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5), hold=7)
    with pytest.raises(InvalidValueError, match="epoch is missing"):
        Encoder(held, Secret.generate()).encode(True)
    with pytest.raises(InvalidValueError, match="omit epoch"):
        Encoder(BOOLEAN, Secret.generate()).encode(True, epoch=3)


def test_encoder_rejects_parameters_of_imported_reports() -> None:
    flipped = Params(num_bits=16, num_hashes=2, num_cohorts=4, prob_p=0.65, prob_q=0.35, prob_f=0)
    with pytest.raises(DefinitionError, match=r"prob_p must be below prob_q, got 0\.65 and 0\.35"):
        Encoder(Metric.string("mozilla", flipped), Secret.generate())
    hundred = Params(num_bits=16, num_hashes=2, num_cohorts=100, prob_p=0.35, prob_q=0.65, prob_f=0)
    with pytest.raises(DefinitionError, match="num_cohorts must be a power of two up to 256, got 100"):
        Encoder(Metric.string("mozilla", hundred), Secret.generate())
    google = Metric.string(
        "google",
        Params(num_bits=16, num_hashes=2, num_cohorts=4, prob_p=0, prob_q=1, prob_f=0, hash_scheme="google-md5"),
    )
    with pytest.raises(DefinitionError, match="google: hash_scheme = 'google-md5' is that of google/rappor"):
        Encoder(google, Secret.generate())
    with pytest.raises(DefinitionError, match="string: hash_scheme = 'google-md5' is that of google/rappor"):
        bloom_bits(google, "v1", 0)


def test_encoding_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        Encoder(STRING, Secret.generate(), system_random_bytes).encode("canary")
    assert caplog.text == ""


@pytest.mark.parametrize("given", [0, 3, 1_000])
def test_rejects_random_bytes_of_another_length(given: int) -> None:
    """Missing words would be zeros, which are bits without noise."""
    with pytest.raises(HubbubError, match=f"returned {given} bytes"):
        InstantaneousResponse(STRING.params.blocks, lambda _: bytes(given))(0)


def test_encoder_rejects_a_metric_name_and_a_bare_key_without_showing_it() -> None:
    metric = Metric.boolean("yes", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5))
    name: Any = "homepage"
    key: Any = b"s3cret" * 6
    with pytest.raises(ParameterError, match="metric must be a Metric, got str"):
        Encoder(name, Secret.generate())
    with pytest.raises(ParameterError, match="secret must be a Secret, got bytes") as error:
        Encoder(metric, key)
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize("response", [{"prob_f": 0.5}, {"permanent_p": 0.2, "permanent_q": 0.6}])
def test_values_with_equal_bits_have_responses_of_their_own(response: dict[str, float]) -> None:
    """A value repeats its response, and no other value has it: the ledger counts values, not Bloom bits."""
    params = Params(num_bits=64, num_hashes=1, num_cohorts=1, prob_p=0, prob_q=1, **response)  # type: ignore[arg-type]
    encoder = Encoder(Metric.string("pages", params), Secret(bytes(32)))
    names = (f"v{i}" for i in itertools.count())
    equal = list(itertools.islice((name for name in names if encoder.bloom_bits(name) == 1), 5))
    reports = [encoder.encode(name).bits for name in equal]
    assert len(set(reports)) == 5
    assert [encoder.encode(encoder.bloom_bits(name)).bits for name in equal] == reports
