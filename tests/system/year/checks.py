"""All checks of one deployment, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.system.year.deployment import Deployment
from tests.system.year.ledger_check import consent_faults, ledger_faults
from tests.system.year.publication_check import agreement_faults, count_faults, leaks

CHECKS: dict[str, Callable[[Deployment], Iterable[str]]] = {
    "consent": consent_faults,
    "ledger": ledger_faults,
    "counts": count_faults,
    "agreement": agreement_faults,
    "leaks": leaks,
}
