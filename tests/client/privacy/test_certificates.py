"""Certificates, against their checker, an enumeration in fractions, the ledger's figures, and changes that make them false."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from decimal import Decimal
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

from docs.reference import certificate_checker as checker
from hubbub import Buckets, DefinitionError, Discovery, Estimand, Metric, ParameterError, Params, Policy, UnaryResponse
from hubbub.mechanisms.mechanism import Mechanism
from hubbub.mechanisms.privset import PrivSet
from hubbub.mechanisms.subset import SubsetSelection
from hubbub.metrics.group import Group
from hubbub.privacy import Observer, Unit, epsilon, guarantees
from hubbub.privacy.certificates import MAX_REPORTS, certificate
from hubbub.privacy.pricing import shown_epsilon
from tests.support.paths import DOCS

CHECKER = DOCS / "reference" / "certificate_checker.py"
N = 1 << 24
VERSION = Group("version", ("1.x", "2.x", "other"))


def written(metric: Metric, policy: Policy | None = None, num_reports: int | None = None) -> dict[str, Any]:
    """Return a certificate as a reader of its file has it."""
    document: dict[str, Any] = json.loads(json.dumps(certificate(metric, policy or Policy(), num_reports=num_reports)))
    return document


def unary(chance: random.Random, *, is_noiseless: bool, one_bit: bool = False) -> UnaryResponse:
    p, q = sorted(chance.sample([chance.randrange(1, N), chance.randrange(1, N), N // 4, N * 3 // 4], 2))
    if not is_noiseless and chance.random() < 0.2:
        p, q = chance.choice([(0, q), (p, N), (0, N)])
    if p == q:
        q += 1
    response: dict[str, Any] = {
        "prob_f": 0.0 if is_noiseless else chance.choice([0.5, chance.randrange(1, N // 2) / (N // 2)])
    }
    if not (is_noiseless or one_bit) and chance.random() < 0.5:
        b, a = sorted(chance.sample(range(1, N), 2))
        response = {"permanent_p": b / N, "permanent_q": a / N}
    return UnaryResponse(prob_p=p / N, prob_q=q / N, **response)


def rows(chance: random.Random, num_values: int, *, is_noiseless: bool) -> SubsetSelection:
    w = chance.randint(1, num_values // 2)
    q = chance.randrange(w * N // num_values + 1, N)
    a = N if is_noiseless else chance.randrange(N // num_values + 1, N)
    return SubsetSelection(num_values=num_values, num_ones=w, prob_q=q / N, permanent_q=a / N)


def sets(chance: random.Random, num_values: int, max_items: int) -> PrivSet:
    w = chance.randint(1, num_values // 2)
    missing = math.comb(num_values - max_items, w)
    touching = math.comb(num_values, w) - missing
    hit = chance.randrange(N * touching // (touching + missing) + 1, N)
    return PrivSet(num_values=num_values, max_items=max_items, num_ones=w, prob_hit=hit / N)


def any_rows(chance: random.Random, num_values: int, *, is_noiseless: bool) -> Mechanism:
    if chance.random() < 0.5:
        return rows(chance, num_values, is_noiseless=is_noiseless)
    return unary(chance, is_noiseless=is_noiseless)


def string(chance: random.Random, *, is_noiseless: bool, num_cohorts: int = 8) -> Params:
    k = chance.randint(8, 64)
    h = chance.choice([1, 2, 4, k - 1])
    return Params(num_bits=k, num_hashes=h, num_cohorts=num_cohorts, mechanism=unary(chance, is_noiseless=is_noiseless))


def random_part(chance: random.Random, name: str, *, is_noiseless: bool) -> Metric:
    match chance.choice(["string", "categorical", "boolean"]):
        case "string":
            return Metric.string(name, string(chance, is_noiseless=is_noiseless))
        case "categorical":
            labels = tuple(f"é{i}" for i in range(chance.randint(2, 9)))
            return Metric.categorical(name, labels, any_rows(chance, len(labels) + 1, is_noiseless=is_noiseless))
        case _:
            return Metric.boolean(name, unary(chance, is_noiseless=is_noiseless, one_bit=True))


KINDS = ("string", "discover", "categorical", "boolean", "ordinal", "mean", "set", "whole set", "hashed set", "joint")


def random_metric(chance: random.Random, kind: str) -> Metric:
    """Return a metric that clients report, with any noise, hold and lifetime epsilon."""
    more: dict[str, Any] = {"hold": chance.choice([None, None, 1, 7, chance.randint(1, 40)])}
    more["period"] = chance.choice(["day", "week", "month"])
    quiet = chance.random() < 0.25
    bit = unary(chance, is_noiseless=quiet, one_bit=True)
    match kind:
        case "string":
            metric = Metric.string("m", string(chance, is_noiseless=quiet), **more)
        case "discover":
            params = string(chance, is_noiseless=quiet, num_cohorts=256)
            metric = Metric.string("m", params, discover=Discovery(longest=6), **more)
        case "categorical":
            labels = tuple(f"c{i}" for i in range(chance.randint(2, 12)))
            more["group"] = chance.choice([None, VERSION])
            metric = Metric.categorical("m", labels, any_rows(chance, len(labels) + 1, is_noiseless=quiet), **more)
        case "boolean":
            metric = Metric.boolean("m", bit, **more)
        case "ordinal":
            edges = tuple(range(chance.randint(3, 12)))
            default = chance.choice([None, 1])
            size = len(edges) - 1 + (default is None)
            metric = Metric.ordinal(
                "m", Buckets(edges, default=default), any_rows(chance, size, is_noiseless=quiet), **more
            )
        case "mean":
            metric = Metric.ordinal("m", Buckets((0, 8), default=0, estimate=Estimand.MEAN), bit, **more)
        case "set":
            metric = Metric.set("m", [f"i{i}" for i in range(chance.randint(2, 9))], bit, **more)
        case "whole set":
            items, most = chance.randint(4, 40), chance.randint(1, 4)
            metric = Metric.set("m", [f"i{i}" for i in range(items)], sets(chance, items + most, most), **more)
        case "hashed set":
            rows_of_hashes = sets(chance, chance.randint(8, 1024), chance.randint(1, 4))
            metric = Metric.set("m", None, rows_of_hashes, num_cohorts=2 ** chance.randint(0, 8), **more)
        case _:
            parts = [random_part(chance, f"p{i}", is_noiseless=quiet) for i in range(chance.randint(2, 3))]
            metric = Metric.joint("m", parts, **more)
    price = epsilon(metric, metric.reports_per_unit)
    if math.isfinite(price) and chance.random() < 0.3:
        metric = replace(metric, lifetime_epsilon=price * chance.uniform(1.001, 6))
    return metric.require_collectable()


def random_policy(chance: random.Random) -> Policy:
    if chance.random() < 0.3:
        return Policy()
    limits = {field.name: chance.choice([chance.uniform(0.5, 90), 20, math.inf]) for field in fields(Policy)}
    return Policy(**limits)


def check_figures(metric: Metric, policy: Policy, document: dict[str, Any]) -> None:
    """The figures of the ledger, rounded up as every surface prints them, are those of the certificate, rounded up."""
    stated = {(of["unit"], of["num_reports"]): of for of in document["statements"]}
    several = stated["report", document["num_reports"]]
    assert float(several["epsilon"]) == pytest.approx(epsilon(metric, document["num_reports"]), rel=1e-9)
    unit_reports = "inf" if math.isinf(metric.reports_per_unit) else metric.reports_per_unit
    for of in guarantees(metric, policy):
        if of.observer is not Observer.OPERATOR:
            continue
        found = stated[of.unit, 1 if of.unit is Unit.REPORT else unit_reports]
        assert found["num_units"] == ("inf" if math.isinf(of.num_units) else of.num_units)
        if of.unit is not Unit.REPORT or document["num_reports"] > 1:
            assert found["condition"] == of.condition.name
        if math.isinf(of.epsilon):
            assert (found["epsilon"], found["factors"]) == ("inf", [])
            continue
        exact = Decimal(found["epsilon"])
        assert float(exact) == pytest.approx(of.epsilon, rel=1e-9)
        rounded_up = {shown_epsilon(float(exact)), shown_epsilon(float(exact) + 1e-9)}
        assert shown_epsilon(of.epsilon) in rounded_up


@pytest.mark.parametrize("number", [90, pytest.param(1000, marks=pytest.mark.slow)])
def test_checker_proves_the_certificates_of_random_definitions(number: int, unseen_seed: int) -> None:
    chance = random.Random(unseen_seed)  # noqa: S311
    bounded = 0
    for at in range(number):
        metric, policy = random_metric(chance, KINDS[at % len(KINDS)]), random_policy(chance)
        num_reports = chance.choice([None, 1, chance.randint(1, metric.hold or 40)])
        document = written(metric, policy, num_reports)
        assert checker.check(document) == document["statements"], (metric, policy)
        check_figures(metric, policy, document)
        bounded += document["statements"][-1]["epsilon"] != "inf"
    assert bounded > number / 4


# --- enumeration in fractions, from the integers of the canonical bytes --------------------------------------------


def mixed(weights: tuple[Fraction, ...], laws: list[list[Fraction]]) -> list[Fraction]:
    return [sum((w * law[at] for w, law in zip(weights, laws, strict=True)), Fraction(0)) for at in range(len(laws[0]))]


def of_reports(once: list[Fraction], reports: int) -> list[Fraction]:
    return [math.prod(factors, start=Fraction(1)) for factors in product(once, repeat=reports)]


def enumerated_laws(part: dict[str, Any], reports: int) -> list[list[Fraction]]:
    """Return P(all reports | value) of each value, over every sequence of reports and every permanent response."""
    if part.get("mechanism") == "subset":
        d, w, q, a = part["num_bits"], part["w"], Fraction(part["q"], N), Fraction(part["permanent_q"], N)
        subsets = list(combinations(range(d), w))
        given = [
            of_reports(
                [q / math.comb(d - 1, w - 1) if v in row else (1 - q) / math.comb(d - 1, w) for row in subsets], reports
            )
            for v in range(d)
        ]
        return [mixed(tuple(a if v == x else (1 - a) / (d - 1) for v in range(d)), given) for x in range(d)]
    if part.get("mechanism") == "privset":
        return enumerated_sets(part, reports)
    k, h, p, q = part["num_bits"], part["num_hashes"], Fraction(part["p"], N), Fraction(part["q"], N)
    b = Fraction(part["f"], N) if "f" in part else Fraction(part["permanent_p"], N)
    a = 1 - b if "f" in part else Fraction(part["permanent_q"], N)
    given = [of_reports([1 - chance, chance], reports) for chance in (p, q)]
    bits = [mixed((1 - chance, chance), given) for chance in (b, a)]
    filters = [set(positions) for size in (0, h) for positions in combinations(range(k), size)]
    return [of_bits([bits[i in ones] for i in range(k)]) for ones in filters]


def enumerated_sets(part: dict[str, Any], reports: int) -> list[list[Fraction]]:
    """Return P(all reports | items) of each set of items, of any size: over every choice of m of them, or of blanks to fill the set."""
    k, m, w, hit = part["num_bits"], part["max_items"], part["w"], Fraction(part["hit"], N)
    items, blanks = range(k - m), range(k - m, k)
    subsets = [set(row) for row in combinations(range(k), w)]

    def given(true_set: set[int]) -> list[Fraction]:
        touching = sum(bool(row & true_set) for row in subsets)
        once = [hit / touching if row & true_set else (1 - hit) / (len(subsets) - touching) for row in subsets]
        return of_reports(once, reports)

    laws = []
    for size in range(len(items) + 1):
        for own in combinations(items, size):
            fills = [own + fill for fill in combinations(blanks, m - size)] if size <= m else combinations(own, m)
            of_fills = [given(set(true_set)) for true_set in fills]
            laws.append(mixed((Fraction(1, len(of_fills)),) * len(of_fills), of_fills))
    return laws


def of_bits(laws: list[list[Fraction]]) -> list[Fraction]:
    return [math.prod(factors, start=Fraction(1)) for factors in product(*laws)]


def largest_ratio(laws: list[list[Fraction]]) -> Fraction | None:
    """Return the largest ratio of two values' probabilities of any output; None: it is infinite."""
    columns = list(zip(*laws, strict=True))
    if any(max(column) > 0 == min(column) for column in columns):
        return None
    return max((max(column) / min(column) for column in columns if max(column) > 0), default=None)


