"""All checks of one deployment, by name, and what its log may say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tests.system.year.deployment import Deployment
from tests.system.year.ledger_check import (
    consent_faults,
    ledger_faults,
    period_faults,
    recording_faults,
    server_faults,
    traveller_faults,
)
from tests.system.year.publication_check import agreement_faults, count_faults, leaks

ACTIONS: dict[str, str] = {
    "was used on another machine before": "run `hubbub inspect --identity`",
    "Many such reports bias the estimates": "raise the limit of the policy, or set `hold`",
    "is on a full disk": "free some space",
    "keep the clock synchronized": "do so",
    "until the clock is correct": "set the clock",
    "set the clock": "do so",
    "its recordings are ignored": "remove them from the app, or ship a later `expires`",
    "until it has agreed with elapsed time": "accept the clock, or set it",
    "The metric is not collected": "raise the limit of the policy, or add noise",
    "define the metric with more noise": "do so",
    "a recording of trial is ignored: expired": "remove it from the app, or ship a later `expires`",
    "a recording of travelled is ignored: clock": "set the clock",
    "the clock is wrong": "set the clock",
    "period-not-started": "set the clock",
    "is ignored: policy": "raise the limit of the policy, or add noise",
}
"""Parts of the messages above INFO that a deployment may log, with what a person does then."""


def messages_without_action(deployment: Deployment) -> Iterator[str]:
    """Yield messages above INFO that no action belongs to, and all that a process of Node wrote to stderr."""
    for (logger, _), text in deployment.messages.examples.items():
        if not any(part in text for part in ACTIONS):
            yield f"{logger}: {text}"
    if deployment.node is not None:
        yield from (f"Node: {line}" for line in deployment.node.said.read_text().splitlines())


CHECKS: dict[str, Callable[[Deployment], Iterable[str]]] = {
    "consent": consent_faults,
    "periods": period_faults,
    "recordings": recording_faults,
    "ledger": ledger_faults,
    "ledgers of a server": server_faults,
    "ledgers of travellers": traveller_faults,
    "counts": count_faults,
    "agreement": agreement_faults,
    "leaks": leaks,
    "messages": messages_without_action,
}


def all_faults(deployment: Deployment) -> list[str]:
    """Return the faults that all checks find."""
    return [f"{name}: {fault}" for name, check in CHECKS.items() for fault in check(deployment)]
