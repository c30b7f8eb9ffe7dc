"""One table of clock rules, for both clients and the documentation.

HUBBUB_TEST_PIN=1 pytest tests/contracts/test_clock_rules.py          rewrites clients/typescript/src/clock_rules.ts and the table in format.md
"""

from __future__ import annotations

import os
import re
from datetime import UTC, date, datetime, timedelta

from hubbub.sdk.runtime.clock import CLOCK_RULES, ClockRule
from tests.support.paths import REPOSITORY

TYPESCRIPT = REPOSITORY / "clients" / "typescript" / "src" / "clock_rules.ts"
FORMAT = REPOSITORY / "docs" / "reference" / "format.md"
TABLE = re.compile(r"\| clock rule \|.*\n(\|.*\n)+")


def milliseconds(limit: date | timedelta) -> int:
    """Return a duration, or the start of a day in POSIX time, in milliseconds."""
    if isinstance(limit, date):
        limit = datetime(limit.year, limit.month, limit.day, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return limit // timedelta(milliseconds=1)


def words(limit: date | timedelta) -> str:
    if isinstance(limit, date):
        return str(limit)
    return "1 day" if limit.days == 1 else f"{limit.days} days"


def typescript(rule: ClockRule) -> str:
    return f"/** {words(rule.limit)} */\nexport const {rule.name} = {milliseconds(rule.limit):_};\n"


def test_typescript_has_the_rules() -> None:
    head = "/** Limits beyond which a client does not believe a clock, in milliseconds. A test writes them: tests/contracts/test_clock_rules.py. */\n\n"
    module = head + "".join(map(typescript, CLOCK_RULES))
    if os.environ.get("HUBBUB_TEST_PIN"):
        TYPESCRIPT.write_text(module)
    assert TYPESCRIPT.read_text() == module


def test_format_has_the_rules() -> None:
    rows = [f"| `{rule.name}` | {words(rule.limit)} | {rule.beyond} |\n" for rule in CLOCK_RULES]
    table = "".join(["| clock rule | limit | beyond it |\n", "|---|---|---|\n", *rows])
    page = FORMAT.read_text()
    if os.environ.get("HUBBUB_TEST_PIN"):
        FORMAT.write_text(page := TABLE.sub(lambda _: table, page))
    assert TABLE.search(page)
    assert table in page
