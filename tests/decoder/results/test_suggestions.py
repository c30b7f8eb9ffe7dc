"""Suggestions: candidates that clients report in another spelling."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest
from click.testing import CliRunner

from hubbub import Metric, Params
from hubbub.cli import main
from hubbub.summary import BitCounts, write_summary
from hubbub_decoder import Decoding, decode
from hubbub_decoder.report.decoding_page import render_decoding
from hubbub_decoder.report.rendering import inline_scripts
from hubbub_decoder.results.suggestions import MAX_SPELLINGS, other_spellings
from hubbub_decoder.simulation import simulate

METRIC = Metric.string("place", Params(num_bits=64, num_hashes=2, num_cohorts=32, prob_p=0.25, prob_q=0.75, prob_f=0))
NAMES = [f"Café {number} Zürich" for number in range(100)]
SPELLINGS: dict[str, Callable[[str], str]] = {
    "in Unicode form NFD": lambda text: normalize("NFD", text),
    "in lower case": str.lower,
    "in upper case": str.upper,
    "with a slash at the end": lambda text: f"{text}/",
    "with a space at the end": lambda text: f"{text} ",
    "with a line break at the end": lambda text: f"{text}\n",
}
WAYS_BACK = {
    "in Unicode form NFC": "in Unicode form NFD",
    "in title case": "in lower case",
    "without the slash at the end": "with a slash at the end",
    "without surrounding white space": "with a space at the end",
}
"""The listed strings are then in the second spelling, and the clients report the first one."""


def reported(strings: list[str], seed: int) -> BitCounts:
    """300,000 reports whose shares fall as 1 / rank, so that the first string has about 19 %."""
    shares = np.array([1 / rank for rank in range(1, len(strings) + 1)])
    numbers = (300_000 * shares / shares.sum()).astype(int).tolist()
    found = simulate(METRIC, dict(zip(strings, numbers, strict=True)), np.random.default_rng(seed))
    assert isinstance(found, BitCounts)
    return found


@pytest.mark.parametrize("difference", SPELLINGS)
def test_list_in_another_spelling_is_recognized(difference: str, unseen_seed: int) -> None:
    """No string of 19 % stays undetected, and it is the first candidate in the clients' spelling."""
    spell = SPELLINGS[difference]
    suggestions = decode(reported([spell(name) for name in NAMES], unseen_seed), NAMES).suggestions
    assert (spell(NAMES[0]), NAMES[0], difference) in [(s.spelling, s.candidate, s.difference) for s in suggestions]


@pytest.mark.parametrize("difference", WAYS_BACK)
def test_plain_reports_are_recognized(difference: str, unseen_seed: int) -> None:
    listed = [SPELLINGS[WAYS_BACK[difference]](name) for name in NAMES]
    suggestions = decode(reported(NAMES, unseen_seed), listed).suggestions
    assert (NAMES[0], listed[0], difference) in [(s.spelling, s.candidate, s.difference) for s in suggestions]


def one_misspelled(seed: int) -> tuple[Decoding, BitCounts, list[str]]:
    """Decoding of three strings of which the clients report the first in NFD; the others are detected."""
    listed = ["Café", "tea", "milk"]
    people = {normalize("NFD", "Café"): 120_000, "tea": 60_000, "milk": 60_000}
    counts = simulate(METRIC, people, np.random.default_rng(seed), no_value=60_000)
    assert isinstance(counts, BitCounts)
    return decode(counts, listed), counts, listed


def test_frequent_unlisted_string_is_compared_with_spellings(unseen_seed: int) -> None:
    decoding, _, _ = one_misspelled(unseen_seed)
    assert decoding.detected
    assert [found.candidate for found in decoding.suggestions] == ["Café"]
    assert decoding.suggestions[0].spelling == normalize("NFD", "Café")
    assert Decoding.from_dict(decoding.to_dict()) == decoding


def test_each_surface_shows_the_suggestion(tmp_path: Path, unseen_seed: int) -> None:
    """Both spellings look alike, so the text names the difference."""
    decoding, counts, listed = one_misspelled(unseen_seed)
    write_summary(counts, tmp_path / "place.parquet")
    (tmp_path / "names.txt").write_text("\n".join(listed), encoding="utf-8")
    command = ["decode", str(tmp_path / "place.parquet"), "--candidates", str(tmp_path / "names.txt")]
    for shown in (
        decoding._repr_html_(),
        render_decoding(decoding, inline_scripts()),
        CliRunner().invoke(main, command).stdout,
    ):
        text = re.sub(r"\s+", " ", unescape(shown))
        assert "1 candidate was probably reported in Unicode form NFD (" in text


def test_other_strings_are_no_spelling(unseen_seed: int) -> None:
    """A decoding without a reported spelling has a suggestion with probability at most 1/1,000, and two of two 1e-6."""
    strings = [f"{unseen_seed} {number}" for number in range(100)]
    counts = [reported(strings, unseen_seed + run) for run in range(2)]
    assert not all(decode(of_run, NAMES).suggestions for of_run in counts)
    assert not decode(counts[0], strings).suggestions


@pytest.mark.parametrize(
    "listed",
    [
        [],
        ["/", " ", "\n"],
        ["a", "A", "a/", "a ", "a\n", "A/"],
        [f"Name {number}" for number in range(3 * MAX_SPELLINGS)],
        ["e\u0301\u0323" * 100_000, "a"],
        ["ß", "İ", "ŉ", "ﬁ", "Å", "\u212b"],
        [str(number) for number in range(MAX_SPELLINGS)] + [f"{number}/" for number in range(MAX_SPELLINGS)],
    ],
    ids=["empty", "nothing left", "spellings listed", "many", "long", "changes of length", "pairs"],
)
def test_spellings_are_few_and_new(listed: list[str]) -> None:
    """A spelling is not listed and not empty; it can be sent; long strings are left out; the number is bounded."""
    found = other_spellings(listed)
    assert len(found) <= MAX_SPELLINGS
    assert found.keys().isdisjoint(listed)
    assert "" not in found
    assert all(suggestion.spelling == spelling for spelling, suggestion in found.items())
    assert all(len(spelling.encode()) < 10_000 for spelling in found)
    assert {suggestion.candidate for suggestion in found.values()} <= set(listed)