def small_metrics(chance: random.Random) -> Iterator[tuple[Metric, int]]:
    """Yield metrics with few outputs, and a number of reports."""
    for quiet in (False, True):
        for k, h in ((8, 1), (8, 5), (8, 7)):
            params = Params(num_bits=k, num_hashes=h, num_cohorts=1, mechanism=unary(chance, is_noiseless=quiet))
            yield Metric.string("m", params), 1
        for t in (1, 2, 5):
            yield Metric.boolean("m", unary(chance, is_noiseless=quiet, one_bit=True)), t
            yield Metric.categorical("m", ("a", "b"), unary(chance, is_noiseless=quiet)), min(t, 4)
            yield Metric.categorical("m", ("a", "b"), rows(chance, 3, is_noiseless=quiet)), t
            yield Metric.categorical("m", ("a", "b", "c"), rows(chance, 4, is_noiseless=quiet)), min(t, 4)
    for items, most, t in ((2, 1, 2), (3, 1, 2), (4, 2, 1), (4, 2, 2), (3, 3, 1), (5, 2, 1)):
        yield Metric.set("m", [f"i{i}" for i in range(items)], sets(chance, items + most, most)), t
    yield Metric.set("m", None, sets(chance, 8, 2), num_cohorts=4), 1
    for t in (1, 2, 3):
        five = SubsetSelection(
            num_values=5, num_ones=2, prob_q=chance.uniform(0.5, 0.99), permanent_q=chance.uniform(0.3, 0.99)
        )
        yield Metric.categorical("m", ("a", "b", "c", "d"), five), t


