"""How good are `associate`'s test, intervals and joint guess, and how fast is it?

    python -m benchmarks.studies.association size --runs 500
    python -m benchmarks.studies.association power | guess | iterations | coverage | three | three-size | flights | time

size      share of p-values below .05 for independent parts, with and without a heavy unlisted string (30 %) on both sides
power     beside the efficient score test, which knows the shares of both parts; the alternative has a power of about .6
guess     total variation from random tables: the guess, and expectation-maximization at the iteration that is best on average
iterations total variation of the guess, and of EM after one number of iterations, for 5 x 2 tables without and with strong dependence
coverage  of the 95 % intervals of all cells and of the conditional shares, over random tables
three     coverage and total variation, over random tables of three parts; three-size is the level of their test
flights   carrier x origin of 336,776 flights, k = 32 and 16, h = 1, epsilon 2 for each part
time      of a million pairs of 30 x 30 values, and the peak memory of the process
"""

from __future__ import annotations

import csv
import itertools
import time
from collections import Counter
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.runner import Benchmark, generator, peak_megabytes
from benchmarks.tables import Row, Table
from hubbub import Metric, Params, UnaryResponse
from hubbub.summary import Reports
from hubbub_decoder import associate, simulate
from hubbub_decoder.association.components import Components, Sample
from hubbub_decoder.association.dependence import IndependenceTest, fit_dependence
from hubbub_decoder.association.fit import fit_parts
from hubbub_decoder.association.margins import MarginFit, fit_point
from hubbub_decoder.association.moments import CohortMoments
from hubbub_decoder.options import Options

Floats = NDArray[np.float64]
_EM_ITERATIONS = 1000


def string_metric(num_bits: int = 32, num_hashes: int = 2, num_cohorts: int = 16, **chances: Any) -> Metric:
    """Joint metric of two string parts, a and b, with the same parameters."""
    params = Params(num_bits=num_bits, num_hashes=num_hashes, num_cohorts=num_cohorts, **chances)
    return Metric.joint("both", (Metric.string("a", params), Metric.string("b", params)))


def zipf(number: int) -> Floats:
    """Shares under Zipf's law."""
    weights = 1 / np.arange(1, number + 1)
    return np.asarray(weights / weights.sum())


def draw_reports(
    metric: Metric, table: Floats, size: int, unlisted: float, seed: int
) -> tuple[Reports, dict[str, list[str]], NDArray[np.int64]]:
    """Reports of a table of shares, the candidates, and the counts; each side has one unlisted string, independent of the other side.

    counts : (rows + 1, columns + 1), the unlisted strings last
    """
    rng = generator(seed)
    x, y = table.sum(axis=1), table.sum(axis=0)
    full = np.zeros((len(x) + 1, len(y) + 1))
    full[:-1, :-1] = (1 - unlisted) ** 2 * table
    full[-1, :-1], full[:-1, -1], full[-1, -1] = (
        unlisted * (1 - unlisted) * y,
        unlisted * (1 - unlisted) * x,
        unlisted**2,
    )
    counts = rng.multinomial(size, full.ravel() / full.sum()).reshape(full.shape)
    names = {
        "a": [f"a{seed}-{i}" for i in range(len(x))] + [f"heavy-a{seed}"],
        "b": [f"b{seed}-{i}" for i in range(len(y))] + [f"heavy-b{seed}"],
    }
    pairs = itertools.product(names["a"], names["b"])
    reports = simulate(metric, dict(zip(pairs, counts.ravel().tolist(), strict=True)), rng, form=Reports)
    return reports, {part: strings[:-1] for part, strings in names.items()}, counts


def sample_of(reports: Reports, candidates: dict[str, list[str]]) -> Sample:
    """Reports of both parts by cohort."""
    first, second = (Components.of_part(part, candidates[part.name]) for part in reports.metric.components)
    return Sample.from_reports(reports, (first, second))


def independence(sample: Sample) -> IndependenceTest:
    """The test of `associate`."""
    moments = CohortMoments.of_sample(sample, (fit_point(sample, 0), fit_point(sample, 1)))
    return fit_dependence(moments, (moments.margin(0), moments.margin(1))).test


