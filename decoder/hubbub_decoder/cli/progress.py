"""Stage and elapsed time of a long command, on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_DELAY_SECONDS = 1.0


@contextmanager
def elapsed_time(console: Console, delay: float = _DELAY_SECONDS) -> Iterator[Callable[[str], None]]:
    """Show the current stage and the elapsed time after a delay, until the block ends; nothing if the console is no terminal.

    yields : a function that sets the stage
    """
    if not console.is_terminal:
        yield lambda _: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description} ...", markup=False), TimeElapsedColumn())
    progress = Progress(*columns, console=console, transient=True)
    task = progress.add_task("")
    timer = Timer(delay, progress.start)
    timer.start()
    try:
        yield lambda stage: progress.update(task, description=stage)
    finally:
        timer.cancel()
        timer.join()
        progress.stop()
