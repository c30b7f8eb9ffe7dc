"""HTML pages of the client: untrusted text stays text, and a page permits no script and no request."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.pages.html_page import STYLE, element, page, table, to_html
from tests.support.html import without_word_spans

HOSTILE = "</style></title><script>alert(1)</script><img src=x onerror=alert(1)>\"'&amp; \ud800\0"


class Reader(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@given(st.text(max_size=40) | st.sampled_from([HOSTILE, "0e-0", "since 2026-11-23"]))
def test_any_text_stays_text(text: str) -> None:
    made = page(text, element("p", text, element("b", text), text, title=text), table([text, "n"], [[text, text]]))
    made.encode()
    read = Reader(without_word_spans(made))
    names = "html head meta meta meta title link style body main p b div table thead tr th th tbody tr th td"
    assert read.tags == names.split()
    assert {name for name, _ in read.attributes}.isdisjoint({"src", "onerror"})


def test_text_and_elements_keep_their_order() -> None:
    made = element("p", "a", "b", element("i", "c"), "d", "e", element("br"), "f", class_="x", aria_label='"<&>"')
    assert to_html(made) == '<p class="x" aria-label="&quot;<&amp;&gt;&quot;">ab<i>c</i>de<br>f</p>'


@pytest.mark.parametrize("directive", ["default-src 'none'", "base-uri 'none'"])
def test_page_forbids_scripts_and_requests(directive: str) -> None:
    (policy,) = [value for name, value in Reader(page("t")).attributes if name == "content" and "src" in str(value)]
    assert directive in str(policy).split("; ")
    assert "script-src" not in str(policy)
    assert "url(" not in STYLE
    assert "@import" not in STYLE


@pytest.mark.parametrize("tag", ["script", "style"])
def test_element_refuses_tags_whose_text_is_not_escaped(tag: str) -> None:
    with pytest.raises(ValueError, match="not be escaped"):
        element(tag, HOSTILE)