def efficient_score(sample: Sample, table: Floats) -> IndependenceTest:
    """The same test at the true shares of both parts, of the listed values alone."""
    fits = []
    for part, shares in zip(sample.parts, (table.sum(axis=1), table.sum(axis=0)), strict=True):
        known = np.append(shares, np.zeros(len(part) - len(shares)))
        fits.append(MarginFit(np.maximum(known, 1e-9), known, np.zeros(len(known)), np.eye(len(known) - 1)))
    return fit_dependence(CohortMoments.of_sample(sample, (fits[0].point, fits[1].point)), (fits[0], fits[1])).test


def size(runs: int, table: Table) -> None:
    """Share of p-values below .05 without dependence."""
    for (rows, columns, reports), f, unlisted in itertools.product(
        ((5, 2, 10_000), (5, 2, 100_000), (30, 30, 100_000)), (0.0, 0.5), (0.0, 0.3)
    ):
        metric = string_metric(prob_p=0.5, prob_q=0.75, prob_f=f)
        tests = []
        for seed in range(runs):
            drawn, candidates, _ = draw_reports(metric, np.outer(zipf(rows), zipf(columns)), reports, unlisted, seed)
            tests.append(independence(sample_of(drawn, candidates)))
        p_values = np.array([test.p_value for test in tests])
        df = int(np.median([test.degrees_of_freedom for test in tests]))
        table.add(
            {
                "values": f"{rows} x {columns}",
                "N": f"{reports:,}",
                "f": f"{f}",
                "unlisted": f"{unlisted:.0%}",
                "p < .05": f"{(p_values < 0.05).mean():.3f}",
                "p < .01": f"{(p_values < 0.01).mean():.3f}",
                "median degrees of freedom": f"{df}",
            }
        )


def iterations(runs: int, table: Table) -> None:
    """Total variation of 5 x 2 tables at .5/.75/.5 and N = 10,000: EM needs another iteration for each strength of dependence."""
    size, metric = 10_000, string_metric(prob_p=0.5, prob_q=0.75, prob_f=0.5)
    distances = np.zeros((2, runs, _EM_ITERATIONS + 1))
    for joint, of_runs in zip((np.outer(zipf(5), zipf(2)), alternative(5, 2, 1.0)), distances, strict=True):
        for seed, of_run in enumerate(of_runs):
            drawn, candidates, counts = draw_reports(metric, joint, size, 0.0, seed)
            guessed = associate(drawn, candidates).joint.guess
            true = np.zeros_like(guessed)
            true[:5, :2] = counts[:-1, :-1] / size
            path = [np.abs(shares - true[:5, :2]).sum() / 2 for shares in em_tables(drawn, candidates, _EM_ITERATIONS)]
            of_run[:] = [np.abs(guessed - true).sum() / 2, *path, *path[-1:] * (_EM_ITERATIONS - len(path))]
    for number in (0, 50, 100, 200, 300, 400, 500, 600, 700, 850, 1000):
        none, strong = distances[:, :, number].mean(axis=1)
        difference = (distances[:, :, number] - distances[:, :, 0]).sum(axis=0)
        error = difference.std(ddof=1) / np.sqrt(runs)
        name = f"EM, {number} iterations" if number else "guess"
        row = {"estimate": name, "none": f"{none:.3f}", "strong": f"{strong:.3f}"}
        table.add({**row, "sum, less that of the guess": f"{difference.mean():+.3f} ({error:.3f})"})


def power(runs: int, table: Table) -> None:
    """Power of the test and of the efficient score test, for alternatives of three sizes."""
    small, large, wide = (5, 2, 10_000), (5, 2, 100_000), (10, 5, 100_000)
    for (rows, columns, reports), f, strength in (
        (small, 0.5, 1.0),
        (small, 0.0, 0.3),
        (large, 0.5, 0.3),
        (wide, 0.0, 0.3),
    ):
        metric, joint = string_metric(prob_p=0.5, prob_q=0.75, prob_f=f), alternative(rows, columns, strength)
        rejected = np.zeros(2)
        for seed in range(runs):
            drawn, candidates, _ = draw_reports(metric, joint, reports, 0.0, seed)
            sample = sample_of(drawn, candidates)
            rejected += [test.p_value < 0.05 for test in (independence(sample), efficient_score(sample, joint))]
        ours, efficient = rejected / runs
        row = {"values": f"{rows} x {columns}", "N": f"{reports:,}", "f": f"{f}", "strength": f"{strength}"}
        table.add({**row, "power": f"{ours:.3f}", "efficient score": f"{efficient:.3f}"})


