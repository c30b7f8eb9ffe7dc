"""docs/reference/format.md: its vectors against hubbub, and against a second implementation written from that page only.

Everything above "hubbub" imports nothing of hubbub. Change the page first, then both implementations.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
import re
import struct
import subprocess
import sys
from datetime import date, timedelta
from fractions import Fraction
from typing import Any

import pytest

from hubbub import (
    Definitions,
    Encoder,
    HubbubError,
    InvalidValueError,
    Metric,
    Params,
    PeriodKind,
    Secret,
    UnaryResponse,
)
from hubbub.encoding.bloom import bloom_bits
from hubbub.encoding.responses import PermanentResponse
from hubbub.errors import DefinitionError
from hubbub.mechanisms.probability import numerator, round_to_dyadic
from hubbub.metrics.periods import Period, period_number
from hubbub.testing import deliver
from tests.client.conftest import Rig
from tests.data import make_format_vectors
from tests.support.paths import DATA

VECTORS: dict[str, list[dict[str, Any]]] = json.loads((DATA / "format_vectors.json").read_text())

# --- the page, in Python ---------------------------------------------------------------------------------------

ALL_64 = (1 << 64) - 1


def a_of(double: float, digits: int) -> int | None:
    """Probabilities: the nearest a / 2^digits, a tie to the even a; None where it is refused."""
    exact = Fraction(double) * (1 << digits)
    a = math.floor(exact)
    if exact - a > Fraction(1, 2) or (exact - a == Fraction(1, 2) and a % 2 == 1):
        a += 1
    if not 0 <= double <= 1 or (0 < double < 1 and a in (0, 1 << digits)):
        return None
    return a


def is_allowed(fields: dict[str, Any]) -> bool:
    """Allowed definitions."""
    if fields["kind"] == "joint":
        return has_valid_parts(fields)
    k, h, m = fields["num_bits"], fields["num_hashes"], fields["num_cohorts"]
    p, q, response = a_of(fields["prob_p"], 24), a_of(fields["prob_q"], 24), response_of(fields)
    if p is None or q is None or response is None or not p < q:
        return False
    if len(response) == 2 and fields["kind"] in ("boolean", "set"):
        return False
    if not re.fullmatch(r"[a-z][a-z0-9_.-]{0,63}", fields["name"]) or (
        fields["hold"] is not None and fields["hold"] < 1
    ):
        return False
    categories = fields["categories"]
    if ("buckets" in fields) != (fields["kind"] == "ordinal"):
        return False
    if fields["kind"] == "string":
        sizes = 8 <= k <= 1024 and 1 <= h < k and fields["hash_scheme"] == "murmur3-v1"
        return sizes and m in [2**i for i in range(9)] and not categories and fields["other"] is None
    if ("items" in fields) != (fields["kind"] == "set"):
        return False
    if fields["kind"] == "set":
        items = fields["items"]
        valid = all(item and "," not in item and utf8(item) is not None for item in items)
        sizes = (k, h, m, fields["hash_scheme"]) == (1, 1, len(items), "set-v1")
        return valid and sizes and 2 <= len(set(items)) == len(items) <= 256 and not categories
    if fields["kind"] == "ordinal" and "estimate" in fields["buckets"]:
        scheme = (k, h, fields["hash_scheme"]) == (1, 1, "threshold-v1") and m in [2**i for i in range(9)]
        return scheme and "f" in response and has_valid_range(fields["buckets"])
    if (h, m, fields["hash_scheme"]) != (1, 1, "one-hot"):
        return False
    if fields["kind"] == "boolean":
        return bool(k == 1 and not categories and fields["other"] is None)
    if fields["kind"] == "ordinal":
        return has_valid_buckets(fields["buckets"], k) and not categories and fields["other"] is None
    texts = all(category and utf8(category) is not None for category in categories)
    distinct = len(set(categories)) == len(categories) == k
    return distinct and texts and 2 <= k <= 1024 and fields["other"] in [None, *categories]


def has_valid_parts(fields: dict[str, Any]) -> bool:
    """Allowed definitions, joint."""
    parts = fields["parts"]
    names = {part["name"] for part in parts}
    if not (2 <= len(parts) == len(names) <= 3 and (fields["hold"] is None or fields["hold"] >= 1)):
        return False
    if not all(part["kind"] in ("string", "categorical", "boolean") and "discover" not in part for part in parts):
        return False
    if not all(is_allowed(part | {"period": "day", "hold": None}) for part in parts):
        return False
    one_m = len({part["num_cohorts"] for part in parts if part["kind"] == "string"}) < 2
    noise = {response_of(part) != {"f": 0} for part in parts}
    return one_m and len(noise) == 1 and sum(part["num_bits"] for part in parts) <= 1024


def has_valid_buckets(buckets: dict[str, Any], k: int) -> bool:
    """Buckets."""
    edges = [float(edge) for edge in buckets["edges"]]
    increasing = all(left < right for left, right in itertools.pairwise(edges))
    return increasing and 2 <= k == len(edges) - 1 <= 1024 and buckets["several"] in ("one", "sum", "max", "last")


def has_valid_range(buckets: dict[str, Any]) -> bool:
    """Buckets, with estimate = "mean"."""
    low, *rest = (float(edge) for edge in buckets["edges"])
    complete = buckets["estimate"] == "mean" and buckets["default"] is not None and not buckets.get("representatives")
    return complete and len(rest) == 1 and 0 < rest[0] - low < math.inf


def response_of(fields: dict[str, Any]) -> dict[str, int] | None:
    """Permanent response: the a of f, or those of permanent_p and permanent_q; None where it is refused."""
    if ("prob_f" in fields) == ("permanent_p" in fields):
        return None
    if "prob_f" in fields:
        f = a_of(fields["prob_f"], 23)
        return None if f in (None, 2**23) else {"f": f}
    b, a = a_of(fields["permanent_p"], 24), a_of(fields["permanent_q"], 24)
    if b is None or a is None or not b < a:
        return None
    if b + a == 2**24:
        return {"f": b}
    return {"permanent_p": b, "permanent_q": a} if b > 0 and a < 2**24 else None


def utf8(text: str) -> bytes | None:
    return None if any(0xD800 <= ord(c) <= 0xDFFF for c in text) else text.encode("utf-8")


def as_json(value: Any) -> str:
    """The JSON of a digest."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{as_json(key)}:{as_json(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(as_json, value)) + "]"
    if value is None:
        return "null"
    if isinstance(value, int):
        return str(value)
    short = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
    out = ""
    for c in value:
        code = ord(c)
        if c in short:
            out += short[c]
        elif 0x20 <= code <= 0x7E:
            out += c
        elif code <= 0xFFFF:
            out += f"\\u{code:04x}"
        else:
            high, low = divmod(code - 0x10000, 0x400)
            out += f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
    return f'"{out}"'


