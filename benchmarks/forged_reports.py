"""What forged reports gain, and the bound that a decoding states for them: attacks on random tasks, decoded again.

    python -m benchmarks.forged_reports [--tasks 200] [--first 0] [--jobs 2] [--out docs/explanation/data]

Attacks are those of `tests/support/forged_reports.py`, on three candidates of each task: the strongest, one near 4 standard errors, and
one near 0, with as many reports as the bound needs for 1.5 and 4 standard errors, and with one in a hundred. Ratio is the change of the
target's estimate over the bound that the decoding of what was received states, the forged reports among it: that is the only decoding that
an analyst has. Then the warnings and failed tests of `decode` that an attack causes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.runner import Benchmark, seed
from benchmarks.tables import Row
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
        for target in {int(np.nanargmin(np.abs(z - min(distance, np.nanmax(z))))) for distance in targets}:
            sizes = {attacks.num_for_standard_errors(target, errors) for errors in STANDARD_ERRORS}
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
        best = (max((g for g in of_kind if (g.index, g.target) == pair), key=lambda g: g.ratio) for pair in targets)
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
        before = {warning.kind for warning in decode(collected, candidates).warnings}
        for forgery in attacks.forgeries(target, attacks.evidence.num_reports // 100):
            after = decode(add_forged(collected, forgery), candidates)
            new = {warning.kind for warning in after.warnings} - before - {"forged_reports_unknown"}
            detected.setdefault(forgery.name, []).append((bool(after[design.groups[target][0]].detected), bool(new)))
    for name, seen in detected.items():
        found, warned = (sum(column) for column in zip(*seen, strict=True))
        yield f"{name}: detected in {found} of {len(seen)} tasks, new warnings in {warned}"


def main() -> None:
    benchmark = Benchmark(__doc__, tasks=200, jobs=2)
    options = benchmark.start()
    gains, done = list[Gain](), 0
    indices = range(options.first, options.first + 10 * options.tasks)
    for found in benchmark.map(functools.partial(attack_task, seed=seed()), indices):
        gains += found
        done += bool(found)
        if done == options.tasks:
            break
    benchmark.table("forged-reports").add_all(rows(gains))
    for gain in sorted(gains, key=lambda gain: -gain.ratio)[:12]:
        print(gain)
    print(*warnings_by_attack(min(12, options.tasks), seed()), sep="\n")


if __name__ == "__main__":
    main()
