"""docs/how-to/changing-definitions.md: the change of a share between two versions is estimated with its standard error."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from hubbub import Metric, UnaryResponse
from hubbub.summary import write_summary
from hubbub_decoder import simulate
from tests.support.paths import DOCS


def test_change_between_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unseen_seed: int) -> None:
    """From 30 % to 40 % of 100,000 clients; the printed interval of 95 % is widened to one of 1 - 1e-6."""
    page = (DOCS / "how-to" / "changing-definitions.md").read_text(encoding="utf-8")
    rng = np.random.default_rng(unseen_seed)
    for name, dark, noise in (("old", 30_000, 0.5), ("new", 40_000, 0.25)):
        theme = Metric.categorical("theme", ("dark", "light"), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=noise))
        write_summary(simulate(theme, {"dark": dark, "light": 100_000 - dark}, rng), tmp_path / f"theme-{name}.parquet")
    monkeypatch.chdir(tmp_path)
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    found: dict[str, float] = {}
    exec(compile(code, "docs/how-to/changing-definitions.md", "exec"), found)  # noqa: S102
    assert abs(found["change"] - 0.1) < 4.9 * found["error"]
    assert 0.002 < found["error"] < 0.02