def digest_of(fields: dict[str, Any]) -> str:
    """Metric digest."""
    canonical = {name: fields[name] for name in ("hold", "period")}
    if fields["kind"] == "joint":
        canonical |= {name: fields[name] for name in ("kind", "name")} | {
            "parts": [*map(mechanism_of, fields["parts"])]
        }
    else:
        canonical |= mechanism_of(fields)
    return hashlib.sha256(b"hubbub-metric-v1\n" + as_json(canonical).encode("ascii")).hexdigest()


def mechanism_of(fields: dict[str, Any]) -> dict[str, Any]:
    names = ("categories", "hash_scheme", "kind", "name", "num_bits", "num_cohorts", "num_hashes", "other")
    canonical = {name: fields[name] for name in names}
    if "max_items" in fields:
        canonical |= {"mechanism": "privset", "max_items": fields["max_items"], "w": fields["num_ones"]}
        canonical |= {"hit": a_of(fields["prob_hit"], 24)}
        return {**canonical, "items": fields["items"]}
    canonical["q"] = a_of(fields["prob_q"], 24)
    if "num_ones" in fields:
        canonical |= {"mechanism": "subset", "w": fields["num_ones"]}
        canonical |= {"permanent_q": a_of(fields.get("permanent_q", 1.0), 24)}
    else:
        canonical |= {"p": a_of(fields["prob_p"], 24), **(response_of(fields) or {})}
    if "discover" in fields:
        canonical["discover"] = discover_of(fields)
    if "items" in fields:
        canonical["items"] = fields["items"]
    if "buckets" in fields:
        buckets = fields["buckets"]
        canonical["buckets"] = {
            "default": None if buckets["default"] is None else double_of(buckets["default"], ">").hex(),
            "edges": [double_of(edge, ">").hex() for edge in buckets["edges"]],
            "several": buckets["several"],
            "unit": buckets["unit"],
            **({"estimate": "mean"} if "estimate" in buckets else {}),
        }
    return canonical


def discover_of(fields: dict[str, Any]) -> dict[str, Any]:
    """Discovery: the table with its defaults, held_out as a number of cohorts."""
    table = {"step": 2, "alphabet": None, "held_out": 0.1} | fields["discover"]
    held_out: int = max(1, round(table["held_out"] * fields["num_cohorts"]))
    shortest = min(2 * table["step"], 8) if "method" in table else table["step"]
    whole: dict[str, Any] = {"first": min(shortest, table["longest"] + 1)} | table | {"held_out": held_out}
    return whole


def group_and_fragment_of(fields: dict[str, Any], cohort: int, value: str | None) -> tuple[int, bytes | None]:
    """Discovery: the group of a cohort, and the bytes that it reports of a value."""
    table = discover_of(fields)
    lengths, length = [], table["first"]
    while length < table["longest"] + 1:
        lengths.append(length)
        length += table["step"]
    lengths.append(table["longest"] + 1)
    prefixes = fields["num_cohorts"] - table["held_out"]
    group = len(lengths) if cohort >= prefixes else cohort * len(lengths) // prefixes
    if value is None or group == len(lengths):
        return group, None if value is None else value.encode()
    if table["alphabet"] is None:
        symbols = [bytes([byte]) for byte in value.encode()]
    else:
        symbols = [character.encode() for character in value]
    start = lengths[group] - table["first"] if "method" in table else 0
    return group, b"".join([*symbols, b"\xff"][start : lengths[group]]) or b"\xff"


