"""A metric of every kind, with the options of that kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hubbub import Buckets, Discovery, Estimand, Metric, Params, Several, UnaryResponse
from hubbub.mechanisms.privset import PrivSet
from hubbub.mechanisms.subset import SubsetSelection
from hubbub.metrics.group import Group
from hubbub.metrics.kinds import CategoricalKind, NumberKind

NOISE: dict[str, Any] = {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.5}
ASYMMETRIC: dict[str, Any] = {"prob_p": 0.25, "prob_q": 0.75, "permanent_p": 0.125, "permanent_q": 0.625}
PARAMS = Params(num_bits=64, num_hashes=2, num_cohorts=64, **NOISE)
OS = Metric.categorical("os", ("linux", "macos", "other"), UnaryResponse(**NOISE), other="other")
DELAY = Metric.ordinal(
    "delay", Buckets((0, 10, 50, 100), several=Several.MAX, unit="ms", default=0), UnaryResponse(**NOISE)
)
ROWS = SubsetSelection(num_values=4, num_ones=1, prob_q=0.7, permanent_q=0.75)
THEME = Metric("theme", CategoricalKind.one_hot(("dark", "light", "system"), None, ROWS))
PACKAGES = PrivSet(num_values=6, max_items=2, num_ones=2, prob_hit=0.75)
EXTENSIONS = PrivSet(num_values=64, max_items=4, num_ones=5, prob_hit=0.75)
VERSION = Group("version", ("1.x", "2.x", "other"))
METRICS = (
    Metric.string("homepage", PARAMS, hold=4, description="start page", owner="a@example.org"),
    Metric.string("words", replace(PARAMS, num_cohorts=128), discover=Discovery(longest=8)),
    Metric.categorical("browser", ("firefox", "chromium"), UnaryResponse(**ASYMMETRIC)),
    OS,
    Metric.boolean("dark", UnaryResponse(**NOISE)),
    Metric.boolean("updated", UnaryResponse(**NOISE), group=VERSION),
    DELAY,
    Metric.ordinal("size", Buckets((0, 512), estimate=Estimand.MEAN, default=0), UnaryResponse(**NOISE)),
    Metric.set("plugins", ("spelling", "preview", "vim"), UnaryResponse(**NOISE)),
    Metric.set("packages", ("curl", "git", "vim", "zsh"), PACKAGES),
    Metric.set("extensions", None, EXTENSIONS, num_cohorts=16),
    THEME,
    Metric.joint("os_and_page", (OS, Metric.string("page", PARAMS))),
    Metric.joint("theme_and_page", (THEME, Metric.string("page", PARAMS))),
)


def buckets_of(metric: Metric) -> Buckets:
    """Return the buckets of a metric of numbers."""
    assert isinstance(metric.kind, NumberKind)
    return metric.kind.buckets
