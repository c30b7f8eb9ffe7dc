"""Warnings of decodings of random tasks: how often each kind is right, a false alarm, or missing.

    python -m benchmarks.warning_rates [--tasks 320] [--first 0]        (the tasks of benchmarks.random_tasks)

Each task is decoded twice: with its candidates, and with a list of absent strings of the same length, as if the candidates were encoded
differently from the clients' strings. `RIGHT` states what makes each kind of warning right, in terms of the task's truth. A kind without
an entry states facts about the input alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from benchmarks.runner import Benchmark, seed
from benchmarks.tables import Row
from hubbub_decoder import Decoding, decode
from tests.support.random_tasks import Task, draw_task, simulate_task

_MAX_CANDIDATES = 10_000


@dataclass(frozen=True)
class Truth:
    """Shares of a task's reports: all listed strings, the largest listed one, all unlisted ones, the largest unlisted one."""

    listed: float
    largest_listed: float
    unlisted: float
    largest_unlisted: float
    num_cohorts: int
    detection_limit: float

    @classmethod
    def of_decoding(cls, decoding: Decoding, population: Mapping[str, int], task: Task) -> Truth:
        """Truth behind a decoding of some candidates."""
        n = decoding.num_reports
        listed = {name for e in decoding for name in (e.candidate, *e.indistinguishable_from)}
        inside = [count / n for name, count in population.items() if name in listed]
        outside = [count / n for name, count in population.items() if name not in listed]
        return cls(
            sum(inside),
            max(inside, default=0.0),
            sum(outside),
            max(outside, default=0.0),
            task.params.num_cohorts,
            decoding.detection_limit,
        )


def _is_frequent(share: float, limit: float) -> bool | None:
    """Whether a share is above the detection limit; None: between half of it and the limit."""
    return True if share >= limit else None if share > limit / 2 else False


RIGHT: Mapping[str, Callable[[Truth], bool | None]] = MappingProxyType(
    {
        "few_cohorts": lambda t: t.num_cohorts < 8 and t.unlisted >= 0.01,
        "nothing_detected": lambda t: t.unlisted > t.listed,
        "unlisted_strings": lambda t: _is_frequent(t.largest_unlisted, t.detection_limit),
        "impossible_totals": lambda _: False,
        "failed_fit_test": lambda _: False,
    }
)
"""What makes a warning right. The parameters of all tasks are those of the clients and the reports are genuine: the last two never are.

A kind is not judged where its entry returns None."""


@dataclass(frozen=True)
class Alarm:
    """One kind of warning in one decoding: whether the decoder gave it, and whether it is right."""

    kind: str
    given: bool
    right: bool


def alarms(decoding: Decoding, population: Mapping[str, int], task: Task) -> Iterator[Alarm]:
    """Yield an alarm for each kind of warning with an entry in `RIGHT`."""
    given = {warning.kind for warning in decoding.warnings}
    truth = Truth.of_decoding(decoding, population, task)
    for kind, is_right in RIGHT.items():
        right = is_right(truth)
        if right is not None:
            yield Alarm(kind, kind in given, right)


def rates(column: str, found: Iterable[tuple[str, Alarm]]) -> Iterator[Row]:
    """Yield a row for each name and kind: false alarms of the decodings in which it is wrong, and detections of the others."""
    counts: Counter[tuple[str, str, bool, bool]] = Counter((name, a.kind, a.given, a.right) for name, a in found)
    for name, kind in sorted({key[:2] for key in counts}):
        figures = []
        for right in (False, True):
            given, missing = (counts[name, kind, was_given, right] for was_given in (True, False))
            figures += [f"{given}", f"{given + missing}"] if given + missing else ["", ""]
        yield {
            column: name,
            "warning": kind,
            **dict(zip(("false_alarms", "wrong", "detected", "right"), figures, strict=True)),
        }


def judge_task(index: int) -> list[tuple[str, Alarm]]:
    """Alarms of the decodings of a task with the right candidates and with wrong ones; none of a task with more than 10,000 candidates."""
    task = draw_task(index, seed())
    if task.num_candidates > _MAX_CANDIDATES:
        return []
    summary, candidates, population, _ = simulate_task(task)
    wrong = [f"{task.seed} wrong {i}" for i in range(len(candidates))]
    return [
        (name, alarm)
        for name, listed in (("right", candidates), ("wrong", wrong))
        for alarm in alarms(decode(summary, listed), population, task)
    ]


def main() -> None:
    """Decode the tasks and print the table."""
    benchmark = Benchmark(__doc__, tasks=320, jobs=2)
    benchmark.start()
    found = []
    for index, judged in zip(benchmark.indices, benchmark.map(judge_task, benchmark.indices), strict=True):
        for name, alarm in judged:
            if alarm.given and not alarm.right:
                print(f"{index} {name} {alarm.kind}", flush=True)
        found += judged
    benchmark.table().add_all(rates("candidates", found))


if __name__ == "__main__":
    main()
