"""Would one hashed value in a row of w ones be better for strings than independent bits?

    python -m benchmarks.studies.hashed_strings [--jobs 2] [--simulate RUNS] [--out docs/explanation/data]

A string is hashed by its client's cohort to one of k buckets, which is the set of one value of `PrivSet`. Reports have at most 256 bits, and both mechanisms
the same number of cohorts at most, the same epsilon, and with thirty reports of each client the same epsilon of all of them, 2 eps.

    bits     independent bits, as `hubbub plan` chooses them for a million clients
    row      one report: subset selection of w of k buckets (Ye and Barg 2018); with w = 1 it is local hashing
    index    thirty reports: a permanent bucket by generalized randomized response, and subset selection of it in each report; with w = 1 it is LOLOHA
             (Arcolezi et al. 2023, "Frequency estimation of evolving data under local differential privacy", EDBT)
    noisy    thirty reports: a permanent row of w ones that has the epsilon of all reports, and independent noise on its bits in each of them

`error` is the ratio of the variance that a plan makes small to that of `bits`. `name` is the entropy of a permanent response in bits, which all reports
of a client reveal, and `group` the number of clients among which two reports of one client can be linked.

**Variance.** A candidate's share is the mean of its own buckets less the mean of the others, as in equation (18.3). The bits of a row have the
covariance -Var / (k - 1), so where that equation has noise(x + s/k) + noise(s/k) / (k - 1), a row has (k / (k - 1))**2 noise(x + s/k).
`--simulate` compares this with least squares on simulated rows.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp

from benchmarks.runner import Benchmark, generator
from benchmarks.runs import standard_error
from benchmarks.tables import Row
from hubbub.privacy.linkability import mutual_information
from hubbub_decoder import Wishes, plan
from hubbub_decoder.array_types import Floats
from hubbub_decoder.data.populations import distribution_shares
from hubbub_decoder.model.repetition import Repetition
from hubbub_decoder.planning.kinds.strings import StringPlanner
from hubbub_decoder.planning.law.accuracy import StringAccuracy
from hubbub_decoder.planning.law.chain import Chain
from hubbub_decoder.planning.law.collisions import Shares
from hubbub_decoder.planning.subset_selection import RowLimits, best_subset_selection

EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
VALUES = (100, 1_000, 10_000)
PERIODS = (1, 30)
CLIENTS = 1_000_000
MOST_BITS = 256
BUCKETS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, MOST_BITS)


class Cell(NamedTuple):
    """Epsilon of a report, number of values, and reports of each client."""

    epsilon: float
    values: int
    periods: int

    @property
    def wishes(self) -> Wishes:
        return Wishes(
            num_candidates=self.values,
            epsilon=self.epsilon,
            longitudinal=self.longitudinal if self.periods > 1 else None,
            num_reports=CLIENTS,
            periods=self.periods,
            bits=MOST_BITS,
        )

    @property
    def longitudinal(self) -> float:
        """Epsilon of all reports of a client."""
        return 2 * self.epsilon

    @property
    def repetition(self) -> Repetition:
        return Repetition(float(self.periods), float(self.periods))


def row_excess(
    chain: Chain, buckets: int, load: float, repetition: Repetition, *, permanent_only: bool = False
) -> float:
    """N T times the variance of a share from rows, less that of independent bits with the same chain.

    load : of a bucket by other strings; permanent_only : whether the reports have independent noise on the bits of a permanent row
    """
    noise = float(chain.noise(load, repetition))
    if permanent_only:
        noise -= float(chain.noise(load, replace(repetition, per_response=0.0)))
    return noise * ((buckets / (buckets - 1)) ** 2 - buckets / (buckets - 1))


def row_variance(law: StringAccuracy, share: Floats | float, *, permanent_only: bool = False) -> Floats:
    """Variance of a share from rows, whose bits have the chain of a law of independent bits."""
    buckets = law.size[0]
    excess = row_excess(
        law.chain, buckets, law.shares.total / buckets, law.repetition, permanent_only=permanent_only
    ) / (law.clients * law.repetition.per_client)
    return np.asarray(law.variance(share) + excess)


def plan_variance(law: StringAccuracy, smallest: float, *, permanent_only: bool = False) -> float:
    """Variance that a plan makes small, of rows."""
    variance = partial(row_variance, law, permanent_only=permanent_only)
    return (float(variance(smallest)) + law.shares.mean(variance(law.shares.values))) / 2


def best_size(bits: StringAccuracy, chain: Chain, buckets: int, smallest: float, *, permanent_only: bool) -> float:
    """Smallest variance over the numbers of cohorts that a plan may choose."""
    laws = (replace(bits, size=(buckets, 1, m), chain=chain, data="bits") for m in StringPlanner.cohorts)
    return min(plan_variance(law, smallest, permanent_only=permanent_only) for law in laws)


class Design(NamedTuple):
    """Variance that a plan makes small, buckets, ones of a row, entropy of a permanent response and information of a pair of reports in nats."""

    variance: float
    buckets: int
    ones: int
    entropy: float = 0.0
    information: float = math.nan


def subset_design(cell: Cell, bits: StringAccuracy, share: float, smallest: float) -> Design:
    """Best subset selection of one hashed value, with a permanent value if there are several reports."""
    found = []
    for buckets in BUCKETS:
        unit = cell.longitudinal if cell.periods > 1 else math.inf
        mechanism = best_subset_selection(RowLimits(buckets, cell.epsilon, unit), share, cell.repetition)
        if mechanism is None:
            continue
        variance = best_size(bits, Chain.of_mechanism(mechanism), buckets, smallest, permanent_only=False)
        entropy, pair = (mechanism.mutual_information(buckets, (1,), number) for number in (math.inf, 1))
        found.append(Design(variance, buckets, mechanism.num_ones, entropy, pair))
    return min(found)


def log_symmetric(ones: Floats, zeros: Floats, size: int, log_u: float, log_v: float) -> Floats:
    """ln of the elementary symmetric polynomial of this size, of so many numbers u and v, shapes (n,)."""
    s: Floats = np.arange(size + 1, dtype=np.float64)[:, None]

    def log_comb(n: Floats, r: Floats) -> Floats:
        with np.errstate(invalid="ignore"):
            inside = (r >= 0) & (r <= n)
            logs = gammaln(n + 1) - gammaln(np.where(inside, r, 0) + 1) - gammaln(np.where(inside, n - r, 0) + 1)
        return np.asarray(np.where(inside, logs, -np.inf))

    terms = log_comb(ones, s) + log_comb(zeros, size - s) + s * log_u + (size - s) * log_v
    return np.asarray(logsumexp(terms, axis=0))


def noisy_row_epsilon(buckets: int, ones: int, epsilon: float, p: float, q: float) -> float:
    """Epsilon of one report: the bits of a permanent row with this epsilon are reported with p and q.

        P(report | T) ~ e**eps e_w(x) - (e**eps - 1) e_w(x without T)        x_i = q / p of a reported one, (1-q) / (1-p) of a zero

    e_w is the elementary symmetric polynomial. The ratio of T and another bucket is largest where T is reported as one and the other as zero, for the
    worst number of ones among the rest.
    """
    rest = np.arange(buckets - 1, dtype=float)  # ones of the other k - 2 buckets
    logs = math.log(q / p), math.log((1 - q) / (1 - p))
    whole = log_symmetric(rest + 1, buckets - 1 - rest, ones, *logs)
    without_one = log_symmetric(rest, buckets - 1 - rest, ones, *logs)
    without_zero = log_symmetric(rest + 1, buckets - 2 - rest, ones, *logs)
    e = math.exp(epsilon)
    of_one, of_zero = (e - (e - 1) * np.exp(part - whole) for part in (without_one, without_zero))
    return float(np.log(of_one / of_zero).max())


def noisy_row_design(cell: Cell, bits: StringAccuracy, share: float, smallest: float) -> Design:
    """Best permanent row of 256 buckets with noise on its bits."""
    k, e, repetition = MOST_BITS, math.exp(cell.longitudinal), cell.repetition
    found: list[tuple[float, Chain, int]] = []
    near = k / (e + 1)
    for w in sorted({max(1, min(k // 2, round(near * factor))) for factor in (0.8, 1.0, 1.5, 2.5)}):
        a = w / k * e / (w / k * e + 1 - w / k)
        b = (w - a) / (k - 1)
        for q in (0.5, 0.6, 0.7, 0.8, 0.9, 0.97):
            low, high = 1e-9, q
            for _ in range(18):
                middle = math.sqrt(low * high)
                within = noisy_row_epsilon(k, w, cell.longitudinal, middle, q) <= cell.epsilon
                low, high = (low, middle) if within else (middle, high)
            chain = Chain(*map(np.asarray, (a, b, high, q)))
            noise = float(chain.noise(share, repetition))
            noise += row_excess(chain, k, share, repetition, permanent_only=True)
            found.append((noise, chain, w))
    _, chain, w = min(found, key=lambda design: design[0])
    touching = float(chain.a)  # of the rows with the bucket
    logs = [(touching, _log_comb(k - 1, w - 1)), (1 - touching, _log_comb(k - 1, w))]
    entropy = math.fsum(chance * (log - math.log(chance)) for chance, log in logs)
    return Design(best_size(bits, chain, k, smallest, permanent_only=True), k, w, entropy)


def _log_comb(n: int, r: int) -> float:
    return math.log(math.comb(n, r))


def cell_rows(cell: Cell) -> list[Row]:
    """Rows of all mechanisms in one cell."""
    planned = plan(cell.wishes)
    law = planned.description.accuracy
    assert isinstance(law, StringAccuracy)
    share = StringPlanner().mean_share(cell.wishes)
    size = law.size
    bits = Design(
        law.mean_variance(planned.smallest),
        size[0],
        0,
        *(mutual_information(planned.metric, number) for number in (math.inf, 1)),
    )
    designs = {"bits": bits}
    designs["row" if cell.periods == 1 else "index"] = subset_design(cell, law, share, planned.smallest)
    if cell.periods > 1:
        designs["noisy"] = noisy_row_design(cell, law, share, planned.smallest)
    return [
        {
            "eps": f"{cell.epsilon:g}",
            "values": f"{cell.values}",
            "reports": f"{cell.periods}",
            "mechanism": name,
            "buckets": f"{design.buckets}",
            "ones": f"{design.ones}" if design.ones else "",
            "n_variance": f"{CLIENTS * design.variance:.4g}",
            "error": f"{design.variance / bits.variance:.3f}",
            "name_bits": f"{design.entropy / math.log(2):.1f}" if cell.periods > 1 else "0",
            "group": f"{math.exp(design.information):.3g}" if math.isfinite(design.information) else "",
        }
        for name, design in designs.items()
    ]


class Simulated(NamedTuple):
    """Values, buckets and cohorts of a simulated cell, with its epsilon and reports of each client."""

    epsilon: float
    values: int
    buckets: int
    cohorts: int
    periods: int


SIMULATED = (
    Simulated(1.0, 100, 16, 256, 1),
    Simulated(4.0, 100, 48, 256, 1),
    Simulated(2.0, 100, 16, 256, 10),
    Simulated(4.0, 100, 48, 256, 10),
)


def simulated_error(cell: Simulated, rng: np.random.Generator) -> float:
    """Mean of the squared errors over the variance of the formula, for 100,000 clients with Zipf's shares.

    Each run has other hashes. All values are candidates. Weighted least squares takes every bucket of every cohort for an observation, whose weight is the
    inverse of its variance.
    """
    k, m, clients = cell.buckets, cell.cohorts, 100_000
    repetition = Repetition(float(cell.periods), float(cell.periods))
    unit = 2 * cell.epsilon if cell.periods > 1 else math.inf
    mechanism = best_subset_selection(RowLimits(k, cell.epsilon, unit), 1 / cell.values, repetition)
    assert mechanism is not None
    numbers = rng.multinomial(clients, [*distribution_shares("zipf1", cell.values).values()])
    truth, value = numbers / clients, np.repeat(np.arange(cell.values), numbers)
    bucket_of, cohort = rng.integers(k, size=(m, cell.values)), rng.integers(m, size=clients)
    kept = rng.random(clients) < mechanism.permanent_q
    permanent = (bucket_of[cohort, value] + np.where(kept, 0, rng.integers(1, k, size=clients))) % k
    ones = np.zeros(m * k)
    for _ in range(cell.periods):
        order = rng.random((clients, k))
        order[np.arange(clients), permanent] = np.where(rng.random(clients) < mechanism.prob_q, -1.0, 2.0)
        rows = np.argpartition(order, mechanism.num_ones - 1, axis=1)[:, : mechanism.num_ones]
        ones += np.bincount((cohort[:, None] * k + rows).ravel(), minlength=m * k)
    of_cohort = np.repeat(np.bincount(cohort, minlength=m), k)
    chain = Chain.of_mechanism(mechanism)
    p, q = float(chain.p_star), float(chain.q_star)
    observed = (ones / (cell.periods * of_cohort) - p) / (q - p)
    design = np.zeros((m, k, cell.values))
    design[np.arange(m)[:, None], bucket_of, np.arange(cell.values)] = 1
    matrix = design.reshape(m * k, cell.values)
    load = matrix @ truth
    weights = np.sqrt(of_cohort / (chain.noise(load, repetition) / cell.periods + load * (1 - load)))
    estimates = np.linalg.lstsq((matrix - 1 / k) * weights[:, None], (observed - 1 / k) * weights, rcond=None)[0]
    law = StringAccuracy(
        size=(k, 1, m), chain=chain, clients=clients, repetition=repetition, shares=Shares.of(truth[truth > 0])
    )
    return float(np.mean((estimates - truth) ** 2 / row_variance(law, truth)))


def main() -> None:
    benchmark = Benchmark(__doc__, jobs=2)
    benchmark.add(
        "--simulate", type=int, metavar="RUNS", help="only compare the variance of rows with simulated errors"
    )
    benchmark.add("--reports", type=int, nargs="+", default=PERIODS, help="reports of each client")
    benchmark.add("--values", type=int, nargs="+", default=VALUES)
    options = benchmark.start()
    if options.simulate:
        table = benchmark.table()
        for cell in SIMULATED:
            found = [simulated_error(cell, generator(cell, run)) for run in range(options.simulate)]
            figures = {"error / formula": f"{np.mean(found):.3f}", "standard error": f"{standard_error(found):.3f}"}
            table.add({**{name: f"{number:g}" for name, number in cell._asdict().items()}, **figures})
        return
    table = benchmark.table("hashed-strings")
    cells = [
        Cell(epsilon, values, periods)
        for periods in options.reports
        for values in options.values
        for epsilon in EPSILONS
    ]
    for rows in benchmark.map(cell_rows, cells):
        for row in rows:
            table.add(row)


if __name__ == "__main__":
    main()
