"""Metric definitions, their file and their digest."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hubbub import DefinitionError, HubbubError, Metric, ParameterError, Params, load_definitions, parse_definitions
from hubbub.mechanisms.unary import UnaryResponse
from tests.support.paths import DATA

FILE = DATA / "metrics.toml"
PARAMS = Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.5)
STRING_TABLE = FILE.read_text().split("[[metric]]")[1]


def test_parses_metrics_by_name() -> None:
    definitions = load_definitions(FILE)
    assert list(definitions) == ["homepage", "os", "dark_mode"]
    assert definitions["homepage"].params == PARAMS
    assert definitions["os"].params == Params.one_hot(4, prob_p=0.25, prob_q=0.75, prob_f=0.5)
    assert definitions["dark_mode"].period == "month"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("prob_f = 0.5", "prob_f = 1", "prob_f must be in [0, 1), got 1: at f = 1 every bit is a fair coin"),
        ("prob_f = 0.5", "prob_f = '1/2'", "prob_f must be a number in [0, 1], got '1/2': write a probability as 0.25"),
        ("prob_f = 0.5\n", "", "prob_f is missing: pass prob_p, prob_q"),
        ("prob_f = 0.5\n", "permanent_p = 0.1\n", "the permanent response has permanent_p = 0.1: it is either"),
        ("prob_f = 0.5", "prob_f = 0.5\npermanent_p = 0.1\npermanent_q = 0.5", "pass prob_f alone, or permanent_p and"),
        (
            "prob_f = 0.5\n",
            "permanent_p = 0\npermanent_q = 0.5\n",
            "permanent_p must be above 0 and permanent_q below 1",
        ),
        (
            "prob_f = 0.5\n",
            "permanent_r = 0.1\npermanent_q = 0.5\n",
            "unknown key 'permanent_r': did you mean permanent_p?",
        ),
        ("num_bits = 128", "num_bits = 4", "num_bits of a string metric must be 8 to 1024, got 4"),
        ("num_bits = 128\n", "", "num_bits is missing: a string metric needs num_bits, num_hashes, num_cohorts"),
        ("num_cohorts = 64", "num_cohorts = 60", "num_cohorts must be a power of two up to 256, got 60"),
        (
            "num_cohorts = 64",
            'num_cohorts = 64\nhash_scheme = "google-md5"',
            "hash_scheme = 'google-md5' is that of google/rappor, and no client here reports it. Import the reports of those clients",
        ),
        ("prob_p = 0.25", "prob_p = 0.9", "prob_p must be below prob_q, got 0.9 and 0.75: exchange them"),
        (
            'kind = "string"',
            'kind = "text"',
            "kind must be one of string, categorical, boolean, ordinal, joint, set, got 'text'",
        ),
        ("expires = 2099-01-01", 'expires = "never"', "expires must be a date such as 2027-01-01, got 'never'"),
        ("expires = 2099-01-01", "expires = 2099-01-01T00:00:00", "expires must be a date"),
        ('owner = "telemetry@example.org"', 'owner = ""', "owner must be a non-empty text"),
        ("num_bits = 128", "num_bits = 128\npurpose = ' '", "homepage: purpose must be a non-empty text"),
        ("num_bits = 128", "num_bits = 128\nreview = ''", "homepage: review must be a non-empty text"),
        (
            "num_bits = 128",
            "num_bits = 128\nreview = 'meeting 12'",
            "review must be an http or https address, got 'meet",
        ),
        ("num_bits = 128", "num_bits = 128\nreview = 'javascript:alert(1)'", "review must be an http or https address"),
        ("num_bits = 128", "num_bits = 128\nreview = 'https://[::1'", "review must be an http or https address"),
        ("num_bits = 128", "num_bits = 128\nreview = 'https:///12'", "review must be an http or https address"),
        ("num_bits = 128", "num_bits = 128\nsalt = 3", "unknown key 'salt': a string metric has"),
        ("num_bits = 128", "num_bit = 128", "unknown key 'num_bit': did you mean num_bits? A string metric has"),
        ('kind = "string"', 'kinds = "string"', "unknown key 'kinds': did you mean kind? A metric has"),
        ("num_bits = 128", "categories = ['a', 'b']", "unknown key 'categories': a string metric has"),
        ('name = "homepage"', 'name = "Home page"', "a metric's name must have at most 64 lower-case letters"),
        ('name = "homepage"\n', "", "a metric without a name: name is missing"),
        ("num_bits = 128", "num_bits = 128\nhold = 0", "hold must be an integer >= 1, got 0"),
        ("num_bits = 128", 'num_bits = 128\nperiod = "year"', "period must be one of day, week, month, got 'year'"),
        ("num_bits = 128", "num_bits = ", "is not TOML"),
        ("[[metric]]", "[[metrics]]", "unknown top-level key 'metrics': metrics are [[metric]] tables"),
    ],
)
def test_rejects_invalid_definitions_with_name_value_and_rule(old: str, new: str, message: str, tmp_path: Path) -> None:
    text = "[[metric]]" + STRING_TABLE
    assert old in text
    path = tmp_path / "metrics.toml"
    path.write_text(text.replace(old, new))
    with pytest.raises(DefinitionError) as caught:
        load_definitions(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "there is no"),
        (b"\xff\xfe\0", "is not UTF-8"),
        (b"PAR1\x15\xff", "is a Parquet file: pass the TOML file that its metric is from"),
        (b"metric = 3", "metric"),
        (b"[metric]\nname='x'", "metric"),
    ],
)
def test_rejects_file_without_metrics(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_bytes(content)
    with pytest.raises(DefinitionError, match=message):
        load_definitions(tmp_path / "m.toml")
    with pytest.raises(DefinitionError, match="cannot be read"):
        load_definitions(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("categories", "other", "message"),
    [
        (("only",), None, "a categorical metric needs 2 to 1024 categories, got 1"),
        (("a", "a", "b"), None, "categories must be distinct, got a more than once"),
        (("a", ""), None, "a category must be a non-empty string"),
        (("a", "b"), "c", "other must be one of the categories, got 'c'"),
    ],
)
def test_rejects_invalid_categories(categories: tuple[str, ...], other: str | None, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        Metric.categorical("os", categories, UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5), other=other)


def test_last_version_is_current_and_all_are_found_by_digest() -> None:
    first = "[[metric]]" + STRING_TABLE
    definitions = parse_definitions(first + first.replace("prob_f = 0.5", "prob_f = 0.25"))
    old, new = definitions.versions()
    assert definitions["homepage"] == new != old
    assert definitions.version("homepage", old.digest) == old
    assert definitions.version("homepage", "0" * 64) is None
    with pytest.raises(DefinitionError, match="two definitions have the same digest"):
        parse_definitions(first + first.replace("The page", "The very page"))


def test_repr_of_definitions_has_the_names() -> None:
    assert repr(load_definitions(DATA / "metrics.toml")) == "<Definitions of 3 metrics: homepage, os, dark_mode>"


def asymmetric(permanent_p: float, permanent_q: float) -> Params:
    return replace(
        PARAMS,
        mechanism=UnaryResponse(
            prob_p=PARAMS.mechanism.prob_p,
            prob_q=PARAMS.mechanism.prob_q,
            permanent_p=permanent_p,
            permanent_q=permanent_q,
        ),
    )


DIFFERENT: list[dict[str, Any]] = [
    {"name": "other"},
    {"params": Params(num_bits=64, num_hashes=2, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.5)},
    {"params": Params(num_bits=128, num_hashes=1, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.5)},
    {"params": Params(num_bits=128, num_hashes=2, num_cohorts=32, prob_p=0.25, prob_q=0.75, prob_f=0.5)},
    {"params": Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.26, prob_q=0.75, prob_f=0.5)},
    {"params": Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.25, prob_q=0.76, prob_f=0.5)},
    {"params": Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.4)},
    {"params": asymmetric(0.1, 0.5)},
    {"params": asymmetric(0.1, 0.6)},
    {"params": asymmetric(0.2, 0.5)},
    {"period": "week"},
    {"hold": 7},
]


def test_digest_covers_every_field_of_the_encoding() -> None:
    base: dict[str, Any] = {"name": "homepage", "params": PARAMS}
    digests = {Metric.string(**{**base, **change}).digest for change in DIFFERENT}
    md5 = Params(
        num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.5, hash_scheme="google-md5"
    )
    digests.add(Metric.string("homepage", md5).digest)
    digests.add(Metric.string("homepage", PARAMS).digest)
    assert len(digests) == len(DIFFERENT) + 2


def test_symmetric_pair_of_a_definition_has_the_digest_of_prob_f() -> None:
    assert Metric.string("homepage", asymmetric(0.25, 0.75)).digest == Metric.string("homepage", PARAMS).digest
    pair = STRING_TABLE.replace("prob_f = 0.5", "permanent_p = 0.25\npermanent_q = 0.75")
    (parsed,) = parse_definitions("[[metric]]" + pair).versions()
    assert parsed == load_definitions(FILE)["homepage"]


def test_parses_asymmetric_responses() -> None:
    pair = "permanent_p = 0.0625\npermanent_q = 0.5"
    text = FILE.read_text().split("[[metric]]")
    definitions = parse_definitions(
        "[[metric]]".join([*text[:1], *(table.replace("prob_f = 0.5", pair) for table in text[1:3])])
    )
    assert definitions["homepage"].params == asymmetric(0.0625, 0.5)
    assert definitions["os"].params == Params.one_hot(4, prob_p=0.25, prob_q=0.75, permanent_p=0.0625, permanent_q=0.5)
    boolean = "[[metric]]" + text[3].replace("prob_f = 0.5", pair)
    assert pair in boolean
    with pytest.raises(DefinitionError, match="dark_mode: permanent_p and permanent_q of one bit must add up to 1"):
        parse_definitions(boolean)


def test_digest_is_pinned_and_ignores_documentation_fields() -> None:
    metric = load_definitions(FILE)["homepage"]
    assert metric.digest == "4630902792b42ff032bd7fb26e1ff3466fa1103fee056433bbccf24aec7e6a78"
    assert Metric.string("homepage", PARAMS, owner="somebody else").digest == metric.digest


def test_definition_round_trips_through_json_and_changes_are_detected() -> None:
    metrics = [*load_definitions(FILE).versions(), Metric.string("asymmetric", asymmetric(0.1, 0.5))]
    for metric in metrics:
        fields = json.loads(json.dumps(metric.to_dict()))
        assert Metric.from_dict(fields) == metric
        with pytest.raises(HubbubError):
            Metric.from_dict({**fields, "prob_p": 0.125})
        for field in fields:
            with pytest.raises(HubbubError):
                Metric.from_dict({key: value for key, value in fields.items() if key != field})


def test_purpose_and_review_round_trip_and_leave_the_digest_alone() -> None:
    plain = load_definitions(FILE)["homepage"]
    reviewed = replace(plain, purpose="Choose start pages", review="https://example.org/reviews/12")
    added = {"purpose": "Choose start pages", "review": "https://example.org/reviews/12"}
    assert reviewed.to_dict() == plain.to_dict() | added
    assert not added.keys() & plain.to_dict().keys()
    assert reviewed.digest == plain.digest
    assert Metric.from_dict(json.loads(json.dumps(reviewed.to_dict()))) == reviewed
    with pytest.raises(DefinitionError, match="homepage: review must be an http or https address, got 'javascript:"):
        Metric.from_dict(plain.to_dict() | {"review": "javascript:alert(1)"})


def test_rejects_definitions_that_are_not_text() -> None:
    number: Any = 5
    with pytest.raises(DefinitionError, match="definitions must be TOML text, got int"):
        parse_definitions(number)


@pytest.mark.parametrize("wrong", ["unary", 0.25, None, {"prob_p": 0.25}])
def test_what_is_no_mechanism_is_refused(wrong: Any) -> None:
    definitions: list[Callable[[], Metric]] = [
        lambda: Metric.boolean("dark", wrong),
        lambda: Metric.categorical("os", ("linux", "macos"), wrong),
        lambda: Metric.ordinal("delay", (0, 10, 20), wrong),
        lambda: Metric.set("plugins", ("vim", "preview"), wrong),
    ]
    for define in definitions:
        with pytest.raises(ParameterError, match=r"mechanism must be a Mechanism, got .*: pass UnaryResponse\("):
            define()
