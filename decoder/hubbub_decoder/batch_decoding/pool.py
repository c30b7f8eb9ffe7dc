"""A pool of processes in which one item that ends its process does not take the others with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from hubbub.worker_processes import worker_pool

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
