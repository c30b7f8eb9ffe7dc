"""Self-contained HTML pages: the stylesheet of all pages, elements that escape their text, and the page around them.

    page("Metrics", element("h1", "Metrics"), element("p", "Text from anywhere: <script> becomes text."))

A page makes no request, and runs no script but one of this package. Its Content-Security-Policy forbids both, also for text that is not escaped by mistake.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from xml.etree.ElementTree import Element, SubElement, tostring

from hubbub.text import visible_text

STYLE, SEARCH = (files(__package__).joinpath(name).read_text(encoding="utf-8") for name in ("style.css", "search.js"))


def _digest(text: str) -> str:
    """Return the SHA-256 of a style or a script, as a Content-Security-Policy names it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_digest(STYLE)}'; img-src data:; form-action 'self'; base-uri 'none'"
)
"""No scripts and no further requests; the icon is a `data:` URL."""

_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Cpath d='M2 14V9h3v5M6.5 14V4h3v10M11 14V7h3v7' fill='%232f6fb7'/%3E%3C/svg%3E"
)


def element(tag: str, *content: str | Element, **attributes: str) -> Element:
    """Return an HTML element. Text is escaped, and invisible characters are shown as code points; an underscore at the end of an attribute's name is left out (`class_`).

    >>> to_html(element("p", "1 < 2, ", element("b", "so"), " it is", class_="note"))
    '<p class="note">1 &lt; 2, <b>so</b> it is</p>'
    """
    if tag in ("script", "style"):
        raise ValueError(f"the text of <{tag}> would not be escaped: build pages without it")
    made = Element(
        tag, {name.removesuffix("_").replace("_", "-"): visible_text(value) for name, value in attributes.items()}
    )
    last: Element | None = None
    for item in content:
        if isinstance(item, Element):
            made.append(item)
            last = item
        elif last is None:
            made.text = (made.text or "") + visible_text(item)
        else:
            last.tail = (last.tail or "") + visible_text(item)
    return made


def table(head: Sequence[str], rows: Iterable[Iterable[str | Element]], **attributes: str) -> Element:
    """Return a table that scrolls sideways in a narrow window. The first cell of a row is its header.

    With `class_="facts"` each row becomes a block of labelled lines instead.

    >>> to_html(table(["metric", "reports"], [["homepage", "12"]])).partition("<tbody>")[2]
    '<tr><th scope="row">homepage</th><td data-label="reports">12</td></tr></tbody></table></div>'
    """
    header = element("tr", *(element("th", heading, scope="col") for heading in head))
    body = []
    for first, *rest in rows:
        cells = (element("td", cell, data_label=label) for label, cell in zip(head[1:], rest, strict=True))
        body.append(element("tr", element("th", first, scope="row"), *cells))
    made = element("table", element("thead", header), element("tbody", *body), **attributes)
    return element("div", made, class_="scroll", tabindex="0", role="region", aria_label=", ".join(head))


_MARKUP = (
    r"<(?P<name>script|style|title|svg|option|textarea|pre)\b.*?</(?P=name)>"  # their text stays as it is
    r"|<t[dh][^>]*\bclass=\"(?:n|word)\b[^>]*>[^<]*"  # never break at all
    r"|<bdi[^>]*>[^<`]*`[^<]*|<code class=\"bits\">[^<]*|<!--.*?-->|<[^>]*>"
)
_NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
_WHOLE = rf"\d{{4}}-\d\d-\d\d(?![\w-])|\b\w+ = {_NUMBER}|\b[\d.]+e-\d+|\b[\d,.]+ %"
"""Texts with a place where a browser breaks lines; it does not break at a comma or a point between digits."""
_PIECES = re.compile(rf"{_MARKUP}|`(?P<code>[^`<>\n]+)`|(?P<whole>{_WHOLE})", re.DOTALL)
_LONGEST_UNBROKEN_CODE = 24


def typeset(html: str) -> str:
    """Return a page whose text has code instead of words in backticks, as messages have them, and breaks no line inside a number.

    Neither a date, nor a number with its percent sign, nor a pair `name = number` is broken. Text in `<bdi>` is a user's, and stays as it is.

    >>> typeset('<p title="2026-11-23">since 2026-11-23, f = 0.5</p>')
    '<p title="2026-11-23">since <span class="word">2026-11-23</span>, <span class="word">f = 0.5</span></p>'
    >>> typeset("<p>Run `hubbub pull`.</p>")
    '<p>Run <code class="word">hubbub pull</code>.</p>'
    """

    def piece(found: re.Match[str]) -> str:
        whole, code = found["whole"], found["code"]
        if code is not None:
            unbroken = ' class="word"' if len(code) <= _LONGEST_UNBROKEN_CODE else ""
            return f"<code{unbroken}>{code}</code>"
        return found[0] if whole is None else f'<span class="word">{whole}</span>'

    return _PIECES.sub(piece, html)


def to_html(made: Element) -> str:
    """Return an element as HTML."""
    return tostring(made, encoding="unicode", method="html")


def page(title: str, *content: str | Element, script: str = "") -> str:
    """Return a complete HTML page; `content` is in `<main>`.

    script : that the page runs, from a file of this package; the policy allows no other
    """
    policy = f"{CONTENT_SECURITY_POLICY}; script-src 'sha256-{_digest(script)}'" if script else CONTENT_SECURITY_POLICY
    head = element("head")
    SubElement(head, "meta", {"charset": "utf-8"})
    SubElement(head, "meta", {"http-equiv": "Content-Security-Policy", "content": policy})
    SubElement(head, "meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"})
    head.append(element("title", f"{title} · hubbub"))
    SubElement(head, "link", {"rel": "icon", "href": _ICON})
    SubElement(head, "style").text = STYLE
    body = element("body", element("main", *content))
    if script:
        SubElement(body, "script").text = script
    html = to_html(element("html", head, body, lang="en"))
    return f"<!doctype html>\n{typeset(html)}\n"
