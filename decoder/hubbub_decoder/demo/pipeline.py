"""The demo, step by step: flights -> reports -> aggregator -> summaries -> decodings -> comparisons."""

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
    population: Sequence[Flight], today: date, workers: int, progress: Callable[[str, int], None]
) -> tuple[Comparison, ...]:
    """Report for all flights, decode the collected summaries, and compare them with the true shares.

    today    : UTC date of the reports
    workers  : number of encoding processes
    progress : called with the current step and the number of flights that have reported since the last call
    """
    metrics = definitions()
    with running_aggregator(definitions_text()) as addresses:
        progress("reporting", 0)
        send_all_reports(addresses.reports, population, today, workers, lambda more: progress("reporting", more))
        progress("downloading", 0)
        summaries = {name: pull_summary(addresses.reads, name) for name in metrics}
    progress("decoding", 0)
    truth = true_shares(population)
    return tuple(
        Comparison(decode(summary, list(airports()) if name == "destination" else None), truth[name])
        for name, summary in summaries.items()
    )
