"""Options of `hubbub conformance` for the rule that waits ten seconds, and for all others."""

from __future__ import annotations

from hubbub.conformance.rules import all_rules

WAITS_TEN_SECONDS = 112
QUICK_RULES = [f"--rule={rule.number}" for rule in all_rules() if rule.number != WAITS_TEN_SECONDS]
RULE_THAT_WAITS = f"--rule={WAITS_TEN_SECONDS}"
