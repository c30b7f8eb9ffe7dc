"""google/rappor's CSV files -> parameters, counts, reports, and a design matrix.

Conventions, theirs: `params` is a header k,h,m,p,q,f and one line; `counts` has no header and one line a cohort, the
reports and then the ones of bit 0 .. k-1; `map` has one line a candidate, its name and the places it sets, cohort * k + bit + 1, at
most h of them a cohort, empty cells and repeated places where hashes coincide; `reports` has a header with the columns
cohort and irr, the bits as a string of 0 and 1 with bit k-1 first.

Source: google/rappor, analysis/R/read_input.R, bin/sum_bits.py, bin/hash_candidates.py, tests/rappor_sim.py.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import ParameterError
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.summary import BitCounts, PatternCounts, Summary
from hubbub.summary.counting import count_bits, count_ones, count_patterns
from hubbub.summary.pattern_counts import MAX_PATTERN_BITS
from hubbub_decoder.errors import ForeignFileError
from hubbub_decoder.model.design_matrix import DesignMatrix, design_from_positions
from hubbub_decoder.model.vectorized_hashing import Positions, bit_positions

_PARAMETERS = ("k", "h", "m", "p", "q", "f")
_REPORTS_AT_ONCE = 1 << 16
_STEPS_OF_F = 128

ROUND_F = {"python": math.ceil, "cpp": math.floor}
"""What each client makes of 128 f: its permanent noise has 7 binary digits."""


def read_params(path: str | Path, client: str | None = None) -> Params:
    """Read the parameters, with the hash scheme of google/rappor's clients.

    client : "python" or "cpp": the client the reports are from, and with it how f was rounded; None: f as written
    """
    lines = [cells for _, cells in _lines(path)]
    if len(lines) != 2 or tuple(name.strip() for name in lines[0]) != _PARAMETERS or len(lines[1]) != len(_PARAMETERS):
        raise ForeignFileError(f"{path}: must be the header {','.join(_PARAMETERS)} and one line of six numbers")
    k, h, m = (_whole(path, f"line 2: {name}", cell) for name, cell in zip("khm", lines[1][:3], strict=True))
    p, q, f = (_number(path, f"line 2: {name}", cell) for name, cell in zip("pqf", lines[1][3:], strict=True))
    if client is not None and 0 <= f <= 1:
        f = ROUND_F[client](f * _STEPS_OF_F) / _STEPS_OF_F
    try:
        return Params(num_bits=k, num_hashes=h, num_cohorts=m, prob_p=p, prob_q=q, prob_f=f, hash_scheme="google-md5")
    except ParameterError as problem:
        raise ForeignFileError(f"{path}: {problem}") from None


def read_counts(path: str | Path, params: Params) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Read reports (m,) and ones (m, k)."""
    m, k = params.num_cohorts, params.num_bits
    table = np.empty((m, k + 1), np.int64)
    row = -1
    for row, (line, cells) in enumerate(_lines(path)):
        if len(cells) != k + 1:
            raise ForeignFileError(
                f"{path}: line {line} must have k + 1 = {k + 1} numbers, the reports and the ones of {k} bits, "
                f"got {len(cells)}: are these the counts of these parameters?"
            )
        if row < m:
            table[row] = [_whole(path, f"line {line}: column {at}", cell) for at, cell in enumerate(cells, start=1)]
            if table[row, 1:].max() > table[row, 0]:
                raise ForeignFileError(
                    f"{path}: line {line} has {table[row, 1:].max()} ones in bit {table[row, 1:].argmax()} of "
                    f"{table[row, 0]} reports: the first column must be the number of reports"
                )
    if row + 1 != m:
        raise ForeignFileError(
            f"{path}: must have one line for each of m = {m} cohorts, got {row + 1}: are these the counts of these parameters?"
        )
    return table[:, 0], table[:, 1:]


