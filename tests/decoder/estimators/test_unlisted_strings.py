"""Frequent unlisted strings: found, located, estimated, and matched with words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import unescape

import numpy as np
import pytest

from hubbub import Metric, Params
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub_decoder import Decoding, decode
from hubbub_decoder.model.vectorized_hashing import bit_positions
from hubbub_decoder.simulation import simulate

SIX_SIGMA = 6
WORDS = 1_000


def params(k: int, h: int, m: int, p: float = 0.25) -> Params:
    return Params(num_bits=k, num_hashes=h, num_cohorts=m, prob_p=p, prob_q=1 - p, prob_f=0)


def draw_words(frequent: Mapping[str, float], num_reports: int, rng: np.random.Generator) -> tuple[dict[str, int], int]:
    """Reports of frequent strings and of 1,000 words with shares .064 / rank from rank 2; and the number without a value."""
    salt = rng.integers(1 << 40)
    shares = {**frequent, **{f"{salt} {rank}": 0.064 / rank for rank in range(2, WORDS + 1)}}
    drawn = rng.multinomial(num_reports, [*shares.values(), 1 - sum(shares.values())]).tolist()
    return dict(zip(shares, drawn[:-1], strict=True)), drawn[-1]


FORMS: dict[str, type[BitCounts | PatternCounts | Reports]] = {
    "bits": BitCounts,
    "patterns": PatternCounts,
    "reports": Reports,
}


def listed_words(population: Mapping[str, int], number: int = 200) -> list[str]:
    return [word for word in population if " " in word][: number - 1]


def median_error(decoding: Decoding) -> float:
    return float(np.median([e.std_error for e in decoding]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "of_metric", "num_reports"),
    [
        ("bits", params(16, 1, 128), 1_000_000),
        ("bits", params(32, 2, 32), 1_000_000),
        ("patterns", params(8, 2, 64), 1_500_000),
        ("reports", params(32, 2, 16, 0.1), 150_000),
    ],
    ids=["bits, one hash", "bits, two hashes", "patterns", "reports"],
)
def test_frequent_unlisted_string_is_separated_and_matched(
    kind: str, of_metric: Params, num_reports: int, unseen_seed: int
) -> None:
    """A string of 6.4 % left off a list of 200 words: its row, its word, and the errors that listing it would give."""
    rng = np.random.default_rng(unseen_seed)
    population, none = draw_words({"the": 0.064}, num_reports, rng)
    summary = simulate(Metric.string("words", of_metric), population, rng, form=FORMS[kind], no_value=none)
    listed = listed_words(population)
    decoding, with_the = decode(summary, listed), decode(summary, [*listed, "the"])
    (string,) = decoding.unlisted_strings
    assert string.num_strings == 1
    assert string.separated
    assert abs(string.share - population["the"] / num_reports) < SIX_SIGMA * string.std_error
    assert string.std_error < 1.1 * with_the["the"].std_error
    assert median_error(decoding) < 1.1 * median_error(with_the)
    wrong = [c for c in string.signature if set(c.bits) != set(bit_positions(["the"], of_metric)[0, c.cohort].tolist())]
    assert len(wrong) <= 0.05 * of_metric.num_cohorts
    words = [f"other {i}" for i in range(5_000)]
    assert decoding.match_unlisted([*words, "the"]).unlisted_strings[0].matches == ("the",)
    assert decoding.match_unlisted(words).unlisted_strings[0].matches == ()
    truly_unlisted = 1 - (none + sum(population[word] for word in listed)) / num_reports
    assert abs(decoding.unlisted.share - truly_unlisted) < SIX_SIGMA * decoding.unlisted.std_error
    assert "A string with 6." in " ".join(map(str, decoding.warnings))
    assert with_the.unlisted_strings == ()


@pytest.mark.slow
def test_two_equally_frequent_unlisted_strings_are_one_row(unseen_seed: int) -> None:
    """Two strings of 4.5 % each: one row with the total, and both words match."""
    rng = np.random.default_rng(unseen_seed)
    population, none = draw_words({"the": 0.045, "of": 0.045}, 2_000_000, rng)
    counts = simulate(Metric.string("words", params(16, 1, 64)), population, rng, no_value=none)
    decoding = decode(counts, listed_words(population, 60)).match_unlisted(["and", "of", "in", "the"])
    (string,) = (string for string in decoding.unlisted_strings if string.num_strings == 2)
    assert abs(string.share - (population["the"] + population["of"]) / 2_000_000) < SIX_SIGMA * string.std_error
    assert set(string.matches) == {"the", "of"}
    assert string.label == "(2 unlisted)"


def test_many_small_unlisted_strings_add_no_row(unseen_seed: int) -> None:
    """500 unlisted strings of .1 % each have no frequent one among them: evidence of 1,000 has probability below 1e-3 once, and 1e-6 twice."""
    rng = np.random.default_rng(unseen_seed)
    rows = 0
    for run in range(2):
        population = {f"{run} {i} {unseen_seed}": 1_000 for i in range(500)} | {
            f"listed {i}": 10_000 for i in range(20)
        }
        counts = simulate(Metric.string("m", params(16, 1, 32)), population, rng, no_value=300_000)
        rows += len(decode(counts, [f"listed {i}" for i in range(20)]).unlisted_strings)
    assert rows < 2


def test_unlisted_strings_are_in_json_and_table(unseen_seed: int) -> None:
    """The row, its signature and its matches."""
    rng = np.random.default_rng(unseen_seed)
    population = {"the": 300_000, "a": 50_000, "b": 20_000}
    counts = simulate(Metric.string("m", params(16, 1, 16)), population, rng, no_value=600_000)
    decoding = decode(counts, ["a", "b"]).match_unlisted(["the", "x"])
    fields = json.loads(json.dumps(decoding.to_dict()))
    (string,) = fields["unlisted_strings"]
    assert string["matches"] == ["the"]
    assert fields["num_more_candidates"] == 2
    assert [c["bits"] for c in string["signature"]] == bit_positions(["the"], counts.metric.params)[0].tolist()
    assert "(unlisted)" in decoding._repr_html_()
    assert "'the' of 2 words" in unescape(decoding._repr_html_())
