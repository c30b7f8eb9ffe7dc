"""JSON Schema of definitions files: it accepts what the parser accepts, and refuses wrong fields, types and numbers."""

from __future__ import annotations

import copy
import json
import random
import re
import tomllib
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft7Validator, FormatChecker

from hubbub import HubbubError
from hubbub.cli import main
from hubbub.metrics.definitions import OPTIONAL_FIELDS, REQUIRED_FIELDS, parse_definitions
from hubbub.metrics.json_schema import FIELDS, definitions_schema
from hubbub.metrics.kinds import KINDS
from tests.support.paths import DOCS, REPOSITORY

SCHEMA = Draft7Validator(definitions_schema(), format_checker=FormatChecker())
FILES = [*(DOCS / "how-to").glob("*.md"), *(DOCS / "tutorials").glob("*.md"), *(REPOSITORY / "examples").glob("*.toml")]
OTHERS: tuple[Any, ...] = (None, True, 0, -1, 3, 0.5, 1e400, "", "a", "day", [], [0], ["a", "b"], {}, {"name": "a"})
DAMAGES = 3_000


def tables() -> Iterator[dict[str, Any]]:
    """The [[metric]] tables of the documents and the examples."""
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        blocks = [text] if file.suffix == ".toml" else re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
        yield from (table for block in blocks if "[[metric]]" in block for table in tomllib.loads(block)["metric"])


SUBSET = tomllib.loads("""
name = "os"
kind = "categorical"
description = "Operating system"
owner = "a@example.org"
categories = ["linux", "macos", "other"]
other = "other"
mechanism = "subset"
num_ones = 1
prob_q = 0.7
permanent_q = 0.75
expires = 2099-01-01
""")
TABLES = [SUBSET, *(table for table in tables() if "expires" in table)]


def toml(value: Any) -> str:
    """A value of TOML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(of)}" for key, of in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, date):
        return value.isoformat()
    return {"Infinity": "inf"}.get(json.dumps(value), json.dumps(value))


def is_parsed(table: dict[str, Any]) -> bool:
    try:
        parse_definitions(f"metric = [{toml(table)}]")
    except HubbubError:
        return False
    return True


def is_accepted(table: dict[str, Any]) -> bool:
    return bool(SCHEMA.is_valid(json.loads(json.dumps({"metric": [table]}, default=str))))


def test_tables_are_of_all_kinds_and_accepted() -> None:
    assert {table["kind"] for table in TABLES} == set(KINDS)
    for table in TABLES:
        assert is_parsed(table), table
        assert is_accepted(table), table


def test_what_the_parser_accepts_is_accepted(unseen_seed: int) -> None:
    rng = random.Random(unseen_seed)  # noqa: S311  (a test)
    refused = 0
    for _ in range(DAMAGES):
        table = copy.deepcopy(rng.choice(TABLES))
        inner = rng.choice([table, *(part for part in table.get("part", [])), *filter(None, [table.get("discover")])])
        field, value = rng.choice([*inner, *FIELDS]), rng.choice(OTHERS[1:])
        inner[field] = value
        accepted = is_accepted(table)
        refused += not accepted
        assert accepted or not is_parsed(table), (field, value, table)
    assert refused > DAMAGES / 2


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table["name"])
def test_missing_and_unknown_fields_are_refused(table: dict[str, Any]) -> None:
    of_kind = KINDS[table["kind"]].required_fields
    for field in (*REQUIRED_FIELDS, *of_kind):
        assert not is_accepted({name: value for name, value in table.items() if name != field})
    assert not is_accepted({**table, "prob_g": 0.5})


def test_each_field_of_every_kind_is_described() -> None:
    described = SCHEMA.schema["definitions"]
    assert {*REQUIRED_FIELDS, *OPTIONAL_FIELDS} - {"kind"} <= set(described)
    assert all("description" in field for field in described.values())


def test_command_prints_the_schema() -> None:
    result = CliRunner().invoke(main, ["metrics", "schema"])
    assert (result.exit_code, json.loads(result.stdout)) == (0, SCHEMA.schema)
