"""Which mechanism estimates ordinal values best: one-hot bits with hubbub's decoder, Square Wave, or one bit of the mean?

    python -m benchmarks.studies.ordinal                    one report of each client, then counters that are reported in several periods
    python -m benchmarks.studies.ordinal --coverage 100     intervals of estimate = "mean" on random tasks

N clients have numbers in [0, 1] from four shapes. Each mechanism has the same epsilon for one report.

    bits      one-hot bits over k buckets (`Metric.ordinal`, as `hubbub plan` chooses them; all clients have a value)
    one bit   `estimate = "mean"`: a threshold of each client, 16 cohorts of thresholds
    SW        Square Wave with EMS over 64 buckets, then added up to k (Li et al. 2020, sections 4 and 5)
    1BitMean  one bit for the mean, one for all periods after rounding at a point of each client (Ding et al. 2017, sections 3 and 4)

All errors are those of the distribution over the k buckets: W1 its Wasserstein distance, `mean` that of the middles, `quantiles` the mean of
five that are interpolated in their buckets. They are percent of the range, as root mean squares over the runs. `smoothed` is the mean of
the smoothed shares. A mean of the numbers themselves also has the error of the middles, which no number of reports lowers.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.runner import Benchmark, generator
from benchmarks.tables import Row, Table
from hubbub import Buckets, Estimand, KindWord, Metric, UnaryResponse
from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.ordinal import estimate_mean, fit_buckets
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.options import Target
from hubbub_decoder.planning.plan import plan
from hubbub_decoder.planning.wishes import Wishes
from hubbub_decoder.simulation import consecutive_periods, simulate
from tests.support.every_kind import buckets_of

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
_EMS_TOLERANCE = 1e-3  # times e**eps, of the log-likelihood, as in the paper
_EMS_STEPS = 10_000
_SW_BUCKETS = 64

Draw = Callable[[np.random.Generator, int], Floats]

SHAPES: dict[str, Draw] = {
    "beta(5, 2)": lambda rng, n: rng.beta(5, 2, n),
    "exponential": lambda rng, n: np.minimum(rng.exponential(0.15, n), 1),
    "two peaks": lambda rng, n: np.clip(
        np.where(rng.random(n) < 0.6, rng.normal(0.25, 0.06, n), rng.normal(0.7, 0.1, n)), 0, 1
    ),
    "uniform": lambda rng, n: rng.random(n),
}


def planned(k: int, epsilon: float, reports: int, longitudinal: float | None = None, periods: int = 1) -> Metric:
    """Ordinal metric with k equal buckets of [0, 1], as `hubbub plan` chooses it."""
    wishes = Wishes(
        kind=KindWord.ORDINAL,
        num_candidates=k,
        epsilon=epsilon,
        num_reports=reports,
        share=1 / k,
        longitudinal=longitudinal,
        periods=periods,
    )
    return plan(wishes, edges=tuple(np.linspace(0, 1, k + 1).tolist())).metric


def planned_mean(epsilon: float, reports: int, longitudinal: float | None = None, periods: int = 1) -> Metric:
    """Metric with estimate = "mean" over [0, 1], as `hubbub plan` chooses it."""
    wishes = Wishes(
        kind=KindWord.ORDINAL,
        estimate=Estimand.MEAN,
        epsilon=epsilon,
        num_reports=reports,
        share=0.5,
        longitudinal=longitudinal,
        periods=periods,
    )
    return plan(wishes, edges=(0, 1)).metric


def one_bit_error(
    metric: Metric, k: int, in_bucket: NDArray[np.int64], rng: np.random.Generator, periods: tuple[str, ...] = ()
) -> float:
    """Error of the mean of the middles, of clients with one threshold each."""
    population = dict(zip(map(repr, middles(k).tolist()), in_bucket.tolist(), strict=True))
    counts = simulate(metric, population, rng, periods=periods)
    true = float(middles(k) @ in_bucket / in_bucket.sum())
    return estimate_mean(Evidence(counts), buckets_of(metric), "reporters", 0.95).value - true


def square_wave_width(epsilon: float) -> float:
    """b: half the width of the high part of the density (Li et al. 2020, section 4.3)."""
    e = math.exp(epsilon)
    return (epsilon * e - e + 1) / (2 * e * (e - 1 - epsilon))


def square_wave_reports(values: Floats, epsilon: float, rng: np.random.Generator) -> Floats:
    """One report in [-b, 1 + b] of each value: density e^eps / (2b e^eps + 1) within b of the value, and e^eps times less elsewhere."""
    b, e = square_wave_width(epsilon), math.exp(epsilon)
    near = rng.random(len(values)) < 2 * b * e / (2 * b * e + 1)
    far = rng.random(len(values))
    elsewhere = np.where(far < values, far - b, far + b)
    return np.where(near, values + rng.uniform(-b, b, len(values)), elsewhere)


def square_wave_matrix(k: int, epsilon: float) -> Floats:
    """(k, k) probability of each output bucket of [-b, 1 + b], given a value spread evenly in each input bucket."""
    b, e = square_wave_width(epsilon), math.exp(epsilon)
    low = 1 / (2 * b * e + 1)
    outputs = np.linspace(-b, 1 + b, k + 1)
    fine = (np.arange(k * 32) + 0.5) / (k * 32)
    inside = np.clip(outputs[None, :], fine[:, None] - b, fine[:, None] + b)
    chances = low * np.diff(outputs)[None, :] + (e - 1) * low * np.diff(inside, axis=1)
    return np.asarray(chances.reshape(k, 32, k).mean(axis=1).T)


def ems(counts: Floats, matrix: Floats, epsilon: float) -> Floats:
    """Expectation maximization with smoothing by (1/4, 1/2, 1/4) after each step (Li et al. 2020, section 5.5)."""
    k = matrix.shape[1]
    x, before = np.full(k, 1 / k), -math.inf
    for _ in range(_EMS_STEPS):
        expected = matrix @ x
        x = x * (matrix.T @ (counts / expected))
        x = np.convolve(np.concatenate([x[:1], x, x[-1:]]), (0.25, 0.5, 0.25), "valid")
        x /= x.sum()
        likelihood = float(counts @ np.log(matrix @ x))
        if likelihood - before < _EMS_TOLERANCE * math.exp(epsilon):
            break
        before = likelihood
    return x


def one_bit_mean(values: Floats, epsilon: float, rng: np.random.Generator) -> float:
    """Mean from one bit of each client: one with probability 1 / (e^eps + 1) + value (e^eps - 1) / (e^eps + 1)."""
    e = math.exp(epsilon)
    ones = rng.random(len(values)) < (1 + values * (e - 1)) / (e + 1)
    return float((ones.mean() * (e + 1) - 1) / (e - 1))


def quantiles(shares: Floats) -> Floats:
    """Quantiles of numbers spread evenly in k equal buckets of [0, 1]."""
    cumulative = np.concatenate([[0], np.cumsum(shares)]) / shares.sum()
    return np.interp(LEVELS, cumulative + 1e-12 * np.arange(len(cumulative)), np.linspace(0, 1, len(cumulative)))


def errors(shares: Floats, mean: float, true: Floats) -> Floats:
    """W1, error of the mean, mean absolute error of the quantiles; true : shares of the buckets (k,)."""
    k = len(shares)
    w1 = np.abs(np.cumsum(shares - true)[:-1]).sum() / k
    return np.array([w1, mean - middles(k) @ true, np.abs(quantiles(shares) - quantiles(true)).mean()])


def middles(k: int) -> Floats:
    """Middles of k equal buckets of [0, 1]."""
    return (np.arange(k) + 0.5) / k


def compare(draw: Draw, k: int, epsilon: float, clients: int, runs: int, rng: np.random.Generator) -> dict[str, Floats]:
    """Root mean squared errors (3,) of each mechanism, one report of each client."""
    metric, matrix = planned(k, epsilon, clients), square_wave_matrix(_SW_BUCKETS, epsilon)
    of_one_bit = planned_mean(epsilon, clients)
    b = square_wave_width(epsilon)
    squares: dict[str, list[Floats]] = {name: [] for name in ("bits", "guess", "one bit", "SW", "1BitMean")}
    for _ in range(runs):
        values = draw(rng, clients)
        bucket = np.minimum((values * k).astype(int), k - 1)
        in_bucket = np.bincount(bucket, minlength=k)
        true = in_bucket / clients
        counts = simulate(metric, dict(zip(buckets_of(metric).labels, in_bucket.tolist(), strict=True)), rng)
        fit = fit_buckets(Evidence(counts), buckets_of(metric), "reporters")
        squares["bits"].append(errors(fit.guess, float(middles(k) @ fit.shares), true) ** 2)
        squares["guess"].append(errors(fit.guess, float(middles(k) @ fit.guess), true) ** 2)
        squares["one bit"].append(np.array([math.nan, one_bit_error(of_one_bit, k, in_bucket, rng) ** 2, math.nan]))
        outputs = np.histogram(square_wave_reports(values, epsilon, rng), _SW_BUCKETS, (-b, 1 + b))[0].astype(float)
        estimate = ems(outputs, matrix, epsilon).reshape(k, -1).sum(axis=1)
        squares["SW"].append(errors(estimate, float(middles(k) @ estimate), true) ** 2)
        of_mean = one_bit_mean(middles(k)[bucket], epsilon, rng) - middles(k) @ true
        squares["1BitMean"].append(np.array([math.nan, of_mean**2, math.nan]))
    return {name: 100 * np.sqrt(np.mean(squared, axis=0)) for name, squared in squares.items()}


def repeated(
    k: int, longitudinal: float, epsilon: float, periods: int, clients: int, runs: int, rng: np.random.Generator
) -> tuple[float, float, float]:
    """Root mean squared error of the mean, of bits, of one bit and of 1BitMean, where clients repeat a constant counter in several periods.

    1BitMean has the same two epsilons: its memoized bit has the longitudinal epsilon, and each report the output perturbation that `hubbub plan`
    chooses for a boolean metric.
    """
    metric = planned(k, epsilon, clients, longitudinal, periods)
    wishes = Wishes(
        kind=KindWord.BOOLEAN,
        epsilon=epsilon,
        num_reports=clients,
        share=0.5,
        longitudinal=longitudinal,
        periods=periods,
    )
    bit = plan(wishes).metric
    of_one_bit = planned_mean(epsilon, clients, longitudinal, periods)
    days = tuple(f"2026-11-{day:02d}" for day in range(1, periods + 1))
    found = []
    for _ in range(runs):
        values = SHAPES["beta(5, 2)"](rng, clients)
        bucket = np.minimum((values * k).astype(int), k - 1)
        in_bucket = np.bincount(bucket, minlength=k)
        mean = float(middles(k) @ in_bucket) / clients
        population = dict(zip(buckets_of(metric).labels, in_bucket.tolist(), strict=True))
        fit = fit_buckets(Evidence(simulate(metric, population, rng, periods=days)), buckets_of(metric), "reporters")
        true = int((rng.random(clients) < middles(k)[bucket]).sum())
        ones = simulate(bit, {"true": true, "false": clients - true}, rng, periods=days)
        rate = ones.ones[0, 0] / ones.num_reports
        of_bit = (rate - bit.params.mechanism.p_star) / (bit.params.mechanism.q_star - bit.params.mechanism.p_star)
        with_threshold = one_bit_error(of_one_bit, k, in_bucket, rng, days)
        found.append(((float(middles(k) @ fit.shares) - mean) ** 2, with_threshold**2, (of_bit - mean) ** 2))
    bits, one_bit, ding = (100 * np.sqrt(np.mean(found, axis=0))).tolist()
    return bits, one_bit, ding


def random_mean_task(rng: np.random.Generator) -> tuple[Metric, tuple[str, ...], Floats, Floats, int]:
    """Metric with estimate = "mean", periods, numbers with their shares, and number of clients.

    Epsilon of a report .5 to 4 without permanent noise, 1 to 7 periods, also with permanent noise and `hold`; 1 to 59 numbers of a beta
    distribution, some beyond the range; 3,000 to 300,000 clients
    """
    e, periods = math.exp(math.exp(rng.uniform(math.log(0.5), math.log(4)))), int(rng.choice([1, 1, 2, 7]))
    low, width = 10 * float(rng.normal()), math.exp(2 * rng.normal())
    repeated_noise = float(rng.choice([0, 0.1, 0.3])) if periods > 1 else 0.0
    hold = int(rng.integers(1, periods + 2)) if periods > 1 and rng.random() < 0.3 else None
    buckets = Buckets((low, low + width), default=low, estimate=Estimand.MEAN)
    noise = {"prob_p": 1 / (1 + e), "prob_q": e / (1 + e), "prob_f": repeated_noise}
    metric = Metric.ordinal("value", buckets, UnaryResponse(**noise), hold=hold)
    size = int(rng.integers(1, 60))
    numbers = low + width * (1.1 * rng.beta(math.exp(rng.normal()), math.exp(rng.normal()), size) - 0.05)
    if rng.random() < 0.3:
        numbers[0] = low
    numbers = np.unique(numbers)
    first = consecutive_periods(metric, periods) if periods > 1 else ()
    return metric, first, numbers, rng.dirichlet(np.full(len(numbers), 0.5)), int(10 ** rng.uniform(3.5, 5.5))


def coverage(tasks: int, decodings: int, rng: np.random.Generator, table: Table) -> None:
    """Add a row with the coverage of 95 % intervals, with its standard error over the tasks, and the ratio of errors to declared ones."""
    targets: tuple[Target, ...] = ("reporters", "population")
    covered: dict[Target, list[float]] = {target: [] for target in targets}
    squares: dict[Target, list[float]] = {target: [] for target in targets}
    for _ in range(tasks):
        metric, periods, numbers, shares, clients = random_mean_task(rng)
        lowest, highest = buckets_of(metric).edges
        cut, inside = np.clip(numbers, lowest, highest), dict.fromkeys(targets, 0)
        for _ in range(decodings):
            drawn = rng.multinomial(clients, shares)
            population = dict(zip(map(repr, numbers.tolist()), drawn.tolist(), strict=True))
            counts = simulate(metric, population, rng, periods=periods)
            for target, weights in zip(targets, (drawn / clients, shares), strict=True):
                found, true = estimate_mean(Evidence(counts), buckets_of(metric), target, 0.95), float(weights @ cut)
                inside[target] += found.low <= true <= found.high
                squares[target].append(((found.value - true) / found.std_error) ** 2)
        for target in targets:
            covered[target].append(inside[target] / decodings)
    for target in targets:
        error = np.std(covered[target]) / math.sqrt(tasks)
        ratio = math.sqrt(float(np.mean(squares[target])))
        row = {"mean of": target, "tasks": f"{tasks}", "coverage of 95 %": f"{np.mean(covered[target]):.4f}"}
        table.add({**row, "standard error": f"{error:.4f}", "error / declared": f"{ratio:.3f}"})


def once(options: Namespace, rng: np.random.Generator, table: Table) -> list[Row]:
    """Add the errors of one report of each client; return their ratios to the best other mechanism, geometric means over the shapes."""
    ratios = []
    for k in options.buckets:
        for epsilon in options.epsilons:
            start, logs = {"k": f"{k}", "epsilon": f"{epsilon:g}"}, []
            for shape, draw in SHAPES.items():
                found = compare(draw, k, epsilon, options.clients, options.runs, rng)
                bits, guess, one, wave, bit = (found[name] for name in ("bits", "guess", "one bit", "SW", "1BitMean"))
                figures = {
                    "W1 bits": bits[0],
                    "W1 SW": wave[0],
                    "mean bits": bits[1],
                    "mean smoothed": guess[1],
                    "mean one bit": one[1],
                    "mean SW": wave[1],
                    "mean 1BitMean": bit[1],
                    "quantiles bits": bits[2],
                    "quantiles SW": wave[2],
                }
                table.add({**start, "shape": shape, **{name: f"{figure:.3f}" for name, figure in figures.items()}})
                other = min(wave[1], bit[1])
                quotients = [bits[0] / wave[0], bits[2] / wave[2], bits[1] / other, one[1] / other, one[1] / bits[1]]
                logs.append(np.log(quotients))
            names = ("W1", "quantiles", "mean of buckets", '`estimate = "mean"`', "one bit / buckets")
            means = (f"{mean:.2f}" for mean in np.exp(np.mean(logs, axis=0)))
            ratios.append({**start, **dict(zip(names, means, strict=True))})
    return ratios


def several_periods(options: Namespace, rng: np.random.Generator, table: Table) -> None:
    """Add the errors of counters that clients report in several periods."""
    for k in options.buckets[:2]:
        for epsilon, longitudinal in ((1, 2), (2, 4)):
            for periods in (1, 7, 30):
                errors_of_mean = repeated(k, longitudinal, epsilon, periods, options.clients, options.runs, rng)
                row = {"k": f"{k}", "epsilon, longitudinal": f"{epsilon}, {longitudinal}", "periods": f"{periods}"}
                figures = (f"{error:.3f}" for error in errors_of_mean)
                table.add(row | dict(zip(("mean of buckets", '`estimate = "mean"`', "1BitMean"), figures, strict=True)))


def main() -> None:
    benchmark = Benchmark(__doc__, runs=20)
    benchmark.add("--clients", type=int, default=100_000)
    benchmark.add("--buckets", type=int, nargs="+", default=[4, 8, 16])
    benchmark.add("--epsilons", type=float, nargs="+", default=[1, 2, 4])
    benchmark.add("--coverage", type=int, metavar="TASKS", help="only the intervals of the mean, on so many tasks")
    options = benchmark.start()
    rng = generator()
    if options.coverage:
        coverage(options.coverage, 60, rng, benchmark.table())
        return
    ratios = once(options, rng, benchmark.table())
    print("\nErrors divided by the best of SW and 1BitMean (by those of bits), geometric means over the shapes.\n")
    benchmark.table("ordinal").add_all(ratios)
    several_periods(options, rng, benchmark.table("ordinal-repeated"))


if __name__ == "__main__":
    main()
