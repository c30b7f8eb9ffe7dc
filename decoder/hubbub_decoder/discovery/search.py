"""Search for frequent strings: prefixes are extended group by group, and the most probable ones kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from hubbub.metrics.discovery import END, Discovery
from hubbub.summary import BitCounts
from hubbub_decoder.array_types import Floats
from hubbub_decoder.discovery.prefix_shares import GroupBits, PrefixShares, estimate_prefixes
from hubbub_decoder.model.debias import bit_shares
from hubbub_decoder.model.repetition import Repetition
from hubbub_decoder.model.vectorized_hashing import hash_positions

_EXPECTED_PREFIXES, _EXPECTED_EXTENSIONS = 100.0, 1.5  # present ones, of the first length and of a present prefix
_MIN_LOG_ODDS = -9.0  # of a prefix that is kept
_MIN_WHOLE_LOG_ODDS = math.log(0.05 / 0.95)  # of a string that is tested
_UTF8_BYTES = tuple(bytes([byte]) for byte in range(256) if byte not in (0xC0, 0xC1) and byte < 0xF5)


@dataclass(frozen=True, eq=False)
class Prefixes:
    """Prefixes kept after a group, the most probable first.

    fragments : as the clients report them, with the end marker if they are whole strings
    log_odds  : (n,) that the share is positive, given this group and those of the shorter prefixes
    """

    fragments: list[bytes]
    log_odds: Floats

    def whole(self) -> list[str]:
        """Return the strings whose end was found, that are UTF-8 and present with a probability above 5 %."""
        strings = (
            fragment.removesuffix(END)
            for fragment, odds in zip(self.fragments, self.log_odds, strict=True)
            if odds > _MIN_WHOLE_LOG_ODDS and fragment.endswith(END)
        )
        return [text for text in map(_decoded, strings) if text is not None]

    def truncated(self) -> list[bytes]:
        """Return the probable prefixes whose end was not found."""
        return [
            fragment
            for fragment, odds in zip(self.fragments, self.log_odds, strict=True)
            if odds > 0 and not fragment.endswith(END)
        ]


def search_prefixes(
    counts: BitCounts,
    discover: Discovery,
    *,
    beam: int,
    max_candidates: int,
    progress: Callable[[int, int], None] = lambda _length, _candidates: None,
) -> Prefixes:
    """Return the prefixes that remain after the last prefix group.

    The candidates of a group are the extensions of the prefixes kept before, by all strings of `step` symbols, or of fewer symbols and
    the end marker. Whole strings stay candidates: their clients report them in every later group. The `beam` most probable stay.

    max_candidates : of one group; fewer prefixes are extended where their extensions would be more
    progress       : called with each group's prefix length and number of candidates
    """
    kept, length = Prefixes([b""], np.array([np.inf])), 0
    for group, longer in enumerate(discover.lengths):
        extensions = extensions_of(discover, longer - length)
        expected = _EXPECTED_EXTENSIONS if length else _EXPECTED_PREFIXES
        candidates, prior = _extend(kept, extensions, min(beam, max(1, max_candidates // len(extensions))), expected)
        progress(longer, len(candidates))
        kept = _most_probable(candidates, _estimate(counts, discover, group, candidates, prior), beam)
        length = longer
    return kept


def extensions_of(discover: Discovery, step: int) -> list[bytes]:
    """Return all strings of `step` symbols, and all shorter ones with the end marker.

    >>> extensions_of(Discovery(longest=3, alphabet="ab"), 1)
    [b'\\xff', b'a', b'b']
    """
    symbols = _UTF8_BYTES if discover.alphabet is None else [character.encode() for character in discover.alphabet]
    ended = [b"".join(each) + END for size in range(step) for each in product(symbols, repeat=size)]
    return ended + [b"".join(each) for each in product(symbols, repeat=step)]


def _extend(kept: Prefixes, extensions: list[bytes], width: int, expected: float) -> tuple[list[bytes], Floats]:
    """Return the candidates of the next group and the prior log odds of each.

    A whole string keeps its odds. An extension has those of its prefix, at most certainty, shared by all extensions:
    P(prefix present) x (expected number of present extensions) / (number of extensions).
    """
    ended = np.array([fragment.endswith(END) for fragment in kept.fragments], bool)
    whole, open_ = np.flatnonzero(ended), np.flatnonzero(~ended)[:width]
    candidates = [kept.fragments[i] for i in whole]
    candidates += [kept.fragments[i] + extension for i in open_ for extension in extensions]
    each = np.log(min(expected / len(extensions), 0.5)) - np.logaddexp(0, -kept.log_odds[open_])
    return candidates, np.concatenate([kept.log_odds[whole], np.repeat(each, len(extensions))])


def _estimate(
    counts: BitCounts, discover: Discovery, group: int, candidates: Sequence[bytes], prior: Floats
) -> PrefixShares:
    """Estimate the candidates from the reports of a group. Without reports, their odds are the prior's."""
    params = counts.metric.params
    cohorts = discover.cohorts(group, params.num_cohorts)
    rows = slice(cohorts.start, cohorts.stop)
    used = counts.reports[rows] > 0
    if not used.any():
        return PrefixShares(np.zeros(len(prior)), np.full(len(prior), math.inf), prior)
    clients = Repetition.from_periods(counts.metric, counts.periods).num_clients(1) * counts.reports[rows][used]
    positions = hash_positions(candidates, params, cohorts)[:, used].transpose(1, 2, 0)
    bits = GroupBits(params, bit_shares(counts)[rows][used], np.asarray(clients[:, None], np.float64))
    return estimate_prefixes(bits, np.ascontiguousarray(positions), prior)


def _most_probable(candidates: Sequence[bytes], estimates: PrefixShares, beam: int) -> Prefixes:
    order = np.argsort(-estimates.log_odds, kind="stable")[:beam]
    order = order[estimates.log_odds[order] > _MIN_LOG_ODDS]
    return Prefixes([candidates[i] for i in order], estimates.log_odds[order])


def _decoded(text: bytes) -> str | None:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return None
