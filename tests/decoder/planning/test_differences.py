"""docs/how-to/groups.md: the difference of a share between two groups that their interval shows with probability .9."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from hubbub import load_definitions
from hubbub_decoder import decode, simulate
from tests.support.paths import DOCS

HOW_TO = DOCS / "how-to"


def test_stated_difference_is_found_with_its_probability(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unseen_seed: int
) -> None:
    """400 pairs of groups; the number of intervals above 0 is binomial with .9, and out of its range once in a million."""
    [table] = re.findall(r"```toml\n(.*?)```", (HOW_TO / "rehearsing.md").read_text(encoding="utf-8"), re.DOTALL)
    code = re.findall(r"```python\n(.*?)```", (HOW_TO / "groups.md").read_text(encoding="utf-8"), re.DOTALL)[-1]
    (tmp_path / "metrics.toml").write_text(table)
    monkeypatch.chdir(tmp_path)
    found: dict[str, float] = {}
    exec(compile(code, "docs/how-to/groups.md", "exec"), found)  # noqa: S102
    metric, number, pairs = load_definitions("metrics.toml")["theme"], 160_000, 400
    difference = 3.24 * 2**0.5 * found["law"].std_error(0.3)  # type: ignore[attr-defined]  # of the page
    assert found["reports"] == number
    rng = np.random.default_rng(unseen_seed)
    shown = 0
    for _ in range(pairs):
        estimates = []
        for share in (0.3 - difference / 2, 0.3 + difference / 2):
            dark = round(share * number)
            estimates.append(decode(simulate(metric, {"dark": dark, "light": number - dark}, rng))["dark"])
        a, b = estimates
        shown += b.share - a.share > 1.96 * (a.std_error**2 + b.std_error**2) ** 0.5
    low, high = binom.ppf([0.5e-6, 1 - 0.5e-6], pairs, 0.9)
    # The rounding of 3.24 changes the probability by less than .002, a share of the range on either side.
    assert low - 2 <= shown <= high + 2