def metric_cohort_of(secret: bytes, name: str, m: int) -> int:
    stream = framed(b"hubbub/discovery-cohort/v1") + framed(secret) + framed(name.encode())
    return int.from_bytes(hashlib.shake_256(stream).digest(8), "little") % m


def set_bit_of(items: list[str], value: object, cohort: int) -> int | None:
    """Values of a set; None: invalid."""
    if value is None:
        return 0
    if type(value) is not list or not all(item in items for item in value):
        return None
    return int(items[cohort] in value)


def others_of(words: list[int], d: int, y: int) -> list[int]:
    """Positions among the others than y, of the words that are not rejected."""
    kept = [word & (1 << (d - 2).bit_length()) - 1 for word in words]
    return [position + (position >= y) for position in kept if position < d - 1]


def row_prr_of(fields: dict[str, Any], stream: bytes, bloom: int) -> int:
    """Subset selection: the PRR, from the PRR stream."""
    x, a = bloom.bit_length() - 1, a_of(fields.get("permanent_q", 1.0), 24)
    if a == 2**24 or int.from_bytes(stream[:3], "little") < (a or 0):
        return bloom
    words = [int.from_bytes(stream[at : at + 2], "little") for at in range(3, 3 + 2 * 128, 2)]
    return int(1 << others_of(words, fields["num_bits"], x)[0])  # in all vectors some word is not rejected


def row_irr_of(fields: dict[str, Any], y: int, coins: bytes) -> tuple[int, int]:
    """The row, and the number of bytes that were read."""
    d, w, at = fields["num_bits"], fields["num_ones"], 3
    has_it = int.from_bytes(coins[:3], "little") < (a_of(fields["prob_q"], 24) or 0)
    ones = {y} if has_it else set()
    while len(ones) < w:
        missing = w - len(ones)
        words = [int.from_bytes(coins[place : place + 2], "little") for place in range(at, at + 2 * missing, 2)]
        ones |= set(others_of(words, d, y))
        at += 2 * missing
    return sum(1 << one for one in ones), at


def item_bits_of(fields: dict[str, Any], value: object, cohort: int) -> int | None:
    """Values of a whole set; None: invalid."""
    items = fields["items"]
    if value is None:
        return 0
    if type(value) is not list or not all(item in items or (not items and type(item) is str) for item in value):
        return None
    if not items:
        buckets = fields["num_bits"] - fields["max_items"]
        return sum({1 << positions_of(item.encode(), cohort, buckets, 1)[0] for item in value})
    return sum(1 << bit for bit, item in enumerate(items) if item in value)


def true_set_of(fields: dict[str, Any], stream: bytes, bloom: int) -> int:
    """PrivSet: the PRR, from the PRR stream."""
    k, m = fields["num_bits"], fields["max_items"]
    words = [(int.from_bytes(stream[8 * bit : 8 * bit + 8], "little"), bit) for bit in range(k)]
    own = [word for word in words if bloom >> word[1] & 1]
    blank = words[k - m :]
    chosen = sorted(own)[:m] if len(own) > m else own + sorted(blank)[: m - len(own)]
    return sum(1 << bit for _, bit in chosen)


