"""Suggestions: other spellings of candidates that were probably reported, where reports carry unlisted strings.

Clients hash the bytes of a string as they are. So a word in NFC and in NFD, in upper and lower case, or with a slash at the end are
different strings, and a list in another spelling than the clients' finds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from unicodedata import normalize

from hubbub.text import escape_untrusted, format_count
from hubbub_decoder.result import Result

MAX_SPELLINGS = 20_000
"""Most spellings that are tried; lists are usually in the order of frequency, so those of the first candidates."""

_MAX_LETTERS = 500  # of a candidate that is spelled otherwise: normalization of hostile texts takes quadratic time
_SPELLINGS: Mapping[str, Callable[[str], str]] = {
    "in Unicode form NFC": partial(normalize, "NFC"),
    "in Unicode form NFD": partial(normalize, "NFD"),
    "in lower case": str.lower,
    "in upper case": str.upper,
    "in title case": str.title,
    "with a capital first letter": lambda text: text[:1].upper() + text[1:],
    "with a slash at the end": lambda text: f"{text.removesuffix('/')}/",
    "without the slash at the end": lambda text: text.removesuffix("/"),
    "without surrounding white space": str.strip,
    "with a space at the end": lambda text: f"{text.rstrip()} ",
    "with a line break at the end": lambda text: f"{text.rstrip()}\n",
}
"""Spelling of a candidate, by the words that describe such candidates."""


@dataclass(frozen=True, slots=True, eq=False)
class Suggestion(Result):
    """Other spelling of a candidate, which was probably reported.

    Attributes
    ----------
    spelling
        The string to add to the candidates.
    candidate
        The candidate that it is a spelling of.
    difference
        How the spelling differs, such as "in lower case".
    """

    spelling: str
    candidate: str
    difference: str


def other_spellings(candidates: Sequence[str]) -> dict[str, Suggestion]:
    """Return other spellings of the first candidates, by spelling; none is a candidate itself.

    >>> list(other_spellings(["Docs", "docs", "DOCS"]))[:3]
    ['Docs/', 'Docs ', 'Docs\\n']
    """
    listed, found = set(candidates), dict[str, Suggestion]()
    for candidate in islice(candidates, MAX_SPELLINGS):
        if len(found) + len(_SPELLINGS) > MAX_SPELLINGS:
            break
        if len(candidate) > _MAX_LETTERS:
            continue
        for difference, spell in _SPELLINGS.items():
            spelling = spell(candidate)
            if spelling and spelling not in listed:
                found.setdefault(spelling, Suggestion(spelling, candidate, difference))
    return found


def suggestion_lines(suggestions: Iterable[Suggestion]) -> Iterator[str]:
    """Yield a sentence for each way in which candidates are spelled otherwise."""
    by_difference = dict[str, list[Suggestion]]()
    for suggestion in suggestions:
        by_difference.setdefault(suggestion.difference, []).append(suggestion)
    for difference, found in by_difference.items():
        first, candidate = (escape_untrusted(repr(text)) for text in (found[0].spelling, found[0].candidate))
        verb, such = ("was", "") if len(found) == 1 else ("were", "such as ")
        yield (
            f"{format_count(len(found), 'candidate')} {verb} probably reported {difference} ({such}{first} for {candidate}). "
            "Add this spelling to the list, or normalize strings before they are recorded."
        )
