"""Check an Atom feed against the grammar of RFC 4287."""

from __future__ import annotations

from lxml import etree

from tests.support.paths import DATA


def atom_problems(feed: bytes) -> list[str]:
    """Return what a feed has against the grammar, and ids that two of its entries share."""
    document = etree.fromstring(feed)
    grammar = etree.RelaxNG(etree.parse(str(DATA / "atom.rng")))
    grammar.validate(document)
    ids = [element.text for element in document.iter("{http://www.w3.org/2005/Atom}id")]
    shared = {found for found in ids if ids.count(found) > 1}
    return [*map(str, grammar.error_log), *(f"two elements have the id {found}" for found in sorted(shared, key=str))]
