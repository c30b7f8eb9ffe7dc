"""Stage and elapsed time of a long command."""

from __future__ import annotations

import io
import time

from rich.console import Console

from hubbub_decoder.cli.shared import elapsed_time


def shown(seconds: float, *, terminal: bool, delay: float) -> str:
    """Output of a block that takes so long."""
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80)
    with elapsed_time(console, delay) as show_stage:
        show_stage("decoding [b]x")
        time.sleep(seconds)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_shows_the_stage_and_the_elapsed_time_after_the_delay() -> None:
    text = shown(0.5, terminal=True, delay=0.01)
    assert "decoding [b]x ..." in text
    assert "0:00:00" in text


def test_shows_nothing_before_the_delay() -> None:
    assert "decoding" not in shown(0.0, terminal=True, delay=30)


def test_shows_nothing_without_a_terminal() -> None:
    assert shown(0.3, terminal=False, delay=0.01) == ""
