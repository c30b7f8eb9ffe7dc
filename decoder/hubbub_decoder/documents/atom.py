"""Atom feeds: RFC 4287."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from hubbub.text import visible_text

MAX_ENTRIES = 100
_NAMESPACE = "http://www.w3.org/2005/Atom"


@dataclass(frozen=True, slots=True)
class AtomEntry:
    """One entry.

    identifier : URI that stays the same in every later feed
    updated    : time in UTC, such as 2026-03-02T00:00:00Z
    address    : of its page, relative to that of the feed; "" without one: the text is then all of it
    """

    title: str
    identifier: str
    updated: str
    text: str
    address: str = ""


def atom_feed(title: str, identifier: str, entries: Sequence[AtomEntry]) -> bytes:
    """Feed in UTF-8; entries : the latest first."""
    root = Element("feed", xmlns=_NAMESPACE)
    SubElement(root, "title").text = title
    SubElement(root, "id").text = identifier
    SubElement(root, "updated").text = entries[0].updated if entries else "1970-01-01T00:00:00Z"
    SubElement(SubElement(root, "author"), "name").text = "hubbub"
    for entry in entries:
        element = SubElement(root, "entry")
        SubElement(element, "title").text = visible_text(entry.title)
        SubElement(element, "id").text = entry.identifier
        SubElement(element, "updated").text = entry.updated
        if entry.address:
            SubElement(element, "link", href=entry.address)
        SubElement(element, "summary" if entry.address else "content").text = visible_text(entry.text)
    indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{tostring(root, encoding="unicode")}\n'.encode()
