"""Verdict of a rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """What became of a rule: NOT_CLAIMED if the adapter does not know a call."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_CLAIMED = "not claimed"


@dataclass(frozen=True, slots=True)
class RuleResult:
    """Verdict of a rule.

    section        : page and section that states the rule
    cases, failed  : numbers of its cases
    counterexample : of a failed rule: "request", "expected" and "answer" of the smallest case that failed, or what happened
    """

    number: int
    title: str
    section: str
    verdict: Verdict
    cases: int = 1
    failed: int = 0
    counterexample: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        fields: dict[str, Any] = {
            "rule": self.number,
            "title": self.title,
            "section": self.section,
            "verdict": str(self.verdict),
            "cases": self.cases,
            "failed": self.failed,
        }
        return fields | ({"counterexample": dict(self.counterexample)} if self.counterexample else {})