def test_ratio_is_the_largest_of_an_enumeration(unseen_seed: int) -> None:
    """Product and checker have exactly the largest ratio over all outputs and all pairs of values."""
    for metric, reports in small_metrics(random.Random(unseen_seed)):  # noqa: S311
        document = written(metric, num_reports=reports)
        (_, several, *_) = checker.check(document)
        factors = [
            (Fraction(*(int(part, 16) for part in of["ratio"].split("/"))), of["exponent"]) for of in several["factors"]
        ]
        found = math.prod((ratio**exponent for ratio, exponent in factors), start=Fraction(1)) if factors else None
        part = json.loads(document["definition"].partition("\n")[2])
        assert found == largest_ratio(enumerated_laws(part, reports)), (metric, reports)


def test_number_of_rows_of_the_other_value_is_not_always_none() -> None:
    """The checker's maximum over n_y matters: for two ones of four values and five reports it is not at n_y = 0."""
    a, q = round(0.5 * N), round(0.9 * N)
    odds = Fraction(q * 2, (N - q) * 2)
    worst = checker.row_ratio(a, q, 4, 2, 5)
    b, excess = N - a, 4 * a - N
    z = odds**5 + 1 + odds**3 + odds**2
    assert worst is not None
    assert worst > (b * z + excess * odds**5) / (b * z + excess)


