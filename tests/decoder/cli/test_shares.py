"""Shares as options: one parser for those of all commands."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from hubbub.cli import main
from hubbub_decoder.cli.shared import Share


def options(command: click.Command, path: str = "hubbub") -> Iterator[tuple[str, click.Parameter]]:
    """Every option of a command and of the commands below it, with the command's name."""
    yield from ((path, parameter) for parameter in command.params)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from options(below, f"{path} {name}")


def test_every_share_is_read_by_one_parser() -> None:
    """A range that ends at 1 is one of shares, and would refuse 2%."""
    every = list(options(main))
    ranges = [f"{path} {p.name}" for path, p in every if isinstance(p.type, click.FloatRange) and p.type.max == 1]
    assert ranges == []
    shares = {p.name: p.type for _, p in every if isinstance(p.type, Share)}
    assert {"share", "overlap", "confidence", "fdr", "false_alarms", "fabricated", "smallest_change"} <= shares.keys()
    assert {share.convert("2%", None, None) for share in shares.values()} == {0.02}


@pytest.mark.parametrize(
    ("share", "text", "interval", "hint"),
    [
        (Share(may_be_all=True), "10", "[0, 1]", "Pass 10%, if it is a percentage."),
        (Share(), "1", "[0, 1)", "Pass .1%, for example."),
        (Share(may_be_none=False), "0%", "(0, 1)", "Pass .1%, for example."),
        (Share(), "200", "[0, 1)", "Pass .1%, for example."),
    ],
)
def test_a_number_above_1_is_told_how_a_percentage_is_written(
    share: Share, text: str, interval: str, hint: str
) -> None:
    with pytest.raises(click.BadParameter) as refused:
        share.convert(text, None, None)
    assert refused.value.message == f"{text!r} is no share in {interval}. {hint}"
