"""Import google/rappor's CSV files: parameters, counts, reports, and the map as a design matrix.

File formats:

    params   header k,h,m,p,q,f and one line of numbers
    counts   no header; one line per cohort: number of reports, then ones of bit 0 .. k - 1
    map      no header; one line per candidate: its name, then the positions of its bits, cohort * k + bit + 1; at most h per cohort,
             fewer (or empty cells, or repeated positions) if hashes coincide
    reports  header with the columns cohort and irr; irr is a string of 0 and 1, bit k - 1 first

Cells may also be separated by semicolons or tabs, and each file may be compressed by gzip.

Source: google/rappor, analysis/R/read_input.R, bin/sum_bits.py, bin/hash_candidates.py, tests/rappor_sim.py.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import ParameterError
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.summary import BitCounts, PatternCounts, Summary
from hubbub.summary.counting import count_bits, count_ones, count_patterns
from hubbub.summary.pattern_counts import MAX_PATTERN_BITS
from hubbub.text import escape_untrusted
from hubbub_decoder.errors import ForeignFileError
from hubbub_decoder.model.design_matrix import DesignMatrix, design_from_positions
from hubbub_decoder.model.vectorized_hashing import Positions, bit_positions

_PARAMETERS = ("k", "h", "m", "p", "q", "f")
_REPORTS_PER_BLOCK = 1 << 16
_F_STEPS = 128

F_ROUNDING = {"python": math.ceil, "cpp": math.floor}
"""Rounding of 128 f by each client: its permanent noise has 7 binary digits."""


def read_params(path: str | Path, client: str | None = None) -> Params:
    """Read the parameters, with hash scheme google-md5.

    client : the client that sent the reports, "python" (rounds f up to a multiple of 1/128) or "cpp" (down); None: f as written

    Raises ForeignFileError for another header, malformed numbers, or invalid parameters.
    """
    lines = [cells for _, cells in csv_lines(path)]
    if len(lines) != 2 or tuple(name.strip() for name in lines[0]) != _PARAMETERS or len(lines[1]) != len(_PARAMETERS):
        raise ForeignFileError(f"{path}: must have the header {','.join(_PARAMETERS)} and one line of six numbers.")
    k, h, m = (parse_count(path, f"line 2: {name}", cell) for name, cell in zip("khm", lines[1][:3], strict=True))
    p, q, f = (_parse_number(path, f"line 2: {name}", cell) for name, cell in zip("pqf", lines[1][3:], strict=True))
    if client is not None and 0 <= f <= 1:
        f = F_ROUNDING[client](f * _F_STEPS) / _F_STEPS
    try:
        return Params(num_bits=k, num_hashes=h, num_cohorts=m, prob_p=p, prob_q=q, prob_f=f, hash_scheme="google-md5")
    except ParameterError as problem:
        raise ForeignFileError(f"{path}: {problem}") from None


def read_counts(path: str | Path, params: Params) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Read the numbers of reports (m,) and of ones (m, k) per cohort."""
    m, k = params.num_cohorts, params.num_bits
    table = np.empty((m, k + 1), np.int64)
    row = -1
    for row, (line, cells) in enumerate(csv_lines(path)):
        if len(cells) != k + 1:
            raise ForeignFileError(
                f"{path}: line {line} must have k + 1 = {k + 1} numbers (reports, then ones of {k} bits), got {len(cells)}. "
                "Check that the counts belong to these parameters."
            )
        if row < m:
            table[row] = [
                parse_count(path, f"line {line}: column {at}", cell) for at, cell in enumerate(cells, start=1)
            ]
            if table[row, 1:].max() > table[row, 0]:
                raise ForeignFileError(
                    f"{path}: line {line} has {table[row, 1:].max()} ones of bit {table[row, 1:].argmax()}, but only "
                    f"{table[row, 0]} reports. The first column must be the number of reports."
                )
    if row + 1 > m and (row + 1) % m == 0:
        raise ForeignFileError(
            f"{path}: has {row + 1} lines, {(row + 1) // m} for each of m = {m} cohorts. If the clients have {row + 1} cohorts, write m = {row + 1} in the "
            "parameters. If it is several tables in one file, such as one a day, import each by itself: `hubbub decode` adds them up."
        )
    if row + 1 != m:
        raise ForeignFileError(
            f"{path}: must have one line for each of m = {m} cohorts, got {row + 1}. Check that the counts belong to these parameters."
        )
    return table[:, 0], table[:, 1:]