def read_map(path: str | Path, params: Params) -> tuple[list[str], Positions]:
    """Read the candidates and the bits each sets in each cohort, as `vectorized_hashing.bit_positions` returns them.

    A candidate that comes again with the same bits is taken once.
    """
    k, h, m = params.num_bits, params.num_hashes, params.num_cohorts
    places: dict[str, tuple[int, ...]] = {}
    for line, (name, *cells) in _lines(path):
        given = [_whole(path, f"line {line}: place", cell) for cell in cells if cell.strip() not in ("", "NA")]
        outside = next((place for place in given if not 1 <= place <= m * k), None)
        if outside is not None:
            raise ForeignFileError(
                f"{path}: line {line}: places are cohort * k + bit + 1, from 1 to m k = {m * k}, got {outside}: "
                "is this the map of these parameters?"
            )
        taken = tuple(sorted({place - 1 for place in given}))
        if name.strip().isdecimal() and len(cells) == h * m - 1:
            raise ForeignFileError(
                f"{path}: line {line} has h m = {h * m} numbers and no name: write the candidate before its places"
            )
        in_cohort = np.bincount(np.array(taken, np.int64) // k, minlength=m)
        if in_cohort.min() < 1 or in_cohort.max() > h:
            wrong = int(np.argmax((in_cohort < 1) | (in_cohort > h)))
            raise ForeignFileError(
                f"{path}: line {line} sets {in_cohort[wrong]} bits in cohort {wrong}, must be 1 to h = {h}: "
                "is this the map of these parameters?"
            )
        if places.setdefault(name, taken) != taken:
            raise ForeignFileError(f"{path}: line {line} gives {name!r} other bits than before: keep one of the two")
    if not places:
        raise ForeignFileError(f"{path}: holds no candidate: write lines of a name and the places it sets")
    return list(places), _positions(list(places.values()), params)


def map_design(path: str | Path, params: Params) -> DesignMatrix:
    """Read a map as the design matrix of its candidates, whatever hashed them."""
    return design_from_positions(*read_map(path, params), params)


def summary_of(
    metric: Metric, counts: str | Path | None, reports: str | Path | None, written: Params | None = None
) -> Summary:
    """Read counts, or sum reports, or both if they agree; from reports of k <= 16 bits, pattern counts.

    written : the parameters of the files, whose cohorts are all one to a metric without cohorts; None: the metric's own
    """
    params = written or metric.params
    together = metric.params.num_cohorts == 1
    summed = None
    if reports is not None:
        chunks = read_reports(reports, params)
        summed = _sum(metric, ((np.zeros_like(of), rows) for of, rows in chunks) if together else chunks)
    if counts is None:
        if summed is None:
            raise ForeignFileError("there is nothing to sum: give counts, reports or both")
        return summed
    number, ones = read_counts(counts, params)
    if together:
        number, ones = number.sum(keepdims=True), ones.sum(axis=0, keepdims=True)
    read = BitCounts(metric, number, ones)
    if summed is None:
        return read
    told = summed if isinstance(summed, BitCounts) else summed.bit_counts()
    if not (np.array_equal(told.reports, read.reports) and np.array_equal(told.ones, read.ones)):
        raise ForeignFileError(
            f"{counts} counts {read.num_reports:,} reports and is not the sum of the {summed.num_reports:,} in {reports}: "
            "give the one to believe"
        )
    return summed


def agrees_with_md5(names: list[str], positions: Positions, params: Params) -> bool:
    """Tell whether a map is what google/rappor's clients compute, so that the names alone say the bits."""
    return bool(np.array_equal(positions, bit_positions(names, replace(params, hash_scheme="google-md5"))))


def categories_of(names: list[str], positions: Positions, params: Params) -> tuple[str, ...] | None:
    """Return the category of each bit if every candidate has one bit to itself, the same in every cohort: basic RAPPOR.

    Bits without a candidate are called by their number, from 1. None for any other map: also for one with a single cohort and bits to spare,
    which may as well be hashed.
    """
    k, bits = params.num_bits, positions[:, 0, 0]
    alone = len(np.unique(bits)) == len(bits) and (positions[..., 1:] == k).all()
    if not alone or (positions[..., 0] != bits[:, None]).any() or (params.num_cohorts == 1 and len(bits) < k):
        return None
    name_of = dict(zip(bits.tolist(), names, strict=True))
    return tuple(name_of.get(bit, f"bit {bit + 1}") for bit in range(k))


def read_reports(path: str | Path, params: Params) -> Iterator[tuple[NDArray[np.uint16], NDArray[np.uint8]]]:
    """Yield reports in chunks of cohorts (n,) and wire rows (n, ceil(k / 8))."""
    lines = _lines(path)
    _, header = next(lines, (1, []))
    names = [name.strip() for name in header]
    bits_at = next((names.index(name) for name in ("irr", "rappor") if name in names), None)
    if "cohort" not in names or bits_at is None:
        raise ForeignFileError(
            f"{path}: line 1 must name the columns cohort and irr, as in client,cohort,bloom,prr,irr; got {names[:8]}"
        )
    cohort_at = names.index("cohort")
    while some := list(islice(lines, _REPORTS_AT_ONCE)):
        yield _reports(path, some, len(names), cohort_at, bits_at, params)


def _sum(metric: Metric, chunks: Iterable[tuple[NDArray[np.uint16], NDArray[np.uint8]]]) -> Summary:
    params = metric.params
    m, k = params.num_cohorts, params.num_bits
    if k <= MAX_PATTERN_BITS:
        patterns = np.zeros((m, 1 << k), np.int64)
        for cohorts, rows in chunks:
            patterns += count_patterns(cohorts, rows, m, k)
        return PatternCounts(metric, patterns)
    counts = BitCounts.empty(metric)
    for cohorts, rows in chunks:
        counts += BitCounts(metric, *count_bits(cohorts, rows, m, k), with_ones=count_ones(rows, k))
    return counts


def _reports(
    path: str | Path, lines: list[tuple[int, list[str]]], columns: int, cohort_at: int, bits_at: int, params: Params
) -> tuple[NDArray[np.uint16], NDArray[np.uint8]]:
    k, m = params.num_bits, params.num_cohorts
    cohorts = np.empty(len(lines), np.uint16)
    digits: list[str] = []
    for row, (line, cells) in enumerate(lines):
        if len(cells) != columns:
            raise ForeignFileError(
                f"{path}: line {line} must have {columns} columns as the header has, got {len(cells)}"
            )
        cohort = _whole(path, f"line {line}: cohort", cells[cohort_at])
        if cohort >= m:
            raise ForeignFileError(f"{path}: line {line}: cohort must be below m = {m}, got {cohort}")
        bits = cells[bits_at].strip()
        if len(bits) != k or bits.strip("01"):
            raise ForeignFileError(
                f"{path}: line {line}: the bits must be k = {k} digits 0 or 1, got {len(bits)} characters: "
                "are these reports of these parameters?"
            )
        cohorts[row] = cohort
        digits.append(bits)
    ones = np.frombuffer("".join(digits).encode(), np.uint8).reshape(-1, k)[:, ::-1] == ord("1")
    return cohorts, np.packbits(ones, axis=1, bitorder="little")


def _positions(places: list[tuple[int, ...]], params: Params) -> Positions:
    """Lay out sorted places, cohort * k + bit, as (M, m, h); missing ones hold k, after the others."""
    k, m = params.num_bits, params.num_cohorts
    positions = np.full((len(places), m, params.num_hashes), k, np.int16)
    for row, taken in enumerate(places):
        cohort, bit = np.divmod(np.array(taken, np.int64), k)
        nth = np.arange(len(taken)) - np.searchsorted(cohort, cohort)
        positions[row, cohort, nth] = bit
    return positions


def _lines(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of every line that is not empty."""
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            empty = True
            for cells in reader:
                if any("\0" in cell for cell in cells):
                    raise ForeignFileError(f"{path}: line {reader.line_num} is binary: give the CSV file itself")
                if any(cell.strip() for cell in cells):
                    empty = False
                    yield reader.line_num, cells
    except OSError as problem:
        raise ForeignFileError(f"{path}: cannot be read: {problem.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as problem:
        raise ForeignFileError(f"{path}: is no CSV in UTF-8 ({problem}): give the CSV file itself") from None
    if empty:
        raise ForeignFileError(f"{path}: is empty: was it written completely?")


def _number(path: str | Path, where: str, cell: str) -> float:
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ForeignFileError(f"{path}: {where} must be a number, got {cell[:40]!r}")
    return number


def _whole(path: str | Path, where: str, cell: str) -> int:
    """Read a count; R writes 100000 as 1e+05."""
    if cell.isascii() and cell.isdigit() and len(cell) < 16:
        return int(cell)
    number = _number(path, where, cell)
    if number < 0 or number != math.floor(number) or number >= 1 << 53:
        raise ForeignFileError(f"{path}: {where} must be a whole number from 0, got {cell[:40]!r}")
    return int(number)
