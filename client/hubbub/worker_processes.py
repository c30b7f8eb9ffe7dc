"""Worker processes of the decoder and the aggregator. The SDK starts none."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from threading import Thread


def worker_pool(processes: int) -> ProcessPoolExecutor:
    """Return a pool of new processes, which end with this one, also if it is killed."""
    return ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=_end_with_the_parent)


def _end_with_the_parent() -> None:
    """End this process when its parent has ended: by itself it would wait for the next item for ever."""

    def wait() -> None:
        if (parent := multiprocessing.parent_process()) is not None:
            parent.join()
            os._exit(1)

    Thread(target=wait, name="hubbub parent", daemon=True).start()
