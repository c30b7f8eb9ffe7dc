"""Figures of docs/explanation/privacy-review.md and acceptable-epsilon.md, computed from the code, and the program of docs/how-to/data-protection.md."""

from __future__ import annotations

import math
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubbub import Policy, load_definitions
from hubbub.cli import main
from hubbub.privacy import guarantees, privacy_figures, published_guarantee
from hubbub.privacy.pricing import shown_epsilon
from hubbub_decoder import Wishes, plan
from tests.support.paths import DOCS, REPOSITORY

PAGE = (DOCS / "explanation" / "privacy-review.md").read_text()
IN_WORDS = (DOCS / "explanation" / "acceptable-epsilon.md").read_text()
TEMPLATE = (DOCS / "how-to" / "data-protection.md").read_text()
HOMEPAGE = load_definitions(REPOSITORY / "examples" / "metrics.toml")["homepage"]
NO_BOUND = 1e6
"""Factors above this are printed as no bound in practice."""


def rows_of(header: str, page: str) -> list[list[str]]:
    """Return the cells of each row of the table with this header."""
    (table,) = re.findall(rf"^\| {re.escape(header)}.*\n\|[-|]+\n((?:\|.*\n)+)", page, flags=re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]


def suspicion(prior: float, epsilon: float) -> str:
    """Return the largest belief in an answer after reports of this epsilon, as the page prints it."""
    factor = math.exp(epsilon)
    if factor > NO_BOUND:
        return "no bound in practice"
    return f"{rounded_up(100 * prior * factor / (prior * factor + 1 - prior)):.1f} %"


def rounded_up(number: float) -> float:
    """Return a number rounded up to a tenth: a printed bound is not below the exact one."""
    return math.ceil(10 * number - 1e-9) / 10


def factor_text(epsilon: float) -> str:
    factor = math.exp(epsilon)
    if factor < NO_BOUND:
        return f"{rounded_up(factor):.1f}"
    if factor < 1e9:
        return f"{math.ceil(factor):,}"
    power = math.floor(math.log10(factor))
    return f"{rounded_up(factor / 10**power):.1f}e{power}"


@pytest.mark.parametrize("page", [REPOSITORY / "README.md", DOCS / "tutorial.md"], ids=lambda page: page.name)
def test_metrics_of_the_first_pages_pass_the_review(page: Path, tmp_path: Path) -> None:
    """The second step of the review, on what the command of the page writes."""
    (command,) = re.findall(r"^hubbub (plan .+) > metrics\.toml$", page.read_text(), flags=re.MULTILINE)
    check = re.search(r"`hubbub (metrics check) metrics\.toml (--max-epsilon \d+)`", PAGE)
    assert check
    file = tmp_path / "metrics.toml"
    file.write_text(CliRunner().invoke(main, shlex.split(command)).stdout)
    (metric,) = load_definitions(file).values()
    assert metric.lifetime_epsilon is not None
    done = CliRunner().invoke(main, [*check[1].split(), str(file), *check[2].split()])
    assert (done.exit_code, done.stderr) == (0, ""), done.output


def test_epsilons_in_words_follow_from_the_metric_and_the_default_policy() -> None:
    figures = privacy_figures(HOMEPAGE, Policy())
    epsilons = [
        figures.epsilon_report,
        figures.epsilon_unit,
        figures.epsilon_enrollment,
        figures.epsilon_lifetime,
        Policy().epsilon_total,
    ]
    rows = rows_of("bound of `homepage`", IN_WORDS)
    assert len(rows) == len(epsilons)
    for (name, shown, *cells), exact in zip(rows, epsilons, strict=True):
        assert float(shown) == float(shown_epsilon(exact))
        assert cells == [factor_text(exact), suspicion(0.01, exact), suspicion(0.5, exact)], name
    for units, row in ((figures.units_enrollment, rows[2]), (figures.units_lifetime, rows[3])):
        assert f"up to {units} different answers" in row[0]
    answer = epsilons[1]
    assert f"e^16 = {math.exp(16) / 1e6:.0f} million" in IN_WORDS
    assert f"its factor of {factor_text(answer)}" in IN_WORDS


def test_guarantees_of_the_review_are_the_objects() -> None:
    days = [f"2026-11-{day:02}" for day in range(1, 31)]
    assert "10,000 genuine clients" in PAGE
    assert "one and 30 published days" in PAGE
    published = [published_guarantee(HOMEPAGE, days[:number], 10_000) for number in (1, 30)]
    assert rows_of("observer | of | epsilon | holds", PAGE) == [
        [str(found.observer), str(found.unit), shown_epsilon(found.epsilon), found.condition.sentence]
        for found in (*guarantees(HOMEPAGE, Policy()), *published)
    ]


def test_the_review_has_two_screens_that_begin_with_what_is_not_protected() -> None:
    headings = re.findall(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    assert headings == ["Not protected", "Parties", "Guarantees", "How to verify"]
    assert len(re.sub(r"\]\([^)]*\)|\|", " ", PAGE).split()) <= 850
    assert len(PAGE.splitlines()) <= 100


def test_detectable_shares_are_those_of_plans() -> None:
    rows = rows_of("epsilon per report, per unchanging answer", IN_WORDS)
    assert len(rows) == 3
    for epsilons, shown in rows:
        report, answer = map(float, re.findall(r"[\d.]+", epsilons))
        planned = plan(Wishes(epsilon=report, longitudinal=answer, num_candidates=200, num_reports=1_000_000, bits=128))
        assert shown == f"{100 * planned.description.detection_limit:.2f} %"


def test_template_program_prints_each_metric() -> None:
    (command,) = re.findall(r"^python (.*)$", TEMPLATE, flags=re.MULTILINE)
    program = command.replace("metrics.toml", "examples/metrics.toml").split()
    output = subprocess.run(
        [sys.executable, *program], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    assert "| homepage | |" in output
    assert "| epsilon of all reports of a value | 4.000 |" in output


@pytest.mark.parametrize("name", ["controller", "legal basis", "purpose", "counts of bits"])
def test_template_leaves_fields_to_fill_in(name: str) -> None:
    assert re.search(rf"^\| {name} \|.*\[.+\]", TEMPLATE, flags=re.MULTILINE)
