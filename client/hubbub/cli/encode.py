"""`hubbub encode`: encode example values."""

from __future__ import annotations

from pathlib import Path

import click

from hubbub.cli.output import PATH, json_option, print_json


@click.command()
@click.argument("definitions", type=PATH)
@click.argument("metric_name", metavar="METRIC")
@click.argument("values", nargs=-1)
@json_option
def command(definitions: Path, metric_name: str, values: tuple[str, ...], *, as_json: bool) -> None:
    """Encode VALUES of METRIC as reports.

    Boolean values are true and false, those of an ordinal metric are numbers. A value of a joint metric is a JSON object of its parts' values. Without VALUES, encodes the report of a period in which nothing was recorded.

    Each call uses a new secret and new noise, so its output differs every time. Nothing is sent or stored.

    \b
    Example:
      hubbub encode metrics.toml homepage https://example.org/
    """
    from hubbub.cli.definitions_file import definitions_with
    from hubbub.encoding.encoder import Encoder
    from hubbub.encoding.secret import Secret
    from hubbub.metrics.metric import name_errors

    metric = definitions_with(definitions, [metric_name])[metric_name]
    with name_errors(metric_name):
        parsed = [metric.kind.parse_value(value) for value in values] or [None]
    encoder = Encoder(metric, Secret.generate())
    reports = [encoder.encode(value, epoch=None if metric.hold is None else 0) for value in parsed]
    if as_json:
        print_json([{"cohort": report.cohort, "bits": report.bits.to01()} for report in reports])
        return
    for report in reports:
        click.echo(f"cohort {report.cohort:3d}  bits {report.bits.to01()}")
