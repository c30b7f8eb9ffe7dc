"""Number of BLAS threads during a decode: one, and the idle cores while a large model is fitted.

OpenBLAS's threads wait for each other in a busy loop. For small matrices, and on cores that other programs use, two threads are
slower than one. docs/decisions/0075.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock

from threadpoolctl import LibController, ThreadpoolController

MIN_PARALLEL_DIMENSION = 2_000
"""Rows of the largest matrix from which the idle cores are used."""


class BlasThreads:
    """Number of threads of each BLAS library, shared by all decodes of the process.

    The limit holds for the whole process, so also for other Python threads that use BLAS during a decode. The first of several
    concurrent decodes sets the limit, and the last one restores the number that was configured.

    libraries : controllers of the loaded BLAS libraries, with `num_threads` and `set_num_threads`
    """

    def __init__(self, libraries: list[LibController]) -> None:
        self._libraries = libraries
        self._configured: list[int] = []
        self._running = 0
        self._lock = Lock()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Limit BLAS to one thread."""
        with self._lock:
            if self._running == 0:
                self._configured = [library.num_threads for library in self._libraries]
            self._running += 1
            self._limit(1)
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                if self._running == 0:
                    self._limit(max(self._configured, default=1))

    @contextmanager
    def idle(self, dimension: int, cores: int, load: float) -> Iterator[None]:
        """Inside `one`: use the idle cores for matrices of this dimension, unless another decode runs.

        Never more threads than are configured (by OPENBLAS_NUM_THREADS or threadpoolctl, for example).

        cores : of the machine
        load  : average number of running processes
        """
        with self._lock:
            if dimension >= MIN_PARALLEL_DIMENSION and self._running == 1:
                self._limit(max(1, cores - round(load)))
        try:
            yield
        finally:
            with self._lock:
                self._limit(1)

    def _limit(self, threads: int) -> None:
        for library, configured in zip(self._libraries, self._configured, strict=True):
            library.set_num_threads(min(threads, configured))


@cache
def _blas() -> BlasThreads:
    return BlasThreads(ThreadpoolController().select(user_api="blas").lib_controllers)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread during a decode."""
    with _blas().one():
        yield


@contextmanager
def idle_blas_threads(dimension: int) -> Iterator[None]:
    """Use the idle cores for matrices of this dimension, inside `one_blas_thread`."""
    with _blas().idle(dimension, os.cpu_count() or 1, os.getloadavg()[0]):
        yield
