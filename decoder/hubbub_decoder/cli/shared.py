"""Options, progress and output files that several commands of the decoder share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from hubbub.cli.help_sections import section
from hubbub.cli.output import PATH, print_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console

    from hubbub_decoder.model.evidence import Collected
    from hubbub_decoder.results.decoding import Decoding
    from hubbub_decoder.results.table_result import TableResult

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
_DELAY_SECONDS = 1.0


class Share(click.ParamType[float]):
    """Share between 0 and 1, as a number or as a percentage: .1% is 0.001.

    may_be_none, may_be_all : whether 0 and 1 are shares, too
    """

    name = "share"

    def __init__(self, *, may_be_none: bool = True, may_be_all: bool = False) -> None:
        self._may_be_none = may_be_none
        self._may_be_all = may_be_all

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = math.nan
        if not (0 < share < 1 or (share == 0 and self._may_be_none) or (share == 1 and self._may_be_all)):
            interval = f"{'[' if self._may_be_none else '('}0, 1{']' if self._may_be_all else ')'}"
            is_percentage = not text.endswith("%") and 1 < share < 100
            hint = f"Pass {text}%, if it is a percentage." if is_percentage else "Pass .1%, for example."
            self.fail(f"{value!r} is no share in {interval}. {hint}", param, ctx)
        return share


_BETWEEN_0_AND_1 = Share(may_be_none=False)


class DatabaseName(click.ParamType[str]):
    """Option type: the name of a file or a PostgreSQL URL."""

    name = "database"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value; fail with a usage error if it is neither."""
        from hubbub_decoder.errors import OutputError
        from hubbub_decoder.results_store.database import is_postgres

        try:
            is_postgres(value)
        except OutputError as problem:
            self.fail(str(problem), param, ctx)
        return value


class Day(click.ParamType[date]):
    """Day of the calendar."""

    name = "date"

    def convert(self, value: str | date, param: click.Parameter | None, ctx: click.Context | None) -> date:
        try:
            return date.fromisoformat(str(value))
        except ValueError:
            self.fail(
                f"{value!r} is no day: write a day of the calendar as YYYY-MM-DD, such as 2026-11-30.", param, ctx
            )


candidates_option = click.option(
    "--candidates",
    "candidates_path",
    type=PATH,
    help="Strings to look for: one per line, or a .csv with a column `candidate`; - reads stdin. Required for string metrics.",
)

events_option = click.option(
    "--events",
    "event_paths",
    multiple=True,
    type=PATH,
    metavar="FILE",
    help="Events that the charts over periods mark, such as releases: a .csv with the columns `date` and `label`, and `metric` for what is about one alone; repeatable.",
)


statistics_option = partial(click.option, cls=section("Intervals and tests"))
_output_option = partial(click.option, cls=section("Output"))
candidates_directory_option = click.option(
    "--candidates",
    "candidates_path",
    type=PATH,
    help="Strings to look for: a directory with a file METRIC.txt or METRIC.csv for each string metric, or one file for all.",
)


