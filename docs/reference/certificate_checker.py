"""Check a certificate of hubbub: python certificate_checker.py FILE

Needs the standard library alone. It takes the integers of the mechanism from the definition, computes every maximum and every decimal
again, and compares the statements that follow with those of the certificate. All probabilities are whole numbers over N.
"""

import hashlib
import json
import math
import operator
import sys
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

N = 1 << 24
PLACES = 10**20  # an epsilon has 20 decimal places
MOST_REPORTS, MOST_BITS, MOST_BYTES = 1000, 1024, 1 << 22  # no file keeps the checker busy for long
SLACK = Fraction(1, 10**9)  # a client's ledger allows a unit that exceeds a limit by less
HASH_SCHEMES = ("murmur3-v1", "one-hot", "set-v1", "threshold-v1")  # a value has h true bits, "no value" none
RUNS = "In both histories the app runs, and has a new secret, in the same periods."
ANY, SAME, PATTERN = "any recordings", "one unchanging value", "same pattern of equal values"
MEANING = {
    ANY: f"{RUNS} What is recorded may differ in every way.",
    SAME: f"{RUNS} The reported value of each history is the same in every period.",
    PATTERN: f"{RUNS} Under each secret, the reported values of two periods are equal in one history exactly where they are in the other.",
}


def require(is_true: bool, rule: str) -> None:
    if not is_true:
        raise ValueError(rule)


def integer(fields: dict[str, Any], name: str, low: int, high: int) -> int:
    number = fields[name]
    require(type(number) is int and low <= number <= high, f"{name} must be a whole number, {low} to {high}")
    return int(number)


def largest(fractions: Iterable[tuple[int, int]]) -> Fraction | None:
    """Return the largest of fractions (above, below), compared by exact products; None if one is infinite."""
    best = (0, 1)
    for above, below in fractions:
        if above and not below:
            return None
        if above * best[1] > best[0] * below:
            best = (above, below)
    return Fraction(*best)


def powers(u: int, v: int, t: int) -> list[int]:
    """Return u^n v^(t - n) for n = 0 .. t."""
    up, down = (list(accumulate([base] * t, operator.mul, initial=1)) for base in (u, v))
    return list(map(operator.mul, up, reversed(down)))


@lru_cache(None)
def log(ratio: Fraction) -> int:
    """Return the smallest D for which a partial sum of exp(D / PLACES), its terms rounded down, is at least the ratio."""
    low, high = 0, 32 * PLACES
    while low < high:
        middle, number = (low + high) // 2, 0
        total = term = 1 << 256
        while term:
            number += 1
            term = term * middle // (PLACES * number)
            total += term
        is_proved = total * ratio.denominator >= ratio.numerator << 256
        low, high = (low, middle) if is_proved else (middle + 1, high)
    return low


@lru_cache(None)
def bit_ratios(a: int, b: int, p: int, q: int, t: int | None) -> tuple[Fraction | None, Fraction | None]:
    """Return the largest P(t reports of a bit | it is one) / P(... | it is zero), over the numbers of ones, and of the reverse.

    x and y are the probabilities of the reports if the permanent bit is one and if it is zero. No number of reports reveals more than it.
    """
    seen = [(1, 0), (0, 1)]
    if t is not None:
        seen = list(zip(powers(q, N - q, t), powers(p, N - p, t), strict=True))
    law = [(a * x + (N - a) * y, b * x + (N - b) * y) for x, y in seen]
    return largest(law), largest((below, above) for above, below in law)


