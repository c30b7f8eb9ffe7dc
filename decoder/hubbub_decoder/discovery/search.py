"""Search for frequent strings: prefixes are extended group by group, and the most probable ones kept."""

from __future__ import annotations

import numpy as np

from hubbub.metrics.discovery import MAX_EXTENSIONS, Discovery
from hubbub.summary import BitCounts
from hubbub_decoder.discovery.extensions import Candidates, Prefixes, Symbols, extend
from hubbub_decoder.discovery.prefix_shares import GroupBits, PrefixShares, estimate_prefixes
from hubbub_decoder.model.evidence import bit_shares
from hubbub_decoder.model.repetition import Repetition
from hubbub_decoder.model.vectorized_hashing import hash_positions
from hubbub_decoder.options import Progress, ignore_progress

_PARTS = (0.25, 1.0)  # of max_candidates, in the first and the second search
EXPECTED_PREFIXES, EXPECTED_EXTENSIONS = 200.0, 1.0  # present ones, of the first length and of a present prefix
MIN_LOG_ODDS = -9.0  # of a prefix that is kept


def search_prefixes(
    counts: BitCounts,
    discover: Discovery,
    *,
    beam: int,
    max_candidates: int,
    progress: Progress = ignore_progress,
) -> Prefixes:
    """Return the prefixes that remain after the last prefix group.

    The candidates of a group are the extensions of the prefixes kept before, by `step` symbols, or by fewer symbols and the end marker.
    Whole strings stay candidates: their clients report them in every later group. The `beam` most probable stay.
    The groups are searched twice. The first search compares a quarter of the candidates, and the second has the symbols' probabilities
    from its strings.

    max_candidates : of one group, the most probable ones given their prefixes; those of the first group are all compared
    progress       : called at the start of each group
    """
    symbols = Symbols.of(discover)
    found: Prefixes | None = None
    for search, part in enumerate(_PARTS):
        kept, length = Prefixes.start(), 0
        for group, longer in enumerate(discover.lengths):
            model = symbols.learn(found or kept)
            size = max(1, round(part * max_candidates)) if length else MAX_EXTENSIONS
            expected = EXPECTED_EXTENSIONS if length else EXPECTED_PREFIXES
            candidates = extend(kept, symbols, model, longer - length, size, expected)
            progress(
                f"comparing {len(candidates.fragments):,} prefixes of length {longer}",
                (search * len(discover.lengths) + group) / num_stages(discover),
            )
            estimates = _estimate(counts, discover, group, candidates)
            kept, length = Prefixes.most_probable(candidates.fragments, estimates, beam, MIN_LOG_ODDS), longer
        found = kept
    return kept


def num_stages(discover: Discovery) -> int:
    """Number of stages of a discovery: the groups of both searches, and the decoding of the strings."""
    return len(_PARTS) * len(discover.lengths) + 1


def _estimate(counts: BitCounts, discover: Discovery, group: int, candidates: Candidates) -> PrefixShares:
    """Estimate the candidates from the reports of a group. Without reports they are as in the prior."""
    params, prior = counts.metric.params, candidates.prior
    cohorts = discover.cohorts(group, params.num_cohorts)
    rows = slice(cohorts.start, cohorts.stop)
    used = counts.reports[rows] > 0
    if not used.any():
        return PrefixShares(prior.log_odds, prior.means, prior.variances, np.sqrt(prior.variances))
    clients = Repetition.from_periods(counts.metric, counts.periods).num_clients(1) * counts.reports[rows][used]
    bits = GroupBits(params, bit_shares(counts)[rows][used], np.asarray(clients[:, None], np.float64))
    positions = hash_positions(candidates.fragments, params, cohorts)[:, used].transpose(1, 2, 0)
    return estimate_prefixes(bits, np.ascontiguousarray(positions), prior)
