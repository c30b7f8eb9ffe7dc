"""JSON Schema of a definitions file, for editors: which fields each kind and each mechanism has, their types, ranges and meanings.

It accepts each valid file. It refuses unknown and missing fields, wrong types and numbers out of range; `hubbub metrics check` knows the rules
between fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hubbub.mechanisms.mechanism import DEFAULT, MECHANISMS
from hubbub.metrics.buckets import Estimand, Several
from hubbub.metrics.definitions import OPTIONAL_FIELDS, REQUIRED_FIELDS
from hubbub.metrics.discovery import MAX_LONGEST, MAX_STEP
from hubbub.metrics.group import MAX_VALUES
from hubbub.metrics.kinds import KINDS, MIN_STRING_BITS, BlockKind, Kind
from hubbub.metrics.kinds.joint import MAX_PARTS, MIN_PARTS
from hubbub.metrics.params import MAX_BITS
from hubbub.metrics.periods import PeriodKind
from hubbub.metrics.rules import MAX_CLIENT_COHORTS

Schema = dict[str, Any]

DIALECT = "http://json-schema.org/draft-07/schema#"
"""The newest one that editors of TOML know."""


def _text(meaning: str) -> Schema:
    return {"type": "string", "description": meaning}


def _number(meaning: str) -> Schema:
    return {"type": "number", "description": meaning}


def _integer(smallest: int, largest: int | None, meaning: str) -> Schema:
    most = {} if largest is None else {"maximum": largest}
    return {"type": "integer", "minimum": smallest, **most, "description": meaning}


def _list(items: Schema, smallest: int, largest: int, meaning: str) -> Schema:
    return {"type": "array", "items": items, "minItems": smallest, "maxItems": largest, "description": meaning}


def _names(smallest: int, largest: int, meaning: str) -> Schema:
    return _list({"type": "string", "minLength": 1}, smallest, largest, meaning) | {"uniqueItems": True}


def _word(words: Iterable[str], meaning: str) -> Schema:
    return {"enum": list(map(str, words)), "description": meaning}


def _probability(meaning: str) -> Schema:
    return _number(f"Probability that {meaning}.") | {"minimum": 0, "maximum": 1}


def _table(required: Iterable[str], properties: Mapping[str, Schema], meaning: str = "") -> Schema:
    about = {"description": meaning} if meaning else {}
    return {
        "type": "object",
        "required": list(required),
        "properties": dict(properties),
        "additionalProperties": False,
        **about,
    }


NUMBER = {"type": "number"}
FIELDS: Mapping[str, Schema] = {
    # of every metric
    "name": _text("Name of the metric, which is sent as it is: no value, no user, no version.")
    | {"pattern": "^[a-z][a-z0-9_.-]{0,63}$"},
    "description": _text("What the metric collects, in words for its users.") | {"minLength": 1},
    "owner": _text("Address of the person or team that answers questions.") | {"minLength": 1},
    "expires": _text("First day without collection, such as 2027-01-01: at most a year ahead.") | {"format": "date"},
    "period": _word(PeriodKind, "A client sends one report in each period, in UTC. Default: day."),
    "hold": _integer(1, None, "Length of an epoch in periods, in which a client keeps its first value."),
    "lifetime_epsilon": _number(
        "Largest epsilon of all reports of a client, in all versions and under all its secrets."
    )
    | {"exclusiveMinimum": 0},
    "group": _table(
        ("name", "values"),
        {
            "name": _text("Name of the label.") | {"pattern": "^[a-z][a-z0-9_]{0,31}$"},
            "values": _names(2, MAX_VALUES, "Values of the label; with `other`, that of all others."),
        },
        "Public label of each report, sent in clear.",
    ),
    "purpose": _text("Why it is collected: users read it.") | {"minLength": 1},
    "review": _text("Address of the review.") | {"minLength": 1},
    # of mechanisms
    "prob_p": _probability("a reported bit is one if the permanent bit is 0"),
    "prob_q": _probability("a reported bit is one if the permanent bit is 1"),
    "prob_f": _number("Probability that a permanent bit is replaced by a fair coin.")
    | {"minimum": 0, "exclusiveMaximum": 1},
    "permanent_p": _probability("a permanent bit is one if the true bit is 0"),
    "permanent_q": _probability("a permanent bit is one if the true bit is 1"),
    "num_ones": _integer(1, MAX_BITS, "Number of ones in each report."),
    "max_items": _integer(1, MAX_BITS // 2, "Largest number of items of a set that a report can stand for."),
    "prob_hit": _probability("a reported row has at least one bit of the client's set"),
    # of kinds
    "num_bits": _integer(MIN_STRING_BITS, MAX_BITS, "Number of bits of a report, k."),
    "num_hashes": _integer(1, MAX_BITS, "Number of hashes of a string, h."),
    "num_cohorts": _integer(1, MAX_CLIENT_COHORTS, "Number of cohorts, m: a power of two."),
    "hash_scheme": _text("Hash functions. Default: murmur3-v1."),
    "discover": _table(
        ("longest",),
        {
            "longest": _integer(1, MAX_LONGEST, "Length of the longest string that can be found, in symbols."),
            "step": _integer(1, MAX_STEP, "Number of symbols by which each group's prefix is longer than the last."),
            "first": _integer(1, MAX_STEP, "Length of the shortest prefix."),
            "alphabet": _text("Characters of the strings to find. Default: bytes."),
            "held_out": _number("Share of the cohorts that report whole values.")
            | {"exclusiveMinimum": 0, "exclusiveMaximum": 1},
        },
        "Find frequent strings without a list.",
    ),
    "categories": _names(2, MAX_BITS, "Values, in the order of their bits."),
    "other": _text("Category of all values that are not listed. Without it they are counted as invalid."),
    "items": _names(
        2, MAX_BITS - 1, "Items of which a client may have several: at most 256 unless reports are rows of whole sets."
    ),
    "edges": _list(
        NUMBER,
        2,
        MAX_BITS + 1,
        "Edges of the buckets, in rising order; of a mean, the smallest and the largest number.",
    ),
    "several": _word(Several, "Number that is reported of several recordings in a period. Default: one."),
    "unit": _text("Unit of the numbers."),
    "representatives": _list(NUMBER, 0, MAX_BITS, "Number that stands for each bucket. Default: its middle."),
    "default": _number("Number of a period without a recording. Default: no value."),
    "estimate": _word(Estimand, "Shares of all buckets, or the mean alone. Default: distribution."),
}
"""Each field of a table but `kind`, `mechanism` and `part`, which say which other fields there are."""
_MECHANISM = {"description": f"How bits are randomized. Default: {DEFAULT}."}


def _references(fields: Iterable[str]) -> dict[str, Schema]:
    return {field: {"$ref": f"#/definitions/{field}"} for field in fields}


def _tables(kind: type[Kind], required: tuple[str, ...], optional: tuple[str, ...] = ()) -> Iterator[Schema]:
    """Yield the table of a kind for each mechanism that its definition may name.

    required, optional : fields that do not depend on the kind
    """
    word = {"kind": {"const": str(kind.word), "description": (kind.__doc__ or "").splitlines()[0]}}
    if not issubclass(kind, BlockKind):
        needed = (*required, *kind.required_fields)
        yield _table((*needed, "kind"), {**_references((*needed, *optional)), **word})
        return
    for name, mechanism in MECHANISMS.items():
        needed = (*required, *kind.required_fields, *mechanism.required_fields)
        allowed = (*optional, *kind.optional_fields, *mechanism.optional_fields)
        fields = {**_references((*needed, *allowed)), **word, "mechanism": {**_MECHANISM, "const": name}}
        yield _table((*needed, "kind", *(() if name == DEFAULT else ("mechanism",))), fields)


def definitions_schema() -> Schema:
    """Return the JSON Schema (draft 7) of a definitions file.

    A date of TOML is a text of the format `date`.
    """
    shared = tuple(field for field in REQUIRED_FIELDS if field != "kind")
    tables = [table for kind in KINDS.values() for table in _tables(kind, shared, OPTIONAL_FIELDS)]
    parts = [table for kind in KINDS.values() if issubclass(kind, BlockKind) for table in _tables(kind, ("name",))]
    part = _list({"oneOf": parts}, MIN_PARTS, MAX_PARTS, "Parts of a value, as [[metric.part]] tables.")
    metrics = {"type": "array", "items": {"oneOf": tables}, "minItems": 1, "description": "Metrics, one table each."}
    file = _table(("metric",), {"metric": metrics})
    return {"$schema": DIALECT, "title": "Metrics of hubbub", **file, "definitions": {**FIELDS, "part": part}}
