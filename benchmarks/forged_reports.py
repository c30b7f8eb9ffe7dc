"""What forged reports gain, and the bound that a decoding states for them: attacks on random tasks, decoded again.

python -m benchmarks.forged_reports [--tasks 200] [--first 0] [--jobs 2] [--out docs/explanation/data]          (or: make bench-attacks)

Attacks are those of `tests/support/forged_reports.py`, on three candidates of each task: the strongest, one near 4 standard errors, and
one near 0, with as many reports as the bound needs for 1.5 and 4 standard errors, and with one in a hundred. Ratio is the change of the
target's estimate over the bound that the decoding of what was received states, the forged reports among it: that is the only decoding that
an analyst has. Then the warnings and failed tests of `decode` that an attack causes.

Seeds derive from the commit's hash (HUBBUB_TEST_SEED repeats a run).
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.runs import commit_seed
from benchmarks.tables import Row, markdown, write_table
from hubbub_decoder import decode
from hubbub_decoder.inference.influence import TOLERANCE
from hubbub_decoder.model.design_matrix import design_matrix
from tests.support.forged_reports import MIN_FORGED, Attacks, add_forged
from tests.support.random_tasks import KINDS, draw_task, simulate_task

STANDARD_ERRORS = 1.5, 4.0
"""Bounds of the attacks: the least that stands out from the accuracy of a decoding, and about what a detection needs."""
_MAX_CANDIDATES, _MAX_RETAINED = 1_000, 30_000
_TARGETS = (math.inf, 4.0, 0.0)  # standard errors


@dataclass(frozen=True)
class Gain:
    """Gain of an attack on a target, over the bound."""

    index: int
    kind: str
    attack: str
    target: float
    share: float
    ratio: float


def attack_task(index: int, seed: int, targets: Sequence[float] = _TARGETS) -> list[Gain]:
    """Gains of all attacks on the targets of a task that a bound is stated for; none of a task that is too large.

    targets : standard errors that the shares of the attacked candidates are away from 0
    """
    task = draw_task(index, seed)
    if task.num_candidates > _MAX_CANDIDATES or (task.kind == "reports" and task.num_reports > _MAX_RETAINED):
        return []
    collected, candidates, _, _ = simulate_task(task)
    found = []
    with threadpool_limits(1):
        attacks = Attacks(collected, design_matrix(candidates, task.params), np.random.default_rng(task.seed))
        errors = np.sqrt(attacks.fit.variances)
        z = attacks.fit.shares / errors
        if not np.isfinite(z).any():
            return []
        for target in {int(np.nanargmin(np.abs(z - min(each, np.nanmax(z))))) for each in targets}:
            sizes = {attacks.num_for_standard_errors(target, each) for each in STANDARD_ERRORS}
            for size in sorted({*sizes, max(*sizes, attacks.evidence.num_reports // 100)}):
                adaptive = task.kind != "reports" and size == min(sizes)
                for forgery in attacks.forgeries(target, size, adaptive=adaptive):
                    share = forgery.size / attacks.evidence.num_reports
                    if forgery.size >= MIN_FORGED and not math.isnan(ratio := attacks.ratio(target, forgery)):
                        found.append(Gain(index, task.kind, forgery.name, float(z[target]), share, ratio))
    return found


def rows(gains: Sequence[Gain]) -> Iterator[Row]:
    """Yield a row for each kind of counts and attack, and one for the best attack on each target."""
    for kind in KINDS:
        of_kind = [gain for gain in gains if gain.kind == kind]
        for attack in dict.fromkeys(gain.attack for gain in of_kind):
            yield _row(kind, attack, [gain for gain in of_kind if gain.attack == attack])
        targets = {(gain.index, gain.target) for gain in of_kind}
        best = (max((g for g in of_kind if (g.index, g.target) == each), key=lambda g: g.ratio) for each in targets)
        yield _row(kind, "best of each target", list(best))


def _row(kind: str, attack: str, gains: Sequence[Gain]) -> Row:
    ratios = np.array([gain.ratio for gain in gains])
    return {
        "counts": kind,
        "attack": attack,
        "tasks": f"{len({gain.index for gain in gains})}",
        "gains": f"{len(gains)}",
        "median": f"{np.median(ratios):.2f}" if len(ratios) else "-",
        "largest": f"{ratios.max():.2f}" if len(ratios) else "-",
        f"above {TOLERANCE}": f"{int((ratios > TOLERANCE).sum())}",
    }


def warnings_by_attack(tasks: int, seed: int) -> Iterator[str]:
    """Yield, for each attack on an absent candidate of some tasks of bit counts, how often `decode` detects it, and how often it warns anew."""
    detected: dict[str, list[tuple[bool, bool]]] = {}
    for index in range(0, 3 * tasks, 3):
        task = draw_task(index, seed)
        if task.num_candidates > _MAX_CANDIDATES or not task.absent:
            continue
        collected, candidates, _, _ = simulate_task(task)
        design = design_matrix(candidates, task.params)
        attacks = Attacks(collected, design, np.random.default_rng(task.seed))
        target = next(column for column, group in enumerate(design.groups) if candidates[-1] in group)
        before = {each.kind for each in decode(collected, candidates).warnings}
        for forgery in attacks.forgeries(target, attacks.evidence.num_reports // 100):
            after = decode(add_forged(collected, forgery), candidates)
            new = {each.kind for each in after.warnings} - before - {"forged_reports_unknown"}
            detected.setdefault(forgery.name, []).append((bool(after[design.groups[target][0]].detected), bool(new)))
    for name, seen in detected.items():
        found, warned = (sum(column) for column in zip(*seen, strict=True))
        yield f"{name}: detected in {found} of {len(seen)} tasks, new warnings in {warned}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    name, seed = commit_seed()
    print(f"seed of {name}")
    indices, gains, done = range(options.first, options.first + 10 * options.tasks), list[Gain](), 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for found in pool.map(attack_task, indices, [seed] * len(indices)):
            gains += found
            done += bool(found)
            if found and done % 10 == 0:
                print(f"{done} tasks", file=sys.stderr)
            if done == options.tasks:
                pool.shutdown(cancel_futures=True)
                break
    table = list(rows(gains))
    print(*markdown(table), sep="\n")
    for gain in sorted(gains, key=lambda each: -each.ratio)[:12]:
        print(gain)
    print(*warnings_by_attack(12, seed), sep="\n")
    if options.out is not None:
        write_table(options.out / "forged-reports.csv", table)


if __name__ == "__main__":
    main()
