"""Grey-box test of a Python client: it runs with several values on the same coins, and its reports differ only as the mechanism says.

    coins     the n-th call of `random_bytes` for so many bytes returns the same bytes in each of these runs
    oracle    the keyed hash answers without the value, because permanent coins depend on the value by design

1. All values draw the same number of coins. Otherwise time, or the state of the generator, tells values apart.
2. Bits of independent noise are equal where the true bits of two values are equal, and all values have one cohort.
3. The reports are those that `Encoder` makes with these coins. A client with a sampler of its own differs in most runs, and has no such
   comparison. One that differs in few of them leaves the mechanism in some cases, for example to send one report of a thousand without noise.

A difference is found by one run, so a fault in a share s of the reports is missed with probability (1 - s)**runs.

Source: "Re:cord-play" (PETS 2026), which audits implementations of differential privacy by recorded randomness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

import numpy as np

from hubbub.encoding.bloom import bloom_bits
from hubbub.encoding.encoder import Encoder
from hubbub.encoding.secret import Secret, Shake
from hubbub.metrics.metric import Metric
from hubbub.randomness import RandomBytes, system_random_bytes
from hubbub_decoder.audit.clients import AuditedValue, ClientReports, value_text
from hubbub_decoder.audit.evidence import NoiseTest
from hubbub_decoder.random_state import seeded

RUNS = 14_000
"""Sets of coins. A fault in .1 % of the reports is missed with probability 1e-6."""
_EPOCHS = 1 << 16


class GreyBoxClient(Protocol):
    """Python client: returns the cohort and the bits of one report, with bit 0 as the lowest bit of the integer."""

    def __call__(
        self, metric: Metric, value: AuditedValue, epoch: int | None, secret: Secret, random_bytes: RandomBytes
    ) -> tuple[int, int]: ...


def encoder_client(
    metric: Metric, value: AuditedValue, epoch: int | None, secret: Secret, random_bytes: RandomBytes
) -> tuple[int, int]:
    """Report of the client of this project."""
    report = Encoder(metric, secret, random_bytes).encode(value, epoch)
    return report.cohort, int.from_bytes(report.to_bytes(), "little")


@dataclass(frozen=True, slots=True)
class ReportFunctionClient:
    """Grey-box client under audit as a black box: new secrets, and coins of the operating system."""

    function: GreyBoxClient
    metrics: tuple[Metric, ...]

    def __call__(self, values: Sequence[AuditedValue], seed: int, clients: int) -> ClientReports:  # noqa: ARG002
        cohorts = np.zeros((clients, len(values), len(self.metrics)), np.int64)
        rows: list[list[bytes]] = [[] for _ in self.metrics]
        for client in range(clients):
            secret = Secret.generate()
            for report, value in enumerate(values):
                for number, metric in enumerate(self.metrics):
                    part = value if len(self.metrics) == 1 else value[number]  # type: ignore[index]
                    epoch = None if metric.hold is None else report // metric.hold
                    cohorts[client, report, number], bits = self.function(
                        metric, part, epoch, secret, system_random_bytes
                    )
                    rows[number].append(bits.to_bytes(metric.row_bytes, "little"))
        unpacked = [
            np.unpackbits(
                np.frombuffer(b"".join(packed), np.uint8).reshape(clients, len(values), -1),
                axis=2,
                count=metric.num_bits,
                bitorder="little",
            )
            for packed, metric in zip(rows, self.metrics, strict=True)
        ]
        shown = cohorts[:, :, 0] if len(self.metrics) == 1 else cohorts
        return ClientReports(shown[:, 0], np.concatenate(unpacked, axis=2), (shown != shown[:, :1]).any(axis=1))


class OracleSecret(Secret):
    """Secret whose hash does not see what is appended to a stream, only its length, and records the lengths of its answers."""

    __slots__ = ("_drawn",)

    def __init__(self, key: bytes, drawn: list[int]) -> None:
        super().__init__(key)
        self._drawn = drawn

    def stream(self, domain: str, *fields: bytes) -> Shake:
        """Return the stream of a domain, as an oracle."""
        return _Oracle(super().stream(domain, *fields), self._drawn)


@dataclass(slots=True)
class _Oracle:
    shake: Shake
    drawn: list[int]

    def update(self, data: bytes, /) -> None:
        self.shake.update(len(data).to_bytes(8, "little"))

    def digest(self, length: int, /) -> bytes:
        self.drawn.append(-length)
        return self.shake.digest(length)

    def copy(self) -> _Oracle:
        return _Oracle(self.shake.copy(), self.drawn)


@dataclass(frozen=True, slots=True)
class _Run:
    """Report of one value, and the coins that it drew: bytes of each call, negative for the oracle."""

    cohort: int
    bits: int
    coins: tuple[int, ...]


def grey_box_test(
    client: GreyBoxClient, metric: Metric, values: Sequence[AuditedValue], runs: int = RUNS, seed: int | None = None
) -> NoiseTest:
    """Test of a client on so many sets of coins, each with a random epoch and at most three of these values. Its p-value is 0 or 1."""
    rng = seeded(seed)
    independent = all(block.mechanism.has_independent_bits for block in metric.blocks)
    other_sampler, found = 0, ""
    for number in range(runs):
        key, epoch = rng.bytes(32), None if metric.hold is None else int(rng.randint(_EPOCHS))
        following = (values[(number + step) % len(values)] for step in (0, 1))
        shown = list(dict.fromkeys((*following, values[-1])))
        made = [_run(client, metric, value, epoch, key) for value in shown]
        for (one, value), (other, second) in combinations(zip(made, shown, strict=True), 2):
            pair = f"{value_text(value)} and {value_text(second)}"
            if one.coins != other.coins:
                found = found or f"{pair} draw different numbers of coins: {one.coins} and {other.coins} bytes"
            elif one.cohort != other.cohort:
                found = found or f"{pair} have the cohorts {one.cohort} and {other.cohort} with one secret"
            elif independent and (one.bits ^ other.bits) & ~_difference(metric, value, second, one.cohort):
                found = found or f"with the same coins, {pair} differ in bits that both of them set, or neither of them"
        expected = (
            made if client is encoder_client else [_run(encoder_client, metric, value, epoch, key) for value in shown]
        )
        other_sampler += any(
            (run.cohort, run.bits) != (of.cohort, of.bits) for run, of in zip(made, expected, strict=True)
        )
    if not found and 0 < other_sampler < runs / 2:
        found = f"{other_sampler:,} of {runs:,} sets of coins give a report that the mechanism does not make of them"
    if found:
        return NoiseTest("grey box", 0.0, f"{found}. The client leaves the declared mechanism")
    compared = (
        "another sampler than this project's, so its reports were not compared with it"
        if other_sampler
        else "reports as the mechanism makes them"
    )
    return NoiseTest("grey box", 1.0, f"{len(values)} values draw the same coins in {runs:,} runs; {compared}")


def _run(client: GreyBoxClient, metric: Metric, value: AuditedValue, epoch: int | None, key: bytes) -> _Run:
    drawn: list[int] = []

    def random_bytes(number: int) -> bytes:
        coins = Secret(key).stream("hubbub/audited-coins", number.to_bytes(8, "little"), bytes(drawn.count(number)))
        drawn.append(number)
        return coins.digest(number)

    cohort, bits = client(metric, value, epoch, OracleSecret(key, drawn), random_bytes)
    return _Run(cohort, bits, tuple(drawn))


def _difference(metric: Metric, first: AuditedValue, second: AuditedValue, cohort: int) -> int:
    """Bits that only one of two values sets."""
    return bloom_bits(metric, first, cohort) ^ bloom_bits(metric, second, cohort)
