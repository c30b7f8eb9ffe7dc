"""Number of BLAS threads during a decode."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from threading import Barrier, Thread
from typing import Any, cast

import pytest
from threadpoolctl import ThreadpoolController

from hubbub import Metric, UnaryResponse
from hubbub.errors import SummaryError
from hubbub.summary import BitCounts
from hubbub_decoder import decode
from hubbub_decoder.blas_threads import MIN_PARALLEL_DIMENSION, BlasThreads

SURVEY = Metric.boolean("survey", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))


@dataclass
class Library:
    """BLAS library that only counts its threads."""

    num_threads: int

    def set_num_threads(self, number: int) -> None:
        self.num_threads = number


def blas_threads(*configured: int) -> tuple[BlasThreads, list[Library]]:
    libraries = [Library(number) for number in configured]
    return BlasThreads(cast("list[Any]", libraries)), libraries


def numbers(libraries: list[Library]) -> list[int]:
    return [library.num_threads for library in libraries]


def test_one_limits_and_restores_each_library() -> None:
    threads, libraries = blas_threads(8, 4)
    with threads.one():
        assert numbers(libraries) == [1, 1]
    assert numbers(libraries) == [8, 4]


def test_one_restores_after_an_error() -> None:
    threads, libraries = blas_threads(8)
    with pytest.raises(ValueError, match="bad"), threads.one():
        raise ValueError("bad")
    assert numbers(libraries) == [8]


@pytest.mark.parametrize(
    ("dimension", "cores", "load", "expected"),
    [
        (MIN_PARALLEL_DIMENSION, 8, 0.1, [8, 4]),
        (MIN_PARALLEL_DIMENSION, 8, 2.6, [5, 4]),
        (MIN_PARALLEL_DIMENSION, 2, 7.0, [1, 1]),
        (MIN_PARALLEL_DIMENSION - 1, 8, 0.0, [1, 1]),
    ],
)
def test_idle_uses_the_idle_cores_for_large_matrices_only(
    dimension: int, cores: int, load: float, expected: list[int]
) -> None:
    threads, libraries = blas_threads(8, 4)
    with threads.one():
        with threads.idle(dimension, cores, load):
            assert numbers(libraries) == expected
        assert numbers(libraries) == [1, 1]
    assert numbers(libraries) == [8, 4]


@pytest.mark.parametrize("first_to_end", [0, 1])
def test_the_last_of_two_concurrent_decodes_restores(first_to_end: int) -> None:
    threads, libraries = blas_threads(8)
    blocks: list[Any] = [threads.one(), threads.one()]
    for block in blocks:
        block.__enter__()
    with threads.idle(MIN_PARALLEL_DIMENSION, 8, 0.0):
        assert numbers(libraries) == [1]
    blocks[first_to_end].__exit__(None, None, None)
    assert numbers(libraries) == [1]
    blocks[1 - first_to_end].__exit__(None, None, None)
    assert numbers(libraries) == [8]


@pytest.fixture
def two_blas_threads() -> Iterator[ThreadpoolController]:
    """All BLAS libraries of this process with two threads."""
    controller = ThreadpoolController().select(user_api="blas")
    with controller.limit(limits=2):
        yield controller


def test_decode_limits_blas_to_one_thread_and_restores_it(
    two_blas_threads: ThreadpoolController, monkeypatch: pytest.MonkeyPatch
) -> None:
    if {library.num_threads for library in two_blas_threads.lib_controllers} != {2}:
        pytest.skip("this BLAS has only one thread")
    inside: list[int] = []

    def run_fit_tests(_: object) -> tuple[()]:
        inside.extend(library.num_threads for library in two_blas_threads.lib_controllers)
        return ()

    monkeypatch.setattr("hubbub_decoder.pipeline.run_fit_tests", run_fit_tests)
    decode(BitCounts(SURVEY, [1000], [[400]]))
    assert set(inside) == {1}
    assert {library.num_threads for library in two_blas_threads.lib_controllers} == {2}
    with pytest.raises(SummaryError):
        decode(BitCounts(SURVEY, [0], [[0]]))
    assert {library.num_threads for library in two_blas_threads.lib_controllers} == {2}


@pytest.mark.slow
def test_concurrent_decodes_restore_the_number_of_threads(two_blas_threads: ThreadpoolController) -> None:
    start = Barrier(4)

    def work() -> None:
        start.wait()
        for _ in range(20):
            decode(BitCounts(SURVEY, [1000], [[400]]))

    configured = [library.num_threads for library in two_blas_threads.lib_controllers]
    workers = [Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [library.num_threads for library in two_blas_threads.lib_controllers] == configured
