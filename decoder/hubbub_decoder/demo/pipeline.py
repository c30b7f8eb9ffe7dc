"""The demo's pipeline on one page: people -> reports -> aggregator -> summaries -> decodings -> comparisons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date

from hubbub_decoder.data.pull import pull_summary
from hubbub_decoder.demo.aggregator_process import running_aggregator
from hubbub_decoder.demo.comparison import Comparison
from hubbub_decoder.demo.flights import Flight, airports, definitions, definitions_text, true_shares
from hubbub_decoder.demo.gateway import send_all_reports
from hubbub_decoder.pipeline import decode


def run_demo(
    population: Sequence[Flight], today: date, workers: int, told: Callable[[str, int], None]
) -> tuple[Comparison, ...]:
    """Let everybody report, and decode what was collected.

    today   : the UTC day the reports are of
    workers : processes that encode
    told    : hears what is under way, and how many more people have reported
    """
    metrics = definitions()
    with running_aggregator(definitions_text()) as addresses:
        told("reporting", 0)
        send_all_reports(addresses.reports, population, today, workers, lambda more: told("reporting", more))
        told("pulling", 0)
        summaries = {name: pull_summary(addresses.reads, name) for name in metrics}
    told("decoding", 0)
    truth = true_shares(population)
    return tuple(
        Comparison(decode(summary, list(airports()) if name == "destination" else None), truth[name])
        for name, summary in summaries.items()
    )
