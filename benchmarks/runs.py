"""Repeated simulation and decoding of populations: errors against the true shares, one table row for each population."""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.tables import Row, commit, markdown, write_table
from hubbub_decoder import Decoding

REPORTS = 1_000_000
Case = TypeVar("Case")


class Run(NamedTuple):
    """Figures of one decoding against the true shares."""

    total_variation: float
    found: int
    false: int
    covered_present: float
    covered_null: float
    selected: list[bool]
    seconds: float


def compare(decoding: Decoding, truth: dict[str, float], seconds: float) -> Run:
    """Compare a decoding with the true shares of its candidates."""
    missing = 1 - sum(truth.values())
    estimated = [e for e in decoding if not math.isnan(e.share)]
    covered = {
        present: [e.low <= truth[e.candidate] <= e.high for e in estimated if (truth[e.candidate] > 0) == present]
        for present in (True, False)
    }
    off = sum(abs((0 if math.isnan(e.posterior_median) else e.posterior_median) - truth[e.candidate]) for e in decoding)
    return Run(
        total_variation=(off + missing) / 2,
        found=sum(truth[e.candidate] > 0 for e in decoding.detected),
        false=sum(truth[e.candidate] == 0 for e in decoding.detected),
        covered_present=float(np.mean(covered[True])),
        covered_null=float(np.mean(covered[False])),
        selected=[
            e.selection_adjusted_low <= truth[e.candidate] <= e.selection_adjusted_high for e in decoding.detected
        ],
        seconds=seconds,
    )


def put_table(
    name: str,
    doc: str | None,
    cases: Sequence[Case],
    run: Callable[[Case, int], Run],
    row: Callable[[Case, list[Run]], Row],
    *,
    runs: int,
) -> None:
    """Run each case several times and print the table of the means; with --out, write NAME.csv."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--out", type=Path, help="write the table to this folder")
    options = parser.parse_args()
    rows: list[Row] = []
    with threadpool_limits(1):
        for case in cases:
            texts = [f"{commit()} {case} {i}" for i in range(options.runs)]
            seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") for text in texts]
            rows.append({**row(case, [run(case, seed) for seed in seeds]), "commit": commit()})
            print("\n".join(markdown(rows) if len(rows) == 1 else markdown(rows)[-1:]), flush=True)
    if options.out:
        write_table(options.out / f"{name}.csv", rows)


def commit_seed() -> tuple[str, int]:
    """HUBBUB_TEST_SEED or the commit's hash, and the seed derived from it."""
    text = os.environ.get("HUBBUB_TEST_SEED", "")
    if not text:
        command = ["git", "rev-parse", "HEAD"]
        here = Path(__file__).parent
        text = subprocess.run(command, capture_output=True, text=True, check=False, cwd=here).stdout.strip()
    return text, int.from_bytes(hashlib.sha256(f"random tasks {text}".encode()).digest()[:8], "big")