# --- false certificates --------------------------------------------------------------------------------------------

HELD = Metric.categorical("os", ("linux", "macos"), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.25), hold=7)
VALUES = Metric.string(
    "page",
    Params(num_bits=64, num_hashes=2, num_cohorts=8, prob_p=0.3, prob_q=0.8, permanent_p=0.2, permanent_q=0.7),
    lifetime_epsilon=16.0,
)
SETS = Metric.set(
    "plugins", ("a", "b", "c", "d"), PrivSet(num_values=6, max_items=2, num_ones=2, prob_hit=0.75), hold=7
)
ROWS = Metric.categorical(
    "theme", ("dark", "light", "auto"), SubsetSelection(num_values=4, num_ones=2, prob_q=0.8, permanent_q=0.7)
)

Change = Callable[[dict[str, Any]], object]


def redefined(**changed: Any) -> Change:
    """Change fields of the definition, and its digest with them."""

    def change(document: dict[str, Any]) -> None:
        head, _, body = document["definition"].partition("\n")
        definition = {**json.loads(body), **changed}
        document["definition"] = f"{head}\n{json.dumps(definition, sort_keys=True, separators=(',', ':'))}"
        rehash(document)

    return change


def rehash(document: dict[str, Any]) -> None:
    import hashlib

    document["digest"] = hashlib.sha256(document["definition"].encode()).hexdigest()


def stated(number: int, **changed: Any) -> Change:
    return lambda document: document["statements"][number].update(changed)


def factor(number: int, **changed: Any) -> Change:
    return lambda document: document["statements"][number]["factors"][0].update(changed)


