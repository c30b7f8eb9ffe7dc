"""Probability of the next symbol of a string, learned from the strings that a search found.

Hierarchical Dirichlet model (MacKay & Peto 1995). With c(u, a) the weight of the strings in which symbol a follows the context u, and c(u)
their sum over a:

    P(a | u) = ( c(u, a) + alpha P(a | u without its first symbol) ) / ( c(u) + alpha )        without any symbol: P(a) = 1 / number of symbols

A context is the two symbols before, and the end marker stands before the first symbol. alpha is that of the largest evidence among powers
of 2, one for each length of context, so symbols that do not depend on those before keep their own probabilities. The model only orders
the candidates of a search and is no part of a test.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from hubbub_decoder.array_types import Floats, Indices

_ORDER = 2
_CONCENTRATIONS = tuple(2.0**power for power in range(13))


@dataclass(frozen=True, eq=False)
class SymbolModel:
    """Log probabilities of the next symbol. Symbols are numbers below S, and S is the end marker.

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
