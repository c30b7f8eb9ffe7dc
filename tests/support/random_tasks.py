"""Random decoding tasks: metric, population and candidate list drawn from wide ranges, and the score of a decoding against the truth.

A claim about the decoder is tested on such tasks, not at chosen parameters. Ranges (`draw_task`):

    k 8 .. 256 (a string metric has no fewer bits), h 1 .. 3, m 1 .. 256, epsilon of one report .5 .. 8, f 0 .. .75, symmetric and asymmetric p and q, p > q now and then
    N 1e4 .. 1e7 (retained reports: to 2e5), 5 .. 5,000 candidates or 10,000, of them 0 to 10 absent ones for each present one
    shares uniform, Zipf, exponential or few heavy; unlisted share 0 .. .5 with or without a heavy string; "no value" 0 .. .8
    murmur3-v1 and google-md5; bit counts, pattern counts (k <= 16) and retained reports

Every 36th task is saturated: bit counts of 1e7 to 1e10 reports with k 8 .. 16, m 2 .. 16, and 1/4 to 6 candidates for each bit. Its noise
is small, and how strings hash limits the estimates. Every other 36th task is dominated: bit counts of 1e3 to 1e10 reports, of which one
string has a share of 10 % to 100 %, in 2 to 256 cohorts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from hubbub import Metric, Params
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub_decoder import Decoding
from hubbub_decoder.array_types import Floats
from hubbub_decoder.simulation import simulate, simulate_reports

KINDS = ("bits", "patterns", "reports")
BIT_RANGES = ((8, 10), (11, 16), (17, 64), (65, 256))
CANDIDATE_RANGES = ((5, 50), (51, 500), (501, 5_000), (10_000, 10_000))
_CANDIDATE_RANGE_OF = (0, 0, 0, 1, 1, 1, 2, 2, 2, 3)
"""Range of candidates of every tenth task: a tenth of the tasks has 10,000."""
_BIT_RANGES_OF = {"bits": (0, 1, 2, 3), "patterns": (0, 1), "reports": (2, 3)}
SHAPES = ("uniform", "zipf1", "zipf1.5", "exponential", "few heavy")
MAX_REPORTS = {"bits": 10_000_000, "patterns": 10_000_000, "reports": 200_000}
MAX_SATURATED_REPORTS = 10_000_000_000
SATURATED = range(3, 1_000_000, 36)
"""Indices of saturated tasks."""
DOMINATED = range(21, 1_000_000, 36)
"""Indices of dominated tasks."""
DOMINATING = "dominating"
LARGEST_SHARES = ((0.1, "below 10 %"), (0.5, "10 to 50 %"), (1.1, "above 50 %"))
"""Upper ends and names of the strata of the largest listed share."""
_TAIL_LEVEL = 1e-6
_STRONG_STANDARD_ERRORS = 20


@dataclass(frozen=True)
class Task:
    """A population and the list of candidates to decode it with.

    epsilon : of one report      present : listed strings with reports      absent : listed strings without
    heavy   : share of one unlisted string; the others of `unlisted` have equal shares
    top     : share of the most frequent listed string among the listed ones, if the shape is that of a dominated task
    """

    seed: int
    kind: str
    params: Params
    epsilon: float
    symmetric: bool
    num_reports: int
    present: int
    absent: int
    shape: str
    unlisted: float
    num_unlisted: int
    heavy: float
    no_value: float
    top: float = 0.0

    @property
    def num_candidates(self) -> int:
        """M."""
        return self.present + self.absent

    def listed_shares(self) -> Floats:
        """Shares of the listed strings with reports, (present,), in descending order."""
        if self.shape != DOMINATING:
            shares = shares_of(self.shape, self.present)
        else:
            others = np.full(self.present - 1, (1 - self.top) / max(1, self.present - 1))
            shares = np.concatenate([[1.0 if self.present == 1 else self.top], others])
        return np.asarray(shares * (1 - self.no_value) * (1 - self.unlisted))

    def strata(self) -> dict[str, str]:
        """Marginal strata of the task: name and class of each."""
        bits = next(r for r in BIT_RANGES if r[0] <= self.params.num_bits <= r[1])
        fewest, most = next(r for r in CANDIDATE_RANGES if r[0] <= self.num_candidates <= r[1])
        return {
            "counts": self.kind,
            "bits": f"{bits[0]} to {bits[1]}",
            "noise": "symmetric" if self.symmetric else "asymmetric",
            "candidates": f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}",
            "unlisted": "one heavy" if self.heavy else "small ones" if self.unlisted else "none",
            "cohorts": "1 to 7" if self.params.num_cohorts < 8 else "8 to 256",
            "largest share": next(name for end, name in LARGEST_SHARES if self.listed_shares()[0] < end),
            "reports": "1e7 to 1e10" if self.num_reports > MAX_REPORTS[self.kind] else "up to 1e7",
        }

    def __str__(self) -> str:
        p = self.params
        return (
            f"{self.kind} k={p.num_bits} h={p.num_hashes} m={p.num_cohorts} p={p.mechanism.prob_p:.4g} q={p.mechanism.prob_q:.4g} f={p.mechanism.prob_f:.3g} "
            f"{p.hash_scheme} eps={self.epsilon:.2f} N={self.num_reports:,} candidates={self.present}+{self.absent} {self.shape} "
            f"unlisted={self.unlisted:.2f} ({self.num_unlisted}, heavy {self.heavy:.3f}) no value={self.no_value:.2f}"
        )


def draw_task(index: int, seed: int) -> Task:
    """Task number `index` of a run: strata in turn, everything else at random."""
    if index in SATURATED:
        return _draw_saturated_task(index, seed)
    if index in DOMINATED:
        return _draw_dominated_task(index, seed)
    rng = np.random.default_rng([seed, index])
    kind = KINDS[index % 3]
    ranges = _BIT_RANGES_OF[kind]
    low, high = BIT_RANGES[ranges[index // 3 % len(ranges)]]
    params, epsilon, symmetric = _draw_params(rng, kind, (low, high), symmetric=index // 12 % 2 == 0)
    low, high = CANDIDATE_RANGES[_CANDIDATE_RANGE_OF[rng.integers(10)]]
    candidates = round(_log_uniform(rng, low, high))
    reports = round(_log_uniform(rng, 1e4, MAX_REPORTS[kind]))
    return _draw_population(rng, kind, params, epsilon, candidates, reports, symmetric=symmetric)


def _draw_saturated_task(index: int, seed: int) -> Task:
    """Few bits and cohorts, and so many reports that their noise is small."""
    rng = np.random.default_rng([seed, index])
    params, epsilon, symmetric = _draw_params(rng, "bits", (8, 16), symmetric=index // 12 % 2 == 0)
    params = replace(params, num_cohorts=int(rng.integers(2, 17)))
    bits = params.num_bits * params.num_cohorts
    candidates = max(5, round(_log_uniform(rng, bits / 4, 6 * bits)))
    reports = round(_log_uniform(rng, MAX_REPORTS["bits"] + 1, MAX_SATURATED_REPORTS))
    return _draw_population(rng, "bits", params, epsilon, candidates, reports, symmetric=symmetric)


def _draw_dominated_task(index: int, seed: int) -> Task:
    """One string with a share of .1 to 1 among few or many others, and any number of reports."""
    rng = np.random.default_rng([seed, index])
    bits = BIT_RANGES[index // 36 % len(BIT_RANGES)]
    params, epsilon, symmetric = _draw_params(rng, "bits", bits, symmetric=index // 72 % 2 == 0)
    params = replace(params, num_cohorts=round(_log_uniform(rng, 2, 256)))
    reports = round(_log_uniform(rng, 1e3, MAX_SATURATED_REPORTS))
    task = _draw_population(
        rng, "bits", params, epsilon, round(_log_uniform(rng, 5, 500)), reports, symmetric=symmetric
    )
    return replace(task, shape=DOMINATING, top=float(rng.choice([1.0, rng.uniform(0.1, 1), rng.uniform(0.1, 1)])))


def _draw_population(
    rng: np.random.Generator,
    kind: str,
    params: Params,
    epsilon: float,
    candidates: int,
    reports: int,
    *,
    symmetric: bool,
) -> Task:
    """Task with these parameters and numbers, and a random population."""
    present = max(1, round(candidates / (1 + float(rng.choice([0, 0.5, 1, 3, 10])))))
    unlisted = float(rng.choice([0.0, rng.uniform(0.02, 0.5), rng.uniform(0.02, 0.5)]))
    return Task(
        seed=int(rng.integers(1 << 62)),
        kind=kind,
        params=params,
        epsilon=epsilon,
        symmetric=symmetric,
        num_reports=reports,
        present=present,
        absent=candidates - present,
        shape=str(rng.choice(SHAPES)),
        unlisted=unlisted,
        num_unlisted=round(_log_uniform(rng, 300, 3_000)),
        heavy=unlisted * rng.uniform(0.2, 1) if rng.random() < 0.5 else 0.0,
        no_value=float(rng.choice([0.0, rng.uniform(0, 0.8)])),
    )


def _draw_params(
    rng: np.random.Generator, kind: str, bits: tuple[int, int], *, symmetric: bool
) -> tuple[Params, float, bool]:
    """Parameters with a given epsilon of one report; f is halved until p can be found."""
    k = int(rng.integers(bits[0], bits[1] + 1))
    k = 1 << k.bit_length() - 1 if rng.random() < 0.5 else k
    k = max(k, bits[0])
    h = int(rng.integers(1, 4 if kind != "patterns" or k <= 12 else 3))
    m = round(_log_uniform(rng, 1, 256))
    m = 1 << m.bit_length() - 1 if rng.random() < 0.5 else m
    epsilon, f = _log_uniform(rng, 0.5, 8), float(rng.choice([0.0, rng.uniform(0, 0.75)]))
    q = 0.5 if rng.random() < 0.5 else rng.uniform(0.2, 0.95)
    scheme = str(rng.choice(["murmur3-v1", "google-md5"]))
    while True:
        p = _prob_p(epsilon / h, f, None if symmetric else q)
        if p is not None:
            break
        f = f / 2 if f > 0.01 else 0.0
    chosen_q = 1 - p if symmetric else q
    p, chosen_q = (chosen_q, p) if rng.random() < 0.1 else (p, chosen_q)
    params = Params(num_bits=k, num_hashes=h, num_cohorts=m, prob_p=p, prob_q=chosen_q, prob_f=f, hash_scheme=scheme)
    return params, epsilon, symmetric


def _prob_p(epsilon: float, f: float, q: float | None) -> float | None:
    """P at which one bit has this epsilon, by bisection; q None: 1 - p. None if no p reaches it."""

    def bit_epsilon(p: float) -> float:
        one = 1 - p if q is None else q
        p_star, q_star = p + f / 2 * (one - p), one - f / 2 * (one - p)
        return math.log(q_star * (1 - p_star) / (p_star * (1 - q_star)))

    low, high = 1e-5, (0.5 if q is None else q) - 1e-6
    if bit_epsilon(low) < epsilon:
        return None
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if bit_epsilon(middle) > epsilon else (low, middle)
    return low


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(math.log(low), math.log(high))))


def shares_of(shape: str, size: int) -> Floats:
    """Shares (size,) of a named shape, in descending order, sum 1."""
    i = np.arange(1, size + 1, dtype=float)
    weights = {
        "uniform": np.ones(size),
        "zipf1": 1 / i,
        "zipf1.5": i**-1.5,
        "exponential": np.exp(-5 * i / size),
        "few heavy": np.where(i <= 5, 0.6 / 5, 0.4 / max(1, size - 5)),
    }[shape]
    return np.asarray(weights / weights.sum())


def simulate_task(task: Task) -> tuple[BitCounts | PatternCounts | Reports, list[str], dict[str, int], int]:
    """Counts or reports of a task, its candidates, the number of reports of each string, and that without a value."""
    rng = np.random.default_rng(task.seed)
    with_value = 1 - task.no_value
    listed = task.listed_shares()
    small = np.full(task.num_unlisted, with_value * (task.unlisted - task.heavy) / task.num_unlisted)
    shares = np.concatenate([listed, [with_value * task.heavy], np.maximum(small, 0), [task.no_value]])
    drawn = rng.multinomial(task.num_reports, shares / shares.sum()).tolist()
    prefix = f"{task.seed % 100_000}."
    names = [
        *(f"{prefix}{i}" for i in range(task.present)),
        *(f"{prefix}u{i}" for i in range(1 + task.num_unlisted)),
    ]
    population = dict(zip(names, drawn[:-1], strict=True))
    candidates = names[: task.present] + [f"{prefix}absent{i}" for i in range(task.absent)]
    metric = Metric.string("task", task.params)
    if task.kind == "bits":
        return simulate(metric, population, rng, no_value=drawn[-1]), candidates, population, drawn[-1]
    if task.kind == "patterns":
        counts = simulate(metric, population, rng, no_value=drawn[-1], form=PatternCounts)
        return counts, candidates, population, drawn[-1]
    blocks = list(simulate_reports(metric, population, rng, no_value=drawn[-1]))
    cohorts, rows = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return Reports(metric, cohorts, rows), candidates, population, drawn[-1]


@dataclass(frozen=True)
class Score:
    """Errors of a decoding of a task; a mean is nan where there is nothing to average.

    estimated     : share of the candidates with an estimate
    ratio         : mean of squared error / declared variance over candidates with an estimate
    totals_ratio  : the same over the determined totals
    strong_ratio  : the same as `ratio`, over estimates above 20 standard errors
    coverage      : share of the intervals that hold the truth: all, absent, top 20, strong, totals, and selected (adjusted intervals)
    found, false  : detected candidates with and without reports
    power         : share of the candidates above the detection limit that are detected
    above_zero    : share of the intervals above 0 among estimates above 10 standard errors, if there are no unlisted strings
    wild          : an absent candidate has a p-value below 1e-6 / M
    """

    estimated: float
    ratio: float
    totals_ratio: float
    strong_ratio: float
    coverage: Mapping[str, float]
    found: int
    false: int
    wild: bool
    power: float
    above_zero: float


def score(decoding: Decoding, population: Mapping[str, int], no_value: int) -> Score:
    """Compare a decoding with the reports of its task."""
    n = decoding.num_reports
    truth = np.array(
        [sum(population.get(s, 0) for s in (e.candidate, *e.indistinguishable_from)) / n for e in decoding]
    )
    columns = ("share", "std_error", "low", "high", "selection_adjusted_low", "selection_adjusted_high", "p_value")
    share, error, low, high, adjusted_low, adjusted_high, p = (
        np.array([getattr(e, column) for e in decoding]) for column in columns
    )
    detected = np.array([e.detected for e in decoding], bool)
    known = np.isfinite(share) & np.isfinite(error)
    inside, squared = (low <= truth) & (truth <= high), ((share - truth) / np.maximum(error, 1e-12)) ** 2
    strong = known & (share > _STRONG_STANDARD_ERRORS * error)
    top = np.argsort(-truth, kind="stable")[:20]
    listed = float(truth.sum())
    totals = (
        (decoding.listed_total, listed),
        (decoding.unlisted, 1 - listed - no_value / n),
        (decoding.no_value, no_value / n),
    )
    determined = [(t, x) for t, x in totals if math.isfinite(t.share)]
    squares = [((t.share - x) / max(t.std_error, 1e-12)) ** 2 for t, x in determined]
    tiny = np.where(known, p, 1) < _TAIL_LEVEL / max(1, len(truth))
    return Score(
        estimated=float(known.mean()),
        ratio=_mean(squared[known]),
        totals_ratio=_mean(squares),
        strong_ratio=_mean(squared[strong]),
        coverage={
            "all": _mean(inside[known]),
            "absent": _mean(inside[known & (truth == 0)]),
            "top 20": _mean(inside[top][known[top] & (truth[top] > 0)]),
            "strong": _mean(inside[strong]),
            "totals": _mean([t.low <= x <= t.high for t, x in determined]),
            "selected": _mean(((adjusted_low <= truth) & (truth <= adjusted_high))[detected]),
        },
        found=int((detected & (truth > 0)).sum()),
        false=int((detected & (truth == 0)).sum()),
        wild=bool((tiny & (truth == 0)).any()),
        power=_mean(detected[truth > decoding.detection_limit]),
        above_zero=_mean(low[known & (share > 10 * error)] > 0) if listed + no_value / n > 1 - 1e-9 else math.nan,
    )


def clustered_mean(values: Floats) -> tuple[float, float]:
    """Mean of the tasks' values (tasks,), and its standard error; tasks with nan do not count."""
    known = values[~np.isnan(values)]
    if not len(known):
        return math.nan, math.nan
    return float(known.mean()), float(known.std(ddof=1) / math.sqrt(len(known))) if len(known) > 1 else math.inf


def _mean(values: object) -> float:
    array = np.asarray(values, float)
    return float(array.mean()) if array.size else math.nan
