"""Import google/rappor's reports of several variables, as its association analysis reads them.

    reports  header with the columns cohort and one for each variable; a variable is a string of 0 and 1, bit k - 1 first.
             A boolean variable has one bit. Cohorts are taken modulo m
    params   one file for all variables; of a boolean variable k is 1

Source: google/rappor, bin/decode_assoc.R, analysis/R/association.R.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from hubbub.errors import DefinitionError
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.summary import Reports
from hubbub_decoder.data.google_rappor import (
    check_columns,
    check_not_empty,
    csv_lines,
    pack_digits,
    parse_bits,
    parse_cohort,
    valid_rows,
)
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
        raise ForeignFileError(
            f"{problem}. Write --variable with lower-case letters, which also finds a column with capital ones, or rename the columns of the reports."
        ) from None


def read_joint_reports(path: str | Path, metric: Metric, dropped_rows: Counter[str] | None = None) -> Reports:
    """Reports of the columns that have the names of the metric's parts, in any case: flag..https is also the column flag..HTTPS.

    dropped_rows : counts the invalid rows that are left out, by reason; None: such a row is an error

    Raises ForeignFileError for missing columns and for bits of another number or character.
    """
    lines = csv_lines(path)
    _, header = next(lines, (1, []))
    names = [name.strip() for name in header]
    lower, needed = [name.lower() for name in names], ["cohort", *(part.name for part in metric.components)]
    at = {name: (names if name in names else lower).index(name) for name in needed if name in lower}
    missing = [name for name in needed if name not in at]
    if missing:
        raise ForeignFileError(f"{path}: line 1 must name the columns {', '.join(missing)}; got {names[:8]}.")

    def parse(line: int, cells: list[str]) -> tuple[int, str]:
        check_columns(path, line, cells, len(names))
        cohort = parse_cohort(path, line, cells[at["cohort"]]) % metric.num_cohorts
        bits = [_bits(path, line, part, cells[at[part.name]]) for part in metric.components]
        return cohort, "".join(reversed(bits))

    rows = list(valid_rows(lines, parse, dropped_rows))
    check_not_empty(path, len(rows), dropped_rows)
    cohorts, digits = zip(*rows, strict=True)
    return Reports(metric, cohorts, pack_digits(digits), dropped_rows=dropped_rows or {})


def _bits(path: str | Path, line: int, part: Metric, cell: str) -> str:
    """Digits of a variable; R writes TRUE and FALSE for those of a boolean."""
    digits = {"TRUE": "1", "FALSE": "0"}.get(cell.strip(), cell) if part.num_bits == 1 else cell
    return parse_bits(path, line, f"the bits of {part.name}", digits, part.num_bits)
