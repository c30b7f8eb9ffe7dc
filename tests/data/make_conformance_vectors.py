"""Generate client/hubbub/conformance/vectors.json: the cases of `hubbub conformance`. Run this only for a new format.

python -m tests.data.make_conformance_vectors > client/hubbub/conformance/vectors.json
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from uuid import UUID

from examples.conformance_adapter import answer
from hubbub import Discovery
from hubbub.conformance.scripted_aggregator import BATCH_ID, refusal
from hubbub.sdk.upload.retry_policy import decide
from hubbub.sdk.upload.transport import parse_response
from hubbub.testing import SeededBytes
from hubbub.wire.batch import CONTENT_TYPE, Batch
from hubbub.wire.problems import PROBLEM_CONTENT_TYPE, ProblemType
from tests.data.make_format_vectors import (
    BOOLEAN,
    NUMBERS,
    STRING,
    asked_definitions,
    categorical,
    definition,
    joint,
    mean,
    ordinal,
    pair,
    set_of,
)

PLAIN = {"prob_p": 0, "prob_q": 1, "prob_f": 0}
"""Reports are the Bloom bits."""
PERMANENT = {"prob_p": 0, "prob_q": 1}
"""Reports are the permanent response."""
TEXTS: list[Any] = [
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
    "\u65e5\u672c\u8a9e",
    "https://example.org/",
    "0123456789abcdef",
    "0123456789abcdef0",
    "x" * 1000,
    None,
]
INVALID: list[Any] = ["\ud83d", "\ude00\ud83d", True, 1, 1.5, ["a"]]
GROUP = {"name": "version", "values": ["1.x", "2.x", "other"]}


def full(fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    """All fields of a definition."""
    sizes = {"num_hashes": 1, "num_cohorts": 1, "hash_scheme": "one-hot"}
    return sizes | definition(fields | more)


def encode(
    fields: dict[str, Any], values: Iterable[Any], periods: Iterable[str] = ("2026-11-23",), secrets: int = 1
) -> Iterator[dict[str, Any]]:
    for value in values:
        for period in periods:
            for number in range(secrets):
                seed = json.dumps([fields, value, period, number])
                yield {
                    "call": "encode",
                    "definition": fields,
                    "secret": SeededBytes(seed)(32).hex(),
                    "value": value,
                    "period": period,
                    "random": SeededBytes(f"coins {seed}")(256 if fields.get("prob_p") != 0 else 0).hex(),
                }


def one_hot() -> Iterator[dict[str, Any]]:
    systems = categorical("linux", "caf\u00e9", "\U0001f600", "other", other="other")
    yield from encode(
        full(systems, **PLAIN), ["linux", "Linux", "linux ", "caf\u00e9", "cafe\u0301", "\U0001f600", "other", "", None]
    )
    yield from encode(full(categorical("linux", "caf\u00e9"), **PLAIN), ["linux", "caf\u00e9", None])
    yield from encode(full(BOOLEAN, **PLAIN), [True, False, None])


def numbers() -> Iterator[dict[str, Any]]:
    of_json = [
        number
        for number in NUMBERS
        if isinstance(number, int | float) and not isinstance(number, bool) and abs(number) < 1e308
    ]
    yield from encode(full(ordinal(0, 0.1, 10, 20), **PLAIN), [*of_json, None])
    yield from encode(full(ordinal(0, 0.1, 10, 20, default=10), **PLAIN), [None, 5])
    yield from encode(full(ordinal(-0.0, 0.1, 1e22), **PLAIN), [-1e-300, 0.30000000000000004, 1e22])


def invalid() -> Iterator[dict[str, Any]]:
    yield from encode(full(STRING, **PLAIN), INVALID)
    yield from encode(full(categorical("linux", "caf\u00e9"), **PLAIN), ["Linux", "", "\ud83d", True, 1])
    yield from encode(full(BOOLEAN, **PLAIN), [0, 1, "true"])
    yield from encode(full(ordinal(0, 10, 20), **PLAIN), [True, "1", "", [1]])
    yield from encode(full(set_of("a", "b"), **PLAIN), [["c"], ["a", "c"], [1], "a"])
    yield from encode(joint(STRING | PLAIN, BOOLEAN | PLAIN), [["v1", 1], ["\ud83d", True], ["v1"], "v1"])


def permanent_symmetric() -> Iterator[dict[str, Any]]:
    for fields in (STRING, STRING | {"prob_f": 2.0**-23, "num_bits": 200}, STRING | {"prob_f": 0.45, "num_bits": 13}):
        yield from encode(full(fields, **PERMANENT), ["v1", "", None], secrets=2)
    yield from encode(full(BOOLEAN, **PERMANENT), [True, False], secrets=4)
    yield from encode(full(categorical("linux", "caf\u00e9"), **PERMANENT), ["caf\u00e9", None], secrets=2)
    yield from encode(full(ordinal(0, 0.1, 10, 20), **PERMANENT), [12], secrets=2)
    yield from encode(full(STRING, **PERMANENT, name="other"), ["v1"])


def permanent_asymmetric() -> Iterator[dict[str, Any]]:
    for response in (pair(0.1, 0.5), pair(0.25, 0.75), pair(2.0**-24, 1 - 2.0**-23)):
        yield from encode(full(STRING | response, **PERMANENT), ["v1", None], secrets=2)
    yield from encode(full(categorical("linux", "caf\u00e9") | pair(0.3, 0.875), **PERMANENT), ["caf\u00e9"], secrets=2)


def epochs() -> Iterator[dict[str, Any]]:
    days = ("1969-12-31", "1970-01-07", "1970-01-08", "2000-02-29", "2026-11-22")
    for hold in (1, 7):
        yield from encode(full(STRING, **PERMANENT, hold=hold), ["v1"], days)
    yield from encode(
        full(STRING | pair(0.1, 0.5), **PERMANENT, hold=2, period="week"),
        ["v1"],
        ("1969-12-29", "1970-01-05", "2026-11-16"),
    )
    yield from encode(
        full(BOOLEAN, **PERMANENT, hold=3, period="month"), [True], ("1970-01-01", "1970-12-01", "2026-11-01")
    )


def joints() -> Iterator[dict[str, Any]]:
    text, systems = STRING | PERMANENT, categorical("linux", "macos", "other", other="other") | PERMANENT
    other = STRING | {"name": "t", "num_bits": 13, "num_hashes": 1} | PERMANENT | pair(0.1, 0.5)
    yield from encode(
        joint(text, BOOLEAN | PERMANENT), [["v1", True], ["v1", None], ["", True], [None, True], None], secrets=2
    )
    yield from encode(
        joint(text | pair(0.1, 0.5), other, systems | pair(0.1, 0.5)), [["v1", "v2", "beos"], [None, "v1", "linux"]]
    )
    yield from encode(
        joint(BOOLEAN | PERMANENT, systems, hold=7), [[True, "macos"], [None, None]], ("2026-11-22", "2026-11-26")
    )


def subsets() -> Iterator[dict[str, Any]]:
    for ones, permanent in ((1, {}), (2, {}), (1, {"permanent_q": 0.6})):
        fields = categorical("a", "b", "c") | {"num_bits": 4, "num_ones": ones, "prob_q": 0.7} | permanent
        yield from encode(full(fields), ["a", "c", None], secrets=2)


def instantaneous() -> Iterator[dict[str, Any]]:
    for p, q in ((0.25, 0.75), (0.39, 0.61), (0, 0.5), (0.5, 1), (2.0**-24, 0.3)):
        for fields in (STRING, STRING | {"num_bits": 13}, BOOLEAN if p + q == 1 else categorical("linux", "macos")):
            value = "v1" if fields["kind"] == "string" else True if fields["kind"] == "boolean" else "linux"
            for case in encode(full(fields, prob_p=p, prob_q=q, prob_f=0), [value], secrets=2):
                yield case | {"random": SeededBytes(json.dumps(case))(256).hex()}


def discovery() -> Iterator[dict[str, Any]]:
    tables = (
        Discovery(longest=5, step=2, first=3, alphabet="ab\u00e9", held_out=0.25),
        Discovery(longest=8),
    )
    for table in tables:
        fields = full(STRING | {"num_cohorts": 128}, **PLAIN, discover=table.to_dict())
        yield from encode(fields, ["ababababab", "a", "", "caf\u00e9 au lait", None], secrets=6)


def means() -> Iterator[dict[str, Any]]:
    for fields in (mean(0, 50), mean(-0.5, 1e22, default=-7)):
        yield from encode(full(fields, **PLAIN), [0, 20, 49.999, 50, -1, None], secrets=3)
    between = [number + 0.5 for number in range(1, 50, 4)]  # on both sides of a threshold in any part of a cohort
    yield from encode(full(mean(0, 50) | {"num_cohorts": 1}, **PLAIN), between, secrets=3)


def sets() -> Iterator[dict[str, Any]]:
    yield from encode(full(set_of("a", "b\u00e9", "c"), **PLAIN), [["a", "b\u00e9"], [], ["c"], None], secrets=4)
    yield from encode(full(set_of("a", "b"), **PERMANENT), [["a"], ["b"]], secrets=4)


def whole_sets() -> Iterator[dict[str, Any]]:
    few = ["a", "b\u00e9", "c"]
    many = [f"i{number}" for number in range(100)]
    for items, most, ones, hit, values, hold in (
        (few, 1, 2, 0.9375, [None, [], ["c"], ["c", "a", "c"], few, ["d"], "a"], None),
        (few, 2, 2, 0.9375, [["b\u00e9"], ["a", "c"], few], 7),
        (many, 5, 6, 0.5, [[], many[95:97], many[::20], many[3:40], many], None),
        (many, 40, 8, 1 - 2.0**-8, [many[:3], many[:60]], None),
    ):
        rows = {"num_bits": len(items) + most, "num_cohorts": 1, "hash_scheme": "set-row-v1", "hold": hold}
        mechanism = {"mechanism": "privset", "max_items": most, "num_ones": ones, "prob_hit": hit}
        for case in encode(full(set_of(*items) | rows | mechanism), values, secrets=3):
            yield case | {"random": SeededBytes(f"rows {json.dumps(case)}")(2048).hex()}
    for most, hold in ((2, None), (20, 7)):
        rows = {"num_bits": 64, "num_cohorts": 8, "hash_scheme": "set-hash-v1", "hold": hold}
        mechanism = {"mechanism": "privset", "max_items": most, "num_ones": 3, "prob_hit": 1 - 2.0**-8}
        for case in encode(
            full(set_of() | rows | mechanism), [[], ["b\u00e9", "b\u00e9", ""], many[:30], [7]], secrets=3
        ):
            yield case | {"random": SeededBytes(f"rows {json.dumps(case)}")(2048).hex()}


def batches() -> Iterator[dict[str, Any]]:
    ids = iter(SeededBytes("batches")(16) for _ in range(99))
    largest = full(categorical(*(f"c{number}" for number in range(1024))), name="m" * 64, group=GROUP)
    for fields, number, group in (
        (full(STRING), 1, ""),
        (full(STRING | {"num_bits": 13, "num_cohorts": 256}), 1, ""),
        (full(BOOLEAN, period="month"), 1, ""),
        (largest, 1, "other"),
        (full(BOOLEAN, group=GROUP), 1, "1.x"),
        (full(STRING), 40, ""),
    ):
        drawn = SeededBytes(json.dumps([fields, number]))
        bits = fields["num_bits"]
        rows = [
            (int.from_bytes(drawn(128), "little") & ((1 << bits) - 1)).to_bytes((bits + 7) // 8, "little").hex()
            for _ in range(number)
        ]
        reports = [{"cohort": drawn(1)[0] % fields["num_cohorts"], "bits": row} for row in rows]
        raw = bytearray(next(ids))
        raw[6], raw[8] = raw[6] & 15 | 64, raw[8] & 63 | 128  # of a random UUID
        text = raw.hex()
        batch_id = "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
        yield {
            "call": "batch",
            "definition": fields,
            "batch_id": batch_id,
            "period": "2026-11-01",
            "group": group,
            "reports": reports,
        }


def definitions(*, allowed: bool) -> Iterator[dict[str, Any]]:
    asked = [
        fields if fields["kind"] == "joint" else {"num_hashes": 1, "num_cohorts": 1, "hash_scheme": "one-hot"} | fields
        for fields in asked_definitions()
    ]
    asked += [
        full(BOOLEAN, group=GROUP),
        full(STRING, group=GROUP | {"values": ["a", "other"]}),
        full(BOOLEAN, group=GROUP | {"values": ["1.x"]}),
        full(STRING | {"num_cohorts": 128}, discover={"longest": 8, "alphabet": "ab"}),
        full(STRING | {"num_cohorts": 128}, discover={"longest": 8, "alphabet": "ab", "method": "ngrams"}),
    ]
    for fields in asked:
        request = {"call": "digest", "definition": fields}
        if ("digest" in answer(json.loads(json.dumps(request)))) is allowed:
            yield request


RULES: tuple[tuple[str, str, Callable[[], Iterator[dict[str, Any]]]], ...] = (
    ("digest of a definition", "Metric digest", lambda: definitions(allowed=True)),
    ("definitions that no client may report", "Allowed definitions", lambda: definitions(allowed=False)),
    (
        "strings, hashed by murmur3-v1 in the cohort of the secret",
        "Hashing",
        lambda: encode(full(STRING, **PLAIN), TEXTS, secrets=3),
    ),
    ("categories and booleans", "Values", one_hot),
    ("numbers in buckets", "Values", numbers),
    ("invalid values are refused", "Values", invalid),
    ("symmetric permanent response", "Streams derived from the secret", permanent_symmetric),
    ("asymmetric permanent response", "Streams derived from the secret", permanent_asymmetric),
    ("epochs", "Epochs", epochs),
    ("joint metrics", "Streams derived from the secret", joints),
    ("subset selection", "Subset selection", subsets),
    ("instantaneous response", "Streams derived from the secret", instantaneous),
    ("fragments for discovery", "Discovery", discovery),
    ("thresholds of means", "Thresholds", means),
    ("sets", "Values", sets),
    ("body of a request", "Batches", batches),
    ("whole sets", "PrivSet", whole_sets),
)


STATUSES = [
    *(101, 200, 201, 202, 203, 204, 206, 301, 302, 304, 307, 308),
    *(400, 401, 403, 404, 405, 407, 408, 409, 410, 411, 413, 414, 415, 417, 421, 422, 425, 426, 429, 431, 451),
    *(500, 501, 502, 503, 504, 507, 511, 599),
]
PAGE = "<html><head><title>Request Entity Too Large</title></head><body><center><h1>nginx</h1></center></body></html>"
SIZE = json.dumps({"type": "/problems/wrong-size", "title": "t", "status": 422, "detail": "d"})
STORED, DUPLICATE = (json.dumps({"batch_id": BATCH_ID, "status": status}) for status in ("stored", "duplicate"))


def like(text: str, **fields: Any) -> str:
    """A JSON object with other fields."""
    return json.dumps(json.loads(text) | fields)


def bodies() -> Iterator[tuple[str, str | None, str]]:
    """What a body is, its media type, and its text."""
    problem, plain = PROBLEM_CONTENT_TYPE, CONTENT_TYPE
    yield "no body", None, ""
    yield "no body and the media type of a problem", problem, ""
    yield "a page", "text/html", PAGE
    yield "a page as a problem", problem, PAGE
    yield "a page as JSON", plain, PAGE
    yield "plain text", "text/plain; charset=utf-8", "Bad Request\n"
    yield "another service's JSON", plain, json.dumps({"error": "invalid", "code": 422})
    yield "another service's batch", plain, json.dumps({"batch_id": BATCH_ID})
    yield (
        "the request itself",
        plain,
        json.dumps({"batch_id": BATCH_ID, "metric": "answered_00", "cohorts": [0], "bits": "AA=="}),
    )
    yield "another service's problem without a type", problem, json.dumps({"type": "about:blank", "status": 422})
    yield "another service's problem", problem, like(SIZE, type="https://example.com/errors/out-of-credit")
    yield (
        "another service's problem with a known name",
        problem,
        like(SIZE, type="https://example.com/problems/wrong-size"),
    )
    for kind in (
        "/problems/future-type",
        "/problems/wrong-size/",
        "/problems/WRONG-SIZE",
        "/problems/",
        "problems/wrong-size",
        "wrong-size",
    ):
        yield f"a problem of the type {kind}", problem, like(SIZE, type=kind)
    for value in (None, 422, ["/problems/wrong-size"], {"/problems/wrong-size": 1}):
        yield f"a problem whose type is {json.dumps(value)}", problem, like(SIZE, type=value)
    for status in ("422", None, True, 400, 422.5):
        yield f"a problem whose field status is {json.dumps(status)}", problem, like(SIZE, status=status)
    yield "a problem without its status", problem, json.dumps({"type": "/problems/wrong-size"})
    for media_type in (
        None,
        plain,
        "text/html",
        "application/problem+xml",
        "application/x-problem+json",
        f"{problem}x",
        "problem+json",
    ):
        yield f"a problem as {media_type}", media_type, SIZE
    for media_type in (
        f"{problem}; charset=utf-8",
        f"{problem};charset=UTF-8;v=1",
        "Application/Problem+JSON",
        f"{problem} ;",
    ):
        yield f"a problem as {media_type}", media_type, SIZE
    for text in ("null", "[]", "422", '"/problems/wrong-size"', f"[{SIZE}]"):
        yield f"the JSON {text[:40]}", problem, text
    yield "half a problem", problem, SIZE[:40]
    yield "a problem and more", problem, f"{SIZE}{SIZE}"
    yield "a problem of nested lists", problem, like(SIZE, detail=0).replace(": 0", ": " + "[" * 3_000)
    yield "a problem that is not UTF-8", problem, SIZE.replace('"d"', '"\xff"')
    yield "a problem after a byte order mark", problem, f"\xef\xbb\xbf{SIZE}"
    yield "a problem in UTF-16", problem, SIZE.encode("utf-16").decode("latin-1")
    yield "a problem with a number that JSON lacks", problem, SIZE.replace('"d"', "NaN")
    yield "a problem in white space", problem, f"\r\n {SIZE}\n"
    yield "a problem with another field", problem, like(SIZE, batch_id=BATCH_ID)
    for problem_type in ProblemType:
        yield f"the problem {problem_type.slug}", problem, refusal(problem_type).text
    yield "an acceptance", plain, STORED
    yield "an acceptance of a batch that was stored", plain, DUPLICATE
    yield "an acceptance with a charset", f"{plain}; charset=utf-8", STORED
    yield "an acceptance of another batch", plain, like(STORED, batch_id="4d3c0e46-4b1c-4b7e-9f55-3a8f3c2d1e0f")
    yield "an acceptance of no batch", plain, json.dumps({"status": "stored"})
    for batch_id in (None, 1, [BATCH_ID]):
        yield f"an acceptance whose batch_id is {json.dumps(batch_id)}", plain, like(STORED, batch_id=batch_id)
    for said in (None, 202, "ok", "closed", "Stored"):
        yield f"an acceptance whose field status is {json.dumps(said)}", plain, like(STORED, status=said)
    for media_type in (None, "text/html", "text/json", problem):
        yield f"an acceptance as {media_type}", media_type, STORED
    yield "half an acceptance", plain, STORED[:-3]
    yield "an acceptance in a list", plain, f"[{STORED}]"


def action_of(status: int, media_type: str | None, text: str) -> str:
    """What an answer to a batch of one report means for this project's client."""
    batch = Batch(UUID(int=1), "m", "d", "2026-11-23", b"\0", b"\0")
    body = text.replace(BATCH_ID, str(batch.batch_id)).encode("latin-1")
    response = parse_response(status, {} if media_type is None else {"Content-Type": media_type}, body)
    return str(decide(response, batch, possibly_delivered=False).name).lower().replace("_", "-").removesuffix("-batch")


def answers() -> dict[str, Any]:
    """Table of statuses and bodies, with the action where it is not "retry"."""
    table = []
    for body, media_type, text in bodies():
        actions = {str(status): action_of(status, media_type, text) for status in STATUSES}
        others = {status: action for status, action in actions.items() if action != "retry"}
        table.append({"body": body, "media_type": media_type, "text": text, "actions": others})
    return {"statuses": STATUSES, "bodies": table}


def vectors() -> dict[str, Any]:
    """Rules with their cases, and answers; what is expected is what this project's client does."""
    rules = []
    for number, (title, section, make) in enumerate(RULES, start=1):
        cases = [{"request": request, "expected": answer(json.loads(json.dumps(request)))} for request in make()]
        rules.append({"number": number, "title": title, "section": section, "cases": cases})
    return {"protocol": 1, "rules": rules, "answers": answers()}


if __name__ == "__main__":
    print(json.dumps(vectors(), separators=(",", ":")))  # noqa: T201
