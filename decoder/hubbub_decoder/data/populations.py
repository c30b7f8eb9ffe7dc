"""Populations for simulation: named distributions over v1 .. vS, or value counts from a file.

A population file is CSV with the columns `value` and `count`; other columns are ignored. An empty value is "no value", and a quoted
empty value `""` is the empty string, as in PostgreSQL's CSV files. `output_files.write_population` writes it.
"""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from hubbub.text import escape_untrusted
from hubbub_decoder.array_types import Floats
from hubbub_decoder.data.candidates import read_text
from hubbub_decoder.data.csv_cells import text_of_cell
from hubbub_decoder.errors import CandidateError, PopulationError
from hubbub_decoder.random_state import frozen, multinomial

DISTRIBUTIONS: dict[str, Callable[[Floats, int], Floats]] = {
    "uniform": lambda i, _: np.ones_like(i),
    "exp": lambda i, size: np.exp(-5 * i / size),
    "gauss": lambda i, size: np.exp(-18 * (i / size - 0.5) ** 2),
    "zipf1": lambda i, _: 1 / i,
    "zipf1.5": lambda i, _: i**-1.5,
}
"""Weight of value i = 1 .. S for each distribution, as in google/rappor's regression tests (tests/gen_counts.R)."""


def distribution_shares(distribution: str, num_values: int) -> dict[str, float]:
    """Expected share of each of v1 .. vS under a named distribution.

    >>> distribution_shares("zipf1", 2)
    {'v1': 0.6666666666666666, 'v2': 0.3333333333333333}
    """
    if distribution not in DISTRIBUTIONS:
        raise PopulationError(f"distribution must be one of {', '.join(DISTRIBUTIONS)}, got {distribution!r}.")
    if num_values < 1:
        raise PopulationError(f"A population must have at least 1 value, got {num_values}.")
    weights = DISTRIBUTIONS[distribution](np.arange(1, num_values + 1, dtype=np.float64), num_values)
    return {f"v{i}": share for i, share in enumerate((weights / weights.sum()).tolist(), start=1)}


def draw_population(shares: Mapping[Any, float], num_reports: int, rng: np.random.Generator) -> dict[Any, int]:
    """Multinomial draw of the number of reports of each value; the remainder to a total share of 1 has no value."""
    weights = np.array([*shares.values(), max(0.0, 1 - sum(shares.values()))])
    drawn = multinomial(np.array([num_reports]), weights, frozen(rng))[0]
    return dict(zip(shares, drawn[:-1].tolist(), strict=True))


def count_values(population: Any) -> tuple[dict[Any, Any], int]:
    """Return the number of clients with each value, and the number without one.

    population : a mapping of value and number of clients; a pandas Series of numbers with the values as its index, as `value_counts` makes it;
                 or the values themselves, one per client: a list, a Series or an array. None and NaN are "no value"

    Raises PopulationError for anything else, and for a value that is neither a string nor a bool.

    >>> count_values({"a": 2}), count_values(["a", None, "a", "b"]), count_values([True, True])
    (({'a': 2}, 0), ({'a': 2, 'b': 1}, 1), ({'true': 2}, 0))
    >>> count_values({("a", True): 3, ("a", None): 1})
    ({('a', 'true'): 3, ('a', None): 1}, 0)
    """
    if isinstance(population, Mapping):
        counts: dict[Any, Any] = {}
        for value, number in population.items():
            text = booleans_as_text(value)
            counts[text] = counts[text] + number if text in counts else number
        return counts, 0
    if isinstance(population, str | bytes) or not isinstance(population, Iterable):
        raise PopulationError(
            f"population must be a dict of value and number of clients, or a list of values, got {type(population).__name__}."
        )
    convert = getattr(population, "to_pylist", None) or getattr(population, "tolist", None)  # not pyarrow's scalars
    values = list(population) if convert is None else convert()
    if hasattr(population, "iloc") and any(map(_is_number, values)):
        return dict(zip(map(_value_text, population.index.tolist()), values, strict=True)), 0  # type: ignore[attr-defined]
    counted = Counter(None if _is_missing(value) else _value_text(value) for value in values)
    missing = counted.pop(None, 0)
    return dict(counted), missing


