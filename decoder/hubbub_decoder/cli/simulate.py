"""`hubbub simulate`: simulate a summary or reports of a population."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from hubbub.cli.output import PATH, json_option, print_json
from hubbub_decoder.cli.shared import Day, ShowStage, elapsed_time, print_message, seed_option

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hubbub.metrics.metric import Metric
    from hubbub.summary import Summary


@click.command(short_help="Simulate a summary or reports.")
@click.argument("definitions", type=PATH)
@click.argument("metric")
@click.option(
    "--reports",
    metavar="N",
    type=click.IntRange(min=1),
    help="Number of reports of a period. With --population: sample size, with replacement.",
)
@click.option(
    "--distribution",
    type=click.Choice(["uniform", "exp", "gauss", "zipf1", "zipf1.5"]),
    help="Distribution of the values v1, v2, ... (or of the metric's categories).",
)
@click.option(
    "--values",
    metavar="N",
    type=click.IntRange(min=1),
    help="Number of different values of the distribution, for a string metric only. Default: 100.",
)
@click.option(
    "--population",
    "population_path",
    type=PATH,
    help="Population: .csv with the columns value and count; an empty value means no value. Of a joint metric: a column for each part.",
)
@click.option(
    "--no-value",
    metavar="N",
    type=click.IntRange(min=0),
    default=0,
    help="Number of additional clients without a value.",
)
@click.option(
    "--periods",
    metavar="N",
    type=click.IntRange(min=1),
    help="Number of periods in which each client reports its value. Default: one report of each client, without a date.",
)
@click.option(
    "--period",
    "first_day",
    metavar="YYYY-MM-DD",
    type=Day(),
    help="First day of a period, or another day of it. With --periods, of the first one; the default is then 2000-01-01.",
)
@click.option("--group", metavar="VALUE", help="Value of the metric's group that the reports have.")
@seed_option("the values, clients and noise are drawn from it")
@click.option(
    "--content",
    type=click.Choice(["bits", "patterns", "reports"]),
    default="bits",
    show_default=True,
    help="Content of the output file: bit counts, pattern counts, or individual reports.",
)
@click.option(
    "--out", type=PATH, metavar="FILE", help="Output file (.parquet) of the counts or reports, of all periods together."
)
@click.option(
    "--out-dir",
    type=PATH,
    metavar="DIRECTORY",
    help="Output directory for the files of the periods, named as by `hubbub pull --all`; it is created if it does not exist. With --group and "
    "counts also the file of all values: the sum of those that are there. Use no directory of real reports, whose files would be replaced.",
)
@click.option("--truth-out", "truth_out", type=PATH, help="Also write the true value counts to this .csv file.")
@json_option
def command(
    definitions: Path,
    metric: str,
    reports: int | None,
    distribution: str | None,
    values: int | None,
    population_path: Path | None,
    no_value: int,
    periods: int | None,
    first_day: date | None,
    group: str | None,
    seed: int | None,
    content: str,
    out: Path | None,
    out_dir: Path | None,
    truth_out: Path | None,
    as_json: bool,
) -> None:
    """Simulate one report per client and period for METRIC of the file DEFINITIONS.

    With --out-dir, all further commands can be tried before there are reports.

    \b
    Example:
      hubbub simulate metrics.toml homepage --reports 1000000 --distribution zipf1 --values 100 \\
        --out summary.parquet --truth-out truth.csv
      hubbub simulate metrics.toml theme --population themes.csv --periods 8 --period 2026-03-02 --out-dir rehearsal/
    """

    import numpy as np
    from rich.console import Console

    from hubbub.cli.definitions_file import definitions_with
    from hubbub.text import format_count, format_names
    from hubbub_decoder.data.output_files import check_parquet_path, check_table_path, write_population
    from hubbub_decoder.errors import PopulationError
    from hubbub_decoder.kinds.operations import operations_of
    from hubbub_decoder.simulation import FIRST_DAY, consecutive_periods

    if (distribution is None) == (population_path is None):
        raise click.UsageError("Pass either --distribution or --population.")
    if distribution is None and values is not None:
        raise click.UsageError("--values requires --distribution.")
    if (out is None) == (out_dir is None):
        raise click.UsageError("Pass --out FILE, or --out-dir DIRECTORY for a file for each period.")
    if out is not None:
        check_parquet_path(out)
    if truth_out is not None:
        check_table_path(truth_out, (".csv",))
    definition = definitions_with(definitions, [metric])[metric].in_group(group)
    stderr = Console(stderr=True)
    if len(definition.blocks) > 1 and (population_path is None or content != "reports" or truth_out is not None):
        raise click.UsageError(
            f"{metric} is a joint metric. Pass --population with a column for each part and count, and --content reports, without --truth-out."
        )
    rng = np.random.Generator(np.random.PCG64(seed))
    with elapsed_time(stderr) as show_stage:
        show_stage("simulating")
        if population_path is not None:
            population, without = _read_population(definition, population_path, reports, rng)
            no_value += without
        elif reports is None:
            raise PopulationError("A distribution has no size. Pass the number of reports with --reports.")
        else:
            population = operations_of(definition).draw(distribution or "", values, reports, rng)
        first_days = (
            consecutive_periods(definition, periods or 1, first_day or FIRST_DAY)
            if periods or first_day or out_dir is not None
            else ()
        )
        simulated = _Simulated(definition, population, no_value, first_days, content, rng)
        written = simulated.write_periods(out_dir or Path()) if out is None else [simulated.write(out, show_stage)]
    num_reports = simulated.num_reports
    if truth_out is not None:
        write_population(population, simulated.num_clients, truth_out)
    files = [*written, truth_out] if truth_out is not None else written
    shown = format_count(len(written), "file") + f" in {out_dir}" if len(files) > 2 else " and ".join(map(str, files))
    print_message(stderr, f"wrote {shown}: {format_count(num_reports, 'report')} of {metric}")
    unlisted = operations_of(definition).unlisted(population)
    if unlisted:
        number = sum(population[value] for value in unlisted)
        print_message(
            stderr,
            f"{format_count(number, 'client')} with a value that is not listed ({format_names(unlisted)}): reported as `other` of the definition",
        )
    if as_json:
        print_json(
            {"out": str(out or out_dir), "files": [*map(str, written)], "metric": metric, "num_reports": num_reports}
        )


@dataclass(frozen=True)
class _Simulated:
    """Reports or counts of a population in some periods, and the files that hold them."""

    metric: Metric
    population: dict[Any, int]
    no_value: int
    periods: tuple[str, ...]
    content: str
    rng: np.random.Generator

    @property
    def num_clients(self) -> int:
        """Number of clients, with those without a value."""
        return sum(self.population.values()) + self.no_value

    @property
    def num_reports(self) -> int:
        """Number of reports: one of each client and period, or one without a date."""
        return self.num_clients * max(1, len(self.periods))

    def write(self, out: Path, show_stage: ShowStage) -> Path:
        """Write one file of all periods."""
        from hubbub.summary import BitCounts, PatternCounts
        from hubbub_decoder.data.output_files import write_report_file, write_summary_file
        from hubbub_decoder.simulation import simulate, simulate_reports

        metric, population, rng = self.metric, self.population, self.rng
        if self.content == "reports":
            blocks = simulate_reports(metric, population, rng, no_value=self.no_value, periods=self.periods)
            write_report_file(metric, _counted(blocks, self.num_reports, show_stage), out, self.periods)
            return out
        form: type[BitCounts | PatternCounts] = BitCounts if self.content == "bits" else PatternCounts
        summary = simulate(metric, population, rng, form=form, no_value=self.no_value, periods=self.periods)
        # No further client reports.
        write_summary_file(replace(summary, closed=True), out)
        return out

    def write_periods(self, directory: Path) -> list[Path]:
        """Write a file for each period, as a mirror of an aggregator has it; of counts of one value of a group, also the sum of all values."""
        from hubbub.summary import BitCounts, PatternCounts, Reports
        from hubbub_decoder.cli.mirror import files_of_values, period_file
        from hubbub_decoder.data.output_files import make_directory, write_report_file, write_summary_file
        from hubbub_decoder.simulation import simulate_each_period

        make_directory(directory, private=True)
        metric, group = self.metric, self.metric.group
        values, value = ((), None) if group is None else (group.values, group.value)
        forms: dict[str, type[BitCounts | PatternCounts | Reports]]
        forms = {"bits": BitCounts, "patterns": PatternCounts, "reports": Reports}
        written = []
        for of_period in simulate_each_period(
            metric, self.population, self.rng, form=forms[self.content], no_value=self.no_value, periods=self.periods
        ):
            whole = period_file(directory, metric.name, metric.in_group(None).digest, of_period.periods[0])
            of_values = files_of_values(whole, values)
            path = whole if value is None else of_values[values.index(value)]
            written.append(path)
            if isinstance(of_period, Reports):
                write_report_file(metric, [(of_period.cohorts, of_period.rows)], path, of_period.periods)
                continue
            write_summary_file(replace(of_period, closed=True), path)
            if value is not None:
                write_summary_file(_sum_of(path for path in of_values if path.exists()), whole)
                written.append(whole)
        return written


def _sum_of(paths: Iterable[Path]) -> Summary:
    """Sum of the counts of the values of a group."""
    from hubbub.summary import read_summary
    from hubbub_decoder.model.evidence import combine

    total = cast("Summary", combine([read_summary(path) for path in paths]))
    return replace(total, metric=total.metric.in_group(None))


def _counted(
    blocks: Iterable[tuple[NDArray[Any], NDArray[np.uint8]]], total: int, show_stage: ShowStage
) -> Iterator[tuple[NDArray[Any], NDArray[np.uint8]]]:
    """Yield blocks of reports, and show the share of the reports before each."""
    done = 0
    for cohorts, rows in blocks:
        show_stage(f"simulating {total:,} reports", done / total)
        yield cohorts, rows
        done += len(cohorts)


def _read_population(
    metric: Metric, path: Path, reports: int | None, rng: np.random.Generator
) -> tuple[dict[Any, int], int]:
    """Return the number of clients with each value, or combination of values, and the number without a value.

    reports : size of a sample from the file, with replacement; None: the clients of the file
    """
    from hubbub_decoder.data.populations import draw_population, read_joint_population, read_population

    population: dict[Any, int]
    if len(metric.blocks) > 1:
        population, without = read_joint_population(path, list(metric.kind.components)), 0
    else:
        population, without = read_population(path)
    if reports is None:
        return population, without
    total = sum(population.values()) + without
    drawn = draw_population({value: n / total for value, n in population.items()}, reports, rng)
    return drawn, reports - sum(drawn.values())