def alternative(rows: int, columns: int, strength: float) -> Floats:
    """Table with Zipf margins in the rows in which every second row prefers the first columns."""
    x, y = zipf(rows), zipf(columns)
    tilt = strength * np.outer((-1.0) ** np.arange(rows), np.linspace(1, -1, columns))
    table = np.outer(x, y) * np.exp(tilt)
    return np.asarray(table / table.sum())


def em_tables(reports: Reports, candidates: dict[str, list[str]], iterations: int) -> list[Floats]:
    """Joint shares of the listed pairs after each iteration of google/rappor's EM, from the uniform table."""
    sample = sample_of(reports, candidates)
    first, second = sample.parts
    likelihoods = [
        np.concatenate([block[: components.listed] for _, block in sample.blocks(part)], axis=1)
        for part, components in enumerate((first, second))
    ]
    table = np.full((first.listed, second.listed), 1 / first.listed / second.listed)
    tables = []
    for _ in range(iterations):
        weights = 1 / np.einsum("un,uv,vn->n", likelihoods[0], table, likelihoods[1], optimize=True)
        updated = table * ((likelihoods[0] * weights) @ likelihoods[1].T) / sample.num_reports
        tables.append(updated)
        if np.abs(updated - table).max() < 1e-6:
            break
        table = updated
    return tables


def random_table(rng: np.random.Generator, rows: int, columns: int, kind: str, strength: float) -> Floats:
    """Table with random margins and a random dependence: x y' exp(a), with a of rank 1, normal, or on one cell of each row."""
    independent = np.outer(rng.dirichlet(np.full(rows, 2.0)), rng.dirichlet(np.full(columns, 2.0)))
    log_odds = {
        "none": np.zeros((rows, columns)),
        "rank 1": np.outer(rng.standard_normal(rows), rng.standard_normal(columns)),
        "normal": rng.standard_normal((rows, columns)),
        "diagonal": 2.0 * (rng.integers(columns, size=rows)[:, None] == np.arange(columns)),
    }[kind]
    table = independent * np.exp(strength * log_odds)
    return np.asarray(table / table.sum())


