"""Strings found without a list: the search, the held-out group, errors, and false discoveries."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom, chi2, chisquare, norm

from hubbub import Encoder, Metric, Params, Secret
from hubbub.encoding.bloom import bloom_bits
from hubbub.errors import ParameterError, SummaryError
from hubbub.metrics.discovery import Discovery
from hubbub.summary import BitCounts, Reports
from hubbub.testing import SeededBytes
from hubbub_decoder import decode, discover, simulate, simulate_reports
from hubbub_decoder.discovery.discover import discovery_of
from hubbub_decoder.discovery.extensions import Prefixes
from hubbub_decoder.discovery.prefix_shares import PrefixShares
from hubbub_decoder.discovery.search import search_prefixes
from hubbub_decoder.model.vectorized_hashing import discovery_positions

ALPHA = 1e-6
DISCOVER = Discovery(longest=5, step=2, alphabet="abcdefgh", held_out=0.2)


def metric_of(epsilon: float, discover: Discovery = DISCOVER, num_hashes: int = 1, num_cohorts: int = 64) -> Metric:
    b = math.ceil(2**24 / (1 + math.exp(epsilon / num_hashes))) / 2**24
    params = Params(
        num_bits=64, num_hashes=num_hashes, num_cohorts=num_cohorts, prob_p=0, prob_q=1, permanent_p=b, permanent_q=0.5
    )
    return Metric.string("words", params, discover=discover)


WORDS = metric_of(6)
POPULATION = {"abc": 20_000, "abcd": 10_000, "head": 9_000, "fed": 6_000, "a": 8_000, "": 5_000, "hhhhh": 7_000}


@pytest.mark.parametrize("hashes", [1, 2])
@pytest.mark.parametrize("alphabet", ["ab\N{LATIN SMALL LETTER E WITH ACUTE}", None])
def test_vectorized_fragments_have_the_bits_of_the_client(alphabet: str | None, hashes: int) -> None:
    groups = Discovery(longest=5, step=1, first=2, alphabet=alphabet, held_out=0.2)
    metric = metric_of(4, groups, num_hashes=hashes)
    values = ["", "a", "ab", "abab", "\N{LATIN SMALL LETTER E WITH ACUTE}" * 4, "abababab"]
    positions = discovery_positions(values, metric.params, discovery_of(metric))
    for value, in_cohorts in zip(values, positions, strict=True):
        for cohort, bits in enumerate(in_cohorts):
            assert sum(1 << int(bit) for bit in bits) == bloom_bits(metric, value, cohort)


def test_simulated_reports_have_the_law_of_the_encoder(unseen_seed: int) -> None:
    """Ones of each bit of each group, of new clients' reports and of simulated ones, against q* and p*: z of every cell."""
    population = {"abc": 4_000, "abcd": 2_000, "hhhhhhhh": 2_000}
    random_bytes, rng = SeededBytes(unseen_seed), np.random.default_rng(unseen_seed)
    values = [value for value, count in population.items() for _ in range(count)]
    reports = [Encoder(WORDS, Secret.generate(random_bytes), random_bytes).encode(value) for value in values]
    of_client = BitCounts.from_reports(WORDS, reports)
    of_bits = simulate(WORDS, population, rng)
    cohorts, rows = zip(*simulate_reports(WORDS, population, rng), strict=True)
    of_reports = Reports(WORDS, np.concatenate(cohorts), np.concatenate(rows)).bit_counts()
    positions = discovery_positions(list(population), WORDS.params, discovery_of(WORDS))
    shares = np.array(list(population.values())) / len(values)
    truth = np.zeros((64, 64))
    for in_cohorts, share in zip(positions, shares, strict=True):
        truth[np.arange(64), in_cohorts[:, 0]] += share
    rates = WORDS.params.mechanism.p_star + (WORDS.params.mechanism.q_star - WORDS.params.mechanism.p_star) * truth
    for counts in (of_client, of_bits, of_reports):
        assert chisquare(counts.reports).pvalue > ALPHA / 8
        tails = np.minimum(
            binom.cdf(counts.ones, counts.reports[:, None], rates),
            binom.sf(counts.ones - 1, counts.reports[:, None], rates),
        )
        assert tails.min() > ALPHA / 16 / tails.size


@pytest.mark.parametrize("form", ["bits", "reports"])
def test_finds_frequent_strings_with_their_shares(form: str, unseen_seed: int) -> None:
    """Every share is above 12 standard errors of each group; the empty string and one of `longest` characters are among them."""
    rng = np.random.default_rng(unseen_seed)
    if form == "bits":
        found = discover(simulate(WORDS, POPULATION, rng, no_value=15_000), target="population")
    else:
        cohorts, rows = zip(*simulate_reports(WORDS, POPULATION, rng, no_value=15_000), strict=True)
        found = discover(Reports(WORDS, np.concatenate(cohorts), np.concatenate(rows)), target="population")
    assert {estimate.candidate for estimate in found.detected} >= POPULATION.keys()
    assert found.decoding is not None
    for candidate, count in POPULATION.items():
        estimate = found.decoding[candidate]
        assert abs(estimate.share - count / 80_000) < 6 * estimate.std_error