def set_row_of(fields: dict[str, Any], true_set: int, coins: bytes) -> tuple[int, int]:
    """The row of a whole set, and the number of bytes that were read."""
    k, m, w, at = fields["num_bits"], fields["max_items"], fields["num_ones"], 3
    inside = 0
    if int.from_bytes(coins[:3], "little") < (a_of(fields["prob_hit"], 24) or 0):
        largest = math.comb(k, w) - math.comb(k - m, w) - 1
        bits, drawn = largest.bit_length(), largest + 1
        while drawn > largest:
            read = -(-bits // 8)
            drawn = int.from_bytes(coins[at : at + read], "little") % 2**bits
            at += read
        while drawn >= 0:
            inside += 1
            drawn -= math.comb(m, inside) * math.comb(k - m, w - inside)
    row = set()
    members = [bit for bit in range(k) if true_set >> bit & 1]
    others = [bit for bit in range(k) if not true_set >> bit & 1]
    for positions, number in ((members, inside), (others, w - inside)):
        found: list[int] = []
        while len(found) < number:
            for _ in range(number - len(found)):
                place = int.from_bytes(coins[at : at + 2], "little") % 2 ** (len(positions) - 1).bit_length()
                at += 2
                if place < len(positions) and positions[place] not in found:
                    found.append(positions[place])
        row |= set(found)
    return sum(1 << bit for bit in row), at


def threshold_word_of(secret: bytes, name: str) -> bytes:
    return hashlib.shake_256(framed(b"hubbub/threshold/v1") + framed(secret) + framed(name.encode())).digest(5)


def mean_bit_of(fields: dict[str, Any], value: float | None, cohort: int, word: bytes) -> int:
    """Thresholds; the threshold as an exact fraction."""
    number = fields["buckets"]["default"] if value is None else value
    low, high = (float(edge) for edge in fields["buckets"]["edges"])
    largest = int(sys.float_info.max)
    place = min(max((float(min(max(number, -largest), largest)) - low) / (high - low), 0.0), 1.0)
    threshold = Fraction((cohort << 40) + int.from_bytes(word, "little") + 1, fields["num_cohorts"] << 40)
    return int(Fraction(place) >= threshold)


def double_of(number: float, order: str) -> bytes:
    return struct.pack(f"{order}d", 0.0 if number == 0 else number)


def mix(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & ALL_64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & ALL_64
    return x ^ (x >> 31)


def murmur3_x64_128(data: bytes) -> tuple[int, int]:
    """MurmurHash3 x64 128-bit, seed 0 (Appleby's public-domain description)."""
    c1, c2, h1, h2 = 0x87C37B91114253D5, 0x4CF5AD432745937F, 0, 0

    def rotated(x: int, by: int) -> int:
        return (x << by | x >> 64 - by) & ALL_64

    def final(x: int) -> int:
        x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & ALL_64
        x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & ALL_64
        return x ^ x >> 33

    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        k1, k2 = (int.from_bytes(data[at + half : at + half + 8], "little") for half in (0, 8))
        h1 ^= rotated(k1 * c1 & ALL_64, 31) * c2 & ALL_64
        h1 = ((rotated(h1, 27) + h2) * 5 + 0x52DCE729) & ALL_64
        h2 ^= rotated(k2 * c2 & ALL_64, 33) * c1 & ALL_64
        h2 = ((rotated(h2, 31) + h1) * 5 + 0x38495AB5) & ALL_64
    k1, k2 = (int.from_bytes(data[whole + half : whole + half + 8], "little") for half in (0, 8))
    h2 ^= rotated(k2 * c2 & ALL_64, 33) * c1 & ALL_64
    h1 ^= rotated(k1 * c1 & ALL_64, 31) * c2 & ALL_64
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & ALL_64
    h2 = (h2 + h1) & ALL_64
    h1, h2 = final(h1), final(h2)
    h1 = (h1 + h2) & ALL_64
    return h1, (h2 + h1) & ALL_64


def positions_of(value: bytes, cohort: int, k: int, h: int) -> list[int]:
    """Hashing."""
    g1, g2 = murmur3_x64_128(value)
    free, taken = list(range(k)), []
    for i in range(h):
        u = mix((mix(g1 ^ mix(cohort)) + g2 + i) & ALL_64)
        taken.append(free.pop((u >> 32) * (k - i) >> 32))
    return taken


def bloom_of(fields: dict[str, Any], value: object, cohort: int) -> int | None:
    """Values; None: invalid."""
    if fields["kind"] == "joint":
        values = [None] * len(fields["parts"]) if value is None else value
        if type(values) is not list or len(values) != len(fields["parts"]):
            return None
        rows = [
            bloom_of(part, part_value, cohort) for (part, _), part_value in zip(parts_of(fields), values, strict=True)
        ]
        if None in rows:
            return None
        return sum(row << at for (_, at), row in zip(parts_of(fields), rows, strict=True) if row)
    if fields["kind"] == "ordinal":
        number: Any = fields["buckets"]["default"] if value is None else value
        if number is None:
            return 0
        if type(number) not in (int, float):
            return None
        inner: list[float] = fields["buckets"]["edges"][1:-1]
        return 1 << int(sum(number >= edge for edge in inner))
    if value is None:
        return 1 << fields["num_bits"] - 1 if "num_ones" in fields else 0
    if fields["kind"] == "boolean":
        return {True: 1, False: 0}[value] if type(value) is bool else None
    if type(value) is not str:
        return None
    if fields["kind"] == "categorical":
        listed = value if value in fields["categories"] else fields["other"]
        return None if listed is None else 1 << fields["categories"].index(listed)
    text = utf8(value)
    if text is None:
        return None
    bits = 0
    for at in positions_of(text, cohort, fields["num_bits"], fields["num_hashes"]):
        bits |= 1 << at
    return bits


def number_of(period: str, start: date) -> int:
    """Epochs: the number of a period."""
    days = (start - date(1970, 1, 1)).days
    return {"day": days, "week": (days + 3) // 7, "month": 12 * (start.year - 1970) + start.month - 1}[period]


def framed(field: bytes) -> bytes:
    return len(field).to_bytes(8, "little") + field


def cohort_of(secret: bytes, m: int) -> int:
    return hashlib.shake_256(framed(b"hubbub/cohort/v1") + framed(secret)).digest(1)[0] % m


def mask_of(a: int, r: int, k: int, words: list[bytes]) -> int:
    """Bits and words: takes from the front of `words`."""
    ones = (1 << k) - 1
    if a in (0, 2**r):
        return ones if a else 0
    mask, still_open, lowest = 0, ones, next(j for j in range(r) if a >> j & 1)
    for j in range(r - 1, lowest - 1, -1):
        if not still_open:
            break
        word = int.from_bytes(words.pop(0), "little") & ones
        if a >> j & 1:
            mask |= still_open & ~word
            still_open &= word
        else:
            still_open &= ~word
    return mask


def parts_of(fields: dict[str, Any]) -> list[tuple[dict[str, Any], int]]:
    """The parts of a joint metric, each with the position of its first bit; of another metric, itself."""
    parts = fields.get("parts", [fields])
    return [(part, sum(before["num_bits"] for before in parts[:at])) for at, part in enumerate(parts)]


def row_bytes(fields: dict[str, Any]) -> int:
    return int(sum(part["num_bits"] for part, _ in parts_of(fields)) + 7) // 8


def key_of(fields: dict[str, Any], value: Any, bloom: int) -> bytes:
    """Streams: the key of a value."""
    values = value if isinstance(value, list) else [value] * len(parts_of(fields))
    key = bloom.to_bytes(row_bytes(fields), "little")
    if "items" in fields:
        return key
    for (part, _), part_value in zip(parts_of(fields), values, strict=True):
        if part["kind"] == "string":
            key += bytes(16) if part_value is None else hashlib.sha256(part_value.encode()).digest()[:16]
    return key


def prr_input(fields: dict[str, Any], part: str, secret: bytes, epoch: int | None, key: bytes) -> bytes:
    """From a secret: all that the PRR stream of a part reads; part : "" if the metric is not joint."""
    of_epoch = b"" if epoch is None else epoch.to_bytes(8, "little", signed=True)
    read = (b"hubbub/prr/v2", secret, bytes.fromhex(digest_of(fields)), part.encode(), of_epoch, key)
    return b"".join(map(framed, read))


def prr_of(fields: dict[str, Any], secret: bytes, epoch: int | None, value: Any, bloom: int) -> bytes:
    """The PRR of all parts."""
    bits, key = 0, key_of(fields, value, bloom)
    for part, at in parts_of(fields):
        k, width = part["num_bits"], (part["num_bits"] + 7) // 8
        name = part["name"] if "parts" in fields else ""
        stream = hashlib.shake_256(prr_input(fields, name, secret, epoch, key)).digest(64 * width + 259)
        true = bloom >> at & (1 << k) - 1
        if "max_items" in part:
            bits |= true_set_of(part, stream, true) << at
            continue
        if "num_ones" in part:
            bits |= row_prr_of(part, stream, true) << at
            continue
        words, response = [stream[at : at + width] for at in range(0, 48 * width, width)], response_of(part) or {}
        if "f" in response:
            mask = mask_of(response["f"], 23, k, words)
            of_part = true & ~mask | int.from_bytes(words.pop(0), "little") & mask
        else:
            mask_b = mask_of(response["permanent_p"], 24, k, words)
            of_part = mask_b & ~true | mask_of(response["permanent_q"], 24, k, words) & true
        bits |= of_part << at
    return bits.to_bytes(row_bytes(fields), "little")


def num_words(a: int) -> int:
    """Bits and words: the most words that the mask of a / 2^24 draws."""
    return 0 if a in (0, 2**24) else 24 - next(j for j in range(24) if a >> j & 1)


def report_of(fields: dict[str, Any], prr: bytes, coins: bytes) -> bytes:
    """The IRR of all parts: each reads blocks of words, and drops what is left of its last block."""
    bits = 0
    for part, at in parts_of(fields):
        k, width = part["num_bits"], (part["num_bits"] + 7) // 8
        if "num_ones" in part:
            permanent = int.from_bytes(prr, "little") >> at & (1 << k) - 1
            if "max_items" in part:
                row, taken = set_row_of(part, permanent, coins)
                bits, coins = bits | row << at, coins[taken:]
                continue
            row, taken = row_irr_of(part, permanent.bit_length() - 1, coins)
            bits, coins = bits | row << at, coins[taken:]
            continue
        p, q = a_of(part["prob_p"], 24) or 0, a_of(part["prob_q"], 24) or 0
        words = [coins[at : at + width] for at in range(0, len(coins) - width + 1, width)]
        given, block = len(words), min(num_words(p) + num_words(q), 16)
        of_part = int.from_bytes(prr, "little") >> at & (1 << k) - 1
        bits |= int.from_bytes(irr_of(k, p, q, of_part.to_bytes(width, "little"), words), "little") << at
        taken = given - len(words)
        first_block = block if num_words(p) + num_words(q) <= 16 else 0
        coins = coins[width * max(first_block, -(-taken // block) * block if block else 0) :]
    return bits.to_bytes(row_bytes(fields), "little")


def irr_of(k: int, p: int, q: int, prr: bytes, words: list[bytes]) -> bytes:
    bits = int.from_bytes(prr, "little")
    of_p = mask_of(p, 24, k, words)
    of_q = mask_of(q, 24, k, words)
    return (of_p & ~bits | of_q & bits).to_bytes(len(prr), "little")


# --- the second implementation against the vectors ---------------------------------------------------------------


def test_format_page_implementation_matches_every_vector() -> None:
    for v in VECTORS["probabilities"]:
        assert v["a"] == a_of(v["double"], v["digits"]), v
        assert Fraction(v["exact"]) == Fraction(v["double"])
    for v in VECTORS["definitions"]:
        assert v["allowed"] == is_allowed(v["definition"]), v
        assert v["digest"] == (digest_of(v["definition"]) if v["allowed"] else None), v
    for v in VECTORS["values"]:
        bloom = bloom_of(v["definition"], v["value"], v["cohort"])
        width = (v["definition"]["num_bits"] + 7) // 8
        assert v["bloom"] == (None if bloom is None else bloom.to_bytes(width, "little").hex()), v
    for v in VECTORS["epochs"]:
        number = number_of(v["period"], date.fromisoformat(v["start"]))
        assert (v["number"], v["epoch"]) == (number, number // v["hold"]), v
    for v in VECTORS["cohorts"]:
        secret = bytes.fromhex(v["secret"])
        assert (v["byte"], v["cohort"]) == (cohort_of(secret, 256), cohort_of(secret, v["num_cohorts"])), v
    for v in VECTORS["positions"]:
        value = bytes.fromhex(v["value_utf8"])
        assert v["positions"] == positions_of(value, v["cohort"], v["num_bits"], v["num_hashes"]), v
    for v in VECTORS["permanent"]:
        fields, secret = v["definition"], bytes.fromhex(v["secret"])
        bloom = bloom_of(fields, v["value"], cohort_of(secret, fields["num_cohorts"]))
        assert bloom is not None
        assert v["bloom"] == bloom.to_bytes(row_bytes(fields), "little").hex(), v
        key = key_of(fields, v["value"], bloom)
        inputs = prr_input(fields, "", secret, v["epoch"], key)
        prr = prr_of(fields, secret, v["epoch"], v["value"], bloom)
        assert (v["key"], v["input"], v["prr"]) == (key.hex(), inputs.hex(), prr.hex()), v
    for v in VECTORS["joint"]:
        fields, secret = v["definition"], bytes.fromhex(v["secret"])
        cohort = cohort_of(secret, max(part["num_cohorts"] for part in fields["parts"]))
        assert (v["digest"], v["cohort"]) == (digest_of(fields), cohort), v
        bloom = bloom_of(fields, v["value"], cohort)
        assert v["bloom"] == (None if bloom is None else bloom.to_bytes(row_bytes(fields), "little").hex()), v
        if bloom is None:
            continue
        key = key_of(fields, v["value"], bloom)
        inputs_of = [prr_input(fields, part["name"], secret, v["epoch"], key).hex() for part, _ in parts_of(fields)]
        prr = prr_of(fields, secret, v["epoch"], v["value"], bloom)
        assert (v["key"], v["inputs"], v["prr"]) == (key.hex(), inputs_of, prr.hex()), v
        assert v["irr"] == report_of(fields, prr, bytes.fromhex(v["coins"])).hex(), v
    for v in VECTORS["discovery"]:
        fields, key = v["definition"], bytes.fromhex(v["secret"])
        assert v["digest"] == digest_of(fields)
        assert v["cohort"] == metric_cohort_of(key, fields["name"], fields["num_cohorts"])
        group, fragment = group_and_fragment_of(fields, v["cohort"], v["value"])
        assert (v["group"], v["fragment"]) == (group, None if fragment is None else fragment.hex()), v
        at = [] if fragment is None else positions_of(fragment, v["cohort"], 16, 2)
        bloom = sum(1 << bit for bit in at)
        prr = prr_of(fields, key, None, v["value"], bloom)
        assert (v["bloom"], v["prr"]) == (bloom.to_bytes(2, "little").hex(), prr.hex()), v
    for v in VECTORS["means"]:
        fields, key = v["definition"], bytes.fromhex(v["secret"])
        word = threshold_word_of(key, fields["name"])
        cohort = cohort_of(key, fields["num_cohorts"])
        assert (v["digest"], v["cohort"], v["word"]) == (digest_of(fields), cohort, word.hex()), v
        bit = mean_bit_of(fields, v["value"], cohort, word)
        prr = prr_of(fields, key, v["epoch"], v["value"], bit)
        assert (v["bloom"], v["prr"]) == (bytes([bit]).hex(), prr.hex()), v
    for v in VECTORS["sets"]:
        fields, key = v["definition"], bytes.fromhex(v["secret"])
        cohort = metric_cohort_of(key, fields["name"], fields["num_cohorts"])
        assert (v["digest"], v["cohort"]) == (digest_of(fields), cohort), v
        answer = set_bit_of(fields["items"], v["value"], cohort)
        assert v["bloom"] == (None if answer is None else bytes([answer]).hex()), v
        # the list is one value, and no list of the values of parts
        assert v["prr"] == (None if answer is None else prr_of(fields, key, v["epoch"], None, answer).hex()), v
    for v in VECTORS["subset_rows"]:
        fields, key, coins = v["definition"], bytes.fromhex(v["secret"]), bytes.fromhex(v["coins"])
        bloom = bloom_of(fields, v["value"], 0)
        assert bloom is not None
        prr = prr_of(fields, key, v["epoch"], v["value"], bloom)
        irr, taken = row_irr_of(fields, int.from_bytes(prr, "little").bit_length() - 1, coins)
        found = [bits.hex() for bits in (bloom.to_bytes(len(prr), "little"), prr, irr.to_bytes(len(prr), "little"))]
        assert (v["digest"], v["bloom"], v["prr"], v["irr"]) == (digest_of(fields), *found), v
        assert v["taken"] == taken, v
        assert irr.bit_count() == fields["num_ones"]
    for v in VECTORS["instantaneous"]:
        words = [bytes.fromhex(word) for word in v["words"]]
        assert len(words) == v["words_of_p"] + v["words_of_q"]
        assert v["irr"] == irr_of(v["num_bits"], v["p"], v["q"], bytes.fromhex(v["prr"]), words).hex(), v
        assert not words, v


def test_vectors_cover_both_sides_of_every_rule() -> None:
    """Ties to the even a in both directions, refusals, invalid values, h of k - 1, epochs of each kind, masks without words."""
    ties = {
        v["a"]
        for v in VECTORS["probabilities"]
        if (Fraction(v["exact"]) * 2 ** (v["digits"] + 1)).denominator == 1 and v["a"]
    }
    assert {2, 4} <= ties
    assert {v["allowed"] for v in VECTORS["definitions"]} == {True, False}
    kinds = {(v["definition"]["kind"], v["bloom"] is None) for v in VECTORS["values"]}
    assert len(kinds) == 8
    assert {v["period"] for v in VECTORS["epochs"]} == {"day", "week", "month"}
    assert {(v["words_of_p"] == 0, v["words_of_q"] == 0) for v in VECTORS["instantaneous"]} >= {
        (True, True),
        (False, False),
    }
    assert {(v["epoch"] is None, len(response_of(v["definition"]) or {})) for v in VECTORS["permanent"]} == {
        (no_epoch, numbers) for no_epoch in (True, False) for numbers in (1, 2)
    }
    bits = {v["secret"]: set[str]() for v in VECTORS["means"]}
    for v in VECTORS["means"]:  # numbers on both sides of each threshold, within 2e-9 of the range
        if isinstance(v["value"], float) and v["value"] != 0.05:
            bits[v["secret"]].add(v["bloom"])
    assert set(map(len, bits.values())) == {2}
    reduced = [v for v in VECTORS["cohorts"] if v["byte"] != v["cohort"]]
    assert reduced


# --- hubbub against the vectors ----------------------------------------------------------------------------------


def test_script_reproduces_the_committed_vectors() -> None:
    """The script computes every vector with hubbub."""
    written = subprocess.run([sys.executable, make_format_vectors.__file__], capture_output=True, check=True).stdout
    assert json.loads(written) == json.loads((DATA / "format_vectors.json").read_text())


# --- the second implementation against hubbub, far from the vectors ----------------------------------------------


def random_definition(chance: random.Random) -> dict[str, Any]:
    if chance.random() < 0.7:
        return random_fields(chance)
    parts, m = [random_fields(chance) for _ in range(chance.choice([2, 2, 3]))], 1 << chance.randint(0, 8)
    name, hold, period = (parts[0].pop(field) for field in ("name", "hold", "period"))
    noiseless = chance.random() < 0.2
    for number, part in enumerate(parts):
        part |= {"name": f"part{number}"} | ({"num_cohorts": m} if part["kind"] == "string" else {})
        if chance.random() < 0.8:  # else the parts seldom agree
            part |= {"prob_f": 0.0 if noiseless else chance.randrange(1, 2**23) / 2**23}
            part.pop("permanent_p", None), part.pop("permanent_q", None)
        part.pop("hold", None), part.pop("period", None)
    return {"name": name, "kind": "joint", "hold": hold, "period": period, "parts": parts}


def random_value(chance: random.Random, fields: dict[str, Any]) -> Any:
    if fields["kind"] == "joint" and chance.random() < 0.9:
        return [random_value(chance, part) for part in fields["parts"]]
    likely = {"boolean": [True, False], "categorical": fields.get("categories", [])}.get(fields["kind"], [])
    unlikely = [True, "\ud800", random_text(chance)] if chance.random() < 0.2 else []
    return chance.choice([None, *likely, *unlikely] if likely else [None, random_text(chance), *unlikely])


def as_value(value: Any) -> Any:
    """What an app records: a tuple for the list of a joint value."""
    return tuple(value) if isinstance(value, list) else value


def random_fields(chance: random.Random) -> dict[str, Any]:
    kind = chance.choice(["string", "string", "categorical", "boolean"])
    fields: dict[str, Any] = {"name": f"m{chance.randrange(10**6)}", "kind": kind, "categories": [], "other": None}
    fields |= {"num_hashes": 1, "num_cohorts": 1, "hash_scheme": "one-hot", "num_bits": 1}
    if kind == "string":
        k = chance.randint(8, 400)
        fields |= {"hash_scheme": "murmur3-v1", "num_bits": k, "num_hashes": chance.randint(1, min(k - 1, 16))}
        fields["num_cohorts"] = 1 << chance.randint(0, 8)
    if kind == "categorical":
        fields["categories"] = list({random_text(chance) or "x" for _ in range(chance.randint(2, 30))} | {"a", "b"})
        fields["num_bits"] = len(fields["categories"])
        fields["other"] = chance.choice([None, *fields["categories"]])
    p, q = sorted(chance.choice([0.0, 1.0, chance.random(), chance.randrange(1, 2**25) / 2**25]) for _ in range(2))
    b, a = sorted(chance.choice([0.0, 1.0, chance.random(), chance.randrange(1, 2**25) / 2**25]) for _ in range(2))
    response: dict[str, float] = {"prob_f": chance.choice([0.0, 0.5, chance.random(), chance.randrange(2**24) / 2**24])}
    if chance.random() < 0.5:
        response = {"permanent_p": b, "permanent_q": chance.choice([a, a, a, 1 - b])}
    hold = chance.choice([None, None, 1, 7])
    return fields | {
        "prob_p": p,
        "prob_q": q,
        **response,
        "hold": hold,
        "period": chance.choice(list(map(str, PeriodKind))),
    }


def random_text(chance: random.Random) -> str:
    ranges = [(0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF)]
    return "".join(chr(chance.randint(*chance.choice(ranges))) for _ in range(chance.choice([0, 1, 5, 15, 16, 17, 40])))


def test_hubbub_matches_the_format_page_on_random_input(unseen_seed: int) -> None:
    chance, agreed = random.Random(unseen_seed), 0  # noqa: S311
    for _ in range(800):
        fields = random_definition(chance)
        try:
            metric = make_format_vectors.metric_of(fields)
        except HubbubError:
            assert not is_allowed(fields), fields
            continue
        assert is_allowed(fields), fields
        assert metric.digest == digest_of(fields)
        agreed += 1
        key, width = chance.randbytes(32), metric.row_bytes
        value = random_value(chance, fields)
        cohort = cohort_of(key, max(part["num_cohorts"] for part, _ in parts_of(fields)))
        assert Secret(key).cohort(metric.num_cohorts) == cohort
        bloom = bloom_of(fields, value, cohort)
        if bloom is None:
            with pytest.raises(InvalidValueError):
                bloom_bits(metric, as_value(value), cohort)
            continue
        assert bloom_bits(metric, as_value(value), cohort) == bloom
        epoch = None if fields["hold"] is None else chance.randint(0, 10**5)
        prr = prr_of(fields, key, epoch, value, bloom)
        true_bits = bloom_bits(metric, as_value(value), cohort)
        assert PermanentResponse(metric, Secret(key))(true_bits, epoch).to_bytes(width, "little") == prr
        coins = chance.randbytes(400 * width)
        report = Encoder(metric, Secret(key), make_format_vectors.scripted(coins)).encode(as_value(value), epoch)
        assert report.to_bytes() == report_of(fields, prr, coins)
    assert agreed > 100


def test_hubbub_matches_the_format_page_on_rounding(unseen_seed: int) -> None:
    chance = random.Random(unseen_seed)  # noqa: S311
    doubles = [chance.random() for _ in range(300)] + [chance.randrange(2**26) / 2**26 for _ in range(300)]
    doubles += [chance.random() * 2.0 ** -chance.randint(20, 30) for _ in range(100)]
    for double in doubles:
        for digits in (23, 24):
            try:
                a = numerator(round_to_dyadic("p", double, digits), digits)
            except HubbubError:
                a = None
            assert a == a_of(double, digits), (double, digits)


def test_hubbub_matches_the_format_page_on_period_numbers(unseen_seed: int) -> None:
    chance = random.Random(unseen_seed)  # noqa: S311
    for kind in PeriodKind:
        for _ in range(100):
            period = Period.containing(kind, date(1970, 1, 1) + timedelta(days=chance.randrange(40_000)))
            assert period_number(kind, str(period)) == number_of(kind, period.start)


def test_client_sends_format_page_report_in_every_period_of_an_epoch(rig: Rig) -> None:
    """p = 0, q = 1: the report is the PRR, of the period's epoch and of the value of the epoch's first period."""
    params = Params(num_bits=64, num_hashes=2, num_cohorts=16, prob_p=0, prob_q=1, prob_f=0.5)
    metric = Metric.string("held", params, hold=3)
    client = rig.agreed(metric)
    for day in range(8):
        client.record("held", f"value of day {day}")
        deliver(client)
        rig.clock.move(days=1)
    key = (rig.state / "secret").read_bytes()
    fields = metric.to_dict()
    first: dict[int, int] = {}
    for day, batch in enumerate(rig.transport.batches):
        epoch = number_of("day", date.fromisoformat(batch.period)) // 3
        cohort = cohort_of(key, 16)
        bloom = bloom_of(fields, f"value of day {first.setdefault(epoch, day)}", cohort)
        assert bloom is not None
        value = f"value of day {first[epoch]}"
        assert (batch.cohorts[0], batch.rows) == (cohort, prr_of(fields, key, epoch, value, bloom))
    assert len(first) in (3, 4)
    assert len(rig.transport.batches) == 8


@pytest.mark.parametrize("category", ["\ud800", "a\udfff", "\ude00\ud83d"])
def test_rejects_categories_with_lone_surrogates(category: str) -> None:
    """Such a definition would have a digest, but no encoder could be created."""
    with pytest.raises(DefinitionError, match="categories must be encodable as UTF-8"):
        Metric.categorical("c", (category, "b"), UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))


def test_hubbub_accepts_definitions_of_the_format_page() -> None:
    for v in VECTORS["definitions"]:
        try:
            Definitions([make_format_vectors.metric_of(v["definition"])])
            allowed = True
        except HubbubError:
            allowed = False
        assert allowed == v["allowed"], v
