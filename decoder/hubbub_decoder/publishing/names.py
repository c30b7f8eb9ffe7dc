"""Names by which options and pages call a period: METRIC or METRIC/PERIOD of all versions and values, and METRIC@DIGEST-VALUE/PERIOD of one.

>>> short_names("homepage@0d5b2f3c-other/2026-03-02")
('homepage', 'homepage/2026-03-02')
"""

from __future__ import annotations

from collections.abc import Collection

from hubbub_decoder.results_store.store import PeriodKey

METRICS_FILE = "index"
"""Name of the JSON file with the list of metrics, without its suffix: no metric of this name is published."""


def page_name(metric: str, key: PeriodKey) -> str:
    """Path of the page of a period, without its suffix.

    >>> page_name("homepage", PeriodKey("0d5b2f3c" + 56 * "0", "other", "2026-03-02"))
    'homepage@0d5b2f3c-other/2026-03-02'
    """
    value = f"-{key.group_value}" if key.group_value else ""
    return f"{metric}@{key.digest[:8]}{value}/{key.period}"


def short_names(name: str) -> tuple[str, str]:
    """METRIC and METRIC/PERIOD of the name of a page: of all versions of the metric, and all values of its group."""
    folder, _, period = name.partition("/")
    metric = folder.partition("@")[0]
    return metric, f"{metric}/{period}"


def is_named(name: str, by: Collection[str]) -> bool:
    """Whether options name a period."""
    return any(short in by for short in short_names(name))
