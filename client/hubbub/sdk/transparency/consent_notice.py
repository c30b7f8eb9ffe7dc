"""Opt-in text for users: what is collected, how sure a reader of reports can become, and their choice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hubbub.errors import ParameterError
from hubbub.metrics.metric import Metric
from hubbub.metrics.rules import is_placeholder
from hubbub.privacy.guarantees import Unit
from hubbub.privacy.lifetime import PrivacyFigures, privacy_figures
from hubbub.privacy.plain_words import CERTAIN, certainty_text, changed_text
from hubbub.privacy.policy import Policy
from hubbub.text import format_count


def consent_notice(
    definitions: Mapping[str, Metric], *, app: str, recipient: str, policy: Policy | None = None, contact: str = ""
) -> str:
    """Return a text that asks users for consent, in plain language, with the figures of each metric.

    Pass the text that the user read to `Client.set_consent(..., text=...)`.

    Parameters
    ----------
    definitions
        Definitions of the app's metrics. Metrics that the policy blocks are left out.
    app
        Name of the app.
    recipient
        Name of the company or person that receives the reports.
    policy
        Policy of the app's client. None: the default one.
    contact
        Address for questions. Empty: there is none.

    Returns
    -------
    str
        Paragraphs in plain text.

    Raises
    ------
    ParameterError
        No metric is collected, or a text of a collected metric is a placeholder.
    """
    for name, text in (("app", app), ("recipient", recipient)):
        if not isinstance(text, str) or not text.strip():
            raise ParameterError(f"{name} must be a name that is not empty, got {text!r}")
    policy = Policy() if policy is None else policy
    figures = {metric: privacy_figures(metric, policy) for metric in definitions.values()}
    collected = {metric: privacy for metric, privacy in figures.items() if privacy.objection is None}
    if not collected:
        raise ParameterError("no metric of these definitions is collected under the policy: run `hubbub metrics check`")
    for metric in collected:
        if is_placeholder(metric.description) or is_placeholder(metric.purpose):
            raise ParameterError(
                f"{metric.name}: the description or the purpose is a placeholder, and users would read it: write it in the definition. "
                "`hubbub metrics check` finds placeholders"
            )
    parts = [
        [f"{app} asks: may we collect usage statistics?"],
        [f"If you agree, {app} sends reports to {recipient}:"],
        [line for metric in collected for line in _collected(metric)],
        [
            (
                f"Your answers are randomized. {app} replaces parts of each report at random on this device, before it stores or sends the "
                "report. The answer itself is not sent. Statistics over many devices are still right on average."
            ),
            f"{app} keeps what it needs to randomize on this device. Somebody who can read the files of this device can find out your answers.",
        ],
        [
            (
                "How sure can a reader of your reports become? Suppose that the reader thinks two answers equally likely. A guess is 50 % "
                "sure."
            )
        ],
        [line for metric, privacy in collected.items() for line in _certainties(metric, privacy)],
        [
            (
                f'For a reader who is "{CERTAIN}", the reports together no longer hide the answer, or the change, behind their randomness.'
            ),
            *_about_changes([metric for metric, privacy in collected.items() if privacy.unit == "value"]),
            *_about_limits([metric for metric in collected if metric.lifetime_epsilon is not None], app),
        ],
        [
            (
                f"Reports contain no name, no account and no device number. {recipient} sees the network address that sends a report, and when. A "
                f"report leaves this device only while {app} runs, so {recipient} can see on which days you use {app}. The reports of one device can resemble each other, so that a reader can recognize them as reports of one device."
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
    yield f"- {metric.description.rstrip('.') or metric.name} ({metric.name}). One report each {metric.period}{until}.{purpose}{_label(metric)}"


def _label(metric: Metric) -> str:
    """Sentence about what a report says in clear."""
    if metric.group is None:
        return ""
    values = ", ".join(metric.group.values)
    return f" Each report also says, without any randomness: {metric.group.name.replace('_', ' ')} ({values})."


def _certainties(metric: Metric, figures: PrivacyFigures) -> Iterator[str]:
    """Yield the line of a metric: its certainties, each with the condition under which it holds."""
    found, end = figures.of_operator(), ""
    of_enrollment, condition = found[Unit.ENROLLMENT].epsilon, found[Unit.LIFETIME].condition.plain
    steps = [("from one report", found[Unit.REPORT].epsilon)]
    if Unit.VALUE in found:
        of_enrollment, end = found[Unit.VALUE].epsilon, f"; {changed_text(metric)}"
    if Unit.EPOCH in found:
        lasts = format_count(figures.hold or 1, figures.period)
        steps.append((f"from the reports of {lasts}", found[Unit.EPOCH].epsilon))
    steps.append((f"from all reports until you withdraw your consent, {condition}", of_enrollment))
    of_all = f"from all reports ever, if you then agree again any number of times, {condition}"
    steps.append((of_all, found[Unit.LIFETIME].epsilon))
    yield (
        f"- {metric.name}: " + "; ".join(f"{label}, {certainty_text(epsilon)}" for label, epsilon in steps) + f"{end}."
    )


def _about_limits(metrics: list[Metric], app: str) -> Iterator[str]:
    """Yield under which condition a limit of the definition holds, if a metric has one."""
    if metrics:
        names = ", ".join(metric.name for metric in metrics)
        yield (
            f"{app} counts what all your reports together reveal, and stops at a limit ({names}). The count is in the files of {app} on this "
            "device: it begins again if they are lost, and goes back if they are restored from a copy."
        )


def _about_changes(metrics: list[Metric]) -> Iterator[str]:
    """Yield what a change tells a reader, if there are metrics whose epsilon holds for unchanging values only."""
    if not metrics:
        return
    changed_by_absence = [metric.name for metric in metrics if metric.kind.has_no_value]
    absence = f" A day, week or month without an answer is a change, too ({', '.join(changed_by_absence)})."
    yield (
        "A reader who recognizes the reports of this device can see that an answer changed, when, and whether it is an earlier answer again."
        f"{absence if changed_by_absence else ''} After a change, the reader can learn as much about the new answer as about the first."
    )
