"""Clients under audit: their protocol, and the client of this project.

A client is a function (values, seed, clients) that returns the reports of `clients` new people. All of them have the same history:
`values` has one value for each report, in the order of the periods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hubbub.encoding.encoder import Encoder
from hubbub.encoding.secret import Secret
from hubbub.metrics.kinds import Value
from hubbub.metrics.metric import Metric
from hubbub.randomness import RandomBytes, system_random_bytes
from hubbub_decoder.array_types import Bits

MAX_COHORTS = 256

AuditedValue: TypeAlias = "Value | tuple[Any, ...]"
"""Value of one report. A joint metric has the tuple of its parts' values, and several metrics of one client have the tuple of theirs."""


@dataclass(frozen=True, slots=True)
class ClientReports:
    """Reports of n clients.

    Parameters
    ----------
    cohorts
        Shape (n,), cohort of each client, zeros if the clients have none. For several metrics, shape (n, metrics).
    bits
        Shape (n, reports, k), uint8, the bits of each report.
    moved
        Shape (n,), whether the cohort of a client changed from one report to another; `cohorts` has the first. None:
        no client's did.
    """

    cohorts: NDArray[np.int64]
    bits: Bits
    moved: NDArray[np.bool_] | None = None


class AuditedClient(Protocol):
    """Client under audit. Each call returns reports of new clients: new secrets, new noise.

    Parameters
    ----------
    values
        Value of each report.
    seed
        Number that differs between calls. A client may derive secrets from it, or ignore it.
    clients
        Number of clients.
    """

    def __call__(self, values: Sequence[AuditedValue], seed: int, clients: int) -> ClientReports: ...


@dataclass(frozen=True, slots=True)
class EncoderClient:
    """The client of this project: `Encoder.encode` with a new secret for each client.

    Report r of a metric with `hold` belongs to epoch r // hold.
    """

    metric: Metric
    random_bytes: RandomBytes = system_random_bytes

    def __call__(self, values: Sequence[AuditedValue], seed: int, clients: int) -> ClientReports:  # noqa: ARG002  (secrets are random)
        secrets = [Secret.generate(self.random_bytes) for _ in range(clients)]
        return self.reports(secrets, values)

    def reports(self, secrets: Sequence[Secret], values: Sequence[AuditedValue]) -> ClientReports:
        """Return the reports of the clients with these secrets."""
        hold, width = self.metric.hold, self.metric.row_bytes
        history = [(value, None if hold is None else period // hold) for period, value in enumerate(values)]
        cohorts, rows = [], []
        for secret in secrets:
            encoder = Encoder(self.metric, secret, self.random_bytes)
            cohorts.append(encoder.cohort)
            rows += [encoder.encode(value, epoch).to_bytes() for value, epoch in history]
        packed = np.frombuffer(b"".join(rows), np.uint8).reshape(len(secrets), len(values), width)
        bits = np.unpackbits(packed, axis=2, count=self.metric.num_bits, bitorder="little")
        return ClientReports(np.array(cohorts, np.int64), bits)


@dataclass(frozen=True, slots=True)
class SeveralEncoders:
    """The client of this project with several metrics of one secret: values and cohorts have one item for each metric."""

    metrics: tuple[Metric, ...]
    random_bytes: RandomBytes = system_random_bytes

    def __call__(self, values: Sequence[AuditedValue], seed: int, clients: int) -> ClientReports:  # noqa: ARG002
        secrets = [Secret.generate(self.random_bytes) for _ in range(clients)]
        columns = zip(*values, strict=True)
        made = [
            EncoderClient(metric, self.random_bytes).reports(secrets, column)
            for metric, column in zip(self.metrics, columns, strict=True)
        ]
        return ClientReports(
            np.stack([reports.cohorts for reports in made], axis=1),
            np.concatenate([reports.bits for reports in made], axis=2),
        )


def value_text(value: AuditedValue) -> str:
    """Name of an audited value.

    >>> value_text("v1"), value_text(True), value_text(None), value_text((True, None))
    ("'v1'", 'true', 'no value', '(true, no value)')
    """
    if isinstance(value, tuple):
        return f"({', '.join(map(value_text, value))})"
    if value is None:
        return "no value"
    return str(value).lower() if isinstance(value, bool) else repr(value)
