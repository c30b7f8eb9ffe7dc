"""Which broken clients does an audit refute with default settings, and in how much time?

Each client runs through the tests of `hubbub audit`: the bounds, the declared law, replays and independence. The smallest p-value names the test. The
correct client of the same definition runs through the same tests.

    python -m benchmarks.audit_leaks            the table of docs/how-to/auditing.md
    python -m benchmarks.audit_leaks --correct 200    p-values of so many audits of correct clients
    python -m benchmarks.audit_leaks --smallest       the smallest share of true reports that an audit sees
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.runner import Benchmark, generator
from hubbub import Metric, Params
from hubbub.mechanisms.subset import SubsetSelection
from hubbub.metrics.kinds import CategoricalKind
from hubbub_decoder.audit.audit import MAX_DEFAULT_TRIALS, audit_metric
from hubbub_decoder.audit.clients import AuditedValue
from hubbub_decoder.audit.evidence import LEVEL, NoiseTest, binomial_tails
from hubbub_decoder.audit.external_clients import FunctionClient
from hubbub_decoder.audit.independence import compare_metrics, independence_tests
from hubbub_decoder.audit.replay import replay_tests_of
from tests.support import broken_clients as broken
from tests.support.broken_clients import METRICS, SimulatedClient

STRING = Metric.string("page", Params(num_bits=64, num_hashes=1, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.25))
TWO_HASHES = Metric.string(
    "page", Params(num_bits=64, num_hashes=2, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.5)
)
COINS = Metric.string("page", Params(num_bits=64, num_hashes=1, num_cohorts=64, prob_p=0, prob_q=1, prob_f=0.5))
ROWS = Metric(
    "theme",
    CategoricalKind.one_hot(
        ("a", "b", "c", "d", "e"), None, SubsetSelection(num_values=6, num_ones=2, prob_q=0.7, permanent_q=0.75)
    ),
)
SET, HOLD, JOINT, BHOLD = (METRICS[name] for name in ("set", "string, hold", "joint of two", "boolean, hold"))
BYTES = METRICS["string"]
PAIR = (METRICS["string"], METRICS["boolean, hold"])


@dataclass(frozen=True)
class Leak:
    """A broken client: its group in the table, its name, its definition, and how it is made."""

    group: str
    name: str
    metric: Metric | tuple[Metric, ...]
    client: Any


def after_a_change(earlier: Sequence[AuditedValue], value: AuditedValue) -> bool:
    """Whether the value of the report before was another one."""
    return bool(earlier) and earlier[-1] != value


def after_an_epoch(earlier: Sequence[AuditedValue], value: AuditedValue) -> bool:  # noqa: ARG001
    """Whether the first epoch of `HOLD` has ended."""
    return len(earlier) >= (HOLD.hold or 0)


def leaks() -> list[Leak]:
    """All broken clients: those that issue 53 names, those that were refuted before, those of the tables of auditing.md, and those of histories."""
    issue = [
        ("w + 1 ones in 2 % of the reports of one value", ROWS, broken.OneMoreOne(ROWS, "b")),
        ("two bits coupled by the value", COINS, broken.CoupledBits(COINS)),
        ("noise of 16 bits of entropy", TWO_HASHES, broken.NoiseOfFewSeeds(TWO_HASHES, 16)),
        ("noise of 24 bits of entropy", TWO_HASHES, broken.NoiseOfFewSeeds(TWO_HASHES, 24)),
        ("true first report of .1 % of the clients", STRING, broken.TrueFirstReport(STRING)),
        ("a set asks another item each period", SET, broken.AnotherItemEachPeriod(SET)),
        ("the same, with the first item in its label", SET, broken.AnotherItemEachPeriod(SET, hides=True)),
        ("permanent response drawn again each fifth report", STRING, broken.RedrawnEachFifthReport(STRING)),
        ("copies of the first report", STRING, broken.CopyOfTheFirstReport(STRING)),
    ]
    earlier = [
        ("noise never clears a one", STRING, broken.NeverClearsAOne(STRING)),
        ("one bit without noise", STRING, broken.BitWithoutNoise(STRING, 63)),
        ("one part without noise", JOINT, broken.PartWithoutNoise(JOINT, 1)),
        ("cohort of the value", STRING, broken.CohortOfTheValue(STRING)),
        ("cohort of the value in half of the clients", STRING, broken.CohortSometimesOfTheValue(STRING)),
        ("unused cohorts", STRING, broken.UnusedCohorts(STRING)),
        ("one instantaneous noise", STRING, broken.OneInstantaneousNoise(STRING)),
        ("parts with responses of their own", JOINT, broken.PartsWithResponsesOfTheirOwn(JOINT)),
        ("seeded at import", broken.PAGE, FunctionClient.load("tests.support.broken_clients:seeded_at_import")),
    ]
    documented = [
        ("noise of different values", STRING, broken.OneResponse(STRING)),
        ("noise of different epochs", HOLD, broken.MemoizedOverEpochs(HOLD)),
        ("noise of the parts", JOINT, broken.PartsOfOneInstantaneousNoise(JOINT)),
        ("noise of different metrics", PAIR, broken.SimulatedMetrics(PAIR, "permanent")),
        ("permanent response drawn again", STRING, broken.RedrawnResponse(STRING)),
        ("p and q exchanged", STRING, broken.ExchangedProbabilities(STRING)),
        ("report of a tenth depends on another metric's value", PAIR, broken.DependentMetrics(PAIR)),
        ("seeded with the time", broken.PAGE, FunctionClient.load("tests.support.broken_clients:seeded_with_the_time")),
    ]
    histories = [
        ("no noise in the first report after a change", BYTES, broken.ReportsWithoutNoise(BYTES, after_a_change)),
        ("no noise after the first epoch", HOLD, broken.ReportsWithoutNoise(HOLD, after_an_epoch)),
        ("no noise beside a metric without value", PAIR, broken.BareBesideNoValue(PAIR)),
        ("another cohort for each value", BYTES, broken.AnotherCohortForEachValue(BYTES)),
        ("a set of some items asks for one that it has", SET, broken.AsksForAnItemOfTheSet(SET)),
        (
            "noise of the bit before, in the report before",
            STRING,
            broken.ChangedNoise(STRING, broken.of_the_bit_before),
        ),
        ("noise of a report is the sum of two others", BHOLD, broken.ChangedNoise(BHOLD, broken.of_two_reports)),
        ("noise of the client before", BHOLD, broken.ChangedNoise(BHOLD, broken.of_the_client_before)),
    ]
    groups: dict[str, list[tuple[str, Any, Any]]] = {
        "named": issue,
        "earlier": earlier,
        "documented": documented,
        "histories": histories,
    }
    return [Leak(group, *row) for group, rows in groups.items() for row in rows]


def run(metric: Metric | tuple[Metric, ...], client: Any, seed: int) -> tuple[list[NoiseTest], int]:
    """All tests of a client with default settings, and the number of its clients."""
    if isinstance(metric, tuple):
        return compare_metrics(client, metric, MAX_DEFAULT_TRIALS, seed), 16_384
    audit = audit_metric(metric, client=client, seed=seed)
    tests = [*audit.tests, *replay_tests_of(client, metric, audit.values[0], audit.schedule, seed)]
    return tests + independence_tests(client, metric, None, audit.trials // 4, seed), audit.trials


def sound(metric: Metric | tuple[Metric, ...]) -> Callable[..., Any] | None:
    """Correct client of a definition."""
    if isinstance(metric, tuple):
        return broken.SimulatedMetrics(metric)
    return SimulatedClient(metric) if metric is not ROWS else None


def table_of_leaks(benchmark: Benchmark, only: str) -> int:
    """Add a row for each leak, and return the number of those that are not refuted."""
    table, missed = benchmark.table("audit-leaks"), 0
    for leak in leaks():
        if only not in leak.name:
            continue
        start = time.perf_counter()
        tests, trials = run(leak.metric, leak.client, int(generator(leak.name).integers(1 << 32)))
        refuting = min(tests, key=lambda test: test.p_value)
        missed += not refuting.refuted
        table.add(
            {
                "leak": leak.name,
                "verdict": "refuted" if refuting.refuted else "not refuted",
                "by": ", ".join(test.name for test in tests if test.refuted),
                "smallest p-value": f"{refuting.p_value:.0e}",
                "clients": f"{trials:,}",
                "seconds": f"{time.perf_counter() - start:.1f}",
            }
        )
    return missed


def p_values_of_correct_clients(audits: int) -> int:
    """Print the quantiles of the p-values of each test over audits of correct clients, and return how many were refuted."""
    kinds, found, refuted = list(METRICS.values()), dict[str, list[float]](), 0
    for number in range(audits):
        metric = kinds[number % len(kinds)]
        seed = int(generator("correct", number).integers(1 << 32))
        audit = audit_metric(metric, client=SimulatedClient(metric), trials=20_000, seed=seed)
        tests = [*audit.tests, *independence_tests(SimulatedClient(metric), metric, None, 5_000, seed)]
        tests += compare_metrics(broken.SimulatedMetrics(PAIR), PAIR, 5_000, seed)
        refuted += any(test.refuted for test in tests)
        for test in tests:
            found.setdefault(test.name, []).append(test.p_value)
    for name, values in found.items():
        below = "   ".join(f"{np.mean(np.array(values) <= level):.3f} at {level:g}" for level in (0.5, 0.1, 0.05, 0.01))
        print(f"{name:26} {len(values):4} audits, share of p-values at or below: {below}, smallest {min(values):.2g}")
    print(f"{refuted} of {audits} correct clients are refuted")
    return refuted


def smallest_leaks(benchmark: Benchmark) -> None:
    """Smallest share of clients with a true report that the test of rows shows with probability .99, by the probability of the true row."""
    table = benchmark.table("audit-smallest-leaks")
    cases = {
        "boolean, .25 of the answers inverted": (0.75, 34_453),
        "four categories, p = .25 and q = .75": (0.625**4, 98_451),
        "a row of probability .001": (1e-3, 100_000),
        "a row of probability .00001": (1e-5, 100_000),
    }
    for name, (chance, clients) in cases.items():
        table.add(
            {
                "definition": name,
                "P(true row)": f"{chance:.2g}",
                "clients of the value": f"{clients:,}",
                "smallest share": f"{smallest_share(chance, clients):.2g}",
                "clients for .1 %": f"{clients_needed(chance):.1e}",
            }
        )


def smallest_share(chance: float, clients: int) -> float:
    """Smallest share of true reports for which the number of true rows is significant with probability .99."""
    from scipy.stats import binom

    high, low = 1.0, 0.0
    for _ in range(40):
        share = (high + low) / 2
        count = binom.ppf(0.01, clients, chance + share * (1 - chance))
        seen = binomial_tails(count, clients, chance) / chance <= LEVEL
        high, low = (share, low) if seen else (high, share)
    return high


def clients_needed(chance: float) -> float:
    """Clients of one value with which a share of .001 is significant with probability .99."""
    clients = 100
    while smallest_share(chance, clients) > 0.001 and clients < 1e10:
        clients = int(clients * 1.1)
    return clients


def main() -> None:
    benchmark = Benchmark(__doc__)
    benchmark.add("--correct", type=int, default=0, metavar="N", help="audit N correct clients instead")
    benchmark.add("--smallest", action="store_true", help="print the smallest visible leaks instead")
    benchmark.add("--only", default="", help="a part of the names of the leaks")
    options = benchmark.start()
    if options.correct:
        sys.exit(bool(p_values_of_correct_clients(options.correct)))
    if options.smallest:
        smallest_leaks(benchmark)
        return
    missed = table_of_leaks(benchmark, options.only)
    print(f"{missed} leaks are not refuted")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