def unary(part: dict[str, Any], t: int | None) -> Counter[Fraction] | None:
    """Return e^epsilon of t reports of independent bits as {fraction: exponent}, the largest over all pairs of values."""
    k = integer(part, "num_bits", 1, MOST_BITS)
    h = integer(part, "num_hashes", 1, k)
    q = integer(part, "q", 1, N)
    p = integer(part, "p", 0, q - 1)
    a = N - integer(part, "f", 0, N // 2 - 1) if "f" in part else integer(part, "permanent_q", 1, N)
    b = N - a if "f" in part else integer(part, "permanent_p", 0, a - 1)
    one, zero = bit_ratios(a, b, p, q, t if a < N or b else 1)
    if one is None or zero is None or (t is None and a == N and not b):
        return None
    require(part["hash_scheme"] in HASH_SCHEMES, "a hash scheme must be one that clients report")
    ones = (0, h)  # numbers of true bits of a value
    # two values differ most where they share as few of the k bits as they can
    shared = {(i, j): max(0, i + j - k) for i in ones for j in ones}
    pairs = [(i - both, j - both) for (i, j), both in shared.items()]
    of_one, of_zero = log(one), log(zero)
    i, j = max(pairs, key=lambda n: (n[0] * of_one + n[1] * of_zero, n[0] if one > zero else n[1]))
    return times(Counter({one: i}) + Counter({zero: j}), 1 if a < N or b else t or 0)


def subset(part: dict[str, Any], t: int | None) -> Counter[Fraction] | None:
    """Return e^epsilon of t rows of d bits with w ones."""
    d = integer(part, "num_bits", 2, MOST_BITS)
    w = integer(part, "w", 1, d // 2)
    q = integer(part, "q", w * N // d + 1, N - 1)
    a = integer(part, "permanent_q", N // d + 1, N)
    ratio = row_ratio(a, q, d, w, t if a < N else 1)
    return None if ratio is None or (t is None and a == N) else times(Counter({ratio: 1}), 1 if a < N else t or 0)


@lru_cache(None)
def row_ratio(a: int, q: int, d: int, w: int, t: int | None) -> Fraction | None:
    """Return the largest P(t rows | x) / P(t rows | y), over the numbers of rows that contain each of the d values.

    With odds u / v of a row that contains the permanent value, P(rows | x) is proportional to (a - b) (u/v)^n_x + b Z, and Z is the
    sum of (u/v)^n over all values. The ratio grows with n_x and falls with the rest of Z. So x is in all rows, and the d - 2 others share
    the ones that y leaves evenly, because (u/v)^n is convex. Only the number of y's rows is left.
    """
    b, excess = N - a, d * a - N  # b and a - b, both times N (d - 1)
    if t is None:
        return largest([(b + excess, b)])
    odds = Fraction(q * (d - w), (N - q) * w)
    power = [*powers(odds.numerator, odds.denominator, t), 0]
    rows = []
    for of_y in range(min(t, (w - 1) * t) + 1):
        share, more = divmod((w - 1) * t - of_y, max(1, d - 2))
        z = power[t] + power[of_y] + more * power[share + 1] + (d - 2 - more) * power[share]
        rows.append((b * z + excess * power[t], b * z + excess * power[of_y]))
    return largest(rows)


def privset(part: dict[str, Any], t: int | None) -> Counter[Fraction] | None:
    """Return e^epsilon of t rows of k bits with w ones, which touch a set of m bits with probability hit / N.

    Rows that touch a set are equally probable, and so are all others. Two values may have sets without a common bit.
    """
    k = integer(part, "num_bits", 2, MOST_BITS)
    m, w = integer(part, "max_items", 1, k // 2), integer(part, "w", 1, k // 2)
    missing = math.comb(k - m, w)
    touching = math.comb(k, w) - missing
    hit = integer(part, "hit", N * touching // (touching + missing) + 1, N - 1)
    return None if t is None else times(Counter({Fraction(hit * missing, (N - hit) * touching): 1}), t)


def times(product: Counter[Fraction], number: int) -> Counter[Fraction]:
    return Counter({ratio: exponent * number for ratio, exponent in product.items()})


def statement(parts: list[dict[str, Any]], unit: str, condition: str, t: int | None, units: float) -> dict[str, Any]:
    """Return the statement about a number of units. Each has t reports from one permanent response; None is any number."""
    product: Counter[Fraction] | None = Counter()
    for part in parts:
        block = {None: unary, "subset": subset, "privset": privset}[part.get("mechanism")](part, t)
        product = None if product is None or block is None else product + block
    factors = times(product, int(units)) if product and 0 < units < math.inf else Counter[Fraction]()
    decimals = {ratio: log(ratio) for ratio in factors}
    epsilon = sum(exponent * decimals[ratio] for ratio, exponent in factors.items())
    return {
        "unit": unit,
        "observer": "operator",
        "condition": condition,
        "meaning": MEANING[condition],
        "num_reports": "inf" if t is None else t,
        "num_units": units if units < math.inf else "inf",
        "factors": [
            {
                "ratio": f"{ratio.numerator:x}/{ratio.denominator:x}",
                "exponent": exponent,
                "epsilon": text(decimals[ratio]),
            }
            for ratio, exponent in factors.items()
        ],
        "epsilon": text(epsilon) if factors else "inf",
    }


def text(places: int) -> str:
    return f"{places // PLACES}.{places % PLACES:020}"


def units_within(limit: Any, price: str) -> float:
    """Return the number of units of this price that a limit of epsilon allows."""
    require(limit == "inf" or (type(limit) in (int, float) and limit > 0), "a limit must be a number above 0")
    if limit in ("inf", math.inf):
        return math.inf
    return 0 if price == "inf" else (Fraction(limit) + SLACK) // Fraction(price)


def expected_statements(definition: dict[str, Any], certificate: dict[str, Any]) -> list[dict[str, Any]]:
    parts = definition.get("parts", [definition])
    noises = {part["permanent_q"] < N if "permanent_q" in part else part.get("f", 0) > 0 for part in parts}
    require(len(parts) <= 3 and len(noises) == 1, "a joint metric has 2 or 3 parts, all or none with permanent noise")
    hold, noise = definition["hold"], noises.pop()
    longest = MOST_REPORTS if hold is None else integer(definition, "hold", 1, MOST_REPORTS)
    unit, t = ("epoch", hold) if hold else ("value", None) if noise else ("period", 1)
    same, pattern = (SAME, PATTERN) if unit == "value" else (ANY, ANY)
    once = statement(parts, "report", ANY, 1, 1)
    several = statement(parts, "report", same, integer(certificate, "num_reports", 1, longest), 1)
    of_unit = statement(parts, unit, same, t, 1)

    may_report = units_within(certificate["policy"]["epsilon_report"], once["epsilon"]) > 0
    names = ("epsilon_metric", "epsilon_total", "epsilon_enrollment")
    metric, total, enrollment = (units_within(certificate["policy"][name], of_unit["epsilon"]) for name in names)
    own = certificate["lifetime_epsilon"]
    lifetime = min(metric, total, math.inf if own is None else units_within(own, of_unit["epsilon"]))
    lifetime = lifetime if may_report and enrollment else 0
    if unit == "value":  # distinct values, "no value" among them
        enrollment = min(enrollment, math.prod(map(distinct_values, parts)))
    found = [once, several] + [of_unit] * (unit != "period")
    found += [statement(parts, "enrollment", pattern, t, min(lifetime, enrollment))]
    return [*found, statement(parts, "lifetime", pattern, t, lifetime)]


def distinct_values(part: dict[str, Any]) -> float:
    """Return the number of values with different true bits: "no value" is one more, unless it has a bit or a default."""
    buckets = part.get("buckets", {"default": None})
    has_own = part.get("mechanism") != "subset" and (buckets["default"] is None or "estimate" in buckets)
    return math.inf if part["kind"] == "string" else int(part["num_bits"]) + has_own


def check(certificate: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the statements; raises ValueError with the first that is false."""
    names = ["definition", "digest", "format", "lifetime_epsilon", "num_reports", "policy", "statements"]
    require(sorted(certificate) == names, f"the fields must be {', '.join(names)}")
    require(certificate["format"] == "hubbub-certificate-v1", "the format must be hubbub-certificate-v1")
    digest = hashlib.sha256(certificate["definition"].encode()).hexdigest()
    require(certificate["digest"] == digest, f"the digest of the definition is {digest}")
    head, _, body = certificate["definition"].partition("\n")
    definition = json.loads(body)
    canonical = json.dumps(definition, sort_keys=True, separators=(",", ":"))
    require((head, body) == ("hubbub-metric-v1", canonical), "the definition must be canonical JSON")
    names = ["epsilon_enrollment", "epsilon_metric", "epsilon_report", "epsilon_total"]
    require(sorted(certificate["policy"]) == names, f"the fields of policy must be {', '.join(names)}")

    expected = expected_statements(definition, certificate)
    require(len(expected) == len(certificate["statements"]), f"there must be {len(expected)} statements")
    for number, (true, stated) in enumerate(zip(expected, certificate["statements"], strict=True), 1):
        require(sorted(stated) == sorted(true), f"statement {number}: the fields must be {', '.join(true)}")
        for name, value in true.items():
            is_equal = json.dumps(stated[name], sort_keys=True) == json.dumps(value, sort_keys=True)
            require(is_equal, f"statement {number}, {true['unit']}: {name} must be {json.dumps(value):.200}")
    return expected


def unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    require(len(dict(pairs)) == len(pairs), "a field occurs twice")
    return dict(pairs)


def main(path: str) -> int:
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        require(len(content) <= MOST_BYTES, f"the file must have at most {MOST_BYTES} bytes")
        certificate = json.loads(content, object_pairs_hook=unique_fields)
        statements = check(certificate)
    except (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError) as problem:
        print(f"refused: {type(problem).__name__}: {problem}")
        return 1
    print(f"proved for the definition {certificate['digest']}, towards the operator:")
    for of in statements:
        places = Fraction("0" if of["epsilon"] == "inf" else of["epsilon"])
        bound = "no bound" if not places else f"epsilon <= {math.ceil(places * 1000) / 1000:.3f}"
        print(f"{of['unit']}, reports {of['num_reports']}, units {of['num_units']}: {bound}, {of['condition']}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