def test_string_longer_than_longest_is_truncated(unseen_seed: int) -> None:
    population = {"abc": 30_000, "abcdefgh": 30_000}
    found = discover(simulate(WORDS, population, np.random.default_rng(unseen_seed)))
    assert "abcdef" in found.truncated
    assert "abc" in {estimate.candidate for estimate in found.detected}


@pytest.mark.slow
def test_full_beam_keeps_the_largest_shares(unseen_seed: int) -> None:
    """10 strings of 5 % and 25 of 2 %, all certain, in a beam of 15: no string of 2 % replaces one of 5 %, which has 15 standard errors more."""
    rng = np.random.default_rng(unseen_seed)
    metric = Metric.string("words", replace(WORDS.params, num_bits=1024), discover=DISCOVER)
    starts = rng.permutation([first + second for first in "abcdefgh" for second in "abcdefgh"])[:35]
    texts = [start + "".join(rng.choice(list("abcdefgh"), 3)) for start in starts]
    population = dict(zip(texts, [25_000] * 10 + [10_000] * 25, strict=True))
    found = discover(simulate(metric, population, rng), beam=15)
    assert {estimate.candidate for estimate in found.detected} >= set(texts[:10])


def test_value_of_one_symbol_more_than_longest_is_found_whole(unseen_seed: int) -> None:
    """All shares are above 12 standard errors: abcdef is a whole value, and no value is longer; hgfedc and ffffff have longer ones.

    With them a false discovery is found in one of 20 runs, at the false discovery rate of .05.
    """
    population = {"abcdef": 30_000, "hgfedcb": 30_000, "ffffff": 15_000, "ffffffa": 30_000}
    found = discover(simulate(WORDS, population, np.random.default_rng(unseen_seed)))
    detected = {estimate.candidate for estimate in found.detected}
    assert detected >= {"abcdef", "ffffff"}
    assert "hgfedc" not in detected
    assert set(found.truncated) >= {"hgfedc", "ffffff"}
    assert "abcdef" not in found.truncated


