"""Opt-in text for users: what is collected, how sure a reader of reports can become, and their choice."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

from hubbub.errors import ParameterError
from hubbub.metrics.metric import Metric
from hubbub.metrics.rules import is_placeholder
from hubbub.privacy.guarantee import Unit
from hubbub.privacy.lifetime import PrivacyFigures, privacy_figures
from hubbub.privacy.plain_words import CERTAIN, certainty_text, changed_text
from hubbub.privacy.policy import Policy
from hubbub.text import format_count


def consent_notice(
    definitions: Mapping[str, Metric],
    *,
    app: str,
    recipient: str,
    policy: Policy | None = None,
    contact: str = "",
    details: bool = True,
) -> str:
    """Return a text that asks users for consent: in short for the whole app, then the details with the figures of each metric.

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
    details
        Whether the details follow. False: only the short text, for an app that shows the details behind a link.

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
        [f"If you agree, {app} sends reports to {recipient} that answer:"],
        [f"- {_question(metric)}." for metric in collected],
        ["In short:"],
        [f"- {line}" for line in _in_short(collected, policy, app, recipient)],
        *([[f"Questions: {contact}"]] if contact else []),
        *(_details(collected, app) if details else ()),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _question(metric: Metric) -> str:
    return metric.description.rstrip(".") or metric.name


def _in_short(collected: Mapping[Metric, PrivacyFigures], policy: Policy, app: str, recipient: str) -> Iterator[str]:
    """Yield what concerns all metrics. Each figure holds for every metric, or for all of them together."""
    yield f"Name: reports contain no name, no account and no device number. {recipient} sees the network address that sends them."
    yield f"Days of use: reports leave only while {app} runs. {recipient} and your network provider can see on which days you use {app}."
    found = [figures.of_operator() for figures in collected.values()]
    from_one = [of[Unit.REPORT].epsilon for of in found]
    from_all = [of.get(Unit.VALUE, of[Unit.ENROLLMENT]).epsilon for of in found]
    changing = [metric for metric, figures in collected.items() if figures.unit == "value"]
    condition = "while your answers stay the same" if changing else "whether or not your answers change"
    yield (
        f"Answers: {app} changes them at random on this device, before it stores or sends a report. A guess between two answers is 50 % sure. One "
        f"report makes it {certainty_text(max(from_one))}; all reports until you withdraw your consent, {condition}, {certainty_text(max(from_all))}."
    )
    if changing:
        absence = any(metric.kind.has_no_value for metric in changing)
        yield (
            f"Changed answers: {recipient} can recognize the reports of this device, and can see that an answer changed, when, and whether it is an "
            f"earlier answer again.{' A day, week or month without an answer can be a change, too.' if absence else ''}"
        )
    if len(found) > 1:
        ever = min(math.fsum(of[Unit.LIFETIME].epsilon for of in found), policy.epsilon_total)
        yield (
            f"All questions together: one report about each makes a guess {certainty_text(math.fsum(from_one))}; all reports until you withdraw your "
            f"consent, {condition}, {certainty_text(math.fsum(from_all))}; if you then agree again any number of times, {certainty_text(ever)}."
        )
    yield f"Not changed at random: {'; '.join(_in_clear(collected))}."
    yield "This device: somebody who can read its files can find out your answers."
    yield (
        f"Choice: {app} works the same if you say no. You can change your decision at any time in the settings. {app} then deletes the reports that "
        "it has not sent. Reports that were sent cannot be taken back."
    )


def _in_clear(metrics: Collection[Metric]) -> Iterator[str]:
    """Yield what reports say without any randomness."""
    yield "which question and which day, week or month a report is about, and a group number that this device drew by lot"
    for metric in metrics:
        if metric.kind.in_clear:
            yield f"{_question(metric)}: {metric.kind.in_clear}"
        if metric.group is not None:
            yield f"{_question(metric)}: {metric.group.name.replace('_', ' ')} ({', '.join(metric.group.values)})"


def _details(collected: Mapping[Metric, PrivacyFigures], app: str) -> Iterator[list[str]]:
    """Yield paragraphs about each metric."""
    yield ["Details:"]
    yield [line for metric in collected for line in _collected(metric)]
    yield [
        "How sure can a reader of your reports become? Suppose that the reader thinks two answers equally likely. A guess is 50 % sure."
    ]
    yield [line for metric, privacy in collected.items() for line in _certainties(metric, privacy)]
    yield [
        (
            f'For a reader who is "{CERTAIN}", the reports together no longer hide the answer, or the change, behind their randomness. '
            "After a change, the reader can learn as much about the new answer as about the first. "
            "Statistics over many devices are still right on average."
        ),
        *_about_limits([metric for metric in collected if metric.lifetime_epsilon is not None], app),
    ]


def _collected(metric: Metric) -> Iterator[str]:
    until = f", until {metric.expires}" if metric.expires is not None else ""
    purpose = f" Purpose: {metric.purpose.rstrip('.')}." if metric.purpose else ""
    yield f"- {_question(metric)} ({metric.name}). One report each {metric.period}{until}.{purpose}"


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
