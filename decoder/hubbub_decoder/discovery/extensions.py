"""Candidates of a group: the most probable extensions of the prefixes that were kept after the group before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hubbub.metrics.discovery import END, Discovery
from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.discovery.prefix_shares import PrefixShares, Prior
from hubbub_decoder.discovery.symbol_model import SymbolModel

MAX_CERTAINTY = 0.9  # of an extension, given its prefix
_MAX_REACH = 12.0
_MORE_OPEN = 8  # extensions that are kept open before their last symbol, times the number of symbols, over the number of candidates
SAME_SHARE, SAME_STRING = 0.5, 0.95
_UTF8_BYTES = tuple(bytes([byte]) for byte in range(256) if byte not in (0xC0, 0xC1) and byte < 0xF5)


@dataclass(frozen=True, eq=False)
class Prefixes:
    """Prefixes kept after a group, the most probable first.

    fragments : as the clients report them, with the end marker if they are whole strings
    estimates : given this group and those of the shorter prefixes
    """

    fragments: list[bytes]
    estimates: PrefixShares

    @classmethod
    def start(cls) -> Prefixes:
        """Return the empty prefix, which is certain and may have any share."""
        return cls([b""], PrefixShares(*(np.array([number]) for number in (np.inf, 0.0, 1.0, 1.0))))

    @classmethod
    def most_probable(
        cls, fragments: Sequence[bytes], estimates: PrefixShares, number: int, min_log_odds: float
    ) -> Prefixes:
        """Return the `number` most probable of these fragments with log odds above a limit.

        Log odds are cut at a largest number. Of those that reach it, the fragments with the most standard errors are kept.
        """
        order = np.lexsort((-estimates.means / estimates.std_errors, -estimates.log_odds))[:number]
        order = order[estimates.log_odds[order] > min_log_odds]
        return cls([fragments[i] for i in order], estimates.of(order))

    @property
    def log_odds(self) -> Floats:
        """(n,) log odds that each share is positive."""
        return self.estimates.log_odds

    def probable(self, min_log_odds: float, *, whole: bool) -> Prefixes:
        """Return the fragments with log odds above a limit whose end was found, or those whose end was not."""
        ended = np.array([fragment.endswith(END) for fragment in self.fragments], bool)
        chosen = np.flatnonzero((self.log_odds > min_log_odds) & (ended == whole))
        return Prefixes([self.fragments[i] for i in chosen], self.estimates.of(chosen))


@dataclass(frozen=True, eq=False)
class Candidates:
    """Prefixes that strings of a group may have, and the prior of each.

    parents : (M,) int    number of the kept prefix that each extends, -1 for the whole strings that were kept
    """

    fragments: list[bytes]
    prior: Prior
    parents: Indices


@dataclass(frozen=True, eq=False)
class Symbols:
    """Symbols of the strings to find, by number. The last is the end marker."""

    texts: tuple[bytes, ...]
    is_bytes: bool

    @classmethod
    def of(cls, discover: Discovery) -> Symbols:
        """Return the symbols of a metric."""
        if discover.alphabet is None:
            return cls((*_UTF8_BYTES, END), True)
        return cls((*(character.encode() for character in discover.alphabet), END), False)

    @property
    def end(self) -> int:
        """Number of the end marker."""
        return len(self.texts) - 1

    @cached_property
    def numbers(self) -> dict[bytes, int]:
        """Number of each symbol."""
        return {text: number for number, text in enumerate(self.texts)}

    def parse(self, fragment: bytes) -> list[int]:
        """Return the numbers of a fragment's symbols."""
        text, ended = fragment.removesuffix(END), fragment.endswith(END)
        parts = [bytes([byte]) for byte in text] if self.is_bytes else [each.encode() for each in text.decode()]
        return [*(self.numbers[part] for part in parts), *[self.end] * ended]

    def text(self, code: int, length: int) -> bytes:
        """Return the text of an extension: the symbols are the digits of its code to the base of their number."""
        parts = []
        for _ in range(length):
            code, symbol = divmod(code, len(self.texts))
            parts.append(self.texts[symbol])
        return b"".join(reversed(parts))

    def learn(self, kept: Prefixes) -> SymbolModel:
        """Return the model of these prefixes, each weighted by its probability."""
        strings = [self.parse(fragment) for fragment in kept.fragments]
        return SymbolModel.learn(strings, 1 / (1 + np.exp(-kept.log_odds)), self.end)


