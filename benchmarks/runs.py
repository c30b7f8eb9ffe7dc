"""Repeated simulation and decoding of populations: errors against the true shares, one table row per population."""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import platform
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.pages import put_section
from hubbub_decoder import Decoding

REPORTS = 1_000_000
Row = TypeVar("Row")


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
    rows: Sequence[Row],
    run: Callable[[Row, int], Run],
    line: Callable[[Row, list[Run]], str],
    section: Callable[[str], Sequence[str]],
    *,
    runs: int,
) -> None:
    """Run each row several times and print the table; with --out, write it to a page below `section(setting)`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--out", type=Path, help="write the table to this page")
    options = parser.parse_args()
    command = ["git", "describe", "--always", "--dirty"]
    head = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    commit = head.stdout.strip() or "no commit"
    lines = []
    with threadpool_limits(1):
        for row in rows:
            texts = [f"{commit} {row} {i}" for i in range(options.runs)]
            seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") for text in texts]
            lines.append(line(row, [run(row, seed) for seed in seeds]))
            print(lines[-1], flush=True)
    if options.out:
        setting = (
            f"`benchmarks/{name}.py`, seeds from {commit}, Python {platform.python_version()}, one core: {REPORTS:,} reports, "
            f"means of {options.runs} runs (standard errors)."
        )
        put_section(options.out, "\n".join([*section(setting), *lines]))


def commit_seed() -> tuple[str, int]:
    """HUBBUB_TEST_SEED or the commit's hash, and the seed derived from it."""
    text = os.environ.get("HUBBUB_TEST_SEED", "")
    if not text:
        command = ["git", "rev-parse", "HEAD"]
        here = Path(__file__).parent
        text = subprocess.run(command, capture_output=True, text=True, check=False, cwd=here).stdout.strip()
    return text, int.from_bytes(hashlib.sha256(f"random tasks {text}".encode()).digest()[:8], "big")