def test_improbable_prefixes_are_not_listed_as_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing tests these prefixes, so those with a probability of at most .95 after the search are left out."""
    probabilities = np.array([0.999, 0.96, 0.94, 0.6, 0.1])
    fragments = [b"aaaaaa", b"bbbbbb", b"cccccc", b"dddddd", b"eeeeee"]
    shares = PrefixShares(
        np.log(probabilities / (1 - probabilities)), np.full(5, 0.1), np.full(5, 1e-4), np.full(5, 0.01)
    )
    monkeypatch.setattr(
        "hubbub_decoder.discovery.discover.search_prefixes", lambda *_, **__: Prefixes(fragments, shares)
    )
    counts = simulate(WORDS, {"abc": 10_000}, np.random.default_rng(1))
    assert discover(counts).truncated == ("aaaaaa", "bbbbbb")


def test_finds_strings_of_bytes_beyond_ascii(unseen_seed: int) -> None:
    metric = metric_of(6, Discovery(longest=6, step=1, held_out=0.15), num_cohorts=128)
    texts = {"caf\N{LATIN SMALL LETTER E WITH ACUTE}": 60_000, "\N{EURO SIGN}5": 60_000}
    found = discover(simulate(metric, texts, np.random.default_rng(unseen_seed)), beam=20)
    assert {estimate.candidate for estimate in found.detected} >= texts.keys()


def test_decode_uses_the_held_out_group_only(unseen_seed: int) -> None:
    counts = simulate(WORDS, POPULATION, np.random.default_rng(unseen_seed))
    held_out = DISCOVER.cohorts(3, 64)
    other = counts.ones.copy()
    other[: held_out.start] = 0
    one = decode(counts, list(POPULATION))
    two = decode(replace(counts, ones=other, ones_histogram=None), list(POPULATION))
    assert one.estimates == two.estimates
    assert one.num_reports == counts.reports[held_out.start :].sum()


@pytest.mark.parametrize("listed", [12, pytest.param(80, marks=pytest.mark.slow)])
def test_errors_contain_the_draw_of_the_held_out_group(listed: int, unseen_seed: int) -> None:
    """12 strings of .04 to .16 of all reporters, little noise, few candidates and many: z squared against the shares among all reporters.

    The errors of one decoding depend on each other, so its 12 count as 6: 60 in 10 decodings. Alpha 1e-6 allows [.36, 2.1]. With the
    held-out group in place of all reporters, their mean is 4.6 and 6.1.
    """
    rng = np.random.default_rng(unseen_seed)
    params = Params(num_bits=64, num_hashes=1, num_cohorts=64, prob_p=0.01, prob_q=0.99, prob_f=0)
    metric = Metric.string("words", params, discover=DISCOVER)
    squares = []
    for _ in range(10):
        tag = int(rng.integers(1 << 30))
        people = {f"{tag}{i}": 2_000 * (3 + i) // 3 for i in range(12)}
        names = [*people, *(f"{tag}absent{i}" for i in range(listed - len(people)))]
        decoding, total = decode(simulate(metric, people, rng), names), sum(people.values())
        squares += [((decoding[name].share - n / total) / decoding[name].std_error) ** 2 for name, n in people.items()]
        assert all(decoding[name].low < decoding[name].share < decoding[name].high for name in people)
    low, high = chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], len(squares) / 2) / (len(squares) / 2)
    assert low < np.mean(squares) < high


def test_search_does_not_read_the_held_out_group(unseen_seed: int) -> None:
    counts = simulate(WORDS, POPULATION, np.random.default_rng(unseen_seed))
    start = DISCOVER.cohorts(3, 64).start
    without = replace(
        counts,
        reports=np.where(np.arange(64) < start, counts.reports, 0),
        ones=np.where(np.arange(64)[:, None] < start, counts.ones, 0),
        ones_histogram=None,
    )
    found = [search_prefixes(summary, DISCOVER, beam=20, max_candidates=10_000) for summary in (counts, without)]
    assert found[0].fragments == found[1].fragments
    with pytest.raises(SummaryError, match="the held-out group has no report"):
        decode(without, ["abc"])


def test_repeated_reports_of_the_same_clients_are_no_more_evidence(unseen_seed: int) -> None:
    """All noise is permanent, so seven equal periods hold the information of one."""
    periods = [f"2026-01-0{day}" for day in range(1, 8)]
    counts = simulate(WORDS, POPULATION, np.random.default_rng(unseen_seed))
    week = replace(
        counts, reports=counts.reports * 7, ones=counts.ones * 7, ones_histogram=None, periods=tuple(periods)
    )
    found = [search_prefixes(summary, DISCOVER, beam=20, max_candidates=10_000) for summary in (counts, week)]
    one, seven = (dict(zip(prefixes.fragments, prefixes.log_odds, strict=True)) for prefixes in found)
    assert one == pytest.approx(seven, rel=1e-6)


def test_rejects_a_metric_without_discover_and_bad_limits() -> None:
    plain = Metric.string("words", WORDS.params)
    with pytest.raises(SummaryError, match="words: the definition has no discover table"):
        discover(BitCounts.empty(plain))
    with pytest.raises(ParameterError, match="beam must be an integer >= 1, got 0"):
        discover(BitCounts.empty(WORDS), beam=0)
    with pytest.raises(ParameterError, match="max_candidates must be an integer >= 1, got"):
        discover(BitCounts.empty(WORDS), max_candidates=1.5)  # type: ignore[arg-type]
    with pytest.raises(SummaryError, match="holds no report"):
        discover(BitCounts.empty(WORDS))


@pytest.mark.slow
def test_false_discoveries_and_intervals_keep_their_levels(unseen_seed: int) -> None:
    """Random tasks near the limit of detection.

    False discoveries: the number of false ones among the detected, of independent tasks, against 5 % plus 5 standard errors of the mean.
    Intervals: 95 % of the strings of the search with a share above 0, to within 5 standard errors.
    """
    rng = np.random.default_rng(unseen_seed)
    proportions, covered = [], []
    for _ in range(60):
        metric = metric_of(float(rng.uniform(2, 5)))
        size = int(rng.integers(5, 60))
        texts = {"".join(rng.choice(list("abcdefgh"), rng.integers(1, 6))): 0 for _ in range(size)}
        weights = 1 / np.arange(1, len(texts) + 1)
        shares = dict(zip(texts, weights / weights.sum(), strict=True))
        population = dict(zip(texts, map(int, rng.multinomial(60_000, weights / weights.sum())), strict=True))
        found = discover(simulate(metric, population, rng), target="population", beam=40)
        false = sum(estimate.candidate not in population for estimate in found.detected)
        proportions.append(false / max(1, len(found.detected)))
        covered += [
            shares[e.candidate] - e.low >= 0 <= e.high - shares[e.candidate]
            for e in found.decoding or ()
            if e.candidate in shares
        ]
    assert np.mean(proportions) < 0.05 + 5 * max(float(np.std(proportions)), 0.1) / math.sqrt(len(proportions))
    assert abs(np.mean(covered) - 0.95) < 0.01 - norm.ppf(ALPHA / 2) * math.sqrt(0.95 * 0.05 / len(covered))
