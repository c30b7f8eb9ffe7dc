"""Candidates of a group: the most probable extensions of the prefixes that were kept after the group before."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import gammaln

from hubbub.metrics.discovery import END, Discovery
from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.discovery.prefix_shares import PrefixShares, Prior

_ORDER = 2
_CONCENTRATIONS = tuple(2.0**power for power in range(13))


@dataclass(frozen=True, eq=False)
class SymbolModel:
    """Log probabilities of the next symbol of a string, learned from the strings that a search found.

    Hierarchical Dirichlet model (MacKay & Peto 1995). With c(u, a) the weight of the strings in which symbol a follows the context u, and c(u)
    their sum over a:

        P(a | u) = ( c(u, a) + alpha P(a | u without its first symbol) ) / ( c(u) + alpha )        without any symbol: P(a) = 1 / number of symbols

    A context is the two symbols before, and the end marker stands before the first symbol. alpha is that of the largest evidence among powers
    of 2, one for each length of context, so symbols that do not depend on those before keep their own probabilities. The model only orders
    the candidates of a search and is no part of a test.

    Symbols are numbers below S, and S is the end marker.

    log_rows : (rows, S + 1)            ln P of each symbol
    row_of   : (S + 1, S + 1) int       row of a context: the symbol before the last, and the last
    """

    log_rows: Floats
    row_of: Indices

    @classmethod
    def learn(cls, strings: Sequence[Sequence[int]], weights: Floats, num_symbols: int) -> SymbolModel:
        """Learn from strings of symbols, each with a weight; S at the end of a string is its end marker.

        >>> model = SymbolModel.learn([[0, 1, 2], [0, 1, 2]], np.array([8.0, 8.0]), 2)
        >>> bool(np.exp(model.log_rows[model.row_of[2, 0], 1]) > 0.8)  # symbol 1 after the first
        True
        """
        counts: list[dict[tuple[int, ...], Floats]] = [
            defaultdict(lambda: np.zeros(num_symbols + 1)) for _ in range(_ORDER + 1)
        ]
        for string, weight in zip(strings, weights, strict=True):
            padded = (num_symbols,) * _ORDER + tuple(string)
            for i in range(_ORDER, len(padded)):
                for size in range(_ORDER + 1):
                    counts[size][padded[i - size : i]][padded[i]] += weight
        rows: dict[tuple[int, ...], Floats] = {(): np.full(num_symbols + 1, 1 / (num_symbols + 1))}
        for of_size in counts:
            contexts = list(of_size)
            seen = np.array(list(of_size.values())).reshape(-1, num_symbols + 1)
            shorter = np.array([rows[context[1:]] for context in contexts]).reshape(seen.shape)
            rows |= zip(contexts, _mix(seen, shorter), strict=True)
        row_of = np.zeros((num_symbols + 1, num_symbols + 1), np.int64)
        for number, context in enumerate(rows):  # shorter contexts first
            if len(context) == 1:
                row_of[:, context[0]] = number
            elif context:
                row_of[context] = number
        return cls(np.log(np.array(list(rows.values()))), row_of)


def _mix(counts: Floats, shorter: Floats) -> Floats:
    """Probabilities (contexts, S + 1) given contexts of one length, with the concentration of the largest evidence."""
    totals = counts.sum(axis=1, keepdims=True)

    def evidence(alpha: float) -> float:
        prior = alpha * shorter
        return float(
            (gammaln(counts + prior) - gammaln(prior)).sum() + (gammaln(alpha) - gammaln(totals + alpha)).sum()
        )

    alpha = max(_CONCENTRATIONS, key=evidence)
    return np.asarray((counts + alpha * shorter) / (totals + alpha))


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
    """Prefixes that strings of a group may have, and the prior of each."""

    fragments: list[bytes]
    prior: Prior


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
        parts = [bytes([byte]) for byte in text] if self.is_bytes else [symbol.encode() for symbol in text.decode()]
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
    return Candidates(fragments, prior)


def _largest(numbers: Floats, count: int) -> Indices:
    """Positions of the `count` largest numbers."""
    return np.arange(len(numbers)) if len(numbers) <= count else np.argpartition(-numbers, count)[:count]