@dataclass(frozen=True)
class CandidateMap:
    """Candidates of a map and their bits.

    positions : (M, m, h)   bit positions in each cohort, as `vectorized_hashing.bit_positions` returns them
    """

    names: list[str]
    positions: Positions
    params: Params

    @cached_property
    def is_google_md5(self) -> bool:
        """Whether the map equals the hash positions of google/rappor's clients, so that names are sufficient to decode."""
        hashed = bit_positions(self.names, replace(self.params, hash_scheme="google-md5"))
        return bool(np.array_equal(self.positions, hashed))

    @cached_property
    def categories(self) -> tuple[str, ...] | None:
        """Category of each bit if every candidate has its own bit, the same in every cohort (basic RAPPOR); otherwise None.

        Bits without a candidate are named by their number, from 1. A map with a single cohort and unused bits may be hashed, so it
        gives None.
        """
        k, bits = self.params.num_bits, self.positions[:, 0, 0]
        one_bit_each = len(np.unique(bits)) == len(bits) and (self.positions[..., 1:] == k).all()
        same_in_cohorts = (self.positions[..., 0] == bits[:, None]).all()
        if not one_bit_each or not same_in_cohorts or (self.params.num_cohorts == 1 and len(bits) < k):
            return None
        name_of = dict(zip(bits.tolist(), self.names, strict=True))
        return tuple(name_of.get(bit, f"bit {bit + 1}") for bit in range(k))

    def design(self) -> DesignMatrix:
        """Return the design matrix of the candidates, which works for any hash function."""
        return design_from_positions(self.names, self.positions, self.params)


def collected_metric(name: str, params: Params, known: CandidateMap | None = None) -> Metric:
    """Return the metric of reports under these parameters.

    It is boolean if k = 1, categorical if the map gives every candidate its own bit, and otherwise a string metric.
    """
    if params.num_bits == 1:
        return Metric.boolean(name, params.mechanism)
    if known is None or known.is_google_md5 or known.categories is None:
        return Metric.string(name, params)
    return Metric.categorical(name, known.categories, params.mechanism)