def guess(runs: int, table: Table) -> None:
    """Total variation from random tables, beside the EM iteration that is best on average in each row of the result."""
    tasks, distances, paths = [], [], []
    for seed in range(runs):
        rng = generator("guess", seed)
        rows, columns = (30, 30) if seed < runs // 100 else (int(rng.integers(2, 9)), int(rng.integers(2, 7)))
        reports = 100_000 if rows == 30 else int(rng.choice([10_000, 30_000]))
        p, q, f = ((0.5, 0.75, 0.5), (0.5, 0.75, 0.0), (0.25, 0.75, 0.25))[int(rng.integers(3))]
        kind, strength = str(rng.choice(["none", "rank 1", "normal", "diagonal"])), float(rng.uniform(0, 2))
        joint = random_table(rng, rows, columns, kind, strength)
        drawn, candidates, counts = draw_reports(string_metric(prob_p=p, prob_q=q, prob_f=f), joint, reports, 0.0, seed)
        guessed = associate(drawn, candidates).joint.guess
        true = np.zeros_like(guessed)
        true[:rows, :columns] = counts[:-1, :-1] / reports
        product = np.outer(true.sum(axis=1), true.sum(axis=0))
        distances.append([np.abs(shares - true).sum() / 2 for shares in (guessed, product)])
        path = [
            np.abs(shares - true[:rows, :columns]).sum() / 2
            for shares in em_tables(drawn, candidates, 300 if rows == 30 else _EM_ITERATIONS)
        ]
        paths.append(path + path[-1:] * (_EM_ITERATIONS - len(path)))
        size = "30 x 30" if rows == 30 else "2 x 2 to 4 x 6" if rows < 5 else "5 x 2 to 8 x 6"
        strong = "none" if kind == "none" else "weak" if strength < 1 else "strong"
        tasks.append(
            (
                "all",
                f"values {size}",
                f"p, q, f {p}, {q}, {f}",
                f"N {reports:,}",
                f"dependence {strong}",
                f"form {kind}",
            )
        )
    of_tasks, em = np.array(distances), np.array(paths)
    for group in sorted({name for task in tasks for name in task}):
        chosen = np.array([group in task for task in tasks])
        best = int(em[chosen].mean(axis=0).argmin())
        difference = of_tasks[chosen, 0] - em[chosen, best]
        error = difference.std() / np.sqrt(chosen.sum())
        table.add(
            {
                "tasks": group,
                "number": f"{chosen.sum()}",
                "guess": f"{of_tasks[chosen, 0].mean():.4f}",
                "EM, best iteration": f"{em[chosen, best].mean():.4f} ({best + 1})",
                "guess - EM": f"{difference.mean():+.4f} ({error:.4f})",
                "EM at its end": f"{em[chosen, -1].mean():.4f}",
                "product of the true margins": f"{of_tasks[chosen, 1].mean():.4f}",
            }
        )


def coverage(runs: int, table: Table) -> None:
    """Coverage of the 95 % intervals over random tables, with standard errors over the tables."""
    for (p, q, f), unlisted in itertools.product(((0.5, 0.75, 0.5), (0.2, 0.8, 0.25), (0.125, 0.5, 0.0)), (0.0, 0.2)):
        covered, squares = [], []
        for seed in range(runs):
            rng = generator(seed)
            rows, columns, reports = int(rng.integers(2, 7)), int(rng.integers(2, 5)), int(rng.integers(20_000, 60_000))
            metric = string_metric(
                num_hashes=int(rng.integers(1, 3)), num_cohorts=int(rng.choice([16, 32])), prob_p=p, prob_q=q, prob_f=f
            )
            joint = rng.dirichlet(np.full(rows * columns, 2.0)).reshape(rows, columns)
            drawn, candidates, counts = draw_reports(metric, joint, reports, unlisted, seed)
            found = associate(drawn, candidates)
            true, inside = counts[:rows, :columns] / reports, np.zeros(2)
            for i, j in np.ndindex(rows, columns):
                cell = found[candidates["a"][i], candidates["b"][j]]
                of_row = counts[i, j] / counts[i].sum()
                inside += cell.low <= true[i, j] <= cell.high, cell.given[0].low <= of_row <= cell.given[0].high
                squares.append(((cell.share - true[i, j]) / cell.std_error) ** 2)
            covered.append(inside / true.size)
        means, errors = np.mean(covered, axis=0), np.std(covered, axis=0) / np.sqrt(runs)
        cells, conditionals = (f"{mean:.3f} ({error:.3f})" for mean, error in zip(means, errors, strict=True))
        row = {**_setting(p, q, f, unlisted), "cells": cells, "conditionals": conditionals}
        table.add({**row, "standard deviation of z": f"{np.sqrt(np.mean(squares)):.3f}"})


def _setting(p: float, q: float, f: float, unlisted: float) -> Row:
    return {"p, q, f": f"{p}, {q}, {f}", "unlisted": f"{unlisted:.0%}"}


