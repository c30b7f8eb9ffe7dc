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
    from hubbub.encoding.bloom import JointValue, Value
    from hubbub.encoding.encoder import Encoder
    from hubbub.encoding.secret import Secret
    from hubbub.errors import InvalidValueError
    from hubbub.metrics.metric import Kind

    metric = definitions_with(definitions, [metric_name])[metric_name]
    parsed: list[Value | JointValue] = list(values) or [None]
    if metric.kind is Kind.JOINT:
        parsed = [None if value is None else _joint_value(metric_name, value) for value in values or (None,)]
    if metric.kind is Kind.BOOLEAN:
        if any(value not in {"true", "false", None} for value in parsed):
            raise InvalidValueError(f"{metric_name}: a value of a boolean metric must be true or false")
        parsed = [None if value is None else value == "true" for value in parsed]
    if metric.kind is Kind.ORDINAL:
        parsed = [_number(metric_name, value) if isinstance(value, str) else value for value in parsed]
    encoder = Encoder(metric, Secret.generate())
    reports = [encoder.encode(value, epoch=None if metric.hold is None else 0) for value in parsed]
    if as_json:
        print_json([{"cohort": report.cohort, "bits": report.bits.to01()} for report in reports])
        return
    for report in reports:
        click.echo(f"cohort {report.cohort:3d}  bits {report.bits.to01()}")


def _joint_value(name: str, text: str) -> dict[str, str | bool | None]:
    """Parse the JSON object of a joint metric's value."""
    import json

    from hubbub.errors import InvalidValueError

    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidValueError(
            f'{name}: a value of a joint metric must be a JSON object of its parts, such as {{"part": "value"}}'
        )
    return value


def _number(metric_name: str, text: str) -> float:
    from hubbub.errors import InvalidValueError

    try:
        return float(text)
    except ValueError:
        raise InvalidValueError(f"{metric_name}: a value of an ordinal metric must be a number such as 12.5") from None