def extend(kept: Prefixes, symbols: Symbols, model: SymbolModel, step: int, size: int, expected: float) -> Candidates:
    """Return the candidates of the next group: the whole strings, and at most `size` + 1 extensions of the other prefixes per length.

    An extension by `step` symbols, or by fewer and the end marker, is present with probability

        rho = P(prefix present) min(.9, expected P(extension | prefix))

    Those with the largest rho e^(z**2 / 2) are candidates, with z standard errors of the prefix's share: no extension has more evidence
    in the next group, on average. z**2 / 2 counts up to 12. A present extension has the prefix's share with probability .5.
    A whole string keeps its odds, and its share with probability .95.

    expected : number of present extensions of a present prefix
    """
    estimates = kept.estimates
    ended = np.array([fragment.endswith(END) for fragment in kept.fragments], bool)
    whole, parents = np.flatnonzero(ended), np.flatnonzero(~ended)
    log_present = -np.logaddexp(0, -estimates.log_odds)
    start = log_present + np.minimum((estimates.means / estimates.std_errors) ** 2 / 2, _MAX_REACH)
    contexts = np.array([([symbols.end] * 2 + symbols.parse(kept.fragments[i]))[-2:] for i in parents], np.int64)
    codes, scores, base = np.zeros(len(parents), np.int64), start[parents], len(symbols.texts)
    fragments, origins, log_rho = [kept.fragments[i] for i in whole], [whole], [np.empty(0)]
    for place in range(1, step + 1):
        if not len(parents):
            break
        extended = (scores[:, None] + model.log_rows[model.row_of[contexts[:, 0], contexts[:, 1]]]).ravel()
        best = _largest(extended, size if place == step else _MORE_OPEN * max(size // base, 1))
        row, symbol = np.divmod(best, base)
        parents, codes, scores = parents[row], codes[row] * base + symbol, extended[best]
        contexts = np.stack([contexts[row, 1], symbol], axis=1)
        stop = (symbol == symbols.end) | (place == step)
        different, text_of = np.unique(codes[stop], return_inverse=True)
        texts = [symbols.text(int(code), place) for code in different]
        prefixes = (kept.fragments[i] for i in parents[stop].tolist())
        fragments += [prefix + texts[i] for prefix, i in zip(prefixes, text_of.tolist(), strict=True)]
        origins.append(parents[stop])
        given_prefix = scores[stop] - start[parents[stop]] + math.log(expected)
        log_rho.append(log_present[parents[stop]] + np.minimum(given_prefix, math.log(MAX_CERTAINTY)))
        parents, codes, scores, contexts = parents[~stop], codes[~stop], scores[~stop], contexts[~stop]
    origin, rho = np.concatenate(origins), np.concatenate(log_rho)
    log_odds = np.concatenate([estimates.log_odds[whole], rho - np.log(-np.expm1(rho))])
    is_whole = np.arange(len(origin)) < len(whole)
    weight = np.where(is_whole, SAME_STRING, SAME_SHARE)
    prior = Prior(log_odds, estimates.means[origin], estimates.variances[origin], weight)
    return Candidates(fragments, prior, np.where(is_whole, -1, origin))


def _largest(numbers: Floats, count: int) -> Indices:
    """Positions of the `count` largest numbers."""
    return np.arange(len(numbers)) if len(numbers) <= count else np.argpartition(-numbers, count)[:count]
