"""`hubbub plan --difference`: the reports of each of two groups that show a difference of a share with probability .8 or .9."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import binom

from hubbub import Metric, UnaryResponse
from hubbub.cli import main
from hubbub.errors import DefinitionError, ParameterError, SummaryError
from hubbub.summary import BitCounts
from hubbub_decoder import Description, compare, describe, simulate
from tests.support.every_kind import METRICS
from tests.support.paths import DOCS

HOW_TO = DOCS / "how-to"
PAIRS = 400


@pytest.mark.slow
@pytest.mark.parametrize("number", range(12))
def test_reports_of_each_group_show_the_difference_with_its_probability(number: int, unseen_seed: int) -> None:
    """400 pairs of groups of random users; the number of intervals above 0 is binomial, and out of its range once in a million."""
    rng = np.random.default_rng([unseen_seed, number])
    while True:
        low, high = sorted(rng.uniform(0, 1, 2))
        noise = UnaryResponse(prob_p=low, prob_q=high, prob_f=float(rng.choice([0, 0.25, 0.5])))
        metric = Metric.boolean("dark", noise)
        difference = float(10 ** rng.uniform(-2.5, -0.3))
        share = [0.0, 1 - difference, float(rng.uniform(0, 1 - difference))][number % 3]
        power, reports = list(_description(metric, share, difference).reports_of_difference.items())[number % 2]
        if high - low > 0.05 and 50 <= reports <= 1e6:
            break
    shown = 0
    for _ in range(PAIRS):
        a, b = (_group(metric, x, int(reports), rng) for x in (share, share + difference))
        with suppress(SummaryError):  # equal counts show nothing
            shown += compare(a, b, same_clients=False, target="population")["true"].low > 0
    assert binom.cdf(shown, PAIRS, power) > 0.5e-6
    assert binom.sf(shown - 1, PAIRS, power) > 0.5e-6


def _description(metric: Metric, share: float | None, difference: float) -> Description:
    return replace(describe(metric, num_reports=1_000), share=share, difference=difference)


def _group(metric: Metric, share: float, reports: int, rng: np.random.Generator) -> BitCounts:
    """Counts of a random sample of users, of whom this share has the value."""
    true = int(rng.binomial(reports, share))
    return simulate(metric, {"true": true, "false": reports - true}, rng).bit_counts()


def test_reports_without_noise_are_those_of_two_proportions() -> None:
    """In closed form, (1.96 + .84)**2 (x (1 - x) + y (1 - y)) / d**2, and for any share that of .5 - d / 2 and .5 + d / 2."""
    metric = Metric.boolean("dark", UnaryResponse(prob_p=0, prob_q=1, prob_f=0))
    z = 1.959964 + 0.841621
    for share, pair in ((0.3, (0.3, 0.32)), (None, (0.49, 0.51))):
        found = _description(metric, share, 0.02).reports_of_difference[0.8]
        assert math.isclose(found, z**2 * sum(x * (1 - x) for x in pair) / 0.02**2, rel_tol=2e-3)


def test_metrics_without_groups_have_no_reports_of_a_difference() -> None:
    for metric in METRICS:
        if metric.kind.word == "joint":
            continue
        described = describe(metric, num_reports=100_000)
        if not metric.kind.has_shares:
            with pytest.raises(ParameterError, match="estimates a mean alone"):
                replace(described, difference=0.02)
        elif metric.name in ("words", "plugins"):
            with pytest.raises(DefinitionError, match="takes no group"):
                replace(described, difference=0.02)
        else:
            fewer, more = replace(described, difference=0.02).reports_of_difference.values()
            assert 50 < fewer < more < 1e6
    with pytest.raises(ParameterError, match=r"at most 1 - share, got 0\.2 and share = 0\.9"):
        replace(describe(METRICS[4], num_reports=1_000, share=0.9), difference=0.2)


def test_command_of_the_page_prints_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [table] = re.findall(r"```toml\n(.*?)```", (HOW_TO / "rehearsing.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "metrics.toml").write_text(table)
    monkeypatch.chdir(tmp_path)
    page = (HOW_TO / "groups.md").read_text(encoding="utf-8")
    [(command, shown)] = re.findall(r"    hubbub (plan .*)\n\n```text\n(.*?)```", page, re.DOTALL)
    done = CliRunner().invoke(main, command.split(), env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    assert shown in re.sub(r"(?m) +$", "", done.stdout)
    [found] = json.loads(CliRunner().invoke(main, [*command.split(), "--json"]).stdout)
    assert [entry["power"] for entry in found["reports_of_difference"]] == [0.8, 0.9]
    chosen = ["plan", "--kind", "boolean", "--epsilon", "2", "--reports", "10000", "--difference", "2%"]
    assert "points from any share" in " ".join(CliRunner().invoke(main, chosen).stderr.split())
    wrong = CliRunner().invoke(main, [*chosen, "--share", "99%"])
    assert wrong.exit_code == 1
    assert "--difference must be at most 1 - share" in wrong.stderr