def read_map(path: str | Path, params: Params) -> CandidateMap:
    """Read the candidates and their bit positions in each cohort.

    A repeated candidate with equal bits is read once. Raises ForeignFileError for malformed lines.
    """
    k, h, m = params.num_bits, params.num_hashes, params.num_cohorts
    positions: dict[str, tuple[int, ...]] = {}
    for line, (name, *cells) in csv_lines(path):
        given = [parse_count(path, f"line {line}: position", cell) for cell in cells if cell.strip() not in ("", "NA")]
        outside = next((position for position in given if not 1 <= position <= m * k), None)
        if outside is not None:
            raise ForeignFileError(
                f"{path}: line {line}: positions are cohort * k + bit + 1, from 1 to m k = {m * k}, got {outside}. "
                "Check that the map belongs to these parameters."
            )
        bits = tuple(sorted({position - 1 for position in given}))
        if name.strip().isdecimal() and len(cells) == h * m - 1:
            raise ForeignFileError(
                f"{path}: line {line} has h m = {h * m} numbers and no name. Write the candidate before its positions."
            )
        in_cohort = np.bincount(np.array(bits, np.int64) // k, minlength=m)
        if in_cohort.min() < 1 or in_cohort.max() > h:
            wrong = int(np.argmax((in_cohort < 1) | (in_cohort > h)))
            raise ForeignFileError(
                f"{path}: line {line} sets {in_cohort[wrong]} bits in cohort {wrong}, must be 1 to h = {h}. "
                "Check that the map belongs to these parameters."
            )
        if positions.setdefault(name, bits) != bits:
            raise ForeignFileError(
                f"{path}: line {line} gives {name!r} other bits than an earlier line. Remove one of the two lines."
            )
    if not positions:
        raise ForeignFileError(f"{path} has no candidate. Write lines with a name and the positions of its bits.")
    return CandidateMap(list(positions), _bit_array(list(positions.values()), params), params)


def read_summary_files(
    metric: Metric,
    counts: str | Path | None,
    reports: str | Path | None,
    written: Params | None = None,
    dropped_rows: Counter[str] | None = None,
) -> Summary:
    """Read the summary of a counts file, a reports file, or both; raises ForeignFileError if both disagree.

    written      : parameters of the files; None: the metric's. Their cohorts are added up if the metric has a single cohort.
    dropped_rows : counts the invalid rows of the reports that are left out, by reason; None: such a row is an error
    returns : pattern counts for reports of k <= 16 bits, otherwise bit counts
    """
    params = written or metric.params
    together = metric.num_cohorts == 1
    summed = None
    if reports is not None:
        chunks = read_reports(reports, params, dropped_rows)
        summed = _sum(metric, ((np.zeros_like(of), rows) for of, rows in chunks) if together else chunks)
        summed = replace(summed, dropped_rows=dropped_rows or {})
    if counts is None:
        if summed is None:
            raise ForeignFileError("No input file. Pass counts, reports or both.")
        return summed
    number, ones = read_counts(counts, params)
    if together:
        number, ones = number.sum(keepdims=True), ones.sum(axis=0, keepdims=True)
    read = BitCounts(metric, number, ones)
    if summed is None:
        return read
    expected = summed.bit_counts()
    if not (np.array_equal(expected.reports, read.reports) and np.array_equal(expected.ones, read.ones)):
        raise ForeignFileError(
            f"{counts} ({read.num_reports:,} reports) is not the sum of the {summed.num_reports:,} reports in {reports}. "
            "Pass only one of the two files."
        )
    return summed


def read_collection(
    name: str,
    params_path: Path,
    counts_path: Path | None,
    reports_path: Path | None,
    map_path: Path | None,
    *,
    client: str | None = None,
    dropped_rows: Counter[str] | None = None,
) -> tuple[Params, CandidateMap | None, Summary]:
    """Read the parameters, the map if there is one, and the summary of a metric that is called `name`.

    The other parameters are those of `read_params` and `read_summary_files`. Raises ForeignFileError also if there is no report.
    """
    params = read_params(params_path, client)
    known = None if map_path is None else read_map(map_path, params)
    metric = collected_metric(name, params, known)
    summary = read_summary_files(metric, counts_path, reports_path, params, dropped_rows)
    check_not_empty(counts_path or reports_path, summary.num_reports, dropped_rows)
    return params, known, summary


def read_reports(
    path: str | Path, params: Params, dropped_rows: Counter[str] | None = None
) -> Iterator[tuple[NDArray[np.uint16], NDArray[np.uint8]]]:
    """Yield the reports in blocks: cohorts (n,) and packed bits (n, ceil(k / 8)).

    dropped_rows : counts the invalid rows that are left out, by reason; None: such a row is an error
    """
    lines = csv_lines(path)
    _, header = next(lines, (1, []))
    names = [name.strip() for name in header]
    bits_at = next((names.index(name) for name in ("irr", "rappor") if name in names), None)
    if "cohort" not in names or bits_at is None:
        raise ForeignFileError(
            f"{path}: line 1 must name the columns cohort and irr, as in client,cohort,bloom,prr,irr; got {names[:8]}."
        )
    cohort_at = names.index("cohort")

    def parse(line: int, cells: list[str]) -> tuple[int, str]:
        check_columns(path, line, cells, len(names))
        cohort = parse_cohort(path, line, cells[cohort_at])
        if cohort >= params.num_cohorts:
            raise InvalidRowError(
                f"{path}: line {line}: cohort must be below m = {params.num_cohorts}, got {cohort}.", "invalid cohort"
            )
        return cohort, parse_bits(path, line, "the bits", cells[bits_at], params.num_bits)

    rows = valid_rows(lines, parse, dropped_rows)
    while block := list(islice(rows, _REPORTS_PER_BLOCK)):
        cohorts, digits = zip(*block, strict=True)
        yield np.array(cohorts, np.uint16), pack_digits(digits)


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
        counts += BitCounts(metric, *count_bits(cohorts, rows, m, k), ones_histogram=count_ones(rows, k))
    return counts


class InvalidRowError(ForeignFileError):
    """A row that is no report, so that it may be left out.

    reason : in a few words, without anything of the file
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(f"{message} Pass --drop-invalid-rows to leave such rows out.")
        self.reason = reason


Row = TypeVar("Row")


def valid_rows(
    lines: Iterable[tuple[int, list[str]]],
    parse: Callable[[int, list[str]], Row],
    dropped_rows: Counter[str] | None,
) -> Iterator[Row]:
    """Yield the rows that `parse` returns, and count those for which it raises InvalidRowError, by reason.

    dropped_rows : the counts; None: the error is raised
    """
    for line, cells in lines:
        try:
            row = parse(line, cells)
        except InvalidRowError as problem:
            if dropped_rows is None:
                raise
            dropped_rows[problem.reason] += 1
        else:
            yield row


def check_not_empty(path: str | Path | None, num_reports: int, dropped_rows: Counter[str] | None) -> None:
    """Raise ForeignFileError for a file without reports; dropped_rows: invalid rows that were left out."""
    if num_reports == 0:
        raise ForeignFileError(
            f"{path} has no {'valid ' if dropped_rows else ''}reports. Check that it was written completely."
        )


def check_columns(path: str | Path, line: int, cells: list[str], columns: int) -> None:
    """Raise InvalidRowError unless a row has a cell for each column."""
    if len(cells) != columns:
        raise InvalidRowError(
            f"{path}: line {line} must have {columns} columns like the header, got {len(cells)}.", "other columns"
        )


def parse_cohort(path: str | Path, line: int, cell: str) -> int:
    """Return the cohort of a row; raises InvalidRowError."""
    try:
        return parse_count(path, f"line {line}: cohort", cell)
    except ForeignFileError as problem:
        raise InvalidRowError(str(problem), "invalid cohort") from None


def parse_bits(path: str | Path, line: int, what: str, cell: str, num_bits: int) -> str:
    """Return the digits of a row, the last bit first; raises InvalidRowError."""
    bits = cell.strip()
    if len(bits) != num_bits or bits.strip("01"):
        raise InvalidRowError(
            f"{path}: line {line}: {what} must be k = {num_bits} digits, each 0 or 1, got '{escape_untrusted(bits)}'. "
            "Check that the reports belong to these parameters.",
            "invalid bits",
        )
    return bits


def pack_digits(digits: Sequence[str]) -> NDArray[np.uint8]:
    """Return packed bits (n, ceil(k / 8)) of n texts of k digits, the last bit first."""
    ones = np.frombuffer("".join(digits).encode(), np.uint8).reshape(len(digits), -1)[:, ::-1] == ord("1")
    return np.packbits(ones, axis=1, bitorder="little")


def _bit_array(positions: list[tuple[int, ...]], params: Params) -> Positions:
    """Array (M, m, h) of sorted positions cohort * k + bit; missing entries are k, after the others."""
    k, m = params.num_bits, params.num_cohorts
    bits = np.full((len(positions), m, params.num_hashes), k, np.int16)
    for row, taken in enumerate(positions):
        cohort, bit = np.divmod(np.array(taken, np.int64), k)
        nth = np.arange(len(taken)) - np.searchsorted(cohort, cohort)
        bits[row, cohort, nth] = bit
    return bits


def csv_lines(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and cells of every non-empty line of a CSV file, which may be compressed by gzip.

    Cells are separated by commas. If the first line has none, they are separated by its semicolons or tabs.

    Raises ForeignFileError for unreadable or empty files.
    """
    try:
        with Path(path).open("rb") as file, _text(file) as text:
            first = text.readline()
            reader = csv.reader(chain([first], text), delimiter=next((mark for mark in ",;\t" if mark in first), ","))
            empty = True
            for cells in reader:
                if any("\0" in cell for cell in cells):
                    raise ForeignFileError(f"{path}: line {reader.line_num} is binary. Pass the CSV file itself.")
                if any(cell.strip() for cell in cells):
                    empty = False
                    yield reader.line_num, cells
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise ForeignFileError(
            f"{path} is a damaged gzip file. Compress it again, or pass the CSV file itself."
        ) from None
    except OSError as problem:
        raise ForeignFileError(f"{path} cannot be read: {problem.strerror}.") from None
    except (UnicodeDecodeError, csv.Error) as problem:
        raise ForeignFileError(f"{path} is not CSV in UTF-8 ({problem}). Pass the CSV file itself.") from None
    if empty:
        raise ForeignFileError(f"{path} is empty. Check that it was written completely.")


def _text(file: io.BufferedReader) -> io.TextIOWrapper:
    """Return the text of a file, decompressed if its first bytes are those of gzip."""
    binary = gzip.GzipFile(fileobj=file) if file.peek(2).startswith(b"\x1f\x8b") else file
    return io.TextIOWrapper(binary, encoding="utf-8-sig", newline="")


def _parse_number(path: str | Path, where: str, cell: str) -> float:
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ForeignFileError(f"{path}: {where} must be a number, got {cell[:40]!r}.")
    return number


def parse_count(path: str | Path, where: str, cell: str) -> int:
    """Parse a count; R writes 100000 as 1e+05."""
    if cell.isascii() and cell.isdigit() and len(cell) < 16:
        return int(cell)
    number = _parse_number(path, where, cell)
    if number < 0 or number != math.floor(number) or number >= 1 << 53:
        raise ForeignFileError(f"{path}: {where} must be a non-negative integer, got {cell[:40]!r}.")
    return int(number)
