"""How an alarm reaches people: as a sentence, as a webhook, in an Atom feed, and as a mark in charts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from threading import Thread
from urllib.parse import urlsplit

import urllib3

from hubbub.errors import ParameterError
from hubbub.metrics.metric import Metric
from hubbub.metrics.periods import Period
from hubbub.text import escape_untrusted
from hubbub.wire.json_values import json_value
from hubbub.wire.urls import is_loopback
from hubbub_decoder.data.events import Event
from hubbub_decoder.documents.atom import MAX_ENTRIES, AtomEntry, atom_feed
from hubbub_decoder.documents.document import format_share
from hubbub_decoder.errors import OutputError
from hubbub_decoder.results.estimates import change_text, share_text
from hubbub_decoder.results_store.store import Look, PeriodKey
from hubbub_decoder.watch.look import Alarm
from hubbub_decoder.watch.watch import stored_alarms

WEBHOOK_SECONDS = 15.0
"""Time that a webhook has for its answer."""


def alarm_sentence(alarm: Alarm) -> str:
    """What was found, with the interval, and what it was compared with."""
    if alarm.rule == "reports":
        return f"{alarm.estimate:,.0f} reports, and the median of {_days(alarm.baseline)} is {alarm.reference:,.0f}."
    of, interval = escape_untrusted(alarm.value), (alarm.estimate, alarm.low, alarm.high)
    window = "" if alarm.num_periods == 1 else f" in the last {alarm.num_periods} periods"
    if alarm.rule == "band":
        return f"{of} has {share_text(*interval)}{window}, {alarm.side} its band, which ends at {format_share(alarm.reference)}."
    return f"{of} changed by {change_text(*interval)}{window}, from {format_share(alarm.reference)} in {_days(alarm.baseline)}."


def _days(baseline: tuple[str, ...]) -> str:
    return " .. ".join(dict.fromkeys(baseline))


def check_webhook(url: str) -> str:
    """Return the URL of a webhook; raises ParameterError unless it is https, or http to this machine, without a user name.

    An error never repeats the URL, because its path may be a secret.
    """
    try:
        parts = urlsplit(url) if url.isprintable() and " " not in url else urlsplit("")
        is_valid = parts.hostname and parts.port != 0 and "@" not in parts.netloc
    except ValueError:  # unbalanced brackets, or an invalid port
        is_valid = False
    if not is_valid or not (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))):
        raise ParameterError(
            "it must be https, or http to this machine, with a host and without a user name, such as https://chat.example.org/hooks/KEY"
        )
    return url


def post_alarms(url: str, metric: Metric, alarms: Sequence[Alarm]) -> None:
    """POST new alarms as JSON: the metric, the alarms, and `text`, their sentences.

    Raises OutputError unless the answer has a status of 2xx within `WEBHOOK_SECONDS`. No redirect is followed.
    """
    lines = [f"{metric.title}: {alarm.period}: {alarm_sentence(alarm)}" for alarm in alarms]
    content = {
        "text": "\n".join(lines),
        "metric": metric.to_dict(),
        "digest": metric.digest,
        "alarms": json_value(alarms),
    }
    body, outcomes = json.dumps(content, allow_nan=False).encode(), list[str]()

    def send() -> None:
        try:
            with urllib3.PoolManager(retries=False, timeout=WEBHOOK_SECONDS) as http:
                headers = {"Content-Type": "application/json"}
                response = http.request("POST", url, body=body, headers=headers, redirect=False, preload_content=False)
                outcomes.append("" if 200 <= response.status < 300 else f"answered {response.status}")
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as problem:
            outcomes.append(f"could not be reached ({type(problem).__name__})")

    # A thread of its own, because a socket's timeout starts again with each byte of the answer.
    thread = Thread(target=send, daemon=True)
    thread.start()
    thread.join(WEBHOOK_SECONDS)
    outcome = outcomes[0] if outcomes else f"did not answer within {WEBHOOK_SECONDS:g} seconds"
    if outcome:
        raise OutputError(
            f"the webhook at {urlsplit(url).hostname} {outcome}. Nothing was recorded, so the next run looks again and sends the alarms. "
            "Check the URL, or leave out --webhook."
        )


def alarm_feed(metric: Metric, looks: Mapping[str, Look]) -> bytes:
    """Atom feed of the new alarms of all looks at a metric, the latest first. It depends on these looks alone."""
    latest = sorted(_new_alarms(looks), key=lambda alarm: (alarm.period, alarm.key), reverse=True)[:MAX_ENTRIES]
    return atom_feed(f"Alarms of {metric.title}", _urn(metric, ()), [_entry(metric, alarm) for alarm in latest])


def alarm_events(metric: Metric, looks: Mapping[str, Look]) -> list[Event]:
    """Events of the new alarms of all looks at a metric, at their periods."""
    return sorted(Event(alarm.period, f"alarm: {_title(alarm)}", metric.name) for alarm in _new_alarms(looks))


def _new_alarms(looks: Mapping[str, Look]) -> list[Alarm]:
    return [alarm for look in looks.values() for alarm in stored_alarms(look) if alarm.is_new]


def _title(alarm: Alarm) -> str:
    value = escape_untrusted(alarm.value)
    return {"change": f"{value} has changed", "band": f"{value} has left its band", "reports": "few reports"}[
        alarm.rule
    ]


def _entry(metric: Metric, alarm: Alarm) -> AtomEntry:
    end = Period(date.fromisoformat(alarm.period), metric.period).next()
    title = f"{metric.title}, {alarm.period}: {_title(alarm)}"
    return AtomEntry(title, _urn(metric, (alarm.period, *alarm.key)), f"{end}T00:00:00Z", alarm_sentence(alarm))


def _urn(metric: Metric, parts: Iterable[str]) -> str:
    """Identifier of the feed of a metric, or of an alarm in it."""
    key = json.dumps([*PeriodKey.of(metric, "")[:2], *parts])
    return f"urn:hubbub:alarms:{hashlib.sha256(key.encode()).hexdigest()}"
