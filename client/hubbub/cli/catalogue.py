"""Pages of `hubbub metrics catalogue`: an index with a search, and a page of each metric with its owner, purpose, review, expiry and epsilon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from xml.etree.ElementTree import Element

from hubbub.metrics.definitions import Definitions
from hubbub.metrics.metric import Metric, has_expired
from hubbub.pages.html_page import SEARCH, element, page
from hubbub.privacy.guarantee import Unit
from hubbub.privacy.lifetime import PrivacyFigures, privacy_figures
from hubbub.privacy.linkability import group_warning, linkability_warning
from hubbub.privacy.plain_words import CERTAIN, certainty_text
from hubbub.privacy.policy import Policy
from hubbub.privacy.pricing import shown_epsilon
from hubbub.text import format_count

_UNITS = {"epoch": "epoch", "value": "unchanging value"}
_LIMITS = ("epsilon_report", "epsilon_enrollment", "epsilon_metric", "epsilon_total")


def catalogue_pages(definitions: Definitions, today: date) -> dict[str, str]:
    """Return the pages by their relative paths: the index, and the page of each metric with the details of every version."""
    metrics = [definitions[name] for name in definitions]
    pages = {"index.html": _index_page(metrics, today)}
    for metric in metrics:
        older = [version for version in definitions.versions() if version.name == metric.name and version is not metric]
        pages[metric_path(metric.name)] = _metric_page(metric, older, today)
    return pages


def metric_path(name: str) -> str:
    """Return the path of a metric's page, relative to the index."""
    return f"metric/{name}.html"


def _index_page(metrics: Sequence[Metric], today: date) -> str:
    collected = sum(not has_expired(metric, today) for metric in metrics)
    search = element(
        "form",
        element("label", "Find metrics", for_="find", class_="unseen"),
        element(
            "input",
            id="find",
            type="search",
            placeholder="Name, description, owner, purpose or kind",
            autocomplete="off",
            spellcheck="false",
        ),
        element("output", aria_live="polite"),
        class_="search",
        role="search",
        hidden="",
    )
    return page(
        "Metrics",
        element(
            "header",
            element("h1", "Metrics"),
            element(
                "p",
                f"{format_count(len(metrics), 'metric')}, {collected:,} of them collected on {today}. "
                "Clients randomize each report before they send it.",
            ),
            class_="head",
        ),
        element(
            "section",
            element("h2", "Index", id="index"),
            search,
            _index(metrics, today),
            class_="card",
            aria_labelledby="index",
        ),
        _explanation(),
        script=SEARCH,
    )


def _metric_page(current: Metric, older: Sequence[Metric], today: date) -> str:
    return page(
        current.name,
        element("nav", element("a", "All metrics", href="../index.html"), class_="path", aria_label="Pages above"),
        *_current_version(current, today),
        *(_older_version(metric) for metric in reversed(older)),
        _explanation(),
    )


def _index(metrics: Sequence[Metric], today: date) -> Element:
    """Return the table of metrics; in a narrow window each row is a block with the column names in it."""
    head = ("metric", "owner", "kind", "collected until", "epsilon per report", "lifetime epsilon")
    rows = []
    for metric in metrics:
        figures = privacy_figures(metric, Policy())
        link = element("a", metric.name, href=metric_path(metric.name))
        epsilons = (shown_epsilon(figures.epsilon_report), shown_epsilon(figures.epsilon_lifetime))
        cells = (metric.owner, str(metric.kind), _expiry(metric, today), *epsilons)
        words = " ".join((metric.name, metric.description, metric.owner, metric.purpose, str(metric.kind)))
        rows.append(
            element(
                "tr",
                element("th", link, element("small", metric.description), scope="row"),
                *(
                    element("td", cell, data_label=label, **_look(label))
                    for label, cell in zip(head[1:], cells, strict=True)
                ),
                data_words=words.lower(),
            )
        )
    columns = [element("th", name, scope="col", **_look(name)) for name in head]
    return element("table", element("thead", element("tr", *columns)), element("tbody", *rows), class_="metrics")


def _look(column: str) -> dict[str, str]:
    """Return the class of the cells of a column: numbers and dates are at its right side."""
    return {} if column in ("metric", "owner", "kind") else {"class_": "n"}


def _expiry(metric: Metric, today: date) -> str:
    return f"{metric.expires}{', expired' if has_expired(metric, today) else ''}"


