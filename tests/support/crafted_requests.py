"""Hypothesis strategies of requests to `POST /v1/reports`: valid, nearly valid and hostile ones.

Each request names its family. `fits` decides independently of the aggregator's code, by the definitions, whether a body
is valid.
"""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
import struct
import uuid
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from hypothesis import strategies as st

from hubbub import Definitions, Metric

MAX_BODY, MAX_REPORTS = 20_000, 50
MAX_INFLATED = MAX_REPORTS * (4 + 5) + (1 << 16)  # largest_batch() of rows of 3 bytes
OPEN = {"day": ["2024-06-15", "2024-06-14", "2024-05-20"], "week": ["2024-06-10", "2024-06-03"]}
_UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Request:
    """One request and its family."""

    family: str
    chunks: tuple[bytes, ...]
    headers: tuple[tuple[bytes, bytes], ...] = ((b"content-type", b"application/json"),)
    hangs_up: bool = False


@dataclass(frozen=True)
class RequestStrategies:
    """Strategies for the metrics of some definitions."""

    definitions: Definitions

    def requests(self) -> st.SearchStrategy[Request]:
        others = (self.right, self.damaged, self.hostile, self.gzipped, self.lengths, self.headed)
        families = [*(family() for family in others), *(self.nearly_right() for _ in range(6))]
        return st.sampled_from(range(len(families))).flatmap(families.__getitem__)

    def right(self) -> st.SearchStrategy[Request]:
        """Batches that must be accepted."""
        return st.builds(_packed, st.just("right"), self._batches().map(_written), st.sampled_from(_CODINGS), _cuts())

    def nearly_right(self) -> st.SearchStrategy[Request]:
        """Batches with one or more changed fields."""

        @st.composite
        def altered(draw: st.DrawFn) -> Request:
            fields = draw(self._batches())
            for name in dict.fromkeys([draw(_MOSTLY), draw(_MOSTLY)]):
                fields[name] = draw(_INSTEAD[name])(fields[name])
            return Request("nearly right", (_written({k: v for k, v in fields.items() if v is not _ABSENT}),))

        return altered()

    def damaged(self) -> st.SearchStrategy[Request]:
        """The bytes of a batch, truncated, flipped, doubled or with insertions."""

        @st.composite
        def damage(draw: st.DrawFn) -> Request:
            body = draw(self._batches().map(_written))
            for _ in range(draw(st.integers(1, 4))):
                at = draw(st.integers(0, len(body)))
                to = draw(st.integers(at, min(len(body), at + 9)))
                body = body[:at] + draw(st.just(b"") | st.binary(max_size=4) | st.just(body[at:to] * 2)) + body[to:]
            return Request("damaged", (body,))

        return damage()

    def hostile(self) -> st.SearchStrategy[Request]:
        """JSON texts that are expensive or ambiguous for parsers, alone or as a field of a batch."""

        @st.composite
        def hurt(draw: st.DrawFn) -> Request:
            value = draw(_HURTFUL)
            if draw(st.booleans()):
                fields = draw(self._batches())
                name = draw(st.sampled_from(sorted(fields)))
                members = [json.dumps(field) + ":" + json.dumps(of) for field, of in fields.items() if field != name]
                members.insert(draw(st.integers(0, len(members))), json.dumps(name) + ":" + value)
                if draw(st.booleans()):  # and repeated with its valid value
                    members.insert(
                        draw(st.integers(0, len(members))), json.dumps(name) + ":" + json.dumps(fields[name])
                    )
                value = "{" + ",".join(members) + "}"
            coding = draw(st.sampled_from(["utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-7"]))
            return Request("hostile", (value.encode(coding, "surrogatepass"),))

        return hurt()

    def gzipped(self) -> st.SearchStrategy[Request]:
        """Bodies declared as gzip."""

        @st.composite
        def zipped(draw: st.DrawFn) -> Request:
            body = draw(self._batches().map(_written) | st.binary(max_size=300) | _zeros())
            packed = draw(st.sampled_from(_PACKERS))(body)
            if draw(st.booleans()):
                at = draw(st.integers(0, len(packed)))
                to = draw(st.integers(at, min(len(packed), at + 12)))
                packed = packed[:at] + draw(st.binary(max_size=12)) + packed[to:]
            return _headed(Request("gzipped", (packed,)), b"content-encoding", b"gzip")

        return zipped()

    def lengths(self) -> st.SearchStrategy[Request]:
        """Bodies around the size limits, and wrong Content-Length headers."""

        @st.composite
        def long(draw: st.DrawFn) -> Request:
            body = draw(self._batches().map(_written) | st.just(b""))
            if draw(st.booleans()):
                body = body.ljust(draw(st.sampled_from([MAX_BODY, MAX_INFLATED])) + draw(st.integers(-1, 1)))
            request = _packed("lengths", body, draw(st.sampled_from(_CODINGS)), draw(_cuts()))
            if draw(st.booleans()):
                size = sum(map(len, request.chunks))
                announced = draw(_SIZES)(size)
                request = _headed(request, b"content-length", announced.encode("latin-1", "replace"))
            return replace(request, hangs_up=draw(st.sampled_from([False] * 9 + [True])))

        return long()

    def headed(self) -> st.SearchStrategy[Request]:
        """Headers that hubbub's client does not send."""

        @st.composite
        def strange(draw: st.DrawFn) -> Request:
            request = Request("headed", (draw(self._batches().map(_written)),))
            for _ in range(draw(st.integers(1, 3))):
                name = draw(st.sampled_from(_HEADERS))
                request = _headed(request, name, draw(st.sampled_from(_VALUES) | st.binary(max_size=30)))
            return request

        return strange()

    def _batches(self) -> st.SearchStrategy[dict[str, Any]]:
        """Fields of valid batches."""
        live = [
            metric for metric in self.definitions.versions() if metric.expires and metric.expires > date(2025, 1, 1)
        ]

        @st.composite
        def fields(draw: st.DrawFn) -> dict[str, Any]:
            metric = draw(st.sampled_from(live))
            n = draw(st.integers(1, 4) | st.integers(1, MAX_REPORTS))
            bits = random.Random(draw(_SEEDS))  # noqa: S311  (any bits will do)
            rows = b"".join(bits.getrandbits(metric.num_bits).to_bytes(metric.row_bytes, "little") for _ in range(n))
            return {
                "batch_id": str(uuid.UUID(int=bits.getrandbits(128), version=4)),
                "metric": metric.name,
                "digest": metric.digest,
                "period": draw(st.sampled_from(OPEN[metric.period])),
                "cohorts": [bits.randrange(metric.num_cohorts) for _ in range(n)],
                "bits": base64.b64encode(rows).decode(),
            }

        return fields()


