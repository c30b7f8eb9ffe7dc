"""HTML page of what a client holds and has sent: `hubbub inspect --html` and `Client.inspect_html`.

The page shows reports, which are final randomized bits, and counters. The state has no value in readable form, and the page leaves out
its encrypted fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element

from hubbub.consent import Consent
from hubbub.metrics.metric import Metric
from hubbub.metrics.periods import from_timestamp
from hubbub.pages.html_page import element, page, table
from hubbub.privacy.guarantee import guarantee_of_ledger
from hubbub.privacy.ledger import Account
from hubbub.privacy.lifetime import epsilon_of_reports
from hubbub.privacy.plain_words import certainty_text, changed_text
from hubbub.privacy.pricing import shown_epsilon
from hubbub.sdk.storage.events import QueuedBatch
from hubbub.sdk.storage.state import MAX_SENT_BATCHES, State
from hubbub.text import escape_untrusted, format_bits, format_count
from hubbub.wire.batch import Batch

MAX_SHOWN_BATCHES = 50
MAX_SHOWN_REPORTS = 10
MAX_SHOWN_ACCOUNTS = 200
MAX_SHOWN_BODY_CHARACTERS = 4096

_CONSENT_TEXTS = {
    Consent.ON: "Reports are made and sent.",
    Consent.LOCAL: "Reports are made and kept on this device. They are never sent.",
    Consent.OFF: "Nothing is recorded and nothing is sent.",
}
_UNKNOWN_TEXTS = {
    "value": " from any number of reports of these answers",
    "epoch": " from all reports of these epochs",
    "period": "",
}
"""Reports of which the ledger knows the epsilon, by its unit, if the definition is not known."""
_DROP_TEXTS = {
    "quota": "the queue was full",
    "age": "older than 28 days",
    "expired": "the metric's collection has ended",
    "consent": "consent was withdrawn",
    "local": "made while reports were kept on this device",
    "copied": "the directory was copied from another machine",
    "corrupt": "lost to a damaged file",
    "refused": "the service no longer accepts reports of that day",
    "clock": "the clock was wrong",
}


def state_page(
    state: State,
    *,
    last: int = MAX_SENT_BATCHES,
    definitions: Mapping[str, Metric] | None = None,
    url: str | None = None,
) -> str:
    """Return a self-contained HTML page: consent, what others can learn, budget, reports held, reports sent.

    last        : number of sent batches to show, the newest first
    definitions : definitions of the app; their descriptions are shown. Without them, what a metric's reports reveal is stated for any
                  number of reports
    url         : URL of the aggregator, https or http; None: it is not known
    """
    known = definitions or {}
    sent = list(state.last_sent.values())[::-1][: max(0, last)]
    return page(
        "Usage statistics on this device",
        element("h1", "Usage statistics on this device"),
        _aside(
            "This page shows everything that the telemetry of one app holds on this device, and the last reports that it sent. "
            "It was made on this device and makes no connection."
        ),
        _consent(state),
        _disclosure(url),
        _metrics(state, known),
        _held(state, known),
        *_section(
            "Sent to the service",
            f"The client keeps the last {format_count(MAX_SENT_BATCHES, 'batch')} that it sent. Each is shown as it left this device.",
            [_batch(batch, "sent", "plain", known) for batch in sent],
            "Nothing was sent.",
        ),
        *_section(
            "Refused by the service",
            "The service did not accept these reports. They are kept for the developer of the app and are not sent again.",
            [_batch(batch, escape_untrusted(problem), "bad", known) for batch, problem in state.quarantine.values()],
            None,
        ),
        _counters(state),
    )


def _card(heading: str | Element, *content: Element) -> Element:
    """Return a section of the page with its heading."""
    return element("section", element("h2", heading) if isinstance(heading, str) else heading, *content, class_="card")


def _aside(text: str) -> Element:
    return element("p", text, class_="dim")


def _problem(text: str) -> Element:
    return element("p", element("strong", "Problem:"), f" {text}", class_="note problem")


def _consent(state: State) -> Element:
    since = f" since {_time_text(state.consent_time)}" if state.consent_time else ""
    level = element("span", str(state.consent), class_=f"pill {'good' if state.consent is Consent.ON else 'plain'}")
    content = [
        element("p", f"{_CONSENT_TEXTS[state.consent]} This is the decision stored on this device{since}."),
    ]
    if state.consent_text:
        content.append(
            element(
                "details",
                element("summary", "The text that you were shown"),
                element("p", state.consent_text, class_="text"),
            )
        )
    if len(state.machine_tags) > 1:
        content.append(
            _problem(
                f"This directory was used on {len(state.machine_tags)} machines. Two copies of it report twice under one secret."
            )
        )
    return _card(element("div", element("h2", "Your decision"), level, class_="head"), *content)


def _disclosure(url: str | None) -> Element:
    return _card(
        "Who can learn what",
        element(
            "ul",
            element(
                "li",
                element("b", "The service that receives reports"),
                " sees the network address and the time of each connection, and so on which days the app runs. It sees each report: the metric, the period, a "
                "group number (cohort) and the bits shown below. The group number of a metric is the same in all of its reports.",
            ),
            element(
                "li",
                element("b", "The developer of the app"),
                " sees what the service passes on: normally only totals over many reports. A developer who runs the service sees "
                "what the service sees.",
            ),
            element(
                "li",
                element("b", "Somebody who reads your network traffic"),
                " sees the address of the service, and when and how often this device connects. Every request with one report has the "
                f"same length. {_encryption_text(url)}",
            ),
        ),
        element(
            "p",
            "Before a report is stored, the client replaces some of its bits by random ones. A 1 below can be chance, and a 0 can "
            "be chance. The value itself is not sent. Many reports of one value together tell more than one report: the table "
            "below shows how much at most.",
        ),
        _aside(
            'Somebody who can read the files of this device can learn more. The file "secret" is the key of what is encrypted beside it: '
            "with it they can decrypt the last value, test guesses of earlier values, and remove a part of the randomness."
        ),
    )


def _encryption_text(url: str | None) -> str:
    """Return whether a reader of the connection sees the reports."""
    match url and urlsplit(url).scheme:
        case "https":
            return "The connection is encrypted."
        case "http":
            return "The connection is not encrypted, because the address begins with http: they also see what the service sees."
        case _:
            return "The connection is encrypted if the address begins with https. Otherwise they also see what the service sees."


def _metrics(state: State, definitions: Mapping[str, Metric]) -> Element:
    heading = "What is collected"
    accounts = list(state.accounts.values())
    if not accounts:
        return _card(heading, element("p", "No metric has been enrolled yet."))
    head = ["metric", "reports made", "epsilon used", "most that these reports can reveal"]
    rows = [_account_row(account, definitions.get(account.metric)) for account in accounts[:MAX_SHOWN_ACCOUNTS]]
    content = [table(head, rows, class_="facts"), *_more(len(accounts) - MAX_SHOWN_ACCOUNTS, "metric")]
    content.append(
        _aside(
            '"Sure" means: somebody who thinks two values equally likely reads all reports of the metric. How sure can they be '
            "which of the two is true? 50 % is a guess. If an answer changed, somebody who recognizes the reports of this device can see "
            "that it changed, when, and whether it is an earlier answer again. The figure is then about the answers only. A period without an answer is a change, too, unless "
            "the metric counts it as a number."
        )
    )
    return _card(heading, *content)


def _account_row(account: Account, metric: Metric | None) -> Iterator[str | Element]:
    texts = [] if metric is None else [text for text in (metric.description, metric.purpose) if text]
    subject = [f"for user {account.subject[:8]}"] if account.subject else []
    yield element("span", account.metric, *(element("small", text) for text in (*texts, *subject)))
    yield f"{account.reports:,}"
    if account.refused:
        yield "none"
        yield f"not collected: {account.refused}"
        return
    yield f"{shown_epsilon(account.spent)} of {shown_epsilon(account.reserved_epsilon)}"
    yield _certainty(account, metric) if account.units else "nothing was reported"


def _certainty(account: Account, metric: Metric | None) -> str:
    """Return how sure a reader of the charged reports can be, and under which condition."""
    epsilon, reports = account.spent, _UNKNOWN_TEXTS[account.unit]
    if metric is not None and metric.digest == account.digest:
        epsilon, reports = min(epsilon, epsilon_of_reports(metric, account.units, account.reports)), ""
    guarantee = guarantee_of_ledger({account.unit}, epsilon, None if metric is None else metric.kind)
    changed = f"; {changed_text(metric)}" if account.unit == "value" else ""
    return f"{certainty_text(guarantee.epsilon)}{reports}, {guarantee.condition.plain}{changed}"


def _held(state: State, definitions: Mapping[str, Metric]) -> Element:
    drafts = [(draft, key) for key, draft in state.drafts.items() if draft.report.bits]
    queued = sorted(state.queue.values(), key=lambda waiting: (waiting.send_at, waiting.batch.metric))
    content = [
        _aside("These reports were not sent, or the service has not confirmed them. Withdrawing consent deletes them."),
    ]
    for draft, (subject, digest) in drafts[:MAX_SHOWN_BATCHES]:
        account = state.accounts.get((subject, digest))
        metric = account.metric if account else digest[:12]
        status = "current period, kept on this device" if draft.local else "current period, not complete"
        content.append(
            _report_block(
                f"{metric} (user {subject[:8]})" if subject else metric,
                state.group_label(digest, draft.period),
                draft.period,
                element("span", status, class_="pill plain"),
                [_bits(draft.report.cohort, draft.report.bits, _num_bits(definitions, metric, digest))],
            )
        )
    content += _more(len(drafts) - MAX_SHOWN_BATCHES, "report of the current period")
    content += [
        _batch(waiting.batch, _queued_status(state, waiting), "plain", definitions)
        for waiting in queued[:MAX_SHOWN_BATCHES]
    ]
    content += _more(len(queued) - MAX_SHOWN_BATCHES, "batch")
    if not drafts and not queued:
        content.append(element("p", "No report is held."))
    if state.failures:
        content.append(
            _problem(
                f"The last {format_count(state.failures, 'attempt')} to send failed: {escape_untrusted(state.last_error or 'no response')}."
            )
        )
    return _card("Held on this device", *content)


def _queued_status(state: State, queued: QueuedBatch) -> str:
    if queued.local:
        return "kept on this device, never sent"
    doubt = "possibly delivered; " if queued.possibly_delivered else ""
    if queued.batch.digest in state.held_digests or state.paused_metrics.get(queued.batch.digest):
        return f"{doubt}waits until the service collects this metric"
    return f"{doubt}to be sent after {_time_text(max(queued.send_at, state.backoff_until))}"


def _time_text(moment: float) -> str:
    return f"{from_timestamp(moment):%Y-%m-%d %H:%M} UTC"


def _section(title: str, text: str, blocks: list[Element], empty: str | None) -> Iterator[Element]:
    if not blocks and empty is None:
        return
    shown = [*blocks[:MAX_SHOWN_BATCHES], *_more(len(blocks) - MAX_SHOWN_BATCHES, "batch")]
    yield _card(title, _aside(text), *(shown or [element("p", empty or "")]))


def _batch(batch: Batch, status: str, look: str, definitions: Mapping[str, Metric]) -> Element:
    size = len(batch.rows) // max(1, len(batch))
    num_bits = _num_bits(definitions, batch.metric, batch.digest)
    reports = [
        _bits(cohort, batch.rows[n * size : (n + 1) * size], num_bits)
        for n, cohort in enumerate(batch.cohorts[:MAX_SHOWN_REPORTS])
    ]
    reports += _more(len(batch) - MAX_SHOWN_REPORTS, "report")
    body = batch.to_json().decode().rstrip()
    shown = (
        body
        if len(body) <= MAX_SHOWN_BODY_CHARACTERS
        else f"{body[:MAX_SHOWN_BODY_CHARACTERS]}... ({len(body):,} characters)"
    )
    exact = element("details", element("summary", "The exact request"), element("p", element("code", shown)))
    pill = element("span", status, class_=f"pill {look}")
    return _report_block(batch.metric, batch.group, batch.period, pill, [*reports, exact])


def _report_block(metric: str, group: str, period: str, status: Element, content: list[Element]) -> Element:
    label = f", {group} (sent in clear)" if group else ""
    title = element("h3", f"{metric}, {period}{label}")
    return element("article", element("div", title, status, class_="head"), *content)


def _num_bits(definitions: Mapping[str, Metric], metric: str, digest: str) -> int | None:
    """Return the number of bits of a report without its padding, if the definition is known."""
    known = definitions.get(metric)
    return known.num_bits if known is not None and known.digest == digest else None


def _bits(cohort: int, row: bytes, num_bits: int | None) -> Element:
    bits = format_bits(row, num_bits)
    text = f"Cohort {cohort}. Bits that are 1: {bits.count('1')} of {len(bits.replace(' ', ''))}."
    return element("p", text, element("br"), element("code", bits, class_="bits"))


def _more(number: int, noun: str) -> list[Element]:
    return [_aside(f"and {format_count(number, f'more {noun}')}")] if number > 0 else []


def _counters(state: State) -> Element:
    counts = state.accounting()
    figures = [
        ("values recorded", counts.recorded - sum(counts.ignored.values())),
        ("recordings ignored", sum(counts.ignored.values())),
        ("reports made", counts.formed),
        ("reports delivered", counts.acknowledged),
        ("reports held", counts.queued + counts.quarantined),
    ]
    content = [
        element("dl", *(element("div", element("dt", name), element("dd", f"{number:,}")) for name, number in figures)),
    ]
    dropped = [(_DROP_TEXTS[reason], f"{number:,}") for reason, number in counts.dropped.items() if number]
    if dropped:
        content.append(table(["reports deleted without a confirmed delivery, because", "number"], dropped))
    if state.damaged:
        content.append(
            _problem(f"{format_count(state.damaged, 'record')} of the state was damaged: the figures can be too low.")
        )
    return _card("Counters", *content)