def booleans_as_text(value: Any) -> Any:
    """Return a value of a population, or a combination of values, with `true` and `false` in place of booleans."""
    if isinstance(value, tuple):
        return tuple(map(booleans_as_text, value))
    return str(value).lower() if isinstance(value, bool) else value


def _value_text(value: object) -> str:
    """Return a value of a population as text: a string, or `true` or `false`."""
    text = booleans_as_text(value)
    if isinstance(text, str):
        return str(text)
    raise PopulationError(
        f"a value of the population must be a string, a bool or None, got {value!r}. Write numbers as text, and pass numbers of "
        "clients as a dict."
    )


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and not _is_missing(value)


def _is_missing(value: object) -> bool:
    """Whether a value is None, NaN or pandas' NA."""
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float) and math.isnan(value))
    )


def read_population(path: str | Path) -> tuple[dict[str, int], int]:
    """Read a population file: the number of reports of each value, and the number without a value; repeated values are added up.

    Raises PopulationError for other columns, invalid counts, or a total of 0.
    """
    table = _read_csv(path)
    population: dict[str | None, int] = {None: 0}
    for number, row in enumerate(table.to_pylist(), start=2):
        value = _text_of(row["value"])
        population[value] = population.get(value, 0) + _parse_count(path, number, row["count"])
    if not sum(population.values()):
        raise PopulationError(f"{path}: all counts are 0. Write lines of value,count with at least one positive count.")
    no_value = population.pop(None)
    return {value: count for value, count in population.items() if value is not None}, no_value


def read_joint_population(path: str | Path, parts: Sequence[str]) -> dict[tuple[str | None, ...], int]:
    """Read a population of a joint metric: CSV with a column for each part and `count`; an empty cell is "no value" of the part.

    Raises PopulationError for other columns, invalid counts, or a total of 0.
    """
    population: dict[tuple[str | None, ...], int] = {}
    for number, row in enumerate(_read_csv(path, [*parts, "count"]).to_pylist(), start=2):
        combination = tuple(_text_of(row[part]) for part in parts)
        population[combination] = population.get(combination, 0) + _parse_count(path, number, row["count"])
    if not sum(population.values()):
        raise PopulationError(f"{path}: all counts are 0. Write lines with at least one positive count.")
    return population


def _text_of(cell: str | None) -> str | None:
    return None if cell is None else text_of_cell(cell)


def _parse_count(path: str | Path, number: int, cell: str | None) -> int:
    text = (cell or "").strip()
    if not (text.isascii() and text.isdigit()):
        raise PopulationError(
            f"{path}: line {number}: count must be a non-negative integer, got {escape_untrusted(repr(text))}. "
            "Write the number of reports of the value."
        )
    return int(text)


def _read_csv(path: str | Path, columns: Sequence[str] = ("value", "count")) -> pa.Table:
    """Columns of a CSV file as strings; an empty cell without quotes is null."""
    try:
        data = read_text(path).encode()
    except CandidateError as problem:
        raise PopulationError(str(problem)) from None
    try:
        return pyarrow.csv.read_csv(
            io.BytesIO(data),
            pyarrow.csv.ReadOptions(use_threads=False, block_size=len(data) + 1),
            pyarrow.csv.ParseOptions(newlines_in_values=True),
            pyarrow.csv.ConvertOptions(
                include_columns=list(columns),
                column_types={column: pa.string() for column in columns},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except KeyError:
        header = escape_untrusted(data.decode().partition("\n")[0].strip())
        raise PopulationError(
            f"{path}: line 1 must name the columns {', '.join(columns[:-1])} and {columns[-1]}, but has {header}. Add the header."
        ) from None
    except pa.ArrowInvalid as problem:
        raise PopulationError(
            f"{path} is not valid CSV ({escape_untrusted(str(problem))}). Write the header value,count and two cells in each line."
        ) from None
