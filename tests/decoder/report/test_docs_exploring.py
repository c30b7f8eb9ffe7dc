"""docs/how-to/exploring.md: its commands exist."""

from __future__ import annotations

import re

from click.testing import CliRunner

from hubbub.cli import main
from tests.support.paths import DOCS

PAGE = (DOCS / "how-to" / "exploring.md").read_text(encoding="utf-8")


def test_options_of_the_commands_exist() -> None:
    commands = re.findall(r"^    hubbub (.*)$", PAGE, re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        name, *words = command.split()
        usage = CliRunner().invoke(main, [name, "--help"]).output
        assert all(word in usage for word in words if word.startswith("--"))
