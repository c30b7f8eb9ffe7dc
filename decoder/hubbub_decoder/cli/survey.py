"""`hubbub survey`: estimate the shares of a survey by randomized response."""

from __future__ import annotations

from pathlib import Path

import click

from hubbub.cli.output import PATH, json_option, print_json
from hubbub_decoder.cli.shared import confidence_option


@click.command(short_help="Decode a survey by randomized response.")
@click.argument("table", type=PATH)
@click.option(
    "--design",
    "design_text",
    required=True,
    metavar="NAME=PROBABILITIES",
    help="warner=P, P the probability of the card with the attribute; forced=YES,NO, those of an answer that is told; "
    "crosswise=P, that of the harmless statement.",
)
@confidence_option("intervals")
@json_option
def command(table: Path, design_text: str, confidence: float, as_json: bool) -> None:
    """Estimate the share of people with a sensitive attribute, from the answers to a survey.

    TABLE is a .csv with the columns respondents, ones and, for several groups, group. A one is the answer "yes"; in the crosswise
    design it is "both statements are true, or neither". The estimator is (ones / respondents - p) / (q - p), where p and q are the
    probabilities of a one without and with the attribute (Warner 1965). The interval is that of Clopper and Pearson for the share of
    ones, transformed in the same way.

    \b
    Example:
      hubbub survey answers.csv --design forced=1/6,1/6
    """
    from hubbub.errors import ParameterError
    from hubbub_decoder.documents.terminal import print_document
    from hubbub_decoder.surveys import Design, decode_survey, read_answers

    try:
        design = Design.parse(design_text)
    except ParameterError as problem:
        raise click.UsageError(f"--design: {problem}") from None
    found = decode_survey(read_answers(table), design, confidence)
    if as_json:
        print_json(found.to_dict())
    else:
        print_document(found.document())
