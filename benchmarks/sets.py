"""Which mechanism estimates sets best: hubbub's rows, PrivSet, Wheel, pad and sample with OUE, or one question to each client?

    python -m benchmarks.sets [--clients 20000] [--runs 3000] [--out docs/explanation/data]

All mechanisms have the same epsilon of a report, the same clients and one report of each. Client j has the first s of the items, s = 1 + j mod m,
so m items have shares from 1/m to 1, and all others have none. The error is n times the mean squared error of the estimates: of the absent
items (`small`), and of the m others (`wide`). Beside each stands its formula, and for hubbub also the coverage of 95 % intervals over all shares.
Each cell has --runs / items runs.

Longer lists are hashed: there hubbub alone is measured, with one run of each cell, beside the formulas of the others. Items of a client are independent,
with shares by Zipf's law of m / 2 items in the mean, and the bits of a cohort's counts are drawn independently of each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.runner import Benchmark, generator
from benchmarks.runs import standard_error
from benchmarks.set_mechanisms import MISSING, OTHERS, Floats, Ints, Wheel
from benchmarks.tables import Row
from hubbub import KindWord, Metric
from hubbub.mechanisms.privset import PrivSet as RowsOfSets
from hubbub.summary import BitCounts
from hubbub_decoder import Wishes, decode, describe, plan, simulate
from hubbub_decoder.model.design_matrix import design_matrix
from hubbub_decoder.planning.law.collisions import Shares

SIZES = ((30, 3), (100, 5), (500, 5), (1000, 20))
HASHED_SIZES = ((2000, 8), (5000, 20))
HASHED_CLIENTS = (10**6, 10**7)
LARGEST_SHARE = 0.9
EPSILONS = (0.5, 1.0, 2.0, 4.0)
MIN_RUNS = 4
RARE = 0.01


class Cell(NamedTuple):
    """Epsilon of a report, number of items, and largest number of items of a client."""

    epsilon: float
    items: int
    own: int

    def sets(self, clients: int) -> Ints:
        """Sets of all clients, (n, m)."""
        size = 1 + np.arange(clients)[:, None] % self.own
        return np.where(np.arange(self.own) < size, np.arange(self.own), MISSING)

    def shares(self, clients: int) -> Floats:
        """Share of each item, (M,)."""
        sets = self.sets(clients)
        return np.bincount(sets[sets != MISSING], minlength=self.items) / clients

    def metric(self, clients: int) -> Metric:
        """The metric with `max_items` that `plan` chooses."""
        wishes = Wishes(
            kind=KindWord.SET, num_candidates=self.items, own=self.own, epsilon=self.epsilon, num_reports=clients
        )
        return plan(wishes).metric


class Errors(NamedTuple):
    """n times the mean squared errors of one run, over the absent items and over the others, and the covered share of the intervals."""

    small: float
    wide: float
    covered: float = math.nan


def errors(estimates: Floats, shares: Floats, clients: int) -> Errors:
    """Errors of the estimates of one run."""
    squares = clients * (estimates - shares) ** 2
    return Errors(float(np.nanmean(squares[shares == 0])), float(np.nanmean(squares[shares > 0])))


def decoded(metric: Metric, cell: Cell, clients: int, rng: np.random.Generator) -> Errors:
    """Errors and coverage of a decoding of simulated reports."""
    names, shares = metric.kind.named_values, cell.shares(clients)
    sizes = np.bincount(1 + np.arange(clients) % cell.own)
    population = {",".join(names[:size]): int(sizes[size]) for size in range(1, cell.own + 1)}
    decoding = decode(simulate(metric, population, rng))
    rows = [decoding[name] for name in names]
    covered = np.mean([row.low <= share <= row.high for row, share in zip(rows, shares, strict=True)])
    return errors(np.array([row.share for row in rows]), shares, clients)._replace(covered=float(covered))


def row(cell: Cell, name: str, formula: tuple[float, float], runs: list[Errors]) -> Row:
    """Row of the table: formulas, and means over the runs with standard errors."""
    figures = {"small": formula[0], "wide": formula[1]}
    cells = {"eps": f"{cell.epsilon:g}", "items": f"{cell.items}", "own": f"{cell.own}", "mechanism": name}
    for error, expected in figures.items():
        found = [getattr(run, error) for run in runs]
        cells |= {
            f"{error}_formula": f"{expected:.4g}",
            error: f"{np.mean(found):.4g}",
            f"{error}_se": f"{standard_error(found):.2g}",
        }
    coverage = np.mean([run.covered for run in runs])
    return cells | {"coverage": "" if math.isnan(coverage) else f"{coverage:.4f}", "runs": f"{len(runs)}"}


def rows(cell: Cell, clients: int, runs: int) -> list[Row]:
    """Rows of all mechanisms in one cell."""
    shares, sets = cell.shares(clients), cell.sets(clients)
    metric, present = cell.metric(clients), shares[shares > 0]
    law = describe(metric, num_reports=clients).accuracy
    formula = clients * float(law.variance(0.0)), clients * float(np.mean(law.variance(present)))
    found = [decoded(metric, cell, clients, generator("hubbub", cell, run)) for run in range(runs)]
    table = [row(cell, "hubbub", formula, found)]
    for mechanism in (other(cell.items, cell.own, cell.epsilon) for other in OTHERS):
        formula = (
            mechanism.variance(0.0, clients),
            float(np.mean([mechanism.variance(share, clients) for share in present])),
        )
        estimates = [mechanism.estimate(sets, generator(mechanism.name, cell, run)) for run in range(runs)]
        table.append(row(cell, mechanism.name, formula, [errors(estimate, shares, clients) for estimate in estimates]))
    return table


def hashed_row(cell: Cell, clients: int) -> Row:
    """Row of a cell whose items are hashed: hubbub measured, its law, and the formulas of others, each the mean over all items."""
    metric, names = cell.metric(clients), [f"item {number}" for number in range(cell.items)]
    ranks = np.arange(1, cell.items + 1)
    shares = np.minimum(cell.own / 2 / (1 / ranks).sum() / ranks, LARGEST_SHARE)
    decoding = decode(hashed_counts(metric, names, shares, clients, generator("hashed", cell, clients)), names)
    found = [decoding[name] for name in names]
    squares = clients * (np.array([row.share for row in found]) - shares) ** 2
    described = describe(metric, num_reports=clients, num_candidates=cell.items).accuracy
    law = clients * replace(described, shares=Shares.zipf(cell.items, float(shares.sum()))).variance(shares)
    wheel = Wheel(cell.items, cell.own, cell.epsilon)
    asked = cell.items * (math.exp(cell.epsilon) / math.expm1(cell.epsilon) ** 2 + shares * (1 - shares))
    return {
        "eps": f"{cell.epsilon:g}",
        "items": f"{cell.items}",
        "own": f"{cell.own}",
        "clients": f"{clients}",
        "error": f"{squares.mean():.4g}",
        "error_se": f"{standard_error(squares.tolist()):.2g}",
        "law": f"{law.mean():.4g}",
        "rare": f"{squares[shares < RARE].mean():.4g}",
        "Wheel": f"{np.mean([wheel.variance(share, clients) for share in shares]):.4g}",
        "ask one": f"{asked.mean():.4g}",
        "stated": f"{clients * np.mean([row.std_error**2 for row in found]):.4g}",
        "coverage": f"{np.mean([row.low <= share <= row.high for row, share in zip(found, shares, strict=True)]):.4f}",
    }


def hashed_counts(
    metric: Metric, names: Sequence[str], shares: Floats, clients: int, rng: np.random.Generator
) -> BitCounts:
    """Counts of clients with independent items; the ones that a row has more or fewer are in its blanks."""
    rows, size = metric.params.mechanism, (metric.num_cohorts, metric.num_bits)
    assert isinstance(rows, RowsOfSets)
    touched = 1 - np.exp(design_matrix(names, metric.params).matrix @ np.log1p(-shares)).reshape(size)
    reports = rng.multinomial(clients, np.full(size[0], 1 / size[0]))
    ones = rng.binomial(reports[:, None], rows.prob_p + (rows.prob_q - rows.prob_p) * touched)
    ones[:, rows.num_items :] = 0
    left = reports * rows.num_ones - ones.sum(axis=1)
    ones[:, rows.num_items :] = (left[:, None] + np.arange(rows.num_blanks)) // rows.num_blanks
    return BitCounts(metric, reports, ones)


def main() -> None:
    benchmark = Benchmark(__doc__, runs=3_000)
    benchmark.add("--clients", type=int, default=20_000)
    benchmark.add("--epsilons", type=float, nargs="+", default=EPSILONS)
    options = benchmark.start()
    table = benchmark.table("sets")
    with threadpool_limits(1):
        for cell in (Cell(epsilon, *size) for epsilon in options.epsilons for size in SIZES):
            for line in rows(cell, options.clients, max(MIN_RUNS, options.runs // cell.items)):
                table.add(line)
        hashed = benchmark.table("hashed-sets")
        for size in HASHED_SIZES:
            for epsilon in options.epsilons:
                for clients in HASHED_CLIENTS:
                    hashed.add(hashed_row(Cell(epsilon, *size), clients))


if __name__ == "__main__":
    main()
