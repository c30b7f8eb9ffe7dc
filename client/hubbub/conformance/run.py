"""Run the rules against an adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hubbub.conformance.rules import Case, Rule

Ask = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""`Adapter.ask`."""


class Verdict(StrEnum):
    """What became of a rule: NOT_CLAIMED if the adapter does not know a call."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_CLAIMED = "not claimed"


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A case with the answer of a client that breaks the rule."""

    case: Case
    answer: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RuleResult:
    """Verdict of a rule. num_failed : of its cases; counterexample : the smallest of them, None without one."""

    rule: Rule
    verdict: Verdict
    num_failed: int = 0
    counterexample: Counterexample | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        rule, found = self.rule, self.counterexample
        fields: dict[str, Any] = {
            "rule": rule.number, "title": rule.title, "section": rule.section, "verdict": str(self.verdict),
            "cases": len(rule.cases), "failed": self.num_failed,
        }  # fmt: skip
        if found is not None:
            fields["counterexample"] = {
                "request": found.case.request, "expected": found.case.expected, "answer": found.answer,
            }  # fmt: skip
        return fields


def run_rules(rules: Iterable[Rule], ask: Ask) -> Iterator[RuleResult]:
    """Yield the result of each rule. Cases are asked in the order of their size, so the first that fails is the smallest."""
    for rule in rules:
        yield _run_rule(rule, ask)


def _run_rule(rule: Rule, ask: Ask) -> RuleResult:
    failed: list[Counterexample] = []
    for case in rule.cases:
        answer = ask(case.request)
        if answer.get("unknown") is True:
            return RuleResult(rule, Verdict.NOT_CLAIMED)
        if not case.accepts(answer):
            failed.append(Counterexample(case, answer))
    if failed:
        return RuleResult(rule, Verdict.FAILED, len(failed), failed[0])
    return RuleResult(rule, Verdict.PASSED)
