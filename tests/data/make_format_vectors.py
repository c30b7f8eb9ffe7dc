"""Generate format_vectors.json. Run this only for a new format.

python tests/data/make_format_vectors.py > tests/data/format_vectors.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from hubbub import Encoder, HubbubError, InvalidValueError, Metric, Params, PeriodKind, Secret
from hubbub.encoding.bloom import ValueKey, bloom_bits
from hubbub.encoding.responses import InstantaneousResponse, PermanentResponse
from hubbub.encoding.secret import length_prefixed
from hubbub.hashing import murmur3_v1
from hubbub.mechanisms.bernoulli import BernoulliMask
from hubbub.mechanisms.probability import numerator, round_to_dyadic
from hubbub.metrics.kinds import BloomBits, Value, kind_from_dict
from hubbub.metrics.periods import period_number
from hubbub.randomness import RandomBytes
from hubbub.testing import SeededBytes
from hubbub_decoder.discovery.discover import discovery_of

ABOUT = {
    "probabilities": "double: the probability as JSON; digits: r; a: the nearest a / 2^r, null where the probability is refused",
    "definitions": "fields of a definition; allowed: whether a client may collect it; digest: its digest if so",
    "values": "definition, value, cohort -> bloom: the row in hex, null where the value is invalid; value null is nothing recorded",
    "epochs": "period, start (first day), hold -> number of the period, epoch",
    "cohorts": "secret (hex), num_cohorts -> byte: the stream's first, cohort",
    "positions": "hash_scheme, value_utf8 (hex), cohort, num_bits, num_hashes -> positions in the order of the hashes",
    "permanent": "definition, secret, epoch, value -> bloom; key; input: all bytes that SHAKE-256 reads; prr: the row",
    "joint": "definition, secret, epoch, value: a list, or null -> digest, cohort, bloom and key, null where the value is invalid; inputs: of each part's PRR stream; prr; coins -> irr",
    "discovery": "definition, secret, value -> digest, cohort, group, fragment (hex; null is nothing recorded), bloom, prr",
    "means": "definition with estimate = mean, secret, value -> digest, cohort, word: the 40 bits of the threshold stream, bloom, prr",
    "sets": "definition, secret, epoch, value (a list, or null) -> digest, cohort, bloom, null where the value is invalid; prr",
    "subset_rows": "definition with mechanism = subset, secret, epoch, value -> digest, bloom, prr; coins: bytes of the generator -> irr, taken: how many of them",
    "instantaneous": "num_bits, p and q (their a), prr, words (rows in the order in which they are drawn) -> words_of_p, words_of_q: how many each mask takes, irr",
}

NOISE = {"prob_p": 0.25, "prob_q": 0.75}
NUMBERS: list[Any] = [0, 1, 0.1, 0.09999999999999999, -7.5, 10, 9.999999999999998, 20, 1e300, 10**400, -(10**400)]
NUMBERS += [None, True, False, "1", "", [1]]
STRING = {"name": "s", "kind": "string", "num_bits": 16, "num_hashes": 2, "num_cohorts": 8, "hash_scheme": "murmur3-v1"}
ONE_HOT = {"num_hashes": 1, "num_cohorts": 1, "hash_scheme": "one-hot"}
BOOLEAN = {"name": "b", "kind": "boolean", "num_bits": 1, **ONE_HOT}


def categorical(*categories: str, **more: Any) -> dict[str, Any]:
    return {
        "name": "c",
        "kind": "categorical",
        "num_bits": len(categories),
        **ONE_HOT,
        "categories": list(categories),
    } | more


def ordinal(*edges: float, **more: Any) -> dict[str, Any]:
    sizes = {"name": "o", "kind": "ordinal", "num_bits": len(edges) - 1, **ONE_HOT}
    buckets = {"edges": list(edges), "several": "one", "unit": "", "default": None}
    return sizes | {"buckets": buckets | more}


def mean(*edges: float, **more: Any) -> dict[str, Any]:
    sizes = {"num_bits": 1, "num_cohorts": 16, "hash_scheme": "threshold-v1"}
    return ordinal(*edges, **{"default": 0, "estimate": "mean"} | more) | sizes


def set_of(*items: str, **more: Any) -> dict[str, Any]:
    sizes = {"num_bits": 1, "num_hashes": 1, "num_cohorts": len(items), "hash_scheme": "set-v1"}
    return {"name": "u", "kind": "set", **sizes, "items": list(items)} | more


def joint(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    listed = [
        {name: value for name, value in definition(part).items() if name not in ("period", "hold")} for part in parts
    ]
    return {"name": "j", "kind": "joint", "period": "day", "hold": None, "parts": listed} | more


def definition(fields: dict[str, Any]) -> dict[str, Any]:
    if fields["kind"] == "joint":
        return fields
    chances: dict[str, Any] = NOISE | ({} if "permanent_p" in fields else {"prob_f": 0.5})
    mechanism = {"mechanism": "subset"} if "num_ones" in fields else chances
    return {"categories": [], "other": None, "period": "day", "hold": None, **mechanism, **fields}


def pair(permanent_p: float, permanent_q: float) -> dict[str, float]:
    return {"permanent_p": permanent_p, "permanent_q": permanent_q}


def metric_of(fields: dict[str, Any]) -> Metric:
    if fields["kind"] == "joint":
        parts = [metric_of(definition(part)) for part in fields["parts"]]
        return Metric.joint(
            fields["name"], parts, period=fields.get("period", "day"), hold=fields.get("hold")
        ).require_collectable()
    kind = kind_from_dict({"hash_scheme": "one-hot", "num_hashes": 1, "num_cohorts": 1, **fields})
    metric = Metric(fields["name"], kind, period=fields["period"], hold=fields["hold"])
    return metric.require_collectable()


def probabilities() -> Iterator[dict[str, Any]]:
    tie = 2.0**-25
    doubles = [
        0.0,
        1.0,
        0.5,
        0.1,
        0.39,
        1 / 3,
        0.3,
        3 * tie,
        5 * tie,
        7 * tie,
        tie,
        1 - tie,
        1 - 3 * tie,
        1e-9,
        2.0**-24,
    ]
    for digits in (24, 23):
        for double in doubles + [2 * small for small in doubles if 0 < small < 1e-6]:
            try:
                a = numerator(round_to_dyadic("p", double, digits), digits)
            except HubbubError:
                a = None
            yield {"double": double, "exact": str(Fraction(double)), "digits": digits, "a": a}


def asked_definitions() -> Iterator[dict[str, Any]]:
    yield from (definition(STRING | {"num_cohorts": m}) for m in (1, 2, 3, 64, 96, 128, 256, 512))
    yield from (definition(STRING | {"prob_f": f}) for f in (0, 2.0**-23, 0.1, 1 - 2.0**-23, 1 - 2.0**-25, 1, -0.1))
    yield from (
        definition(STRING | {"prob_p": p, "prob_q": q})
        for p, q in ((0, 1), (0.5, 0.5), (0.75, 0.25), (0, 2.0**-24), (0.1, 0.3))
    )
    yield from (
        definition(STRING | {"num_bits": k, "num_hashes": h})
        for k, h in ((7, 1), (8, 7), (8, 8), (8, 0), (1024, 1), (1025, 1))
    )
    yield definition(STRING | {"hash_scheme": "google-md5"})
    yield from (
        definition(STRING | {"hold": hold, "period": period})
        for hold, period in ((1, "week"), (7, "day"), (3, "month"), (0, "day"))
    )
    yield from (
        definition(BOOLEAN | more) for more in ({}, {"hold": 2}, {"num_cohorts": 2}, {"name": "B"}, {"name": "a" * 65})
    )
    yield definition(categorical("linux", "macos", "other", other="other"))
    yield definition(categorical("caf\u00e9", "cafe\u0301", "\U0001f600", 'a "\\/\b\t\n\f\r\x0b\x7f\x80'))
    yield from (definition(categorical(*labels)) for labels in (("a",), ("a", "a"), ("a", ""), ("a", "\ud800")))
    yield definition(categorical("a", "b", other="c"))
    tiny = 2.0**-24
    yield from (
        definition(STRING | pair(b, a))
        for b, a in (
            (0.1, 0.5),
            (0.25, 0.75),
            (0.3, 0.7 + tiny),
            (tiny, 1 - tiny),
            (tiny, 1 - 2 * tiny),
            (0, 1),
            (0, 0.5),
            (0.5, 1),
            (0.5, 0.5),
            (0.5, 0.25),
            (tiny / 2, 0.5),
        )
    )
    yield definition(categorical("linux", "macos") | pair(0.1, 0.5))
    yield from (definition(BOOLEAN | pair(b, a)) for b, a in ((0.1, 0.5), (0.25, 0.75)))
    yield definition(STRING | {"prob_f": 0.5} | pair(0.25, 0.75))
    yield definition(ordinal(0, 10, 20))
    yield definition(ordinal(-0.0, 0.1, 1e22, unit="\u00b5s", several="sum", default=0))
    yield definition(ordinal(-5, 0, 5, several="last", representatives=[-1, 4]))
    yield definition(ordinal(0, 10, 20) | pair(0.1, 0.5))
    yield from (definition(ordinal(*edges)) for edges in ((0, 10), (0, 10, 10), (20, 10, 0), (0, 1, 2**53, 2**53 + 1)))
    yield definition(ordinal(0, 10, 20, several="mean"))
    yield definition(ordinal(0, 10, 20) | {"num_bits": 3})
    yield definition(categorical("a", "b") | {"buckets": ordinal(0, 1, 2)["buckets"]})
    yield definition({name: value for name, value in ordinal(0, 1, 2).items() if name != "buckets"})
    yield definition(mean(0, 50))
    yield definition(mean(-0.5, 1e22, unit="s", several="sum", default=-7) | {"num_cohorts": 1, "hold": 7})
    yield from (definition(mean(0, 50) | {"num_cohorts": m}) for m in (256, 12, 512))
    yield from (definition(mean(*edges)) for edges in ((0, 10, 20), (10, 10), (-1.7e308, 1.7e308)))
    yield definition(mean(0, 50, default=None))
    yield definition(mean(0, 50, representatives=[25]))
    yield definition(mean(0, 50) | pair(0.1, 0.5))
    yield definition(mean(0, 50) | {"hash_scheme": "one-hot", "num_cohorts": 1})
    yield definition(ordinal(0, 10, 20) | {"hash_scheme": "threshold-v1"})
    yield definition(mean(0, 50, estimate="median"))
    yield from (
        definition(set_of(*items))
        for items in (("a", "b"), ("a",), ("a", "a"), ("a", ""), ("a", "b,c"), ("a", "\ud800"))
    )
    yield from (definition(set_of(*(f"i{n}" for n in range(number)))) for number in (256, 257))
    yield from (
        definition(set_of("a", "b") | wrong)
        for wrong in ({"num_cohorts": 4}, {"hash_scheme": "one-hot"}, {"num_bits": 2})
    )
    yield definition(set_of("a", "b", hold=7) | pair(0.1, 0.5))
    yield definition({name: value for name, value in set_of("a", "b").items() if name != "items"})
    yield definition(BOOLEAN | {"items": ["a", "b"]})
    systems, plain = categorical("linux", "macos"), STRING | {"prob_f": 0}
    yield from (joint(*parts) for parts in ((STRING, BOOLEAN), (BOOLEAN, systems, STRING), (BOOLEAN, systems)))
    yield from (joint(*parts) for parts in ((STRING,), (BOOLEAN, BOOLEAN), (STRING, BOOLEAN | {"name": "B"})))
    yield joint(*(STRING | {"name": f"s{number}"} for number in range(4)))
    yield from (
        joint(STRING, part) for part in (ordinal(0, 10, 20), mean(0, 50), set_of("a", "b"), joint(BOOLEAN, systems))
    )
    yield joint(STRING | {"num_cohorts": 64, "discover": {"longest": 3}}, BOOLEAN)
    yield from (joint(STRING, STRING | {"name": "t", "num_cohorts": m}) for m in (8, 16))
    yield from (joint(STRING, STRING | {"name": "t", "num_bits": k}) for k in (1008, 1009))
    yield from (joint(plain, BOOLEAN | {"prob_f": f}) for f in (0, 0.5))
    yield from (joint(STRING, BOOLEAN, hold=hold, period="week") for hold in (4, 0))
    yield joint(STRING | pair(0, 0.5), BOOLEAN)


def definitions() -> Iterator[dict[str, Any]]:
    for fields in asked_definitions():
        try:
            digest = metric_of(fields).digest
        except HubbubError:
            digest = None
        yield {"definition": fields, "allowed": digest is not None, "digest": digest}


def values() -> Iterator[dict[str, Any]]:
    odd = [
        "",
        " ",
        "v1",
        "V1",
        "v1 ",
        "\0",
        "\ufeffv1",
        "caf\u00e9",
        "cafe\u0301",
        "\U0001f600",
        "\ud83d",
        "\ude00\ud83d",
        "\u65e5\u672c\u8a9e",
        None,
        True,
        1,
        1.5,
    ]
    boolean: list[Any] = [True, False, None, 1, 0, "true"]
    systems = categorical("linux", "caf\u00e9", "\U0001f600", "other", other="other")
    strict = categorical("linux", "caf\u00e9")
    listed: list[Any] = [
        "linux",
        "Linux",
        "linux ",
        "caf\u00e9",
        "cafe\u0301",
        "\U0001f600",
        "other",
        "",
        "\ud83d",
        None,
        True,
    ]
    cases: list[tuple[dict[str, Any], list[Any]]] = [
        (STRING, odd),
        (BOOLEAN, boolean),
        (systems, listed),
        (strict, listed),
        (ordinal(0, 0.1, 10, 20), NUMBERS),
        (ordinal(0, 0.1, 10, 20, default=10), [None, 5]),
    ]
    for fields, of_these in cases:
        metric = metric_of(definition(fields))
        for value in of_these:
            for cohort in sorted({0, metric.num_cohorts - 1}):
                try:
                    bloom = row(bloom_bits(metric, value, cohort), metric)
                except HubbubError:
                    bloom = None
                yield {"definition": definition(fields), "value": value, "cohort": cohort, "bloom": bloom}


def epochs() -> Iterator[dict[str, Any]]:
    starts = {
        "day": ("1970-01-01", "1970-01-07", "1970-01-08", "2000-02-29", "2026-11-22"),
        "week": ("1969-12-29", "1970-01-05", "1999-12-27", "2026-11-16"),
        "month": ("1970-01-01", "1970-12-01", "1971-01-01", "2026-11-01"),
    }
    for period, days in starts.items():
        for start in days:
            for hold in (1, 2, 7, 30):
                number = period_number(PeriodKind(period), start)
                yield {"period": period, "start": start, "hold": hold, "number": number, "epoch": number // hold}


def cohorts() -> Iterator[dict[str, Any]]:
    for number in range(4):
        key = SeededBytes(f"cohort {number}")(32)
        for m in (1, 2, 64, 256):
            yield {
                "secret": key.hex(),
                "num_cohorts": m,
                "byte": Secret(key).cohort(256),
                "cohort": Secret(key).cohort(m),
            }


def positions() -> Iterator[dict[str, Any]]:
    texts = (
        "",
        "v1",
        "https://example.org/",
        "caf\u00e9",
        "cafe\u0301",
        "\U0001f600",
        "0123456789abcdef",
        "0123456789abcdef0",
    )
    for text in texts:
        for cohort, k, h in ((0, 8, 7), (1, 16, 2), (63, 128, 2), (255, 256, 16)):
            fields = {"hash_scheme": "murmur3-v1", "value_utf8": text.encode().hex(), "cohort": cohort, "num_bits": k}
            yield fields | {"num_hashes": h, "positions": murmur3_v1.bit_positions(text.encode(), cohort, k, h)}


class Recorded(Secret):
    """A secret that records the input of its streams, for vectors only."""

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self.key = key
        self.read: list[bytes] = []

    def stream(self, domain: str, *fields: bytes) -> Any:
        self.read.append(b"".join(map(length_prefixed, (domain.encode(), self.key, *fields))))
        return super().stream(domain, *fields)


def permanent() -> Iterator[dict[str, Any]]:
    weekly = STRING | {"hold": 7, "num_bits": 13, "prob_f": 0.45}
    weekly_pair = STRING | {"hold": 7, "num_bits": 13} | pair(1 / 3, 0.61)
    cases: list[tuple[dict[str, Any], Value]] = [
        (STRING, "v1"),
        (STRING, None),
        (STRING, ""),
        (weekly, "v1"),
        (STRING | {"prob_f": 0}, "v1"),
        (STRING | {"prob_f": 2.0**-23, "num_bits": 200}, "v1"),
        (BOOLEAN, True),
        (BOOLEAN, None),
        (categorical("linux", "caf\u00e9", "\U0001f600"), "caf\u00e9"),
        (STRING | pair(0.1, 0.5), "v1"),
        (STRING | pair(0.1, 0.5), None),
        (STRING | pair(0.25, 0.75), "v1"),
        (weekly_pair, "v1"),
        (STRING | {"num_bits": 200} | pair(2.0**-24, 1 - 2.0**-23), "v1"),
        (categorical("linux", "caf\u00e9", "\U0001f600") | pair(0.3, 0.875), "caf\u00e9"),
        (ordinal(0, 0.1, 10, 20), 12),
        (ordinal(-5, 0, 5, several="sum", default=0) | pair(0.3, 0.875), None),
    ]
    for fields, value in cases:
        metric = metric_of(definition(fields))
        for number, epoch in enumerate([None] if metric.hold is None else [0, 2942, -1]):
            key = SeededBytes(f"permanent {number} {metric.digest}")(32)
            secret = Recorded(key)
            bloom = bloom_bits(metric, value, secret.cohort(metric.num_cohorts))
            response = PermanentResponse(metric, secret)
            yield {
                "definition": definition(fields),
                "secret": key.hex(),
                "epoch": epoch,
                "value": value,
                "bloom": row(bloom, metric),
                "key": ValueKey(metric)(bloom).hex(),
                "input": (secret.read[-1] + rest_of_stream(metric, bloom, epoch)).hex(),
                "prr": row(response(bloom, epoch), metric),
            }


def rest_of_stream(metric: Metric, bloom: BloomBits, epoch: int | None) -> bytes:
    of_epoch = b"" if epoch is None else epoch.to_bytes(8, "little", signed=True)
    return length_prefixed(of_epoch) + length_prefixed(ValueKey(metric)(bloom))


def joints() -> Iterator[dict[str, Any]]:
    other = STRING | {"name": "t", "num_bits": 13, "num_hashes": 1, "prob_p": 0.1, "prob_q": 1 / 3} | pair(0.1, 0.5)
    systems = categorical("linux", "macos", "other", other="other") | {"prob_p": 0.39, "prob_q": 0.61}
    strict = categorical("a", "b")
    rows = categorical("a", "b", "c") | {"name": "r", "num_bits": 4, "num_ones": 1, "prob_q": 0.7, "permanent_q": 0.6}
    cases: list[tuple[dict[str, Any], list[Any]]] = [
        (joint(STRING, BOOLEAN), [["v1", True], ["v1", False], ["v1", None], ["", True], [None, True], None, ["v1"]]),
        (joint(STRING, other, systems), [["v1", "v2", "beos"], ["v1", "v1", None], [None, "v1", "linux"], "v1"]),
        (joint(BOOLEAN, strict, hold=7), [[True, "b"], [True, "c"], [1, "b"], [None, None]]),
        (joint(other, STRING | {"prob_f": 0.25}, period="week", hold=1), [["v1", "v1"], ["v1", True]]),
        (joint(rows, other, hold=7), [["a", "v1"], ["c", None], [None, "v1"], ["d", "v1"], None]),
        (joint(other, rows | {"num_ones": 2}), [["v1", "b"], [None, None]]),
    ]
    for fields, values in cases:
        metric = metric_of(fields)
        for number, value in enumerate(values):
            secret = Recorded(SeededBytes(f"joint {number} {metric.digest}")(32))
            epoch = None if metric.hold is None else 2942 + number
            coins = SeededBytes(f"joint coins {number} {metric.digest}")(512)
            encoder = Encoder(metric, secret, scripted(coins))
            starts = secret.read[-len(metric.components) :]
            vector = {"definition": fields, "digest": metric.digest, "secret": secret.key.hex(), "epoch": epoch}
            vector |= {"value": value, "cohort": encoder.cohort}
            try:
                bloom = encoder.bloom_bits(tuple(value) if isinstance(value, list) else value)
            except HubbubError:
                yield vector | {"bloom": None}
                continue
            rest, prr = rest_of_stream(metric, bloom, epoch), PermanentResponse(metric, secret)(bloom, epoch)
            yield vector | {
                "bloom": row(bloom, metric),
                "key": ValueKey(metric)(bloom).hex(),
                "inputs": [(start + rest).hex() for start in starts],
                "prr": row(prr, metric),
                "coins": coins.hex(),
                "irr": encoder.encode(bloom, epoch).to_bytes().hex(),
            }


def means() -> Iterator[dict[str, Any]]:
    cases: list[dict[str, Any]] = [
        mean(0, 50, default=3),
        mean(-0.1, 0.2, several="max") | {"num_cohorts": 4, "hold": 7, "prob_f": 0.25},
    ]
    for number, fields in enumerate(cases):
        metric = metric_of(definition(fields))
        for device in range(6):
            key = SeededBytes(f"mean {number} {device}")(32)
            encoder, epoch = Encoder(metric, Secret(key)), None if metric.hold is None else 12
            word = Secret(key).stream("hubbub/threshold/v1", metric.name.encode()).digest(5)
            low, high = metric.kind.to_dict()["buckets"]["edges"]
            threshold = Secret(key).threshold(metric.name, encoder.cohort, metric.num_cohorts)
            near = [low + (high - low) * (threshold + step) for step in (-1e-9, 0, 1e-9)]
            for value in (-1, 0, 0.05, 20, 10**400, None, *near):
                bloom = encoder.bloom_bits(value)
                yield {
                    "definition": definition(fields),
                    "digest": metric.digest,
                    "secret": key.hex(),
                    "epoch": epoch,
                    "value": value,
                    "cohort": encoder.cohort,
                    "word": word.hex(),
                    "bloom": row(bloom, metric),
                    "prr": row(PermanentResponse(metric, Secret(key))(bloom, epoch), metric),
                }


def sets() -> Iterator[dict[str, Any]]:
    cases = [set_of("a", "b\u00e9", "c"), set_of(*(f"i{n}" for n in range(30)), hold=7, prob_f=0.25)]
    for number, fields in enumerate(cases):
        metric, items = metric_of(definition(fields)), fields["items"]
        for device in range(6):
            key = SeededBytes(f"set {number} {device}")(32)
            encoder, epoch = Encoder(metric, Secret(key)), None if metric.hold is None else 12
            values_of: list[Any] = [
                None,
                [],
                items,
                items[:2],
                [items[encoder.cohort]] * 2,
                [*items, "other"],
                "a",
                [1],
            ]
            for value in values_of:
                try:
                    bloom = encoder.bloom_bits(value)
                except InvalidValueError:
                    bloom = None
                response = None if bloom is None else PermanentResponse(metric, Secret(key))(bloom, epoch)
                yield {
                    "definition": definition(fields),
                    "digest": metric.digest,
                    "secret": key.hex(),
                    "epoch": epoch,
                    "value": value,
                    "cohort": encoder.cohort,
                    "bloom": None if bloom is None else row(bloom, metric),
                    "prr": None if response is None else row(response, metric),
                }


def subset_rows() -> Iterator[dict[str, Any]]:
    four = categorical("a", "b", "c") | {"num_bits": 4, "num_ones": 1, "prob_q": 0.7}
    many = categorical(*(f"c{n}" for n in range(40))) | {
        "num_bits": 41,
        "num_ones": 9,
        "prob_q": 0.6,
        "permanent_q": 0.3,
    }
    default = ordinal(0, 1, 2, 3, default=0) | {"num_ones": 1, "prob_q": 0.5, "permanent_q": 0.6, "hold": 7}
    for number, fields in enumerate((four, many, default)):
        fields = definition(fields)
        metric = metric_of(fields)
        for device in range(12):
            key, drawn = (SeededBytes(f"rows {number} {device} {use}") for use in ("secret", "coins"))
            secret, coins, epoch = Secret(key(32)), drawn(400), None if metric.hold is None else 12
            left = bytearray(coins)
            values: list[Any] = [None, 0, 1, 2.5] if metric.kind.word == "ordinal" else [None, *metric.kind.labels]
            value = values[device % len(values)]
            bloom = bloom_bits(metric, value, 0)
            prr = PermanentResponse(metric, secret)(bloom, epoch)

            def take(num_bytes: int, left: bytearray = left) -> bytes:
                taken = bytes(left[:num_bytes])
                del left[:num_bytes]
                return taken

            irr = InstantaneousResponse(metric.blocks, take)(prr)
            yield {
                "definition": fields,
                "digest": metric.digest,
                "secret": SeededBytes(f"rows {number} {device} secret")(32).hex(),
                "epoch": epoch,
                "value": value,
                "bloom": row(bloom, metric),
                "prr": row(prr, metric),
                "coins": coins.hex(),
                "irr": row(irr, metric),
                "taken": len(coins) - len(left),
            }


def discovery() -> Iterator[dict[str, Any]]:
    sizes = STRING | {"num_cohorts": 64}
    table = {"longest": 5, "step": 2, "first": 3, "alphabet": "ab\u00e9", "held_out": 0.25}
    alphabet = sizes | {"discover": table}
    of_bytes = sizes | {"discover": {"longest": 3, "step": 2, "held_out": 0.125}} | pair(0.1, 0.5)
    for number, fields in enumerate((alphabet, of_bytes)):
        metric = metric_of(definition(fields))
        for device in range(6):
            key = SeededBytes(f"discovery {number} {device}")(32)
            secret, cohort = Secret(key), Secret(key).metric_cohort(metric.name, 64)
            group = discovery_of(metric).group(cohort, 64)
            for value in ("", "ab", "\u00e9ab\u00e9", "ababababab", None):
                bloom = bloom_bits(metric, value, cohort)
                fragment = None if value is None else discovery_of(metric).fragment(value.encode(), group).hex()
                response = PermanentResponse(metric, secret)(bloom)
                yield {
                    "definition": definition(fields),
                    "digest": metric.digest,
                    "secret": key.hex(),
                    "value": value,
                    "cohort": cohort,
                    "group": group,
                    "fragment": fragment,
                    "bloom": row(bloom, metric),
                    "prr": row(response, metric),
                }


def instantaneous() -> Iterator[dict[str, Any]]:
    one = 1 << 24
    for k, p, q in (
        (8, 1 << 22, 3 << 22),
        (13, 6543213, 10234003),
        (20, 0, one),
        (16, 0, 1),
        (16, one - 1, one),
        (200, 1, one >> 1),
    ):
        params = Params(num_bits=k, num_hashes=1, num_cohorts=1, prob_p=p / one, prob_q=q / one, prob_f=0.5)
        width = (k + 7) // 8
        drawn = SeededBytes(f"instantaneous {k} {p} {q}")(64 * width)
        response = InstantaneousResponse(params.blocks, scripted(drawn))
        prr = int.from_bytes(SeededBytes(f"prr {k} {p} {q}")(width), "little") & (1 << k) - 1
        irr = response(prr)
        words = [drawn[at : at + width] for at in range(0, len(drawn), width)]
        of_p = words_taken(words, p, k)
        of_q = words_taken(words[of_p:], q, k)
        yield {
            "num_bits": k,
            "p": p,
            "q": q,
            "prr": prr.to_bytes(width, "little").hex(),
            "words": [word.hex() for word in words[: of_p + of_q]],
            "words_of_p": of_p,
            "words_of_q": of_q,
            "irr": irr.to_bytes(width, "little").hex(),
        }


def scripted(drawn: bytes) -> RandomBytes:
    left = bytearray(drawn)

    def random_bytes(num_bytes: int) -> bytes:
        taken = bytes(left[:num_bytes])
        del left[:num_bytes]
        return taken

    return random_bytes


def words_taken(words: list[bytes], a: int, num_bits: int) -> int:
    """Return the number of words that hubbub's mask consumes."""
    used = iter([int.from_bytes(word, "little") for word in words])
    BernoulliMask(a, 24, num_bits)(used)
    return len(words) - len(list(used))


def row(bits: int, metric: Metric) -> str:
    return bits.to_bytes(metric.row_bytes, "little").hex()


def main() -> None:
    kinds = (
        probabilities,
        definitions,
        values,
        epochs,
        cohorts,
        positions,
        permanent,
        discovery,
        means,
        sets,
        subset_rows,
        instantaneous,
    )
    document = {"about": ABOUT} | {kind.__name__: list(kind()) for kind in kinds} | {"joint": list(joints())}
    lines = [f"{json.dumps(name)}: {json.dumps(document[name])}" for name in document if name == "about"]
    for name in document:
        if name != "about":
            rows = ",\n  ".join(json.dumps(case) for case in document[name])
            lines.append(f"{json.dumps(name)}: [\n  {rows}\n ]")
    sys.stdout.write("{\n " + ",\n ".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
