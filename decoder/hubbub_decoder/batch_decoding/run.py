"""Decode all tasks in a pool of processes; results that are up to date are kept.

A result is recorded in the database when it is complete. So after a kill, the next run keeps what was recorded and decodes the rest.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import TypeVar

from hubbub.errors import HubbubError
from hubbub.files.regular_files import read_regular
from hubbub.metrics.params import Params
from hubbub.text import escape_control_characters
from hubbub.worker_processes import worker_pool
from hubbub_decoder.batch_decoding.tasks import Task, UnreadableFile, content_hash, counts_hash
from hubbub_decoder.data.candidates import distinct_candidates, read_candidates
from hubbub_decoder.data.output_files import make_directory
from hubbub_decoder.model.design_matrix import DesignMatrix, design_matrix
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.pipeline import decode
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results_store.database import ResultsDatabase
from hubbub_decoder.results_store.store import KnownResult, PeriodKey, StoredResult

_DIED = "its process was ended, probably for lack of memory: decode it with `hubbub decode`, or with fewer --jobs"


class Status(StrEnum):
    """What became of a task."""

    DECODED = "decoded"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Status of one task, or of a file that is no summary.

    name        : path of the result below OUT, without its suffix; of an unreadable file, its path
    reason      : why it was skipped or failed; empty otherwise
    fingerprint : of the inputs of the result; empty without one
    num_reports, num_detected, num_warnings : of the decoding; num_detected is None if nothing was tested
    seconds     : of processor time; 0 if nothing was decoded
    counts_hash : SHA-256 of the counts of the result, in hex; empty without one
    other_command : of a skipped task, the command that its definition needs; empty if something is missing
    closed      : whether the periods that were decoded were closed when their reports were counted
    """

    name: str
    status: Status
    reason: str = ""
    fingerprint: str = ""
    num_reports: int = 0
    num_detected: int | None = None
    num_warnings: int = 0
    seconds: float = 0.0
    counts_hash: str = ""
    closed: bool = False
    other_command: str = ""


def run_tasks(
    tasks: Sequence[Task],
    unreadable: Sequence[UnreadableFile],
    database: ResultsDatabase,
    processes: int,
    out: Path | None = None,
    suffix: str = ".json",
) -> Iterator[Outcome]:
    """Yield the outcome of each task when it is known, and record the results in the database.

    out    : directory in which each recorded result is a file, too
    suffix : of these files: .json, .csv or .parquet; a result without rows, such as a mean, is a .json file

    Raises OutputError if nothing can be written. Results of tasks that no longer exist are left alone.
    """
    known = database.known_results()
    yield from (Outcome(file.name, Status.FAILED, file.reason) for file in unreadable)
    fingerprints: dict[str, str] = {}
    named: dict[PeriodKey, Task] = {}
    to_decode = list[Task]()
    hash_of = cache(content_hash)  # many tasks have the same candidates
    for task in tasks:
        first = named.setdefault(_key(task), task)
        if first is not task:
            yield Outcome(task.name, Status.FAILED, _reason_of_same_name(task, first))
            continue
        outcome = _known_outcome(task, known.get(_key(task)), hash_of)
        if outcome.status is Status.UNCHANGED and out is not None:
            outcome = _exported(outcome, task, database.recorded_document(_key(task)), out, suffix)
        if outcome.status is Status.DECODED:
            fingerprints[task.name] = outcome.fingerprint
            to_decode.append(task)
        else:
            yield outcome
    for task, result in map_in_processes(_decode, to_decode, processes):
        if isinstance(result, ProcessDiedError):
            yield Outcome(task.name, Status.FAILED, _DIED)
            continue
        outcome, document = result
        if outcome.status is Status.DECODED:
            outcome = replace(outcome, fingerprint=fingerprints[task.name])
            database.write_result(
                StoredResult(_key(task), outcome.counts_hash, outcome.fingerprint, document, outcome.closed)
            )
            if out is not None:
                outcome = _exported(outcome, task, document, out, suffix)
        yield outcome


def _exported(outcome: Outcome, task: Task, document: str, out: Path, suffix: str) -> Outcome:
    """Write the file of a recorded result unless it has this content; return the outcome, or the failure."""
    path = out / f"{task.name}{suffix if task.metric.kind.has_shares else '.json'}"
    try:
        decoding = Decoding.from_dict(json.loads(document))
        if _content(path) != decoding.to_bytes(path.suffix):
            make_directory(path.parent)
            decoding.save(path)
    except HubbubError as problem:
        return Outcome(task.name, Status.FAILED, str(problem))
    except Exception as problem:  # noqa: BLE001  (the other tasks go on)
        return Outcome(task.name, Status.FAILED, f"unexpected {type(problem).__name__}: {problem}")
    return outcome


def _content(path: Path) -> bytes | None:
    """Content of a regular file; None if there is none, or it cannot be read."""
    with suppress(OSError):
        return read_regular(path)
    return None


def _key(task: Task) -> PeriodKey:
    """Key of the result of a task, whose period is FIRST..LAST for a sum over several ones, as in its name."""
    return PeriodKey.of(task.metric, task.name.rpartition("/")[2])


