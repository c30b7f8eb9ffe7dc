"""Clients of every kind of definition in numpy, sound or with one fault, for tests of the audit.

`SimulatedClient` has the mechanism that a definition states, and each subclass has one fault. `faults` lists those that fit a metric.
"""

# ruff: noqa: ARG002  (a method that a fault replaces has arguments that the fault does not use)

from __future__ import annotations

import copy
import random
import time
import zlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub import Buckets, Estimand, Metric, Params, UnaryResponse
from hubbub.metrics.discovery import Discovery
from hubbub.metrics.group import Group
from hubbub_decoder.array_types import Bits, Floats
from hubbub_decoder.audit.clients import AuditedValue, ClientReports
from hubbub_decoder.audit.laws import true_bits

NOISE: dict[str, float] = {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.5}
COINS: dict[str, float] = {"prob_p": 0.0, "prob_q": 1.0, "prob_f": 0.5}
ASYMMETRIC: dict[str, float] = {"prob_p": 0.125, "prob_q": 0.75, "permanent_p": 0.125, "permanent_q": 0.5}


def _string(k: int, h: int, m: int, **noise: Any) -> Params:
    return Params(num_bits=k, num_hashes=h, num_cohorts=m, **noise)


def num_cohorts(metric: Metric) -> int:
    """Cohorts that an audit tells apart: those of each value of a group."""
    return metric.num_cohorts * (1 if metric.group is None else len(metric.group.values))


_PAID, _OS = (
    Metric.boolean("paid", UnaryResponse(**NOISE)),
    Metric.categorical("os", ("a", "b", "c"), UnaryResponse(**NOISE)),
)
_PAGE = Metric.string("page", _string(8, 1, 4, **NOISE))
METRICS: dict[str, Metric] = {
    "string": _PAGE,
    "string, two hashes": Metric.string("page", _string(16, 2, 4, **NOISE)),
    "string, asymmetric": Metric.string("page", _string(8, 1, 4, **ASYMMETRIC)),
    "string, hold": Metric.string("page", _string(8, 1, 2, **NOISE), hold=8),
    "discover": Metric.string(
        "page", _string(8, 1, 32, **ASYMMETRIC), discover=Discovery(longest=1, step=1, held_out=0.25)
    ),
    "categorical": _OS,
    "boolean": Metric.boolean("paid", UnaryResponse(**COINS)),
    "boolean, group": Metric.boolean(
        "paid", UnaryResponse(**NOISE), group=Group("version", ("1.x", "2.x", "3.x", "4.x", "other"))
    ),
    "boolean, hold": Metric.boolean("paid", UnaryResponse(**NOISE), hold=8),
    "ordinal": Metric.ordinal("use", Buckets((0, 10, 20, 30), default=0), UnaryResponse(**NOISE)),
    "mean": Metric.ordinal("use", Buckets((0, 50), default=0, estimate=Estimand.MEAN), UnaryResponse(**NOISE)),
    "set": Metric.set("plugins", ("a", "b", "c"), UnaryResponse(**NOISE)),
    "joint of two": Metric.joint("visit", (_PAID, _PAGE)),
    "joint of two, hold": Metric.joint("visit", (_PAID, _OS), hold=8),
    "joint of three": Metric.joint("trip", (_PAID, _OS, Metric.boolean("late", UnaryResponse(**NOISE)))),
}


