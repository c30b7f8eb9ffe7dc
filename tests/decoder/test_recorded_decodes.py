"""Regression test: a fixed set of decodes gives the numbers that were recorded before the decoder was rearranged.

    OPENBLAS_NUM_THREADS=1 python -m tests.decoder.test_recorded_decodes --record

writes tests/data/recorded_decodes.json anew. Do that only for a deliberate change of an estimate, and state the change in the commit.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from hubbub import Metric, Params, UnaryResponse
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub_decoder import Decoding, decode
from hubbub_decoder.simulation import simulate, simulate_reports

FILE = Path(__file__).parents[1] / "data" / "recorded_decodes.json"
FIRST_ROWS = 12
TOLERANCE, OTHER_PROCESSOR_TOLERANCE = 1e-9, 1e-3
"""Largest relative change of a number; shares, ends of intervals and totals may also change by this part of their standard error.

OpenBLAS rounds by processor. A change by 1e-3 standard errors means nothing to a reader; 1e-9 shows each change of the code.
"""
SMALLEST_CHANGE = 1e-13

SHARE_FIELDS = ("share", "std_error", "low", "high")
ESTIMATE_FIELDS = (
    *SHARE_FIELDS,
    *(
        "p_value",
        "q_value",
        "detected",
        "selection_adjusted_low",
        "selection_adjusted_high",
        "posterior_median",
        "credible_low",
        "credible_high",
    ),
)
MERGED_FIELD = "indistinguishable_from"
TOTAL_FIELDS = ("listed_total", "unlisted", "no_value")
SCALAR_FIELDS = ("num_reports", "detection_limit", "num_kept")
TEST_FIELDS = ("statistic", "degrees_of_freedom", "p_value")
"""Attributes of an estimate and of a decoding. The file holds their values by position in these tuples, so that a rename changes no file."""

Summary = BitCounts | PatternCounts | Reports
Case = Callable[[], Decoding]


def string_metric(k: int, h: int, m: int, p: float, q: float, f: float, scheme: str = "murmur3-v1") -> Metric:
    params = Params(num_bits=k, num_hashes=h, num_cohorts=m, prob_p=p, prob_q=q, prob_f=f, hash_scheme=scheme)
    return Metric.string("recorded", params)


def zipf(size: int, reports: int) -> dict[str, int]:
    """People by value: the i-th of `size` values has a share proportional to 1 / i."""
    weights = 1 / np.arange(1, size + 1)
    return {f"v{i}": int(n) for i, n in enumerate(np.rint(reports * weights / weights.sum()), start=1)}


def names(listed: int, absent: int, first: int = 1) -> list[str]:
    """Candidates: `listed` values from v`first` on, and `absent` strings that no client reported."""
    return [f"v{i}" for i in range(first, first + listed)] + [f"absent{i}" for i in range(absent)]


def bits(metric: Metric, people: dict[str, int], seed: int, without_value: int = 0) -> BitCounts:
    return simulate(metric, people, np.random.default_rng(seed), no_value=without_value)


def patterns(metric: Metric, people: dict[str, int], seed: int, without_value: int = 0) -> PatternCounts:
    return simulate(metric, people, np.random.default_rng(seed), no_value=without_value, form=PatternCounts)


def reports(metric: Metric, people: dict[str, int], seed: int, without_value: int = 0) -> Reports:
    chunks = list(simulate_reports(metric, people, np.random.default_rng(seed), no_value=without_value))
    cohorts, rows = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
    return Reports(metric, cohorts, rows)


def with_empty_cohorts(counts: BitCounts, empty: list[int]) -> BitCounts:
    totals, ones = counts.reports.copy(), counts.ones.copy()
    totals[empty], ones[empty] = 0, 0
    return BitCounts(counts.metric, totals, ones)


OS = Metric.categorical(
    "os", ("linux", "macos", "windows", "other"), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.25)
)
DARK = Metric.boolean("dark", UnaryResponse(prob_p=0.1, prob_q=0.8, prob_f=0.5))
OS_COUNTS, DARK_COUNTS = BitCounts(OS, [1000], [[500, 420, 300, 310]]), BitCounts(DARK, [300], [[160]])
MEDIUM, PLAIN = string_metric(32, 2, 16, 0.25, 0.75, 0.25), string_metric(16, 2, 16, 0.25, 0.75, 0.5)
GOOGLE, PATTERN = string_metric(16, 2, 16, 0.7, 0.35, 0.25, "google-md5"), string_metric(8, 2, 16, 0.2, 0.8, 0.1)
NOISY, LOPSIDED = string_metric(8, 2, 16, 0.25, 0.75, 0.5), string_metric(8, 2, 12, 0.1, 0.6, 0.2, "google-md5")
ONE_COHORT = string_metric(16, 2, 1, 0.25, 0.75, 0.0)

CASES: dict[str, Case] = {
    "categorical": lambda: decode(OS_COUNTS),
    "categorical, two categories of a population": lambda: decode(
        OS_COUNTS, ["windows", "linux"], target="population", confidence=0.9, fdr=0.1
    ),
    "boolean": lambda: decode(DARK_COUNTS),
    "bits, few candidates": lambda: decode(bits(MEDIUM, zipf(15, 60_000), 1), names(15, 5)),
    "bits, few candidates, unlisted strings, of a population": lambda: decode(
        bits(MEDIUM, zipf(30, 80_000), 2, 9_000), names(12, 8, 4), target="population"
    ),
    "bits, few candidates, google-md5, q below p": lambda: decode(bits(GOOGLE, zipf(8, 50_000), 3), names(8, 3)),
    "bits, 80 candidates": lambda: decode(bits(MEDIUM, zipf(40, 200_000), 4, 20_000), names(40, 40)),
    "bits, 80 candidates, google-md5, q below p": lambda: decode(bits(GOOGLE, zipf(40, 300_000), 5), names(40, 40)),
    "bits, 340 candidates, a frequent string unlisted": lambda: decode(
        bits(PLAIN, zipf(40, 400_000), 6), names(39, 301, 2)
    ),
    "bits, two cohorts": lambda: decode(
        bits(string_metric(32, 1, 2, 0.25, 0.75, 0.0), zipf(10, 20_000), 7), names(10, 10)
    ),
    "bits, one cohort, screening": lambda: decode(bits(ONE_COHORT, zipf(10, 30_000), 8), names(10, 60)),
    "bits, screening in half of the cohorts": lambda: decode(bits(PLAIN, zipf(20, 300_000), 9), names(20, 700)),
    "bits, cohorts without reports": lambda: decode(
        with_empty_cohorts(bits(PLAIN, zipf(10, 40_000), 10), [0, 5, 6, 7]), names(10, 4)
    ),
    "patterns, 30 candidates": lambda: decode(patterns(PATTERN, zipf(20, 60_000), 11), names(20, 10)),
    "patterns, 30 candidates, unlisted strings, of a population": lambda: decode(
        patterns(PATTERN, zipf(40, 60_000), 12, 5_000), names(15, 15, 3), target="population"
    ),
    "patterns, 400 candidates": lambda: decode(patterns(PATTERN, zipf(60, 200_000), 13), names(60, 340)),
    "patterns, 400 candidates, google-md5": lambda: decode(
        patterns(LOPSIDED, zipf(60, 200_000), 14, 10_000), names(60, 340)
    ),
    "patterns, more candidates than observations": lambda: decode(
        patterns(NOISY, zipf(60, 200_000), 15), names(60, 1_140)
    ),
    "patterns, one cohort, candidates with equal bits": lambda: decode(
        patterns(string_metric(8, 2, 1, 0.2, 0.8, 0.1), zipf(6, 20_000), 16), names(6, 34)
    ),
    "reports, few candidates": lambda: decode(reports(MEDIUM, zipf(12, 6_000), 17), names(12, 6)),
    "reports, few candidates, unlisted strings, little noise": lambda: decode(
        reports(string_metric(24, 2, 8, 0.01, 0.95, 0.02), zipf(12, 3_000), 18, 300), names(6, 2, 3)
    ),
    "reports, 60 candidates": lambda: decode(reports(MEDIUM, zipf(30, 8_000), 19, 500), names(25, 35, 2)),
    "reports, 60 candidates, google-md5": lambda: decode(
        reports(string_metric(24, 2, 16, 0.6, 0.2, 0.1, "google-md5"), zipf(30, 8_000), 20), names(30, 30)
    ),
    "reports, screening": lambda: decode(
        reports(string_metric(18, 2, 8, 0.1, 0.9, 0.1), zipf(10, 8_000), 21), names(10, 390), confidence=0.9
    ),
    "reports of few bits": lambda: decode(reports(PATTERN, zipf(10, 6_000), 22), names(10, 5)),
}

SLOW_CASES = ("reports, screening", "reports, 60 candidates")


def numbers_of(decoding: Decoding) -> dict[str, Any]:
    """Return the numbers of a decoding by position, nan as null: the first estimates, every tenth of the others, and sums over all."""
    rows = {" = ".join([e.candidate, *getattr(e, MERGED_FIELD)]): values(e, ESTIMATE_FIELDS) for e in decoding}
    columns = zip(*rows.values(), strict=True)
    return {
        "estimates": {key: row for i, (key, row) in enumerate(rows.items()) if i < FIRST_ROWS or i % 10 == 0},
        "sums": [sum(abs(value) for value in column if value is not None) for column in columns],
        "totals": [values(getattr(decoding, name), SHARE_FIELDS) for name in TOTAL_FIELDS],
        "scalars": values(decoding, SCALAR_FIELDS),
        "tests": {test.name: values(test, TEST_FIELDS) for test in decoding.fit_tests},
    }


def values(row: object, fields: tuple[str, ...]) -> list[float | None]:
    found = [getattr(row, name) for name in fields]
    return [None if value is None or np.isnan(value) else float(value) for value in found]


def by_place(numbers: dict[str, Any]) -> dict[str, tuple[float | None, float]]:
    """Return each number with the standard error of its row; 0 where the row has none."""
    of_row = SHARE_FIELDS.index("std_error")
    rows = [(name, row, row[of_row]) for name, row in numbers["estimates"].items()]
    rows += [(name, row, row[of_row]) for name, row in zip(TOTAL_FIELDS, numbers["totals"], strict=True)]
    rows += [(name, row, None) for name, row in numbers["tests"].items()]
    rows += [(name, numbers[name], None) for name in ("sums", "scalars")]
    return {f"{name}/{i}": (value, std_error or 0.0) for name, row, std_error in rows for i, value in enumerate(row)}


def differences(found: dict[str, Any], recorded: dict[str, Any], tolerance: float) -> list[str]:
    """Return where the numbers of two decodings differ by more than the tolerance, relative or in standard errors."""
    new, old = by_place(found), by_place(recorded)
    if list(new) != list(old):
        return [f"{list(new)} instead of {list(old)}"]
    return [
        f"{place}: {new[place][0]!r} instead of {value!r}"
        for place, (value, std_error) in old.items()
        if not equal(new[place][0], value, tolerance, std_error)
    ]


def equal(found: float | None, recorded: float | None, tolerance: float, std_error: float) -> bool:
    """Return whether both are null or infinite, or differ by at most the tolerance."""
    if found is None or recorded is None or found == recorded:
        return found == recorded
    return abs(found - recorded) <= max(tolerance * max(abs(recorded), std_error), SMALLEST_CHANGE)


def blas_libraries() -> list[str]:
    """Return the builds of OpenBLAS in use, with the processor they compute for."""
    found = (info for info in threadpool_info() if info["user_api"] == "blas")
    return sorted(f"{info['internal_api']} {info['version']} {info.get('architecture')}" for info in found)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW_CASES else ()) for name in CASES]
)
def test_decode_equals_the_recorded_numbers(name: str) -> None:
    """Shares, errors, intervals, p and q values, totals and tests of fit."""
    recorded = json.loads(FILE.read_text(encoding="utf-8"))
    tolerance = TOLERANCE if blas_libraries() == recorded["libraries"] else OTHER_PROCESSOR_TOLERANCE
    assert differences(numbers_of(CASES[name]()), recorded["decodes"][name], tolerance) == []


def test_recorded_file_contains_exactly_the_cases() -> None:
    assert list(json.loads(FILE.read_text(encoding="utf-8"))["decodes"]) == list(CASES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", required=True, help=f"write {FILE.name} anew")
    parser.parse_args()
    with threadpool_limits(1):
        decodes = {name: numbers_of(case()) for name, case in CASES.items()}
        recorded = {"libraries": blas_libraries(), "decodes": decodes}
    FILE.write_text(json.dumps(recorded, indent=None, separators=(",", ":")).replace('},"', '},\n"') + "\n", "utf-8")


if __name__ == "__main__":
    main()
