"""Clients under audit: their protocol, and the client of this project.

A client is a function (value, seed, clients, reports) that returns the reports of `clients` new people with the same value, who
send `reports` reports each, in the order of the periods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.encoding.bloom import Value
from hubbub.encoding.encoder import Encoder
from hubbub.encoding.secret import Secret
from hubbub.metrics.metric import Metric
from hubbub.randomness import RandomBytes, system_random_bytes
from hubbub_decoder.array_types import Bits


@dataclass(frozen=True, slots=True)
class ClientReports:
    """Reports of n clients.

    cohorts : (n,) int      cohort of each client; zeros if the client has none
    bits    : (n, reports, k) uint8
    """

    cohorts: NDArray[np.int64]
    bits: Bits


class AuditedClient(Protocol):
    """Client under audit. Each call returns reports of new clients: new secrets, new noise.

    seed : number that differs between calls. A client may derive secrets from it, or ignore it
    """

    def __call__(self, value: Value, seed: int, clients: int, reports: int) -> ClientReports: ...


@dataclass(frozen=True, slots=True)
class EncoderClient:
    """The client of this project: `Encoder.encode` with a new secret for each client.

    Report r of a metric with `hold` belongs to epoch r // hold.
    """

    metric: Metric
    random_bytes: RandomBytes = system_random_bytes

    def __call__(self, value: Value, seed: int, clients: int, reports: int) -> ClientReports:  # noqa: ARG002  (secrets are random)
        hold, width = self.metric.hold, self.metric.params.row_bytes
        epochs = [None if hold is None else period // hold for period in range(reports)]
        cohorts, rows = [], []
        for _ in range(clients):
            encoder = Encoder(self.metric, Secret.generate(self.random_bytes), self.random_bytes)
            cohorts.append(encoder.cohort)
            rows += [encoder.encode(value, epoch).to_bytes() for epoch in epochs]
        packed = np.frombuffer(b"".join(rows), np.uint8).reshape(clients, reports, width)
        bits = np.unpackbits(packed, axis=2, count=self.metric.params.num_bits, bitorder="little")
        return ClientReports(np.array(cohorts, np.int64), bits)