@dataclass(frozen=True)
class SimulatedClient:
    """The mechanism of a definition. A permanent bit is one if its uniform number is below a or b, a sent bit if its number is below q or p."""

    metric: Metric

    def __call__(self, values: Sequence[AuditedValue], seed: int, clients: int) -> ClientReports:
        return self.reports(values, clients, *np.random.default_rng(seed).spawn(3))

    def reports(
        self,
        values: Sequence[AuditedValue],
        clients: int,
        of_cohort: np.random.Generator,
        of_permanent: np.random.Generator,
        of_instantaneous: np.random.Generator,
    ) -> ClientReports:
        """Reports from three generators, which several metrics of a client may share by a fault."""
        cohorts = self.cohorts(values, clients, of_cohort)
        responses: dict[Hashable, Floats] = {}
        reports = []
        for period, value in enumerate(values):
            key = self.response(value, period)
            if key not in responses:
                responses[key] = self.uniforms(clients, of_permanent)
            truth = true_bits(self.metric, value)[cohorts]
            reports.append(self.sent(truth, responses[key], self.uniforms_of_report(clients, of_instantaneous)))
        return ClientReports(cohorts, np.stack(reports, axis=1))

    def cohorts(self, values: Sequence[AuditedValue], clients: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Cohort of each client."""
        return rng.integers(num_cohorts(self.metric), size=clients)

    def response(self, value: AuditedValue, period: int) -> Hashable:
        """Name of the permanent response: reports with one name repeat it."""
        return true_bits(self.metric, value).tobytes() if self.metric.hold is None else period // self.metric.hold

    def uniforms(self, clients: int, rng: np.random.Generator) -> Floats:
        """(clients, k) uniform numbers of a permanent response."""
        return rng.random((self.metric.num_bits, clients)).T

    def uniforms_of_report(self, clients: int, rng: np.random.Generator) -> Floats:
        """(clients, k) uniform numbers of a report."""
        return rng.random((self.metric.num_bits, clients)).T

    def sent(self, truth: Bits, permanent: Floats, instantaneous: Floats) -> Bits:
        """(clients, k) bits of a report."""
        b, a, p, q = self.probabilities()
        response = permanent < np.where(truth, a, b)
        return (instantaneous < np.where(response, q, p)).astype(np.uint8)

    def probabilities(self) -> tuple[Floats, Floats, Floats, Floats]:
        """permanent_p, permanent_q, prob_p and prob_q of each bit."""
        rows = [
            (
                part.params.mechanism.permanent_p,
                part.params.mechanism.permanent_q,
                part.params.mechanism.prob_p,
                part.params.mechanism.prob_q,
            )
            for part in self.metric.components
            for _ in range(part.params.num_bits)
        ]
        b, a, p, q = np.array(rows).T
        return b, a, p, q


class CohortOfTheValue(SimulatedClient):
    """The cohort is a hash of the value."""

    def cohorts(self, values: Sequence[AuditedValue], clients: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return np.full(clients, zlib.crc32(repr(values[0]).encode()) % num_cohorts(self.metric))


class CohortSometimesOfTheValue(SimulatedClient):
    """The cohort is a hash of the value for half of the clients."""

    def cohorts(self, values: Sequence[AuditedValue], clients: int, rng: np.random.Generator) -> NDArray[np.int64]:
        hashed = zlib.crc32(repr(values[0]).encode()) % num_cohorts(self.metric)
        return np.where(rng.random(clients) < 0.5, hashed, super().cohorts(values, clients, rng))


class UnusedCohorts(SimulatedClient):
    """The upper half of the cohorts is never used, whatever the value."""

    def cohorts(self, values: Sequence[AuditedValue], clients: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return super().cohorts(values, clients, rng) // 2


@dataclass(frozen=True)
class BitWithoutNoise(SimulatedClient):
    """One bit is sent as it is."""

    bit: int = 0

    def sent(self, truth: Bits, permanent: Floats, instantaneous: Floats) -> Bits:
        bits = super().sent(truth, permanent, instantaneous)
        bits[:, self.bit] = truth[:, self.bit]
        return bits


@dataclass(frozen=True)
class PartWithoutNoise(SimulatedClient):
    """One part of a joint metric is sent as it is."""

    part: int = 0

    def sent(self, truth: Bits, permanent: Floats, instantaneous: Floats) -> Bits:
        bits = super().sent(truth, permanent, instantaneous)
        start = self.metric.kind.first_bits[self.part]
        of_part = slice(start, start + self.metric.components[self.part].params.num_bits)
        bits[:, of_part] = truth[:, of_part]
        return bits


class NeverClearsAOne(SimulatedClient):
    """Noise sets bits and never clears one."""

    def sent(self, truth: Bits, permanent: Floats, instantaneous: Floats) -> Bits:
        return super().sent(truth, permanent, instantaneous) | truth


class ExchangedProbabilities(SimulatedClient):
    """p and q are exchanged: every bit is inverted with the same probabilities, or its losses of a one and of a zero change places."""

    def probabilities(self) -> tuple[Floats, Floats, Floats, Floats]:
        b, a, p, q = super().probabilities()
        return b, a, q, p


class RedrawnResponse(SimulatedClient):
    """The permanent response is drawn again for each report."""

    def response(self, value: AuditedValue, period: int) -> Hashable:
        return period


class OneResponse(SimulatedClient):
    """All values and epochs have the noise of one permanent response."""

    def response(self, value: AuditedValue, period: int) -> Hashable:
        return 0


class MemoizedOverEpochs(SimulatedClient):
    """A value that returns has the permanent response of its earlier epoch."""

    def response(self, value: AuditedValue, period: int) -> Hashable:
        return true_bits(self.metric, value).tobytes()


class OneInstantaneousNoise(SimulatedClient):
    """All reports of a client have the same instantaneous noise."""

    def uniforms_of_report(self, clients: int, rng: np.random.Generator) -> Floats:
        return super().uniforms_of_report(clients, copy.deepcopy(rng))


class PartsOfOneResponse(SimulatedClient):
    """The parts of a joint metric have their permanent noise from one stream."""

    def uniforms(self, clients: int, rng: np.random.Generator) -> Floats:
        return self.repeated(super().uniforms(clients, rng))

    def repeated(self, uniforms: Floats) -> Floats:
        """Numbers of the widest part, from its first bit on in every part."""
        return np.concatenate([uniforms[:, : part.params.num_bits] for part in self.metric.components], axis=1)


class PartsOfOneInstantaneousNoise(PartsOfOneResponse):
    """The parts of a joint metric have their instantaneous noise from one stream."""

    def uniforms(self, clients: int, rng: np.random.Generator) -> Floats:
        return SimulatedClient.uniforms(self, clients, rng)

    def uniforms_of_report(self, clients: int, rng: np.random.Generator) -> Floats:
        return self.repeated(super().uniforms_of_report(clients, rng))


class PartsWithResponsesOfTheirOwn(SimulatedClient):
    """A part whose value stays keeps its permanent response when another part changes."""

    def response(self, value: AuditedValue, period: int) -> Hashable:
        return value

    def reports(
        self,
        values: Sequence[AuditedValue],
        clients: int,
        of_cohort: np.random.Generator,
        of_permanent: np.random.Generator,
        of_instantaneous: np.random.Generator,
    ) -> ClientReports:
        made = [
            SimulatedClient(part).reports(
                [value[number] for value in values if isinstance(value, tuple)],
                clients,
                copy.deepcopy(of_cohort),
                of_permanent,
                of_instantaneous,
            )
            for number, part in enumerate(self.metric.components)
        ]
        cohorts = max((reports.cohorts for reports in made), key=lambda reports: reports.max())
        return ClientReports(cohorts, np.concatenate([reports.bits for reports in made], axis=2))


@dataclass(frozen=True)
class SimulatedMetrics:
    """Several metrics of a client. `shared` names the noise that all of them have from one stream: "permanent", "instantaneous" or none."""

    metrics: tuple[Metric, ...]
    shared: str = ""

    def __call__(self, values: Sequence[AuditedValue], seed: int, clients: int) -> ClientReports:
        made = []
        for number, metric in enumerate(self.metrics):
            streams = [
                np.random.default_rng([seed, stream, 0 if name == self.shared else number])
                for stream, name in enumerate(("cohort", "permanent", "instantaneous"))
            ]
            history = [value[number] for value in values if isinstance(value, tuple)]
            made.append(SimulatedClient(metric).reports(history, clients, *streams))
        return ClientReports(
            np.stack([reports.cohorts for reports in made], axis=1),
            np.concatenate([reports.bits for reports in made], axis=2),
        )


@dataclass(frozen=True)
class Fault:
    """A client with a fault, and the reports of each client after which the fault exceeds the claim."""

    name: str
    client: SimulatedClient
    reports: int = 1


def faults(metric: Metric) -> Iterator[Fault]:
    """Faults that raise epsilon, as far as they fit a metric."""

    def fault(make: Callable[[Metric], SimulatedClient], reports: int = 1) -> Fault:
        return Fault(make.__name__, make(metric), reports)

    yield fault(NeverClearsAOne)
    for bit in range(metric.num_bits):
        yield Fault(f"bit {bit} without noise", BitWithoutNoise(metric, bit))
    yield fault(RedrawnResponse, metric.hold or 16)
    yield fault(OneResponse)
    if any(part.params.mechanism.prob_p > 0 or part.params.mechanism.prob_q < 1 for part in metric.components):
        yield fault(OneInstantaneousNoise)
    if num_cohorts(metric) > 1:
        yield fault(CohortOfTheValue)
        yield fault(CohortSometimesOfTheValue)
    if metric.hold is not None:
        yield fault(MemoizedOverEpochs)
    if len(metric.blocks) > 1:
        yield fault(PartsOfOneResponse)
        yield fault(PartsOfOneInstantaneousNoise)
        for part in range(len(metric.components)):
            yield Fault(f"part {part} without noise", PartWithoutNoise(metric, part))
        if metric.hold is None:
            yield fault(PartsWithResponsesOfTheirOwn)


def harmless_faults(metric: Metric) -> Iterator[Fault]:
    """Faults that spoil estimates and keep epsilon: an audit cannot see them."""
    yield Fault("exchanged p and q", ExchangedProbabilities(metric))
    if num_cohorts(metric) > 1:
        yield Fault("unused cohorts", UnusedCohorts(metric))


PAGE = METRICS["string, two hashes"]


def correct(values: list[AuditedValue], seed: int, clients: int) -> tuple[NDArray[np.int64], Bits]:
    """A sound client of PAGE as a function of another project."""
    made = SimulatedClient(PAGE)(values, seed, clients)
    return made.cohorts, made.bits


def seeded_with_the_time(values: list[AuditedValue], seed: int, clients: int) -> tuple[NDArray[np.int64], Bits]:
    """The generator is seeded with the current second: the distribution over seeds is right, and the seed is public."""
    return correct(values, int(time.time()), clients)


_import_time_generator: Any = random.Random(time.time_ns())  # noqa: S311  (the fault under test)


def seeded_at_import(values: list[AuditedValue], seed: int, clients: int) -> tuple[NDArray[np.int64], Bits]:
    """The generator is seeded once, with the nanosecond of the import: calls of one process differ."""
    return correct(values, _import_time_generator.getrandbits(60), clients)
