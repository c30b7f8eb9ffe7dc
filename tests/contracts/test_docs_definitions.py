"""Every definition that a page shows, and every one that a documented `hubbub plan` prints, is reported under the default Policy.

A page that needs another Policy says so beside the definition, with the word `epsilon_report`.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubbub import Policy
from hubbub.cli import main
from hubbub.metrics.definitions import parse_definitions
from hubbub.privacy.allocation import policy_problems
from hubbub_decoder.cli.plan import command as plan_command
from tests.support.paths import DOCS, REPOSITORY

PAGES = sorted(path for path in (*DOCS.rglob("*.md"), REPOSITORY / "README.md") if "decisions" not in path.parts)
TODAY = date(2026, 1, 1)


def tables() -> list[tuple[str, str]]:
    """Return the whole definitions of each page."""
    found = []
    for page in PAGES:
        for block in re.findall(r"^ *```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            text = textwrap.dedent(block)
            if text.startswith("[[metric]]") and "expires" in text and "..." not in text:
                found.append((page.name, text))
    return found


def plans() -> list[tuple[str, str]]:
    """Return the commands that choose a definition, of each page and of the command's help."""
    texts = {page.name: page.read_text(encoding="utf-8") for page in PAGES} | {"--help": plan_command.help or ""}
    return [
        (name, re.sub(r"\s+", " ", command.replace("\\\n", " ")))
        for name, text in texts.items()
        for command in re.findall(r"hubbub plan ((?:--[^`\n\\>#]|\\\n)[^`\n\\>#]*(?:\\\n[^`\n\\>#]*)*)", text)
        if "--epsilon" in command
    ]


def test_definitions_and_plans_are_found() -> None:
    assert len(tables()) >= 5
    assert len(plans()) >= 10


@pytest.mark.parametrize(("page", "text"), tables())
def test_shown_definition_is_reported(page: str, text: str) -> None:
    definitions = parse_definitions(text)
    assert list(policy_problems(Policy(), [definitions[name] for name in definitions], TODAY)) == [], page


@pytest.mark.parametrize(("page", "options"), plans())
def test_planned_definition_is_reported(page: str, options: str, tmp_path: Path) -> None:
    out = ["--html", str(tmp_path / "plan.html")] if "--html" in options else []
    arguments = shlex.split(re.sub(r"--html \S+", "", options))
    planned = CliRunner().invoke(main, ["plan", *arguments, *out])
    assert planned.exit_code == 0, planned.output
    definitions = parse_definitions(planned.stdout)
    assert list(policy_problems(Policy(), [definitions[name] for name in definitions], TODAY)) == [], page