def lowered(number: int, *path: Any) -> Change:
    """Round a decimal down: one less at the 20th place."""

    def change(document: dict[str, Any]) -> None:
        at = document["statements"][number]
        for key in path:
            at = at[key]
        at["epsilon"] = f"{Decimal(at['epsilon']) - Decimal('1e-20'):f}"

    return change


def both(*changes: Change) -> Change:
    return lambda document: [change(document) for change in changes]


def exponent(number: int, more: int) -> Change:
    def change(document: dict[str, Any]) -> None:
        of = document["statements"][number]["factors"][0]
        of["exponent"] += more

    return change


def fewer_units(document: dict[str, Any]) -> None:
    """State a lifetime of one unit, consistently."""
    document["statements"][-1] = {
        **document["statements"][-3],
        **{k: document["statements"][-1][k] for k in ("unit", "condition", "meaning")},
    }


def other_bytes(document: dict[str, Any]) -> None:
    document["definition"] = document["definition"].replace('","', '", "', 1)
    rehash(document)


def twice(document: dict[str, Any]) -> None:
    document["definition"] = document["definition"].replace('"p":', '"p":1,"p":', 1)
    rehash(document)


LATER_WORDS = "a reader that sees the published site only"
FALSE: dict[str, tuple[Metric, Change, str]] = {
    "integer of the definition": (VALUES, redefined(q=N // 2), "statement 1, report: factors"),
    "integer without its digest": (
        VALUES,
        lambda of: of.update(definition=of["definition"].replace('"num_hashes":2', '"num_hashes":1')),
        "the digest of the definition is",
    ),
    "probability p": (HELD, redefined(p=N // 4 + 1), "statement 1, report: factors"),
    "probability f": (HELD, redefined(f=N // 8 + 1), "statement 1, report: factors"),
    "number of hashes": (VALUES, redefined(num_hashes=1), "statement 1, report: factors"),
    "hash scheme": (ROWS, redefined(w=1), "statement 1, report: factors"),
    "number of values": (ROWS, redefined(num_bits=5), "statement 1, report: factors"),
    "ones of a row of a set": (SETS, redefined(w=1), "statement 1, report: factors"),
    "largest set": (SETS, redefined(max_items=1), "statement 1, report: factors"),
    "probability of a hit": (SETS, redefined(hit=N * 3 // 4 + 1), "statement 1, report: factors"),
    "rows that touch a set by chance": (SETS, redefined(hit=N * 9 // 15), "hit must be a whole number"),
    "rows of a set without epsilon": (SETS, redefined(hit=N), "hit must be a whole number"),
    "hold": (HELD, redefined(hold=8), "statement 3, epoch: num_reports"),
    "hold left out": (HELD, redefined(hold=None), "statement 2, report: condition"),
    "digest": (VALUES, lambda of: of.update(digest="0" * 64), "the digest of the definition is"),
    "definition not canonical": (VALUES, other_bytes, "canonical JSON"),
    "field of the definition twice": (VALUES, twice, "canonical JSON"),
    "version": (VALUES, lambda of: of.update(format="hubbub-certificate-v2"), "the format must be"),
    "numerator": (VALUES, factor(0, ratio="2/1"), "statement 1, report: factors"),
    "not in lowest terms": (VALUES, factor(2, ratio="e/4"), "statement 3, value: factors"),
    "exponent": (VALUES, exponent(2, -1), "statement 3, value: factors"),
    "exponent of the lifetime": (HELD, exponent(4, -7), "statement 5, lifetime: factors"),
    "factor left out": (VALUES, lambda of: of["statements"][2]["factors"].pop(), "statement 3, value: factors"),
    "observer": (VALUES, stated(0, observer=LATER_WORDS), "statement 1, report: observer"),
    "unit": (VALUES, stated(2, unit="lifetime"), "statement 3, value: unit"),
    "condition": (VALUES, stated(4, condition="any recordings"), "statement 5, lifetime: condition"),
    "condition with its words": (
        VALUES,
        stated(4, condition=checker.ANY, meaning=checker.MEANING[checker.ANY]),
        "statement 5, lifetime: condition",
    ),
    "words of a condition": (VALUES, stated(3, meaning="whatever is recorded"), "statement 4, enrollment: meaning"),
    "condition left out": (VALUES, lambda of: of["statements"][2].pop("condition"), "statement 3: the fields must be"),
    "words left out": (VALUES, lambda of: of["statements"][2].pop("meaning"), "statement 3: the fields must be"),
    "decimal of a statement rounded down": (VALUES, lowered(2), "statement 3, value: epsilon"),
    "decimal of a factor rounded down": (VALUES, lowered(2, "factors", 0), "statement 3, value: factors"),
    "decimal rounded to three places": (VALUES, stated(2, epsilon="2.234"), "statement 3, value: epsilon"),
    "number as a float": (VALUES, stated(2, num_units=1.0), "statement 3, value: num_units"),
    "number as a truth value": (VALUES, stated(2, num_units=True), "statement 3, value: num_units"),
    "reports of an epoch": (HELD, stated(2, num_reports=6), "statement 3, epoch: num_reports"),
    "reports of several": (VALUES, lambda of: of.update(num_reports=31), "statement 2, report: num_reports"),
    "more reports than an epoch": (
        HELD,
        lambda of: of.update(num_reports=8),
        "num_reports must be a whole number, 1 to 7",
    ),
    "units of the lifetime": (VALUES, fewer_units, "statement 5, lifetime: num_units"),
    "limit of the policy": (
        HELD,
        lambda of: of["policy"].update(epsilon_metric=80.0),
        "statement 5, lifetime: num_units",
    ),
    "limit of the definition": (
        VALUES,
        lambda of: of.update(lifetime_epsilon=None),
        "statement 4, enrollment: num_units",
    ),
    "limit that is no number": (
        VALUES,
        lambda of: of["policy"].update(epsilon_total="many"),
        "a limit must be a number",
    ),
    "limit left out": (VALUES, lambda of: of["policy"].pop("epsilon_total"), "the fields of policy must be"),
    "bound left out": (VALUES, stated(4, factors=[], epsilon="inf"), "statement 5, lifetime: factors"),
    "statement left out": (VALUES, lambda of: of["statements"].pop(), "there must be 5 statements"),
    "statement twice": (VALUES, lambda of: of["statements"].append(of["statements"][0]), "there must be 5 statements"),
    "order of statements": (VALUES, lambda of: of["statements"].reverse(), "statement 1, report: unit"),
    "field too many": (VALUES, lambda of: of.update(note="audited"), "the fields must be"),
    "field of a statement too many": (VALUES, stated(0, delta=0), "statement 1: the fields must be"),
    "another mechanism": (ROWS, redefined(mechanism="grr"), "KeyError"),
    "permanent noise of some parts": (
        VALUES,
        redefined(parts=[{"f": 0}, {"f": 1}]),
        "all or none with permanent noise",
    ),
    "huge hold": (HELD, redefined(hold=10**9), "hold must be a whole number, 1 to 1000"),
    "huge number of reports": (VALUES, lambda of: of.update(num_reports=10**9), "num_reports must be a whole number"),
    "huge number of bits": (ROWS, redefined(num_bits=10**12), "num_bits must be a whole number"),
    "huge number of hashes": (VALUES, redefined(num_hashes=10**12), "num_hashes must be a whole number"),
    "huge integer": (VALUES, redefined(q=10**4000), "q must be a whole number"),
    "many parts": (VALUES, redefined(parts=[{"f": 1}] * 1000), "2 or 3 parts"),
    "huge exponent": (VALUES, factor(2, exponent=10**4000), "statement 3, value: factors"),
    "huge decimal": (VALUES, stated(2, epsilon="9" * 10**6), "statement 3, value: epsilon"),
    "no object": (VALUES, lambda of: of.update(policy=7), "TypeError"),
}


def run(path: Path) -> tuple[int, str]:
    """Run the checker without any package."""
    done = subprocess.run([sys.executable, "-I", "-S", CHECKER, path], capture_output=True, text=True, timeout=60)
    assert not done.stderr
    return done.returncode, done.stdout


def checked(document: Any, path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return checker.main(str(path)), capsys.readouterr().out


@pytest.mark.parametrize("name", FALSE)
def test_checker_names_the_first_false_statement(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metric, change, message = FALSE[name]
    document = written(metric)
    assert checked(document, tmp_path / "true.json", capsys)[0] == 0
    change(document)
    code, shown = checked(document, tmp_path / "false.json", capsys)
    assert code == 1
    assert shown.startswith("refused: ")
    assert message in shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        '"text"',
        "{}",
        json.dumps(written(VALUES))[:-1],
        json.dumps(written(VALUES))[:1000],
        json.dumps(written(VALUES)).replace('"digest"', '"digest": "0", "digest"', 1),
        json.dumps(written(VALUES)).replace('"num_reports": 30', '"num_reports": ' + "9" * 10_000, 1),
        json.dumps(written(VALUES)).replace("40.0", "NaN", 1),
        json.dumps(written(HELD)).replace("40.0", "1e999", 1),
        "[" * 200_000,
        " " * (checker.MOST_BYTES + 1),
    ],
    ids=lambda text: f"{len(text)}-{text[:8]}",
)
def test_checker_refuses_a_damaged_file(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = checked(text, tmp_path / "damaged.json", capsys)
    assert (code, shown[:9]) == (1, "refused: ")


def test_checker_refuses_a_file_that_does_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checker.main(str(tmp_path / "none.json")) == 1
    assert "FileNotFoundError" in capsys.readouterr().out


def test_checker_runs_without_any_package(tmp_path: Path) -> None:
    document = written(HELD)
    (tmp_path / "true.json").write_text(json.dumps(document))
    code, shown = run(tmp_path / "true.json")
    assert code == 0
    assert shown.splitlines()[0] == f"proved for the definition {HELD.digest}, towards the operator:"
    found = [of for of in guarantees(HELD, Policy()) if of.observer is Observer.OPERATOR]
    for line, of in zip([shown.splitlines()[1], *shown.splitlines()[3:]], found, strict=True):
        assert line.startswith(f"{of.unit}, ")
        assert f"epsilon <= {shown_epsilon(of.epsilon)}, {of.condition.name}" in line
    document["statements"][0]["epsilon"] = "0.1"
    (tmp_path / "false.json").write_text(json.dumps(document))
    assert run(tmp_path / "false.json")[0] == 1


def test_epsilons_that_differ_by_less_than_their_decimals_have_the_larger_ratio() -> None:
    """After 200 reports T1 and T0 of a symmetric response agree to 20 places, but not exactly."""
    metric = Metric.boolean("m", UnaryResponse(prob_p=0.125, prob_q=0.5, prob_f=0.5))
    document = written(metric, num_reports=200)
    (_, several, *_) = checker.check(document)
    ((ratio,),) = [[of["ratio"] for of in several["factors"]]]
    found = Fraction(*(int(part, 16) for part in ratio.split("/")))
    one, zero = checker.bit_ratios(N * 3 // 4, N // 4, N // 8, N // 2, 200)
    assert one is not None
    assert zero is not None
    assert checker.log(one) == checker.log(zero)
    assert found == max(one, zero) > min(one, zero)


@pytest.mark.slow
@pytest.mark.parametrize("num_ones", [1, 2, 512])
def test_largest_certificate_is_proved(num_ones: int) -> None:
    labels = tuple(f"c{i}" for i in range(1023))
    mechanism = SubsetSelection(num_values=1024, num_ones=num_ones, prob_q=0.80001, permanent_q=0.75001)
    metric = Metric.categorical("m", labels, mechanism, hold=MAX_REPORTS)
    document = written(metric, num_reports=MAX_REPORTS)
    assert len(json.dumps(document)) < checker.MOST_BYTES
    assert checker.check(document) == document["statements"]


def test_values_of_a_group_have_the_certificate_of_the_definition() -> None:
    grouped = replace(HELD, group=VERSION)
    document = written(grouped.in_group("1.x"))
    assert document == written(grouped)
    assert document["digest"] == grouped.digest
    assert checker.check(document) == document["statements"]


def test_certificate_of_parameters_without_one_is_refused() -> None:
    with pytest.raises(DefinitionError, match="hold must be at most 1,000 for a certificate, got 1,001"):
        certificate(replace(HELD, hold=1001), Policy())
    reverse = Metric.boolean("m", UnaryResponse(prob_p=0.75, prob_q=0.25, prob_f=0.5))
    with pytest.raises(DefinitionError, match="prob_p must be below prob_q"):
        certificate(reverse, Policy())
    for number, metric in ((8, HELD), (1001, VALUES), (0, VALUES), (1.5, VALUES)):
        with pytest.raises(ParameterError, match="num_reports must be an integer in"):
            certificate(metric, Policy(), num_reports=number)  # type: ignore[arg-type]