def three(runs: int, table: Table) -> None:
    """Coverage and total variation for three dependent parts."""
    for (p, q, f), unlisted in itertools.product(((0.5, 0.75, 0.0), (0.2, 0.8, 0.25), (0.125, 0.5, 0.0)), (0.0, 0.2)):
        covered, distances = [], []
        for seed in range(runs):
            rng = generator(seed)
            shape = int(rng.integers(2, 5)), int(rng.integers(2, 4)), 3
            metric = three_metric(prob_p=p, prob_q=q, prob_f=f)
            joint = rng.dirichlet(np.full(np.prod(shape), 1.5)).reshape(shape)
            drawn, candidates, counts = draw_three(metric, joint, 40_000, unlisted, rng)
            found = associate(drawn, candidates)
            listed = tuple(slice(number) for number in shape)
            shares, errors = found.joint.shares[listed], found.joint.std_errors[listed]
            inside = [float(np.mean(np.abs(shares - counts[listed] / 40_000) <= 1.96 * errors))]
            for ratio, axes in zip(found.joint.given, ((1, 2), (2,)), strict=True):
                low, high = (end[listed] for end in ratio.interval(1.96))
                true = counts[listed] / np.maximum(counts.sum(axis=axes, keepdims=True), 1)[: shape[0], : shape[1]]
                clear = np.isfinite(low)
                inside.append(float(np.mean((low <= true)[clear] & (true <= high)[clear])) if clear.any() else np.nan)
            covered.append(inside)
            truth = np.zeros_like(found.joint.guess)
            truth[: shape[0] + 1, : shape[1] + 1, :3] = counts / 40_000
            product = np.einsum("a,b,c->abc", *(truth.sum(axis=axes) for axes in ((1, 2), (0, 2), (0, 1))))
            distances.append(
                [np.abs(shares - truth).sum() / 2 for shares in (found.joint.guess, found.joint.shares, product)]
            )
        cover, errors = np.nanmean(covered, axis=0), np.nanstd(covered, axis=0) / np.sqrt(runs)
        covers = (f"{mean:.3f} ({error:.3f})" for mean, error in zip(cover, errors, strict=True))
        far = (f"{distance:.3f}" for distance in np.mean(distances, axis=0))
        row = _setting(p, q, f, unlisted) | dict(zip(("cells", "given one", "given two"), covers, strict=True))
        table.add(row | dict(zip(("guess", "estimate", "product"), far, strict=True)))


def three_size(runs: int, table: Table) -> None:
    """Share of p-values below .05 of the test of mutual independence, for three independent parts."""
    for (p, q, f), unlisted in (((0.5, 0.75, 0.0), 0.0), ((0.2, 0.8, 0.25), 0.2), ((0.5, 0.75, 0.5), 0.2)):
        rejected = []
        for seed in range(runs):
            rng = generator(seed)
            shape = int(rng.integers(2, 5)), int(rng.integers(2, 4)), 3
            joint = rng.dirichlet(np.full(np.prod(shape), 1.5)).reshape(shape)
            independent = np.einsum("a,b,c->abc", *(joint.sum(axis=axes) for axes in ((1, 2), (0, 2), (0, 1))))
            metric = three_metric(prob_p=p, prob_q=q, prob_f=f)
            drawn, candidates, _ = draw_three(metric, independent, 10_000, unlisted, rng)
            fit = fit_parts(drawn, candidates, None, Options())
            rejected.append(fit.test((0, 1, 2)).p_value < 0.05)
        table.add({**_setting(p, q, f, unlisted), "p < .05": f"{np.mean(rejected):.3f}"})


def three_metric(**chances: Any) -> Metric:
    """Joint metric of two string parts, a and b, and a categorical part c."""
    category = Metric.categorical("c", ("x", "y", "z"), UnaryResponse(**chances))
    return Metric.joint("three", (*string_metric(num_hashes=1, **chances).components, category))


def draw_three(
    metric: Metric, table: Floats, size: int, unlisted: float, rng: np.random.Generator
) -> tuple[Reports, dict[str, list[str]], NDArray[np.int64]]:
    """Reports of a table of three parts, candidates and counts; the first two have one unlisted string, independent of all others."""
    rows, columns, _ = table.shape
    full = np.zeros((rows + 1, columns + 1, 3))
    full[:-1, :-1] = (1 - unlisted) ** 2 * table
    full[-1, :-1], full[:-1, -1] = (unlisted * (1 - unlisted) * table.sum(axis=axis) for axis in (0, 1))
    full[-1, -1] = unlisted**2 * table.sum(axis=(0, 1))
    counts = rng.multinomial(size, full.ravel() / full.sum()).reshape(full.shape)
    names = [
        [f"{side}{rng.integers(10**9)}" for _ in range(number + 1)] for side, number in (("a", rows), ("b", columns))
    ]
    clients = dict(zip(itertools.product(*names, ("x", "y", "z")), counts.ravel().tolist(), strict=True))
    return simulate(metric, clients, rng, form=Reports), {"a": names[0][:-1], "b": names[1][:-1]}, counts


