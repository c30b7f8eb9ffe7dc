"""Upper bounds on the detections of any decoder in the crowded cases: our decoder with information that no decoder has.

    python -m benchmarks.studies.upper_bounds [--regtest DIR] [--runs 1] [--out docs/explanation/data]

"The distribution": the number of candidates with each share is given, but not their names. "All other shares": for each candidate, the
shares of all other candidates are given, and the variance of the unlisted strings. Each candidate is then tested. The oracle also chooses
the largest threshold at which 5 % of the detected candidates are false, which depends on the truth.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
from scipy.stats import norm
from threadpoolctl import threadpool_limits

from benchmarks.accuracy import DISTRIBUTIONS, Case, add_regtest, interval_score, r_decoder, reports_of
from benchmarks.runner import Benchmark
from benchmarks.tables import Row
from hubbub_decoder import decode
from hubbub_decoder.array_types import Flags, Floats
from hubbub_decoder.estimators import message_passing
from hubbub_decoder.estimators.message_passing import Beliefs, HashedCohorts, estimate_given_beliefs
from hubbub_decoder.inference.multiple_testing import q_values
from hubbub_decoder.inference.prior import Prior
from hubbub_decoder.model.design_matrix import design_matrix
from hubbub_decoder.model.pattern_likelihood import FilterTable, filter_indices, whiten_scores

_CLASSES = 60
_FALSE = 0.05
_COLUMNS = (
    "found_at_5_percent_per_distribution",
    "found_at_5_percent",
    "found_at_23_percent_per_distribution",
)


class Tested(NamedTuple):
    """P-values of the candidates of a case, which of them are present, and the interval score of the unclipped intervals."""

    distribution: str
    p_values: Floats
    there: Flags
    score: float

    @property
    def found(self) -> tuple[int, int]:
        """Numbers of present and of absent candidates with q <= .05."""
        picked = q_values(self.p_values, _FALSE) <= _FALSE
        return int((picked & self.there).sum()), int((picked & ~self.there).sum())


def prior_of(truth: Floats) -> Prior:
    """Return the distribution of the shares; present candidates are in classes of equal size."""
    there = np.sort(truth[truth > 0])
    classes = np.array_split(there, min(_CLASSES, len(there)))
    centres = np.array([0.0, *(shares.mean() for shares in classes)])
    widths = np.array([0.0, *(shares.std() for shares in classes)])
    weights = np.array([len(truth) - len(there), *map(len, classes)])
    return Prior(centres, widths, weights / len(truth))


def results_with_knowledge(case: Case, regtest: Path | None) -> tuple[Tested, Tested, Tested]:
    """Test the candidates of a case without knowledge, with the distribution, and with all other shares."""
    counts, people = reports_of(case, regtest)
    shares = people / people.sum()
    truth = np.array([shares[v - 1] if v <= len(shares) else 0.0 for v in case.candidates])
    names = [f"v{v}" for v in case.candidates]

    def tested() -> Tested:
        results = {e.candidate: (e.p_value, e.low, e.high) for e in decode(counts, names).estimates}
        p, low, high = np.array([results[name] for name in names]).T
        return Tested(case.distribution, p, truth > 0, interval_score(low, high, truth))

    nothing, prior = tested(), prior_of(truth)
    with mock.patch.object(message_passing, "fit_prior", return_value=prior):
        distribution = tested()
    unlisted = np.delete(shares, [v - 1 for v in case.candidates if v <= len(shares)])
    design, table = design_matrix(names, counts.metric.params), FilterTable.from_params(counts.metric.params)
    filter_of, size = filter_indices(design, table), len(table.filters)
    expected = (
        np.array([np.bincount(chosen, truth, size) for chosen in filter_of]) + unlisted.sum() * table.probabilities
    )
    cohorts = HashedCohorts.from_observations(
        whiten_scores(counts, table, expected), filter_of[:, None], table.fixed_patterns, table.covariance
    )
    certain = Beliefs(truth, np.zeros(len(truth)), float((unlisted**2).sum()))
    fit = estimate_given_beliefs(cohorts, certain, np.zeros_like(cohorts.responses), certain.unlisted_variance)
    x, errors = fit.estimates.shares, np.sqrt(fit.estimates.variances)
    score = interval_score(x - norm.isf(0.025) * errors, x + norm.isf(0.025) * errors, truth)
    return nothing, distribution, Tested(case.distribution, norm.sf(x / errors), truth > 0, score)


def most(cases: list[Tested], share: float) -> int:
    """Return the number of present candidates above one common threshold, with at most this share of false detections."""
    p, there = (np.concatenate(columns) for columns in zip(*((c.p_values, c.there) for c in cases), strict=True))
    there = there[np.argsort(p, kind="stable")]
    allowed = np.flatnonzero(np.cumsum(~there) <= share * np.arange(1, len(there) + 1))
    return int(there[: allowed[-1] + 1].sum()) if len(allowed) else 0


def row(size: str, config: str, knowledge: str, cases: list[Tested]) -> Row:
    """Row of the table for one cell: detections for each case."""
    by_distribution = [[c for c in cases if c.distribution == d] for d in DISTRIBUTIONS]
    found, false = np.array([c.found for c in cases]).T
    apart = [sum(most(group, share) for group in by_distribution) / len(cases) for share in (_FALSE, 0.23)]
    figures = (apart[0], most(cases, _FALSE) / len(cases), apart[1])
    return {
        "size": size,
        "config": config,
        "known": knowledge,
        "found": f"{found.mean():.1f}",
        "false_percent": f"{100 * np.mean(false / np.maximum(1, found + false)):.1f}",
        **{name: f"{figure:.1f}" for name, figure in zip(_COLUMNS, figures, strict=True)},
        "score": f"{1000 * np.mean([c.score for c in cases]):.2f}",
    }


def row_of_r(size: str, config: str, of_r: list[dict[str, str]]) -> Row:
    """Row of the table for R's detections in one cell."""
    found, false = (np.array([float(figures[name]) for figures in of_r]) for name in ("detected", "false_positives"))
    return {
        "size": size,
        "config": config,
        "known": "R",
        "found": f"{np.mean(found - false):.1f}",
        "false_percent": f"{100 * np.mean(false / np.maximum(1, found)):.1f}",
        **dict.fromkeys((*_COLUMNS, "score"), ""),
    }


def main() -> None:
    benchmark = Benchmark(__doc__, runs=1)
    add_regtest(benchmark)
    options = benchmark.start()
    rows, _ = r_decoder()
    table = benchmark.table("upper-bounds")
    with threadpool_limits(1):
        for size, config in (("small", "over_x10"), ("medium", "over_x2"), ("medium", "over_x10")):
            cases = [Case(size, shape, config, number) for shape in DISTRIBUTIONS for number in range(options.runs)]
            columns = zip(*(results_with_knowledge(case, options.regtest) for case in cases), strict=True)
            for knowledge, tested in zip(("nothing", "the distribution", "all other shares"), columns, strict=True):
                table.add(row(size, config, knowledge, list(tested)))
            table.add(row_of_r(size, config, [rows[f"{case.name} {case.config}"] for case in cases]))


if __name__ == "__main__":
    main()
