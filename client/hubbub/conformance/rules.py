"""Rules of the format, and the cases that prove them, smallest first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

PROTOCOL = 1
"""Version of the lines that adapters read and write. An adapter that does not know a call answers `{"unknown": true}`."""


@dataclass(frozen=True, slots=True)
class Case:
    """One request to an adapter, and the answer of a client that follows the rule."""

    request: Mapping[str, Any]
    expected: Mapping[str, Any]

    def accepts(self, answer: Mapping[str, Any]) -> bool:
        """Whether an answer has all that is expected; of the body of a request, its JSON and its length in bytes."""
        if "body" not in self.expected:
            return all(name in answer and answer[name] == value for name, value in self.expected.items())
        body, expected = answer.get("body"), self.expected["body"]
        if not isinstance(body, str) or len(body.encode("utf-8", "surrogatepass")) != len(expected):
            return False
        try:
            return bool(json.loads(body) == json.loads(expected))
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule with its number, which never changes, its section in docs/reference/format.md, and its cases."""

    number: int
    title: str
    section: str
    cases: tuple[Case, ...]


@cache
def all_rules() -> tuple[Rule, ...]:
    """Return all rules in the order of their numbers."""
    document = json.loads(files("hubbub.conformance").joinpath("vectors.json").read_text("utf-8"))
    return tuple(_rules(document))


def _rules(document: Mapping[str, Any]) -> Iterator[Rule]:
    for fields in document["rules"]:
        cases = (Case(each["request"], each["expected"]) for each in fields["cases"])
        by_size = sorted(cases, key=lambda case: len(json.dumps(case.request)))
        yield Rule(fields["number"], fields["title"], fields["section"], tuple(by_size))
