"""`ResultsStore`: results with their releases, withdrawals and the summaries that were read, in one SQLite file.

A result and its release are written in one transaction. Releases and withdrawals are only added.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import HubbubError
from hubbub.metrics.metric import Metric
from hubbub.privacy import epsilon
from hubbub_decoder.errors import OutputError
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.estimates import Estimate
from hubbub_decoder.results_store.schema import open_copy, open_database, store_error


class PeriodKey(NamedTuple):
    """A period of a definition, or of one value of its group.

    digest      : of the definition, the same for all values of its group
    group_value : "" for all values, or without a group
    period      : first day
    """

    digest: str
    group_value: str
    period: str

    @classmethod
    def of(cls, metric: Metric, period: str) -> PeriodKey:
        """Key of a period of a metric."""
        group = metric.group
        if group is None or group.value is None:
            return cls(metric.digest, "", period)
        return cls(metric.in_group(None).digest, group.value, period)

    @property
    def whole(self) -> PeriodKey:
        """Key of all values of the group together."""
        return self._replace(group_value="")


class FileStamp(NamedTuple):
    """What changes when a file is replaced or written to, as `make` and the index of Git use it: no content is read to compare it."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> FileStamp:
        """Stamp of a file. Raises OSError."""
        found = path.stat()
        return cls(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


@dataclass(frozen=True, slots=True, eq=False)
class SummaryFile:
    """A summary of one period that was read.

    content_hash   : SHA-256 of the file, in hex
    counts_hash    : SHA-256 of its counts, in hex
    closed         : whether the period was closed when the reports were counted
    cohort_reports : (m,) reports of each cohort
    bit_ones       : (k,) reports with a one at each bit
    """

    path: str
    stamp: FileStamp
    content_hash: str
    metric: Metric
    period: str
    closed: bool
    counts_hash: str
    cohort_reports: NDArray[np.int64]
    bit_ones: NDArray[np.int64]

    @property
    def num_reports(self) -> int:
        """Of all cohorts."""
        return int(self.cohort_reports.sum())


@dataclass(frozen=True, slots=True)
class Release:
    """Counts of one period that were published, and what a reader was shown of them.

    counts_hash, result_hash : SHA-256 of the counts and of the JSON of the decoding, in hex
    smallest_cohort  : fewest reports of a cohort with reports, also of what the values of a group reveal beside their sum
    epsilon          : central epsilon of this release, with delta 1e-9
    composed_epsilon : of all releases of the period together
    """

    key: PeriodKey
    counts_hash: str
    result_hash: str
    num_reports: int
    smallest_cohort: int
    epsilon: float
    composed_epsilon: float

    def shows(self, counts_hash: str, smallest_cohort: int, result_hash: str) -> bool:
        """Whether a reader of this release has seen these counts, what they reveal, and this result."""
        return (self.counts_hash, self.smallest_cohort, self.result_hash) == (counts_hash, smallest_cohort, result_hash)


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A decoding with what it was made from.

    inputs_hash : SHA-256 of all that it depends on: file, candidates, options and releases of hubbub and its libraries
    document    : JSON of `Decoding.to_dict`
    closed      : whether the period was closed when the reports were counted
    """

    key: PeriodKey
    counts_hash: str
    inputs_hash: str
    document: str
    closed: bool = True

    @property
    def result_hash(self) -> str:
        """SHA-256 of the document, in hex."""
        return text_hash(self.document)


class KnownResult(NamedTuple):
    """What is known of a result without its decoding.

    num_detected : None if nothing was tested      closed : whether the period was closed when the reports were counted
    """

    inputs_hash: str
    counts_hash: str
    closed: bool
    num_reports: int
    num_detected: int | None
    num_warnings: int


@dataclass(frozen=True, slots=True)
class Run:
    """The last run that ended without a failure.

    inputs_hash  : SHA-256 of all that it depended on
    site_version : name of the version of the site that it showed
    periods      : what became of each period: name, status and reason
    """

    inputs_hash: str
    site_version: str
    periods: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Look:
    """A look of `hubbub watch` at a period, which is not looked at again.

    num_reports : 0 if the period has no summary
    alarms      : JSON of the list of alarms, also of those that were given at an earlier period and continue
    """

    period: str
    num_reports: int
    alarms: str


def text_hash(text: str) -> str:
    """SHA-256 of a text in UTF-8, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


class ResultsStore:
    """A file of results. Use it in a `with` block, which closes it.

    Raises OutputError if the file cannot be read or written, is damaged, or is of another program or a later release.
    """

    def __init__(self, path: Path | None, *, copy: bool = False) -> None:
        """Open the file, and make it if there is none; path : None for one in memory      copy : of the file in memory, and write nothing."""
        self._path = path
        self._connection = open_copy(path) if copy and path is not None else open_database(path)
        self._definition = lru_cache(maxsize=None)(_parse_definition)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    # Summaries

    def summaries(self) -> dict[str, SummaryFile]:
        """Files that were read, by their paths."""
        rows = self._select(
            "SELECT path, size, mtime_ns, ctime_ns, inode, content_hash, definition, period, closed, counts_hash, cohort_reports, bit_ones "
            "FROM summaries JOIN definitions USING (digest, group_value)"
        )
        return {
            path: SummaryFile(
                path,
                FileStamp(*stamp),
                content,
                self._definition(definition),
                period,
                bool(closed),
                counts,
                np.frombuffer(cohorts, "<i8"),
                np.frombuffer(ones, "<i8"),
            )
            for path, *stamp, content, definition, period, closed, counts, cohorts, ones in rows
        }

    def write_summaries(self, read: Iterable[SummaryFile], gone: Iterable[str]) -> None:
        """Remember files that were read, and forget others."""
        with self._transaction():
            self._connection.executemany("DELETE FROM summaries WHERE path = ?", [(path,) for path in gone])
            for file in read:
                key = PeriodKey.of(file.metric, file.period)
                self._connection.execute(_ADD_DEFINITION, _definition_row(key, file.metric))
                self._connection.execute(
                    _ADD_SUMMARY,
                    (
                        file.path,
                        *file.stamp,
                        file.content_hash,
                        *key,
                        file.closed,
                        file.counts_hash,
                        file.num_reports,
                        file.cohort_reports.astype("<i8").tobytes(),
                        file.bit_ones.astype("<i8").tobytes(),
                    ),
                )

    # Results and releases

    def require_decodings_only(self) -> None:
        """Raise OutputError if `hubbub publish` wrote this file, or if it cannot be written."""
        with self._transaction():
            for table in ("releases", "withdrawals", "summaries"):
                ((number,),) = self._select(f"SELECT count(*) FROM {table}")  # noqa: S608  (a constant)
                if number:
                    raise OutputError(
                        f"{self._path} is a file of `hubbub publish`, with {number:,} {table}, and has the results of its site alone. "
                        "Pass another --database."
                    )

    def known_results(self) -> dict[PeriodKey, KnownResult]:
        """What is known of each result."""
        return known_results(self._select(SELECT_KNOWN_RESULTS))

    def write_result(self, result: StoredResult) -> None:
        """Write a result in place of the one of its period, all or nothing."""
        with self._transaction():
            self._write(statements_of(result))

    def looks(self, metric: Metric) -> dict[str, Look]:
        """Looks of `hubbub watch` at the periods of a metric, by period."""
        return looks_of(self._select(SELECT_LOOKS, PeriodKey.of(metric, "")[:2]))

    def write_looks(self, metric: Metric, looks: Iterable[Look]) -> None:
        """Remember looks at periods of a metric, all or nothing."""
        with self._transaction():
            self._write(look_statements(metric, looks))

    def releases(self) -> dict[PeriodKey, tuple[Release, ...]]:
        """All releases of each period in their order, also of those that were withdrawn."""
        found: dict[PeriodKey, tuple[Release, ...]] = {}
        for digest, value, period, *fields in self._select(
            "SELECT digest, group_value, period, counts_hash, result_hash, num_reports, smallest_cohort, epsilon, composed_epsilon "
            "FROM releases ORDER BY id"
        ):
            key = PeriodKey(digest, value, period)
            found[key] = (*found.get(key, ()), Release(key, *fields))
        return found

    def releases_hash(self, number: int) -> str:
        """SHA-256, in hex, of the first releases in their order: releases are only added, so it stays the same for this file."""
        rows = self._select(
            "SELECT digest, group_value, period, counts_hash, result_hash, smallest_cohort FROM releases ORDER BY id LIMIT ?",
            (number,),
        )
        return text_hash(json.dumps(rows))

    def metrics(self) -> dict[tuple[str, str], Metric]:
        """Metrics by the digest of the definition and the value of the group."""
        rows = self._select("SELECT digest, group_value, definition FROM definitions")
        return {(digest, value): self._definition(definition) for digest, value, definition in rows}

    def withdrawn(self) -> frozenset[str]:
        """Names of what was withdrawn."""
        return frozenset(name for (name,) in self._select("SELECT name FROM withdrawals"))

    def inputs_hashes(self) -> dict[PeriodKey, str]:
        """`StoredResult.inputs_hash` of each result."""
        rows = self._select("SELECT digest, group_value, period, inputs_hash FROM results")
        return {PeriodKey(digest, value, period): inputs for digest, value, period, inputs in rows}

    def document(self, key: PeriodKey, result_hash: str) -> str:
        """JSON of a decoding. Raises OutputError if it is missing, or is not the one with this hash."""
        for (document,) in self._select(SELECT_DECODING, key):
            if isinstance(document, str) and text_hash(document) == result_hash:
                return document
        raise OutputError(
            f"{self._path}: the result of {key.period} of the definition {key.digest[:8]} is missing or damaged, and the site stays as it was. "
            "Restore the file from a backup"
        )

    def recorded_document(self, key: PeriodKey) -> str:
        """JSON of the decoding of a period; raises OutputError if there is none."""
        return only_document(self._select(SELECT_DECODING, key), key)

    def record(self, results: Iterable[tuple[StoredResult | None, Release | None]]) -> None:
        """Write results with their releases, all or nothing; None: the store has this result, and its last release showed the same."""
        new = [written for written in results if written != (None, None)]
        if not new:
            return
        with self._transaction():
            for result, release in new:
                if result is not None:
                    self._write(statements_of(result))
                if release is not None:
                    self._write_release(release)

    def withdraw(self, names: Iterable[str], results: Iterable[PeriodKey]) -> None:
        """Remember names for good, and delete the results that they name."""
        with self._transaction():
            self._connection.executemany(
                "INSERT OR IGNORE INTO withdrawals (name) VALUES (?)", [(name,) for name in sorted(names)]
            )
            self._connection.executemany(_DELETE_RESULT, list(results))

    # Runs

    def last_run(self) -> Run | None:
        """The last run, if it had no failure and nothing was written after it."""
        for inputs, version, periods in self._select("SELECT inputs_hash, site_version, periods FROM last_run"):
            return Run(inputs, version, tuple((name, status, reason) for name, status, reason in json.loads(periods)))
        return None

    def remember_run(self, run: Run) -> None:
        """Remember a run without a failure, which is the last thing that it writes."""
        with self._transaction():
            periods = json.dumps(run.periods, ensure_ascii=False)
            row = (run.inputs_hash, run.site_version, periods)
            self._connection.execute("INSERT INTO last_run VALUES (1, ?, ?, ?)", row)

    # Statements

    def _write(self, statements: Statements) -> None:
        for statement, rows in statements:
            self._connection.executemany(statement, rows)

    def _write_release(self, release: Release) -> None:
        self._connection.execute(
            _ADD_RELEASE,
            (
                *release.key,
                release.counts_hash,
                release.result_hash,
                release.num_reports,
                release.smallest_cohort,
                release.epsilon,
                release.composed_epsilon,
            ),
        )

    def _select(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(statement, parameters).fetchall()
        except sqlite3.Error as problem:
            raise store_error(self._path, problem) from None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All statements of the block, or none; the last run is then no longer that of this file."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._connection.execute("DELETE FROM last_run")
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as problem:
            raise store_error(self._path, problem) from None


Statements = Iterator[tuple[str, list[tuple[Any, ...]]]]
"""Statements in their order, each with its rows of parameters, which are written `?`."""


def statements_of(result: StoredResult) -> Statements:
    """Statements that write a result in place of the one of its period."""
    decoding = Decoding.from_dict(json.loads(result.document))
    key = PeriodKey.of(decoding.metric, result.key.period)
    if key != result.key:
        raise ValueError(f"a decoding of {key} is no result of {result.key}")
    yield _ADD_DEFINITION, [_definition_row(key, decoding.metric)]
    yield _DELETE_RESULT, [key]
    yield _ADD_RESULT, [_result_row(result, decoding)]
    yield _ADD_ESTIMATE, [(*key, position, *_estimate_row(estimate)) for position, estimate in enumerate(decoding)]


def look_statements(metric: Metric, looks: Iterable[Look]) -> Statements:
    """Statements that write looks at periods of a metric in place of earlier ones."""
    key = PeriodKey.of(metric, "")
    yield _ADD_DEFINITION, [_definition_row(key, metric)]
    yield _ADD_LOOK, [(*key._replace(period=look.period), look.num_reports, look.alarms) for look in looks]


def looks_of(rows: Iterable[Sequence[Any]]) -> dict[str, Look]:
    """Looks by period, from the rows of `SELECT_LOOKS`."""
    return {period: Look(period, num_reports, alarms) for period, num_reports, alarms in rows}


def known_results(rows: Iterable[Sequence[Any]]) -> dict[PeriodKey, KnownResult]:
    """What is known of each result, from the rows of `SELECT_KNOWN_RESULTS`."""
    return {
        PeriodKey(digest, value, period): KnownResult(
            inputs, counts, bool(closed), num_reports, int(detected) if tested else None, len(json.loads(warnings))
        )
        for digest, value, period, inputs, counts, closed, num_reports, warnings, tested, detected in rows
    }


def only_document(rows: Iterable[Sequence[Any]], key: PeriodKey) -> str:
    """JSON of a decoding, from the rows of `SELECT_DECODING`; raises OutputError if there is none."""
    for (document,) in rows:
        return str(document)
    raise OutputError(f"the result of {key.period} was removed from the database meanwhile. Run the command again.")


_ADD_DEFINITION = "INSERT INTO definitions VALUES (?, ?, ?, ?) ON CONFLICT (digest, group_value) DO UPDATE SET definition = excluded.definition"
_ADD_SUMMARY = "INSERT OR REPLACE INTO summaries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ADD_RESULT = "INSERT INTO results VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ADD_ESTIMATE = "INSERT INTO estimates VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ADD_RELEASE = (
    "INSERT INTO releases (digest, group_value, period, counts_hash, result_hash, num_reports, smallest_cohort, epsilon, composed_epsilon) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
SELECT_DECODING = "SELECT decoding FROM results WHERE digest = ? AND group_value = ? AND period = ?"
SELECT_LOOKS = "SELECT period, num_reports, alarms FROM looks WHERE digest = ? AND group_value = ?"
_ADD_LOOK = (
    "INSERT INTO looks VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (digest, group_value, period) DO UPDATE SET num_reports = excluded.num_reports, alarms = excluded.alarms"
)
_DELETE_RESULT = "DELETE FROM results WHERE digest = ? AND group_value = ? AND period = ?"
SELECT_KNOWN_RESULTS = (
    "SELECT digest, group_value, period, inputs_hash, counts_hash, closed, num_reports, warnings, count(detected), sum(detected) "
    "FROM results LEFT JOIN estimates USING (digest, group_value, period) "
    "GROUP BY digest, group_value, period, inputs_hash, counts_hash, closed, num_reports, warnings"
)


def _definition_row(key: PeriodKey, metric: Metric) -> tuple[str, ...]:
    definition = json.dumps(metric.to_dict(), ensure_ascii=False)
    return (key.digest, key.group_value, metric.name, _storable(definition))


def _result_row(result: StoredResult, decoding: Decoding) -> tuple[Any, ...]:
    mean = None if decoding.numbers is None else decoding.numbers.mean
    numbers = (None, None, None) if mean is None else (_number(mean.value), _number(mean.lowest), _number(mean.highest))
    return (
        *result.key,
        result.counts_hash,
        result.inputs_hash,
        int(result.closed),
        decoding.num_reports,
        decoding.confidence,
        decoding.fdr,
        decoding.target,
        epsilon(decoding.metric),
        *numbers,
        json.dumps([str(finding) for finding in decoding.warnings]),
        result.document,
    )


def _estimate_row(estimate: Estimate) -> tuple[Any, ...]:
    numbers = (estimate.share, estimate.low, estimate.high, estimate.p_value, estimate.q_value)
    detected = None if estimate.detected is None else int(estimate.detected)
    return (_storable(" | ".join(estimate.group)), *map(_number, numbers), detected)


def _storable(text: str) -> str:
    """Text in which a NUL, which PostgreSQL refuses, and lone surrogates, which UTF-8 has not, are escape sequences.

    >>> _storable("a\\0b\\ud800")
    'a\\\\x00b\\\\ud800'
    """
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _number(value: float) -> float | None:
    """Number of a column; nan and infinity are null, as in JSON."""
    return value if math.isfinite(value) else None


def _parse_definition(text: str) -> Metric:
    try:
        return Metric.from_dict(json.loads(text))
    except (HubbubError, ValueError, KeyError, TypeError) as problem:
        raise OutputError(
            f"A definition in the file of results is damaged: {problem} Restore the file from a backup."
        ) from None