def _reason_of_same_name(task: Task, first: Task) -> str:
    """Why a task is not decoded that has the first and last period of another one; `first` has all periods between, if one has."""
    files, others = (escape_control_characters(", ".join(map(str, named.files))) for named in (task, first))
    return (
        f"{files} has the same first and last period as {others}, and not the same between. A result is named by these two, so it is that of "
        f"{others}. Keep one of them in the directory, and decode the other with `hubbub decode`"
    )


def _known_outcome(task: Task, before: KnownResult | None, hash_of: Callable[[Path], str]) -> Outcome:
    """Outcome that needs no decoding: unchanged, skipped or failed; else "decoded", with the fingerprint that the result will have."""
    if task.reason_to_skip is not None:
        return Outcome(task.name, Status.SKIPPED, task.reason_to_skip, other_command=task.other_command)
    try:
        fingerprint = task.fingerprint(hash_of)
    except OSError as problem:
        name = escape_control_characters(problem.filename)
        return Outcome(task.name, Status.FAILED, f"{name} cannot be read: {problem.strerror}")
    if before is not None and before.inputs_hash == fingerprint:
        return Outcome(
            task.name,
            Status.UNCHANGED,
            fingerprint=fingerprint,
            num_reports=before.num_reports,
            num_detected=before.num_detected,
            num_warnings=before.num_warnings,
            counts_hash=before.counts_hash,
            closed=before.closed,
        )
    return Outcome(task.name, Status.DECODED, fingerprint=fingerprint)


def decode_tasks(tasks: Sequence[Task], processes: int) -> Iterator[tuple[Outcome, str]]:
    """Yield the outcome of each task when it is known, and the JSON of its decoding; "" without one."""
    for task, result in map_in_processes(_decode, tasks, processes):
        yield (Outcome(task.name, Status.FAILED, _DIED), "") if isinstance(result, ProcessDiedError) else result


def _decode(task: Task) -> tuple[Outcome, str]:
    """Decode one task in a process of the pool; return the JSON of the decoding, too."""
    outcome, decoding = decode_task(task)
    return outcome, "" if decoding is None else json.dumps(decoding.to_dict(), allow_nan=False)


def decode_task(task: Task) -> tuple[Outcome, Decoding | None]:
    """Outcome of one task, with its decoding if it is decoded."""
    began = time.process_time()
    try:
        summary = task.read()
        if summary.num_reports == 0:
            return Outcome(task.name, Status.SKIPPED, "no report has arrived"), None
        decoding = decode(
            summary,
            None if task.candidates is None else _candidates(task.candidates, task.metric.params),
            **asdict(task.options),
        )
    except HubbubError as problem:
        return Outcome(task.name, Status.FAILED, str(problem)), None
    except Exception as problem:  # noqa: BLE001  (the other tasks go on)
        return Outcome(task.name, Status.FAILED, f"unexpected {type(problem).__name__}: {problem}"), None
    outcome = Outcome(
        task.name,
        Status.DECODED,
        num_reports=decoding.num_reports,
        num_detected=len(decoding.detected) if decoding.is_tested else None,
        num_warnings=len(decoding.warnings),
        seconds=time.process_time() - began,
        counts_hash=counts_hash(Evidence(summary).counts),
        closed=summary.closed,
    )
    return outcome, decoding


@lru_cache(maxsize=1)  # tasks of one metric follow each other
def _candidates(path: Path, params: Params) -> list[str] | DesignMatrix:
    """Return the design matrix of a file's candidates; the list if some are repeated, since `decode` warns of them."""
    given = read_candidates(path)
    distinct, repeated = distinct_candidates(given)
    return given if repeated else design_matrix(distinct, params)


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class ProcessDiedError(Exception):
    """The process of an item ended by a signal, or by the system for lack of memory."""


def map_in_processes(
    function: Callable[[_Item], _Result], items: Sequence[_Item], processes: int
) -> Iterator[tuple[_Item, _Result | ProcessDiedError]]:
    """Yield each item with its result, in the order in which they finish; ProcessDiedError in place of a lost result.

    function  : importable, and raises no exception
    processes : at most so many at once, at least 1

    The executor does not name the item that ended its process, and loses all that ran at that moment. These run again, each in a pool
    of its own. The processes end with this one, also if it is killed.
    """
    waiting = list(items)
    while waiting:
        done = set[int]()
        for index, result in _run(function, waiting, processes):
            done.add(index)
            yield waiting[index], result
        waiting = [item for index, item in enumerate(waiting) if index not in done]
        # Items start in order, and one more than there are processes is handed out.
        suspects, waiting = waiting[: processes + 1], waiting[processes + 1 :]
        for item in suspects:
            alone = [result for _, result in _run(function, [item], 1)]
            yield item, alone[0] if alone else ProcessDiedError()


def _run(function: Callable[[_Item], _Result], items: Sequence[_Item], processes: int) -> Iterator[tuple[int, _Result]]:
    """Yield the index and the result of each item until all are done or a process dies."""
    pool = worker_pool(min(processes, len(items)))
    try:
        futures = {pool.submit(function, item): index for index, item in enumerate(items)}
        for future in as_completed(futures):
            try:
                result = future.result()
            except BrokenProcessPool:
                continue
            yield futures[future], result
    finally:
        pool.shutdown(cancel_futures=True)
