"""Opt-in text for users: what is collected, how sure a reader of reports can become, and their choice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hubbub.errors import ParameterError
from hubbub.metrics.metric import Metric
from hubbub.privacy.lifetime import PrivacyFigures, privacy_figures
from hubbub.privacy.plain_words import certainty_text
from hubbub.privacy.policy import Policy


def consent_notice(
    definitions: Mapping[str, Metric], *, app: str, recipient: str, policy: Policy | None = None, contact: str = ""
) -> str:
    """Return a text that asks users for consent, in plain language, with the figures of each metric.

    definitions : definitions of the app's metrics; metrics that the policy blocks are left out
    app         : name of the app
    recipient   : name of the company or person that receives the reports
    policy      : policy of the app's client; None: the default one
    contact     : address for questions; "": none

    Pass the text that the user read to `Client.set_consent(..., text=...)`. Raises ParameterError if no metric is collected.
    """
    for name, text in (("app", app), ("recipient", recipient)):
        if not isinstance(text, str) or not text.strip():
            raise ParameterError(f"{name} must be a name that is not empty, got {text!r}")
    policy = Policy() if policy is None else policy
    figures = {metric: privacy_figures(metric, policy) for metric in definitions.values()}
    collected = {metric: each for metric, each in figures.items() if each.objection is None}
    if not collected:
        raise ParameterError("no metric of these definitions is collected under the policy: run `hubbub metrics check`")
    parts = [
        [f"{app} asks: may we collect usage statistics?"],
        [f"If you agree, {app} sends reports to {recipient}:"],
        [line for metric in collected for line in _collected(metric)],
        [
            (
                f"Your answers are randomized. {app} replaces parts of each report at random on this device, before it stores or sends the "
                "report. The answer itself is not sent. Statistics over many devices are still right on average."
            )
        ],
        [
            (
                "How sure can a reader of your reports become? Suppose that the reader thinks two answers equally likely. A guess is 50 % "
                "sure."
            )
        ],
        [line for metric, each in collected.items() for line in _certainties(metric, each)],
        [
            (
                'A reader who is "practically certain" has seen so many reports of so many different answers that the randomness no longer '
                "hides them."
            )
        ],
        [
            (
                f"Reports contain no name, no account and no device number. {recipient} sees the network address that sends a report. The "
                "reports of one device can resemble each other, so that a reader can recognize them as reports of one device."
            )
        ],
        [
            (
                f"You decide. {app} works the same if you say no. You can change your decision at any time in the settings. {app} then "
                "deletes the reports that it has not sent. Reports that were sent cannot be taken back."
            ),
            *([f"Questions: {contact}"] if contact else []),
        ],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _collected(metric: Metric) -> Iterator[str]:
    until = f", until {metric.expires}" if metric.expires is not None else ""
    purpose = f" Purpose: {metric.purpose.rstrip('.')}." if metric.purpose else ""
    yield f"- {metric.description.rstrip('.') or metric.name} ({metric.name}). One report each {metric.period}{until}.{purpose}"


def _certainties(metric: Metric, figures: PrivacyFigures) -> Iterator[str]:
    steps = [("from one report", figures.epsilon_report)]
    match figures.unit:
        case "value":
            steps.append(("from all reports of one unchanging answer", figures.epsilon_unit))
        case "epoch":
            steps.append((f"from the reports of {figures.hold} {figures.period}s", figures.epsilon_unit))
    steps.append(("from all reports until you withdraw your consent", figures.epsilon_enrollment))
    steps.append(("from all reports ever, if you then agree again", figures.epsilon_lifetime))
    yield f"- {metric.name}: " + "; ".join(f"{label}, {certainty_text(epsilon)}" for label, epsilon in steps) + "."
