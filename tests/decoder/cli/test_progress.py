"""Stage and elapsed time of a long command."""

from __future__ import annotations

import io
import re
import time

import numpy as np
from rich.console import Console

from hubbub import Metric, Params, UnaryResponse
from hubbub.summary import BitCounts
from hubbub_decoder import decode, decode_each, simulate
from hubbub_decoder.cli.shared import elapsed_time


def shown(seconds: float, *, terminal: bool, delay: float) -> str:
    """Output of a block that takes so long."""
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80)
    with elapsed_time(console, delay) as show_stage:
        show_stage("decoding [b]x")
        time.sleep(seconds)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_shows_the_stage_and_the_elapsed_time_after_the_delay() -> None:
    text = shown(0.5, terminal=True, delay=0.01)
    assert "decoding [b]x ..." in text
    assert "0:00:00" in text


def test_shows_the_share_of_the_work_where_it_is_known() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with elapsed_time(console, 0.01) as show_stage:
        for stage, share in (("reading", 0.25), ("fitting", None), ("comparing", 0.5)):
            show_stage(stage, share)
            time.sleep(0.3)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert re.search(r"reading \.\.\. .* 25%", text)
    assert re.search(r"comparing \.\.\. .* 50%", text)
    assert not re.search(r"fitting \.\.\. [^\r\n]*%", text)


def test_periods_are_stages_with_their_share() -> None:
    metric = Metric.boolean("dark", UnaryResponse(prob_p=0.1, prob_q=0.9, prob_f=0.5), period="week")
    weeks = [BitCounts(metric, [1000], [[ones]], [day]) for ones, day in ((400, "2026-03-02"), (500, "2026-03-09"))]
    stages: list[tuple[str, float]] = []
    decode_each(weeks, progress=lambda stage, share: stages.append((stage, round(share, 3))))
    assert stages == [
        ("decoding 2026-03-02", 0.0),
        ("decoding 2026-03-09", 0.333),
        ("comparing 2026-03-02 and 2026-03-09", 0.667),
    ]


def test_stages_of_a_decoding_have_increasing_shares() -> None:
    """A frequent string is missing from the list, so the shares are estimated twice."""
    params = Params(num_bits=64, num_hashes=2, num_cohorts=16, prob_p=0.25, prob_q=0.75, prob_f=0)
    people = {"a": 20_000, "b": 10_000, "missing": 20_000}
    summary = simulate(Metric.string("site", params), people, np.random.default_rng(1))
    stages: list[tuple[str, float]] = []
    decoding = decode(summary, ["a", "b"], progress=lambda stage, share: stages.append((stage, share)))
    assert decoding.unlisted_strings
    assert [stage for stage, _ in stages] == [
        "testing the goodness of fit",
        "hashing the candidates",
        "estimating 2 shares",
        "estimating 3 shares, fit 2 with unlisted strings",
        "testing the candidates",
    ]
    shares = [share for _, share in stages]
    assert shares == sorted(set(shares))
    assert 0 <= shares[0] < shares[-1] < 1


def test_shows_nothing_before_the_delay() -> None:
    assert "decoding" not in shown(0.0, terminal=True, delay=30)


def test_shows_nothing_without_a_terminal() -> None:
    assert shown(0.3, terminal=False, delay=0.01) == ""