def flights_metric() -> Metric:
    """Carrier (k = 32) and origin (k = 16), h = 1, each with epsilon 2: q* = 1/2, p* = 1 / (e**2 + 1)."""
    chances: dict[str, Any] = {
        "num_hashes": 1,
        "num_cohorts": 32,
        "prob_p": 1 / (np.exp(2) + 1),
        "prob_q": 0.5,
        "prob_f": 0,
    }
    return Metric.joint(
        "flight",
        (
            Metric.string("carrier", Params(num_bits=32, **chances)),
            Metric.string("origin", Params(num_bits=16, **chances)),
        ),
    )


def flights(runs: int, table: Table) -> None:
    """Total variation of the flights' joint table."""
    counts: Counter[tuple[str, ...]] = Counter()
    with resources.files("hubbub_decoder.demo").joinpath("flights_2013.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            counts[row["carrier"], row["origin"]] += int(row["count"])
    names = [sorted({pair[side] for pair in counts}) for side in (0, 1)]
    true = np.array([[counts[a, b] for b in names[1]] for a in names[0]]) / counts.total()
    product = np.abs(true - np.outer(true.sum(axis=1), true.sum(axis=0))).sum() / 2
    distances = []
    for seed in range(runs):
        reports = simulate(flights_metric(), counts, generator(seed), form=Reports)
        found = associate(reports, {"carrier": names[0], "origin": names[1]})
        padded = np.zeros_like(found.joint.guess)
        padded[: true.shape[0], : true.shape[1]] = true
        distances.append([np.abs(shares - padded).sum() / 2 for shares in (found.joint.guess, found.joint.shares)])
    ours, plain = np.mean(distances, axis=0)
    distances_of = {"guess": ours, "estimate": plain, "product of the true margins": product}
    row = {"flights": f"{counts.total():,}", **{name: f"{distance:.4f}" for name, distance in distances_of.items()}}
    table.add({**row, "ratio": f"{ours / product:.3f}"})


def timing(runs: int, table: Table) -> None:
    """Seconds of `associate`, processor seconds and peak memory."""
    metric = string_metric(prob_p=0.5, prob_q=0.75, prob_f=0.5)
    drawn, candidates, _ = draw_reports(metric, np.outer(zipf(30), zipf(30)), 1_000_000, 0.0, 0)
    seconds, processor = [], []
    for _ in range(runs):
        started = time.perf_counter(), time.process_time()
        associate(drawn, candidates)
        seconds.append(time.perf_counter() - started[0])
        processor.append(time.process_time() - started[1])
    table.add(
        {
            "pairs": "1,000,000 of 30 x 30",
            f"seconds, best of {runs}": f"{min(seconds):.1f}",
            "processor seconds": f"{min(processor):.1f}",
            "GiB, with the simulation": f"{peak_megabytes() / 1024:.2f}",
        }
    )


QUESTIONS: Mapping[str, tuple[Callable[[int, Table], None], int]] = {
    "size": (size, 500),
    "power": (power, 500),
    "guess": (guess, 300),
    "iterations": (iterations, 30),
    "coverage": (coverage, 200),
    "three": (three, 100),
    "three-size": (three_size, 200),
    "flights": (flights, 5),
    "time": (timing, 1),
}
"""Each question's function, and its number of runs."""


def main() -> None:
    benchmark = Benchmark(__doc__)
    benchmark.add("question", choices=QUESTIONS)
    benchmark.add("--runs", type=int, help="repetitions (default: those of the question)")
    options = benchmark.start()
    answer, runs = QUESTIONS[options.question]
    answer(options.runs or runs, benchmark.table())


if __name__ == "__main__":
    main()