def _current_version(metric: Metric, today: date) -> Iterator[Element]:
    expired = has_expired(metric, today)
    pill = element(
        "span",
        f"{'expired on' if expired else 'collected until'} {metric.expires}",
        class_=f"pill {'plain' if expired else 'good'}",
    )
    yield element(
        "section",
        element("div", element("h1", metric.name, id="current"), pill, class_="head"),
        element("p", metric.description),
        element("p", f"Kind: {metric.kind}", class_="dim"),
        *_registry(metric),
        *_version(metric),
        class_="card",
        aria_labelledby="current",
    )


def _older_version(metric: Metric) -> Element:
    anchor = f"version-{metric.digest[:12]}"
    return element(
        "section",
        element("h2", f"Older version {metric.digest[:12]}, expires {metric.expires}", id=anchor),
        element("p", metric.description),
        *_registry(metric),
        *_version(metric),
        class_="card",
        aria_labelledby=anchor,
    )


def _registry(metric: Metric) -> Iterator[Element]:
    """Yield owner, purpose and review; a missing entry is shown as missing."""
    review: str | Element = "none"
    if metric.review:
        review = element("a", metric.review, href=metric.review, rel="noreferrer")
    yield _facts(("Owner", metric.owner, ""), ("Purpose", metric.purpose or "none", ""), ("Review", review, ""))


def _version(metric: Metric) -> Iterator[Element]:
    """Yield what a version collects, its epsilons in words, its parameters and its digest."""
    for warning in filter(None, (linkability_warning(metric), group_warning(metric))):
        yield element(
            "p", element("strong", "Warning:"), " " + warning.removeprefix(f"{metric.name}: "), class_="note warning"
        )
    rows = [(fact.label.capitalize(), fact.line()) for fact in metric.facts()]
    rows.append(("Digest of this version", metric.digest))
    yield element(
        "dl", *(element("div", element("dt", term), element("dd", value)) for term, value in rows), class_="rows"
    )
    figures = privacy_figures(metric, Policy())
    yield _facts(*((row.title, shown_epsilon(row.epsilon), row.note) for row in figures.rows()))
    yield _facts(*_in_words(figures))


def _in_words(figures: PrivacyFigures) -> Iterator[tuple[str, str, str]]:
    """Yield the epsilons in words, as the certainty of a reader of reports."""
    what = "which of two equally likely values a client has"
    yield "After one report", certainty_text(figures.epsilon_report), what
    if figures.unit != "period":
        yield f"After all reports of one {_UNITS[figures.unit]}", certainty_text(figures.epsilon_unit), what
    lifetime = figures.of_operator()[Unit.LIFETIME]
    if not lifetime.is_unconditional and figures.objection is None:
        yield "After a change", CERTAIN, "that the value changed, if the reports of a client are linked"
    if figures.objection is None:
        yield (
            "After all reports of a lifetime",
            certainty_text(figures.epsilon_lifetime),
            f"which of two histories is true, {lifetime.condition.sentence}",
        )
    else:
        yield "Lifetime", "no reports", "the default policy blocks the metric"


def _facts(*facts: tuple[str, str | Element, str]) -> Element:
    """Return a description list of terms, values and notes."""
    return element(
        "dl",
        *(
            element("div", element("dt", term), element("dd", value, *([element("small", note)] if note else [])))
            for term, value, note in facts
        ),
    )


def _explanation() -> Element:
    policy = Policy()
    limits = ", ".join(f"{name} = {getattr(policy, name):g}" for name in _LIMITS)
    factor = (
        "Epsilon bounds what reports reveal about one person: they change the odds between any two values by at most a factor e",
        element("sup", "epsilon"),
        ". An epsilon of 1.099 is a factor of 3.",
    )
    texts = (
        (
            "Per enrollment: all reports under one secret of a client. Lifetime: all reports of one client under all of its secrets. "
            f"Both assume the client's default policy ({limits}); an app can set another one."
        ),
        (
            "Epsilon does not hide that a client takes part. For metrics that are charged per value, a reader of the stored reports may also "
            "see that a value changed."
        ),
        (
            "k: bits of a report. h: bits that a value sets. m: cohorts. p, q: probability that a permanent bit 0, 1 is reported as 1, drawn "
            "for each report. f, permanent_p, permanent_q: probabilities of the permanent response."
        ),
    )
    return element(
        "section",
        element("h2", "Explanation of the figures", id="explanation"),
        element("p", *factor),
        *(element("p", text) for text in texts),
        class_="card",
        aria_labelledby="explanation",
    )
