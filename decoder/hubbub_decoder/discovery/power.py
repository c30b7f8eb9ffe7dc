"""Probability that a search finds a string, by its share and length.

The share's estimates in the groups that report prefixes of the string are independent, normal with the group's variance, and each updates
the posterior of `prefix_shares.py`. The string is found if its log odds stay above those of the beam's last prefix, end above those of a
string that is tested, and the held-out group confirms it. The mean over simulated estimates is the probability; the same standard normal
numbers serve every share, so the probability increases with the share.

Population: Zipf's law from the largest share down, so x ln(1/x) is the sum of the shares above x, and with c = 1 / ln(1/x)

    c / x    number of strings above x, whose prefixes have places in the beam        c x    sum of the squared shares below x, which collide

All symbols have equal probabilities. Strings with frequent symbols or endings are found at lower shares. docs/explanation/mathematics.md, equation (21.5).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from hubbub.metrics.discovery import Discovery
from hubbub_decoder.discovery.discover import DEFAULT_BEAM, MAX_CANDIDATES, MIN_WHOLE_LOG_ODDS
from hubbub_decoder.discovery.extensions import MAX_CERTAINTY, SAME_SHARE, SAME_STRING
from hubbub_decoder.discovery.prefix_shares import Prior, ScoreNoise
from hubbub_decoder.discovery.search import EXPECTED_EXTENSIONS, EXPECTED_PREFIXES, MIN_LOG_ODDS
from hubbub_decoder.random_state import seeded

_DRAWS = 1_000
_TEST_LEVEL = 0.05
_BISECTIONS = 18


@dataclass(frozen=True)
class GroupNoise:
    """Noise of one share's estimate from one report of a group.

    absent, per_share : variance at a share of 0, and its increase over the share        third : third moment at a share of 0
    num_bits          : k
    """

    absent: float
    per_share: float
    third: float
    num_bits: int

    def variance(self, reports: float, cohorts: int, share: float) -> float:
        """Variance of the estimate of an absent prefix, from this number of reports in these cohorts."""
        return self.absent / reports + share / math.log(1 / share) / (self.num_bits * cohorts)

    def score(self, reports: float, variance: float) -> ScoreNoise:
        """Law of the estimates with this variance."""
        return ScoreNoise(self.per_share / reports, self.third / reports**2 / variance**1.5)


def detection_probability(
    discover: Discovery,
    num_cohorts: int,
    noise: GroupNoise,
    reports: float,
    share: float,
    length: int,
    beam: int = DEFAULT_BEAM,
) -> float:
    """Probability that a string of this share and length is found.

    reports : of all groups      beam : number of prefixes that are kept after each group
    """
    groups = len(discover.lengths)
    normals = seeded(0).standard_normal((groups, _DRAWS))
    odds, means, variances = np.full(_DRAWS, np.inf), np.zeros(_DRAWS), np.ones(_DRAWS)
    lost, compared, before = np.zeros(_DRAWS, bool), 1.0, 0
    strings = 1 / (share * math.log(1 / share))
    for group, longer in enumerate(discover.lengths):
        cohorts = len(discover.cohorts(group, num_cohorts))
        size = reports * cohorts / num_cohorts
        absent = noise.variance(size, cohorts, share)
        score = noise.score(size, absent)
        x = share + np.sqrt(absent + share * score.per_share) * normals[group]
        ended = before > length
        symbols = min(longer, length + 1) - before
        expected = EXPECTED_EXTENSIONS if before else EXPECTED_PREFIXES
        log_extension = min(math.log(expected) - symbols * math.log(discover.num_symbols + 1), math.log(MAX_CERTAINTY))
        log_rho = log_extension - np.logaddexp(0, -odds)
        prior_odds = odds if ended else log_rho - np.log(-np.expm1(log_rho))
        weight = np.full(_DRAWS, SAME_STRING if ended else SAME_SHARE)
        found = Prior(prior_odds, means, variances, weight).posterior(x, np.full(_DRAWS, absent), score)
        odds, means, variances = found.log_odds, found.means, found.variances
        extensions = discover.num_symbols ** (longer - before)
        rivals = extensions if not before else max(strings, 1) * extensions
        if before and not ended:
            compared *= min(1.0, MAX_CANDIDATES / rivals)
            rivals = min(rivals, MAX_CANDIDATES)
        places = beam - min(strings, float(discover.num_symbols) ** longer)
        lost |= odds < max(MIN_LOG_ODDS, _last_of_beam(places, rivals, log_extension, score))
        before = longer
    held_out = len(discover.cohorts(groups, num_cohorts))
    size = reports * held_out / num_cohorts
    absent = noise.variance(size, held_out, share)
    threshold = norm.isf(_TEST_LEVEL) * math.sqrt(absent)
    confirmed = float(norm.sf((threshold - share) / math.sqrt(absent + share * noise.per_share / size)))
    return float((~lost & (odds > MIN_WHOLE_LOG_ODDS)).mean()) * compared * confirmed


def detection_limit(
    discover: Discovery,
    num_cohorts: int,
    noise: GroupNoise,
    reports: float,
    power: float,
    length: int,
    beam: int = DEFAULT_BEAM,
) -> float:
    """Smallest share that is found with this probability; infinite if none up to .3 is, where one string leaves no others."""
    low, high = 1e-8, 0.3
    if detection_probability(discover, num_cohorts, noise, reports, high, length, beam) < power:
        return math.inf
    for _ in range(_BISECTIONS):
        middle = math.sqrt(low * high)
        found = detection_probability(discover, num_cohorts, noise, reports, middle, length, beam) >= power
        low, high = (low, middle) if found else (middle, high)
    return high


def _last_of_beam(places: float, rivals: float, log_extension: float, score: ScoreNoise) -> float:
    """Log odds of the last prefix of the beam, if these places are full of absent extensions of present prefixes.

    Infinite without a place: larger shares fill the beam.
    """
    if places < 1:
        return math.inf
    z = float(norm.isf(min(places / rivals, 0.5)))
    likelihood = float(score.log_likelihood_ratio(np.array([max(z, 0.0)]))[0])
    return log_extension + likelihood + math.log(SAME_SHARE)
