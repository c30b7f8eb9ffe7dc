"""Learned probabilities of symbols, and the candidates that they choose."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from hubbub.metrics.discovery import END, Discovery
from hubbub_decoder.discovery.extensions import Prefixes, SymbolModel, Symbols, extend
from hubbub_decoder.discovery.prefix_shares import PrefixShares


def prefixes(fragments: dict[bytes, float]) -> Prefixes:
    """Fragments with these log odds and a share of 10 standard errors."""
    odds = np.array(list(fragments.values()))
    return Prefixes(list(fragments), PrefixShares(odds, *(np.full(len(odds), share) for share in (0.1, 1e-4, 0.01))))


@pytest.mark.parametrize("context", list(product(range(4), repeat=2)))
def test_probabilities_of_symbols_add_up_to_one(context: tuple[int, int]) -> None:
    model = SymbolModel.learn([[0, 1, 2, 3], [0, 2], []], np.array([1.0, 0.5, 2.0]), 3)
    assert np.exp(model.log_rows[model.row_of[context]]).sum() == pytest.approx(1)


def test_without_strings_all_symbols_have_equal_probabilities() -> None:
    model = SymbolModel.learn([], np.empty(0), 4)
    assert np.exp(model.log_rows[model.row_of[4, 4]]) == pytest.approx(np.full(5, 0.2))


def test_ending_is_learned_from_its_context() -> None:
    symbols = Symbols.of(Discovery(longest=8, alphabet="abco."))
    model = symbols.learn(
        prefixes(dict.fromkeys([b"a.co" + END, b"bb.co" + END, b"ab.co" + END, b"ca.co" + END], 20.0))
    )
    c, o, dot = (symbols.numbers[character] for character in (b"c", b"o", b"."))
    assert np.exp(model.log_rows[model.row_of[dot, c], o]) > 0.6
    assert np.exp(model.log_rows[model.row_of[c, o], symbols.end]) > 0.6


@pytest.mark.parametrize("alphabet", ["abc", "a\N{EURO SIGN}c"])
def test_candidates_are_all_extensions_if_they_are_few(alphabet: str) -> None:
    symbols = Symbols.of(Discovery(longest=8, alphabet=alphabet))
    kept = prefixes({b"a": 3.0, b"c" + END: 1.0})
    candidates = extend(kept, symbols, symbols.learn(kept), 2, 1_000, 1.0)
    characters = [character.encode() for character in alphabet]
    expected = [
        b"a" + END,
        *(b"a" + character + END for character in characters),
        *(b"a" + x + y for x, y in product(characters, repeat=2)),
    ]
    assert sorted(candidates.fragments) == sorted([b"c" + END, *expected])
    rho = 1 / (1 + np.exp(-candidates.prior.log_odds))
    assert rho[candidates.fragments.index(b"c" + END)] == pytest.approx(1 / (1 + np.exp(-1)))
    assert rho[1:].sum() == pytest.approx(1 / (1 + np.exp(-3)), rel=1e-6)


def test_candidates_are_the_most_probable_extensions() -> None:
    symbols = Symbols.of(Discovery(longest=8, alphabet="abc"))
    kept = prefixes({b"a": 3.0, b"b": -8.0})
    model = symbols.learn(prefixes({b"aaaa": 30.0, b"aaab": 30.0}))
    candidates = extend(kept, symbols, model, 1, 3, 1.0)
    assert len(candidates.fragments) == 3
    assert b"aa" in candidates.fragments
    assert all(fragment.startswith(b"a") for fragment in candidates.fragments)


def test_search_goes_on_without_an_open_prefix() -> None:
    symbols = Symbols.of(Discovery(longest=8, alphabet="abc"))
    kept = prefixes({b"a" + END: 3.0})
    assert extend(kept, symbols, symbols.learn(kept), 2, 10, 1.0).fragments == [b"a" + END]
