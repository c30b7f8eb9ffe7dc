"""The limits of one aggregator: every setting, its default and what it is for, in one place.

The command line's options and their help are made from these fields.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from hubbub.errors import ParameterError


def _setting(default: float, about: str) -> Any:
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How much an aggregator takes, and how often it folds. Sizes are in bytes, times in seconds.

    The largest useful body: 10,000 reports of 128 bits are 240 kB of JSON.
    """

    max_body: int = _setting(1 << 20, "Largest body of a request as sent, in bytes.")
    max_inflated: int = _setting(4 << 20, "Largest body of a request once inflated, in bytes.")
    max_ratio: int = _setting(
        100, "How many times larger than sent an inflated body may be (bodies below 64 KiB: as they like)."
    )
    max_reports: int = _setting(10_000, "Most reports in one batch.")
    max_waiting: int = _setting(32 << 20, "Most bytes of batches waiting for their commit; beyond it: 503.")
    max_group: int = _setting(1_000, "Most batches in one commit.")
    fold_every: float = _setting(10.0, "Seconds between two rounds of folding segments into summaries.")

    def __post_init__(self) -> None:
        for setting in fields(self):
            if not getattr(self, setting.name) > 0:
                raise ParameterError(f"{setting.name} must be above 0, got {getattr(self, setting.name)}")
