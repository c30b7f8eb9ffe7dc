"""Surveys by randomized response: the share of people with a sensitive attribute, from a table of answers.

In each design an answer is a one with probability q if the respondent has the attribute, and with probability p if not:

    warner=P       p = 1 - P   q = P        P    : the card says "I have it", and otherwise "I do not have it"; a one is "yes"
    forced=Y,N     p = Y       q = 1 - N    Y, N : the respondent is told to say yes, or to say no, whatever is true; a one is "yes"
    crosswise=P    p = 1 - P   q = P        P    : a harmless statement is true; a one is "both statements are true, or neither"

Estimator: x = (c / n - p) / (q - p) for c ones of n answers, unbiased, and the maximum likelihood estimate where it is a share
Variance:  c/n (1 - c/n) / (n (q - p)**2), as the share of the population from which the respondents are drawn

The answers are independent and binomial, so the interval is that of Clopper and Pearson (1934) for the share of ones, with both ends
transformed like x. It is that of a boolean metric with f = 0, `estimators/categories.py`.

Sources: Warner 1965, "Randomized response: a survey technique for eliminating evasive answer bias", J. Am. Stat. Assoc. 60; Boruch 1971,
"Assuring confidentiality of responses in social research" (forced response); Yu, Tian, Tang 2008, "Two new models for survey sampling with
sensitive characteristic" (crosswise); Blair, Imai, Zhou 2015, "Design and analysis of the randomized response technique", J. Am. Stat. Assoc. 110.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from hubbub.errors import ParameterError
from hubbub.mechanisms.unary import UnaryResponse
from hubbub.metrics.metric import Metric
from hubbub.privacy.loss import epsilon
from hubbub.summary import BitCounts
from hubbub.text import escape_untrusted
from hubbub.wire.json_values import json_value
from hubbub_decoder.data.google_rappor import csv_lines, parse_count
from hubbub_decoder.documents.document import INTERVAL_WIDTH, Bar, Column, Document, Row, Table, format_level
from hubbub_decoder.documents.finding import Finding
from hubbub_decoder.errors import ForeignFileError
from hubbub_decoder.pipeline import decode

DESIGNS = {"warner": ("P",), "forced": ("YES", "NO"), "crosswise": ("P",)}
"""Probabilities of each design."""


@dataclass(frozen=True, slots=True)
class Design:
    """Design of a survey: its name, and the probabilities of a one without (p) and with (q) the attribute."""

    name: str
    prob_p: float
    prob_q: float

    @classmethod
    def parse(cls, text: str) -> Design:
        """Return the design that a text such as forced=1/6,1/6 names; raises ParameterError.

        >>> Design.parse("crosswise=1/4")
        Design(name='crosswise', prob_p=0.75, prob_q=0.25)
        """
        name, _, given = text.partition("=")
        chances = [chance for chance in map(_chance, given.split(",")) if chance is not None]
        if name not in DESIGNS or len(chances) != len(DESIGNS[name]) or len(chances) != len(given.split(",")):
            shapes = ", ".join(f"{design}={','.join(words)}" for design, words in DESIGNS.items())
            raise ParameterError(
                "design must be one of " + shapes, f"{text!r}: write each probability as 1/6, .25 or 25%, for example"
            )
        p, q = (chances[0], 1 - chances[1]) if name == "forced" else (1 - chances[0], chances[0])
        if p == q or (name == "forced" and p > q):
            rule = "YES and NO must add up to less than 1" if name == "forced" else "P must differ from 1/2"
            raise ParameterError(f"design {name}: {rule}", f"{given}: answers would not depend on the attribute")
        return cls(name, float(p), float(q))


def _chance(text: str) -> Fraction | None:
    """Return the probability that a text is, a fraction, a decimal number or a percentage; None if it is none."""
    try:
        chance = Fraction(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except (ValueError, ZeroDivisionError):
        return None
    return chance if 0 <= chance <= 1 else None


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers of a group of respondents: their number n, and the number of ones among them, c."""

    group: str
    respondents: int
    ones: int


