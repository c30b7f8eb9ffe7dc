"""`hubbub simulate`: a population -> the summary its reports would give, or the reports."""

from __future__ import annotations

from pathlib import Path

import click

from hubbub.cli.output import PATH, json_option, print_json


@click.command()
@click.argument("definitions", type=PATH)
@click.argument("metric")
@click.option("--reports", type=click.IntRange(min=1), help="How many people report; with --population drawn from it.")
@click.option(
    "--distribution",
    type=click.Choice(["uniform", "exp", "gauss", "zipf1", "zipf1.5"]),
    help="Of the values v1, v2, ...; of a categorical metric, of its categories.",
)
@click.option("--values", type=click.IntRange(min=1), help="How many values the distribution has. Default: 100.")
@click.option("--population", "population_path", type=PATH, help="A .csv with the columns value and count.")
@click.option("--seed", type=click.IntRange(min=0), help="Repeat a run; default: a new one each time.")
@click.option(
    "--kind",
    type=click.Choice(["bits", "patterns", "reports"]),
    default="bits",
    show_default=True,
    help="What the file holds: counts of bits or of whole patterns, or the reports themselves.",
)
@click.option("--out", required=True, type=PATH, help="The file to write.")
@click.option("--truth-out", "truth_out", type=PATH, help="Also write who truly had what, as .csv.")
@json_option
def command(
    definitions: Path,
    metric: str,
    reports: int | None,
    distribution: str | None,
    values: int | None,
    population_path: Path | None,
    seed: int | None,
    kind: str,
    out: Path,
    truth_out: Path | None,
    as_json: bool,
) -> None:
    """Simulate one report from everybody, of a METRIC of DEFINITIONS.

    \b
    Example:
      hubbub simulate metrics.toml homepage --reports 1000000 --distribution zipf1 --values 100 \\
        --out summary.parquet --truth-out truth.csv
    """

    import numpy as np
    from rich.console import Console

    from hubbub.cli.definitions_file import definitions_with
    from hubbub.text import format_count
    from hubbub_decoder.data.output_files import (
        check_output_path,
        check_parquet_path,
        write_population,
        write_report_file,
        write_summary_file,
    )
    from hubbub_decoder.data.populations import draw_from_distribution, draw_population, read_population
    from hubbub_decoder.data.simulate import simulate_bit_counts, simulate_pattern_counts, simulate_reports
    from hubbub_decoder.errors import PopulationError

    if (distribution is None) == (population_path is None):
        raise click.UsageError("give either --distribution or --population")
    if distribution is None and values is not None:
        raise click.UsageError("--values goes with --distribution")
    check_parquet_path(out)
    if truth_out is not None:
        check_output_path(truth_out)
    asked = definitions_with(definitions, [metric])[metric]
    talk = Console(stderr=True)
    rng = np.random.default_rng(seed)
    with talk.status("simulating ..."):
        if population_path is not None:
            population = read_population(population_path)
            if reports is not None:
                everybody = sum(population.values())
                population = draw_population({v: n / everybody for v, n in population.items()}, reports, rng)
        elif reports is None:
            raise PopulationError("how many reports? a distribution does not say: give --reports")
        else:
            population = draw_from_distribution(asked, distribution or "", values, reports, rng)
        num_reports = sum(population.values())
        match kind:
            case "bits":
                write_summary_file(simulate_bit_counts(asked, population, rng), out)
            case "patterns":
                write_summary_file(simulate_pattern_counts(asked, population, rng), out)
            case _:
                write_report_file(asked, simulate_reports(asked, population, rng), out)
    told = [str(out)]
    if truth_out is not None:
        write_population(population, num_reports, truth_out)
        told.append(str(truth_out))
    talk.print(f"wrote {' and '.join(told)}: {format_count(num_reports, 'report')} of {metric}", highlight=False)
    if as_json:
        print_json({"out": str(out), "metric": metric, "num_reports": num_reports})