def fits(body: bytes, definitions: Definitions) -> bool:
    """Return whether a decompressed body is a batch that may be counted at noon of 2024-06-15."""
    fields = json.loads(body)
    metric = definitions.version(fields["metric"], fields["digest"])
    assert isinstance(metric, Metric)
    cohorts, rows = fields["cohorts"], base64.b64decode(fields["bits"], validate=True)
    n, k = len(cohorts), metric.num_bits
    row_bytes = (k + 7) // 8
    day = date.fromisoformat(fields["period"])
    return (
        _UUID4.fullmatch(fields["batch_id"]) is not None
        and fields["period"] == day.isoformat()
        and (metric.period == "day" or day.weekday() == 0)
        and date(2024, 5, 8) <= day <= date(2024, 6, 16)
        and metric.expires is not None
        and metric.expires > date(2024, 6, 15)
        and all(type(cohort) is int and 0 <= cohort < metric.num_cohorts for cohort in cohorts)
        and 1 <= n <= MAX_REPORTS
        and len(rows) == n * row_bytes
        and all(int.from_bytes(rows[i * row_bytes :][:row_bytes], "little") < 1 << k for i in range(n))
    )


_SEEDS = st.integers(0, 1 << 32)
_ABSENT = object()
_CODINGS = (b"identity", b"gzip", b"x-gzip", b"GZIP")
_SIZES: st.SearchStrategy[Callable[[int], str]] = st.sampled_from([-1, 0, 0, 1, MAX_BODY, 1 << 70]).map(
    lambda more: lambda size: str(size + more)
) | (
    st.sampled_from(["", "-1", "+5", "1e3", "0x10", "1_0", " 7 ", "7, 7", "\xb2", "9" * 5_000]) | st.text(max_size=5)
).map(lambda text: lambda _: text)
_HEADERS = (
    *(b"content-type", b"content-encoding", b"content-length", b"transfer-encoding", b"expect", b"host"),
    *(b"authorization", b"x-forwarded-for", b"origin", b"range", b"if-match", b"cookie", b"accept", b"\xff"),
)
_VALUES = (
    *(b"application/json", b"application/json; charset=utf-16", b"text/json", b"application/json,application/json"),
    *(b"gzip", b"gzip, gzip", b"br", b"", b"identity;q=0", b"0", b"chunked", b"Bearer ", b"Bearer \xff", b"Basic Og=="),
    *(b"::1%eth0", b"127.0.0.1,", b"999.1.1.1", b"unknown", b"[2001:db8::1]:80", b"null", b"https://a.example", b"*"),
)


def _written(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=len(str(fields)) % 2 == 0).encode("utf-8", "surrogatepass")


def _headed(request: Request, name: bytes, value: bytes) -> Request:
    return replace(request, headers=(*request.headers, (name, value)))


def _packed(family: str, body: bytes, coding: bytes, cuts: list[int]) -> Request:
    data = body if coding == b"identity" else gzip.compress(body, mtime=0)
    ends = sorted({min(cut, len(data)) for cut in cuts})
    chunks = tuple(data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True))
    return _headed(Request(family, chunks), b"content-encoding", coding)


def _cuts() -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, 400), max_size=3)