def _textfile(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    if path is not None and path.suffix != ".prom":
        raise click.BadParameter(f"{path} must end in .prom: the collector reads no other file.")
    return path


textfile_option = click.option(
    "--prometheus-textfile",
    type=PATH,
    callback=_textfile,
    help="Write the figures of this run to this file, for the textfile collector of the node exporter.",
)


def interval_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--confidence and --target."""
    target = statistics_option(
        "--target",
        default="reporters",
        show_default=True,
        type=click.Choice(["reporters", "population"]),
        help="Results for the reporters, or for the population of which they are a random sample (wider intervals).",
    )
    return confidence_option("intervals")(target(function))


def confidence_option(of: str, default: float = 0.95) -> Decorator:
    """--confidence; `of` names what has the level."""
    return statistics_option(
        "--confidence",
        default=default,
        show_default=True,
        metavar="LEVEL",
        type=_BETWEEN_0_AND_1,
        help=f"Confidence level of the {of}.",
    )


def seed_option(use: str) -> Decorator:
    """--seed; `use` says what is drawn from it."""
    return click.option(
        "--seed",
        metavar="N",
        type=click.IntRange(min=0),
        help=f"Seed for a reproducible result: {use}. Default: random.",
    )


def plot_option(drawn: str) -> Decorator:
    """--plot for the figure `drawn`."""
    return _output_option("--plot", type=PATH, help=f"Also draw {drawn} (.svg, .png or .pdf).")


def fdr_option(found: str) -> Decorator:
    """--fdr; `found` names the results that are tested."""
    return statistics_option(
        "--fdr",
        default=0.05,
        show_default=True,
        metavar="RATE",
        type=_BETWEEN_0_AND_1,
        help=f"False discovery rate: the expected share of false positives among the detected {found}.",
    )


def independent_clients_option(otherwise: str) -> Decorator:
    """--independent-clients; `otherwise` describes the default."""
    return statistics_option(
        "--independent-clients",
        is_flag=True,
        help=f"Different clients: no client reports in two periods. Default: {otherwise}.",
    )


def everything_option(shown: str) -> Decorator:
    """--all; `shown` describes its effect."""
    return _output_option("--all", "everything", is_flag=True, help=f"Everything: show {shown}.")


def top_option(shown: str) -> Decorator:
    """--top; `shown` names the rows, in their order."""
    return _output_option("--top", metavar="N", type=click.IntRange(min=1), help=f"Show at most N rows: {shown}.")


def output_options(saved: str, suffixes: str, plot: str | None = None) -> Decorator:
    """--out for `saved` and, if there is one, --plot for the figure `plot`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        if plot is not None:
            function = plot_option(plot)(function)
        return _output_option("--out", type=PATH, metavar="FILE", help=f"Output file ({suffixes}) of {saved}.")(
            function
        )

    return decorate


def write_outputs(
    stderr: Console,
    out: Path | None,
    save: Callable[[Path], None],
    plot: Path | None = None,
    draw: Callable[[Figure], object] | None = None,
) -> None:
    """Write the files that --out and --plot ask for, and print their names; `draw` draws on an empty figure."""
    from hubbub_decoder.data.output_files import write_figure

    if out is not None:
        save(out)
        print_message(stderr, f"wrote {out}")
    if plot is not None and draw is not None:
        from matplotlib.figure import Figure

        figure = Figure()
        draw(figure)
        write_figure(figure, plot)
        print_message(stderr, f"wrote {plot}")


_Item = TypeVar("_Item")


def tracked(items: Iterable[_Item], number: int, stderr: Console) -> Iterator[_Item]:
    """Yield decodings as they end, and show on a terminal how many have."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("decoding"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        yield from progress.track(items, total=number)


def print_message(console: Console, text: str) -> None:
    """Print a text as it is: on one line, without colours, with its square brackets."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def print_result(found: TableResult[Any], *, as_json: bool, everything: bool, top: int | None = None) -> None:
    """Print a result on stdout: as JSON, or as the document that --all and --top ask for."""
    from hubbub_decoder.documents.document import UNLISTED_STRINGS, with_steps
    from hubbub_decoder.documents.terminal import print_document

    if as_json:
        print_json(found.to_dict())
    else:
        document = found.document(everything=everything, top=top)
        steps = {UNLISTED_STRINGS: "`hubbub decode` compares such a list with --more-candidates FILE."}
        print_document(replace(document, findings=with_steps(document.findings, steps)))


class ShowStage(Protocol):
    """Show the current stage, and the share of the work that is done, in [0, 1]; None: unknown."""

    def __call__(self, stage: str, share: float | None = None) -> None: ...


@contextmanager
def elapsed_time(console: Console, delay: float = _DELAY_SECONDS) -> Iterator[ShowStage]:
    """Show the current stage, its share of the work and the elapsed time after a delay; nothing if the console is no terminal.

    A bar without a share of the work moves to and fro.

    yields : a function that sets the stage
    """

    def show_nothing(stage: str, share: float | None = None) -> None:
        del stage, share

    if not console.is_terminal:
        yield show_nothing
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn("line"),  # of ASCII characters
        TextColumn("{task.description} ...", markup=False),
        BarColumn(bar_width=24),
        TaskProgressColumn(text_format_no_percentage=""),
        TimeElapsedColumn(),
    )
    progress = Progress(*columns, console=console, transient=True)
    task = progress.add_task("", total=None)

    def show(stage: str, share: float | None = None) -> None:
        (shown,) = progress.tasks
        shown.total = None if share is None else 1  # `update` takes None for "unchanged"
        progress.update(task, description=stage, completed=share or 0)

    timer = Timer(delay, progress.start)
    timer.start()
    try:
        yield show
    finally:
        timer.cancel()
        timer.join()
        progress.stop()


def read_all(paths: Sequence[Path], show_stage: ShowStage) -> list[Collected]:
    """Read summary and report files, and show the share of the files that are read."""
    from hubbub.summary import read_collected

    found = []
    for number, path in enumerate(paths):
        show_stage(f"reading {path.name}", number / len(paths))
        found.append(read_collected(path))
    return found


def warn_of_repeated_inputs(found: Decoding, paths: Sequence[Path], parts: Sequence[Collected]) -> Decoding:
    """Return a decoding of these files, with a warning first for those that repeat others."""
    from hubbub_decoder.results.warnings import repeated_inputs

    repeated = repeated_inputs(list(zip(map(str, paths), parts, strict=True)))
    return replace(found, warnings=(*repeated, *found.warnings))
