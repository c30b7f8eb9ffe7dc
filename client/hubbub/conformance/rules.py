"""Rules with their numbers: those of the encoding have cases, smallest first, and those of a client's days have scenarios."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from hubbub.conformance import clock, consent, ledger, recording, scenarios
from hubbub.conformance.results import RuleResult, Verdict
from hubbub.conformance.world import Kit, ScenarioRule


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
class EncodingRule:
    """A rule with its number, which never changes, its page and section, and its cases."""

    number: int
    title: str
    section: str
    cases: tuple[Case, ...]

    def run(self, kit: Kit) -> RuleResult:
        """Ask about the cases in the order of their size, so that the first that fails is the smallest."""
        failed: list[tuple[Case, Mapping[str, Any]]] = []
        for case in self.cases:
            answer = kit.ask(case.request)
            if answer.get("unknown") is True:
                return self._result(Verdict.NOT_CLAIMED)
            if not case.accepts(answer):
                failed.append((case, answer))
        if not failed:
            return self._result(Verdict.PASSED)
        case, answer = failed[0]
        found = {"request": case.request, "expected": case.expected, "answer": answer}
        return self._result(Verdict.FAILED, len(failed), found)

    def _result(self, verdict: Verdict, failed: int = 0, found: Mapping[str, Any] | None = None) -> RuleResult:
        return RuleResult(self.number, self.title, self.section, verdict, len(self.cases), failed, found or {})


Rule = EncodingRule | ScenarioRule


@cache
def all_rules() -> tuple[Rule, ...]:
    """Return all rules in the order of their numbers."""
    document = json.loads(files("hubbub.conformance").joinpath("vectors.json").read_text("utf-8"))
    chapters = (scenarios.RULES, ledger.RULES, consent.RULES, clock.RULES, recording.RULES)
    of_scenarios = sorted((rule for chapter in chapters for rule in chapter), key=lambda rule: rule.number)
    return *_encoding_rules(document), *of_scenarios


def _encoding_rules(document: Mapping[str, Any]) -> Iterator[EncodingRule]:
    for fields in document["rules"]:
        cases = (Case(example["request"], example["expected"]) for example in fields["cases"])
        by_size = sorted(cases, key=lambda case: len(json.dumps(case.request)))
        yield EncodingRule(fields["number"], fields["title"], f"format.md, {fields['section']}", tuple(by_size))