def _zeros() -> st.SearchStrategy[bytes]:
    return st.sampled_from([1, MAX_INFLATED, MAX_INFLATED + 1, 1 << 16, 1 << 20]).map(bytes)


def _json() -> st.SearchStrategy[Any]:
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
        max_leaves=8,
    )


_JSON = _json()


def _instead() -> dict[str, st.SearchStrategy[Callable[[Any], Any]]]:
    """Changes of a field: removed, of another type, or nearly the same."""
    nearly: dict[str, list[Callable[[Any], Any]]] = {
        "batch_id": [str.upper, "{{{}}}".format, lambda right: right.replace("-", ""), lambda right: right[:-1] + "é"],
        "period": [lambda right: right + " ", lambda right: right.replace("-", ""), lambda _: "2024-W24-6"],
        "cohorts": [lambda right: right * 60, lambda right: right[1:]],
        "bits": [
            *(lambda right: right[:-1], lambda right: right * 2, lambda right: right.replace("A", "-")),
            *(lambda right: right + "=", lambda right: right + "\n", lambda _: "", lambda _: "===="),
        ],
        "metric": [
            str.upper,
            lambda right: right + "\0",
            lambda right: right[:-1],
            lambda _: "\ud800",
            lambda _: "gone",
        ],
        "digest": [str.upper, lambda right: right + "\0", lambda right: right[:-1], lambda _: "\ud800"],
    }
    days = st.dates(date(2024, 4, 1), date(2024, 7, 31)) | st.dates()
    cohorts = st.sampled_from([-1, 1, 4, 255, 256, 1 << 64, 1.0, True, None, "0"])
    also: dict[str, st.SearchStrategy[Callable[[Any], Any]]] = {
        "period": days.map(lambda day: lambda _: str(day)),
        "cohorts": cohorts.map(lambda one: lambda right: [*right[1:], one]),
        "bits": st.integers(0, 1 << 12).map(lambda bit: lambda right: _flipped(right, bit)),
    }
    other = st.just(lambda _: _ABSENT) | _JSON.map(lambda value: lambda _: value)
    return {
        name: st.sampled_from([other, st.sampled_from(changes), also.get(name, st.sampled_from(changes))]).flatmap(
            lambda kind: kind
        )
        for name, changes in nearly.items()
    }


def _flipped(text: str, bit: int) -> str:
    """Change one bit of a base64 text."""
    data = bytearray(base64.b64decode(text))
    if data:
        data[bit // 8 % len(data)] ^= 1 << bit % 8
    return base64.b64encode(data).decode()


def _hurtful() -> st.SearchStrategy[str]:
    """Texts that are JSON, or that some parsers accept as JSON."""
    depths = st.integers(1, 9_000)
    return st.one_of(
        depths.map(lambda n: "[" * n + "]" * n),
        depths.map(lambda n: '{"a":' * n),
        st.integers(1, 6_000).map(lambda n: "9" * n),
        st.integers(1, 6_000).map(lambda n: "0." + "3" * n + "e-400"),
        st.sampled_from(
            ["NaN", "-Infinity", "1e999", "-0", "0123", "0x1F", "1.", "'a'", "// a", "[1,]", "\ufeff{}", "{}{}"]
        ),
        st.text(st.characters(exclude_categories=()), max_size=30).map(lambda text: '"' + text + '"'),
        st.sampled_from(
            [r'"\u0000"', r'"\ud800"', r'"\ud83d\ude00"', r'"\x41"', '"\x01"', '"a', '"' + "a" * 15_000 + '"']
        ),
        st.integers(1, 900).map(lambda n: "[" + ",".join(["0"] * n) + "]"),
        st.integers(1, 900).map(lambda n: "{" + ",".join(f'"k{i}":{i}' for i in range(n)) + "}"),
        _JSON.map(json.dumps),
    )


_MOSTLY = st.sampled_from(["cohorts", "bits", "period"] * 4 + ["batch_id", "metric", "digest"])
_INSTEAD, _HURTFUL = _instead(), _hurtful()


def _raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


def _with_every_optional_field(body: bytes) -> bytes:
    """A gzip member with extra field, name, comment and header checksum (RFC 1952, 2.3)."""
    head = b"\x1f\x8b\x08\x1f" + bytes(6) + struct.pack("<H", 4) + b"ab\0\0" + b"name\0" + b"comment\0"
    head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    return head + _raw_deflate(body) + struct.pack("<II", zlib.crc32(body), len(body))


_PACKERS: tuple[Callable[[bytes], bytes], ...] = (
    gzip.compress,
    lambda body: gzip.compress(body, 0),
    lambda body: gzip.compress(gzip.compress(body)),
    lambda body: gzip.compress(body) * 2,
    lambda body: gzip.compress(body)[:-4] + b"\0\0\0\0",
    lambda body: gzip.compress(body)[:-9],
    zlib.compress,
    _raw_deflate,
    _with_every_optional_field,
    bytes,
)
