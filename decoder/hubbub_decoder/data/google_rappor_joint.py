"""Import google/rappor's reports of several variables, as its association analysis reads them.

    reports  header with the columns cohort and one for each variable; a variable is a string of 0 and 1, bit k - 1 first.
             A boolean variable has one bit. Cohorts are taken modulo m
    params   one file for all variables; of a boolean variable k is 1

Source: google/rappor, bin/decode_assoc.R, analysis/R/association.R.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from hubbub.errors import DefinitionError
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.summary import Reports
from hubbub.text import escape_untrusted
from hubbub_decoder.data.google_rappor import csv_lines, parse_count
from hubbub_decoder.errors import ForeignFileError

VARIABLE_TYPES = ("string", "boolean")


def joint_metric(name: str, variables: Mapping[str, str], params: Params) -> Metric:
    """Joint metric of variables, string or boolean, under the parameters of one file.

    Raises ForeignFileError if the variables cannot be parts of a metric.
    """
    one_bit = next(
        (variable for variable, kind in variables.items() if kind == "string" and params.num_bits == 1), None
    )
    if one_bit is not None:
        raise ForeignFileError(f"{one_bit} has k = 1 bit, so it is no string. Pass --variable {one_bit}=boolean.")
    try:
        return Metric.joint(
            name,
            [
                Metric.string(variable, params) if kind == "string" else Metric.boolean(variable, params.mechanism)
                for variable, kind in variables.items()
            ],
        )
    except DefinitionError as problem:
        raise ForeignFileError(f"{problem}. Rename the columns of the reports.") from None


def read_joint_reports(path: str | Path, metric: Metric) -> Reports:
    """Reports of the columns that have the names of the metric's parts.

    Raises ForeignFileError for missing columns and for bits of another number or character.
    """
    lines = csv_lines(path)
    _, header = next(lines, (1, []))
    names = [name.strip() for name in header]
    missing = [name for name in ("cohort", *(part.name for part in metric.components)) if name not in names]
    if missing:
        raise ForeignFileError(f"{path}: line 1 must name the columns {', '.join(missing)}; got {names[:8]}.")
    cohort_at, columns = names.index("cohort"), [(names.index(part.name), part) for part in metric.components]
    cohorts: list[int] = []
    digits: list[str] = []
    for line, cells in lines:
        if len(cells) != len(names):
            raise ForeignFileError(
                f"{path}: line {line} must have {len(names)} columns like the header, got {len(cells)}."
            )
        cohorts.append(parse_count(path, f"line {line}: cohort", cells[cohort_at]) % metric.num_cohorts)
        digits.append("".join(_bits(path, line, part, cells[at])[::-1] for at, part in columns))
    if not cohorts:
        raise ForeignFileError(f"{path} has no reports. Check that it was written completely.")
    ones = np.frombuffer("".join(digits).encode(), np.uint8).reshape(len(cohorts), -1) == ord("1")
    return Reports(metric, cohorts, np.packbits(ones, axis=1, bitorder="little"))


def _bits(path: str | Path, line: int, part: Metric, cell: str) -> str:
    bits, k = cell.strip(), part.params.num_bits
    if k == 1 and bits in ("TRUE", "FALSE"):
        return "1" if bits == "TRUE" else "0"
    if len(bits) != k or bits.strip("01"):
        raise ForeignFileError(
            f"{path}: line {line}: {part.name} must have k = {k} digits, each 0 or 1, got '{escape_untrusted(bits)}'. "
            "Check that the reports belong to these parameters."
        )
    return bits