@dataclass(frozen=True, slots=True)
class GroupShare:
    """Estimated share of a group with the attribute, with its standard error and interval."""

    group: str
    respondents: int
    ones: int
    share: float
    std_error: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class SurveyResult:
    """Estimates of a survey, the groups in the order of the table.

    epsilon : of one answer      confidence : level of the intervals
    """

    design: Design
    epsilon: float
    confidence: float
    groups: tuple[GroupShare, ...]
    warnings: tuple[Finding, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        values: dict[str, Any] = json_value(self)
        return values

    def document(self) -> Document:
        """Return what the terminal shows."""
        end = max(1.0, *(group.high for group in self.groups))
        rows = tuple(
            Row(
                (
                    escape_untrusted(group.group),
                    str(group.respondents),
                    group.share,
                    group.std_error,
                    (group.low, group.high),
                    Bar(group.low, group.share, group.high, end),
                )
            )
            for group in self.groups
        )
        columns = (
            Column.names("group"),
            Column.counts("answers"),
            Column.shares("share"),
            Column.shares("std error", width=9),
            Column.shares(f"{format_level(self.confidence)} interval", width=INTERVAL_WIDTH),
            Column.bars(),
        )
        design = self.design
        return Document(
            f"{design.name} design: an answer is a one with probability {design.prob_q:.4g} with the attribute and {design.prob_p:.4g} "
            f"without it; epsilon {self.epsilon:.3f} per answer",
            Table(columns, rows),
            ("Shares are those of the population of which the respondents are a random sample.",),
            self.warnings,
        )


def read_answers(path: str | Path) -> tuple[Answers, ...]:
    """Read a table of answers: CSV with the columns `respondents`, `ones` and, for several groups, `group`.

    Raises ForeignFileError for other columns and for numbers that are no counts.
    """
    lines = csv_lines(path)
    _, header = next(lines, (1, []))
    names = [name.strip().lower() for name in header]
    missing = [name for name in ("respondents", "ones") if name not in names]
    if missing:
        raise ForeignFileError(
            f"{path}: line 1 must name the columns respondents, ones and, for several groups, group; got "
            f"{escape_untrusted(', '.join(names[:8]))}. Add {' and '.join(missing)}."
        )
    found = tuple(_answers(path, names, line, cells) for line, cells in lines)
    if not found:
        raise ForeignFileError(f"{path} has no answers. Write a line of numbers below the header.")
    groups = [answers.group for answers in found]
    repeated = next((group for group in groups if groups.count(group) > 1), None)
    if repeated is not None:
        raise ForeignFileError(
            f"{path}: the group {repeated!r} has several lines. Add them up, or name each group in a column group."
        )
    return found


def _answers(path: str | Path, names: Sequence[str], line: int, cells: Sequence[str]) -> Answers:
    if len(cells) != len(names):
        raise ForeignFileError(f"{path}: line {line} must have {len(names)} columns like the header, got {len(cells)}.")
    row = dict(zip(names, cells, strict=True))
    respondents, ones = (parse_count(path, f"line {line}: {name}", row[name]) for name in ("respondents", "ones"))
    if not ones <= respondents or not respondents:
        raise ForeignFileError(
            f"{path}: line {line} has {ones} ones of {respondents} respondents. Write the number of all answers, and of the ones among them."
        )
    return Answers(row.get("group", "all").strip(), respondents, ones)


def decode_survey(answers: Sequence[Answers], design: Design, confidence: float = 0.95) -> SurveyResult:
    """Estimate the share of each group with the attribute.

    >>> found = decode_survey([Answers("all", 100, 40)], Design.parse("forced=1/6,1/6")).groups[0]
    >>> round(found.share, 3), round(found.std_error, 3)  # (2/5 - 1/6) / (2/3), sqrt(2/5 3/5 / 100) / (2/3)
    (0.35, 0.073)
    """
    metric = Metric.boolean("survey", UnaryResponse(prob_p=design.prob_p, prob_q=design.prob_q, prob_f=0))
    groups, warnings = [], list[Finding]()
    for group in answers:
        counts = BitCounts(metric, [group.respondents], [[group.ones]])
        decoding = decode(counts, confidence=confidence, target="population")
        (found,) = decoding.estimates
        error = _std_error(group, design)
        groups.append(GroupShare(group.group, group.respondents, group.ones, found.share, error, found.low, found.high))
        warnings += [replace(warning, text=f"{group.group}: {warning.text}") for warning in decoding.warnings]
    return SurveyResult(design, epsilon(metric, 1), confidence, tuple(groups), tuple(warnings))


def _std_error(group: Answers, design: Design) -> float:
    """Square root of c/n (1 - c/n) / (n (q - p)**2)."""
    of_ones = group.ones / group.respondents
    return math.sqrt(of_ones * (1 - of_ones) / group.respondents) / abs(design.prob_q - design.prob_p)
