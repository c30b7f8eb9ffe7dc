"""Atom feeds obey the grammar of RFC 4287, and the check refuses feeds that do not."""

from __future__ import annotations

import pytest

from hubbub_decoder.documents.atom import AtomEntry, atom_feed
from tests.support.atom import atom_problems
from tests.support.report_pages import HOSTILE

ENTRIES = [
    AtomEntry(text, f"urn:hubbub:test:{number}{address}", "2026-03-02T00:00:00Z", text, address)
    for number, text in enumerate(HOSTILE)
    for address in ("", "page@1/2026-03-02.html")
]
FEED = atom_feed("Alarms", "urn:hubbub:test", ENTRIES)


@pytest.mark.parametrize("entries", [[], ENTRIES], ids=["no entry", "hostile texts, with and without an address"])
def test_a_feed_obeys_the_grammar(entries: list[AtomEntry]) -> None:
    assert atom_problems(atom_feed("Alarms", "urn:hubbub:test", entries)) == []


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        (b"<id>urn:hubbub:test</id>", b""),
        (b"<id>urn:hubbub:test</id>", b"<id>alarms</id>"),
        (b"urn:hubbub:test:0<", b"urn:hubbub:test:1<"),
        (b"<title>Alarms</title>", b"<title>Alarms</title><title>Alarms</title>"),
        (b"<name>hubbub</name>", b""),
        (b"2026-03-02T00:00:00Z", b"2026-03-02T00:00:00"),
        (b"2026-03-02T00:00:00Z", b"2026-02-30T00:00:00Z"),
        (b'<link href="page@1/2026-03-02.html" />', b""),
        (b"content>", b"summary>"),
        (b"<entry>", b"<entry><pubDate>2026</pubDate>"),
        (b"http://www.w3.org/2005/Atom", b"http://purl.org/atom/ns#"),
    ],
)
def test_the_check_refuses_a_feed_that_does_not(part: bytes, instead: bytes) -> None:
    assert part in FEED
    assert atom_problems(FEED.replace(part, instead)) != []
