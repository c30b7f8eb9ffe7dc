"""Texts never state the condition of the ledger's sum without the return to earlier values.

The histories a, b, a and a, b, c change at the same times, but only the first repeats a permanent response, so no sum bounds their loss
(tests/client/privacy/test_history_losses.py).
"""

from __future__ import annotations

import re
import subprocess

from hubbub.metrics.kinds.kind import SAME_PATTERN
from tests.support.paths import REPOSITORY

BINARY = {".png", ".svg", ".parquet", ".pem", ".gz"}
EXACT = re.compile(
    r"return to earlier (values|answers), |returns to earlier values, |cross(es)? the( client's)? threshold "
)
"""What stands before "at the same times". A number's bit has two values, so a client that crosses the threshold again returns."""


def texts() -> dict[str, str]:
    """Return all files of the repository but this one, with comment signs and line breaks as spaces."""
    names = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    paths = [REPOSITORY / name for name in names.splitlines()]
    found = {}
    for path in paths:
        if path.is_file() and path.suffix not in BINARY and path.name != "test_bounded_histories.py":
            text = path.read_text(encoding="utf-8", errors="replace")
            found[str(path.relative_to(REPOSITORY))] = re.sub(r'[\s#*/"]+', " ", text)
    return found


def test_no_text_bounds_histories_by_the_times_of_changes_alone() -> None:
    wrong, right = [], 0
    for name, text in texts().items():
        for hit in re.finditer(r"at the same times|same pattern of changes|same sequence of changes", text):
            before = text[max(0, hit.start() - 60) : hit.start()]
            if EXACT.search(before):
                right += 1
            else:
                wrong.append(f"{name}: {before}{hit[0]}")
    assert wrong == []
    assert right >= 12
    assert EXACT.search(SAME_PATTERN.removesuffix("at the same times"))
