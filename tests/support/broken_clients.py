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
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub import Buckets, Estimand, Metric, Params, UnaryResponse
from hubbub.metrics.discovery import Discovery
from hubbub.metrics.group import Group
from hubbub_decoder.array_types import Bits, Floats
from hubbub_decoder.audit.clients import AuditedValue, ClientReports, EncoderClient
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
class NoiseOfFewSeeds(SimulatedClient):
    """All noise of a client is a function of a seed of so many bits; its cohort is not."""

    bits: int = 16

    def reports(
        self,
        values: Sequence[AuditedValue],
        clients: int,
        of_cohort: np.random.Generator,
        of_permanent: np.random.Generator,
        of_instantaneous: np.random.Generator,
    ) -> ClientReports:
        seeds = of_permanent.integers(1 << self.bits, size=clients, dtype=np.uint64)
        streams = [HashedUniforms(seeds, np.uint64(stream)) for stream in (1, 2)]
        return super().reports(values, clients, of_cohort, *streams)  # type: ignore[arg-type]


@dataclass
class HashedUniforms:
    """Uniform numbers that are functions of the seed of each client, by the finalizer of splitmix64."""

    seeds: NDArray[np.uint64]
    stream: np.uint64
    drawn: int = 0

    def random(self, shape: tuple[int, int]) -> Floats:
        k, clients = shape
        columns = np.arange(self.drawn, self.drawn + k, dtype=np.uint64)
        self.drawn += k
        with np.errstate(over="ignore"):
            x = self.seeds[None, :clients] * np.uint64(0x9E3779B97F4A7C15) + columns[:, None] * np.uint64(
                0xD1B54A32D192ED03
            )
            x += self.stream * np.uint64(0x8CB92BA72F3D8DD7)
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
                x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
            x ^= x >> np.uint64(31)
        return (x >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class CoupledBits(SimulatedClient):
    """Two bits have equal or opposite uniform numbers, as the value decides: each bit has its law, and their pair tells values apart."""

    first: int = 3
    second: int = 4

    def reports(
        self,
        values: Sequence[AuditedValue],
        clients: int,
        of_cohort: np.random.Generator,
        of_permanent: np.random.Generator,
        of_instantaneous: np.random.Generator,
    ) -> ClientReports:
        opposite = zlib.crc32(repr(values[0]).encode()) & 1
        couple = _Coupled(self.first, self.second, bool(opposite))
        return super().reports(
            values,
            clients,
            of_cohort,
            *(replace(couple, rng=rng) for rng in (of_permanent, of_instantaneous)),  # type: ignore[arg-type]
        )


@dataclass(frozen=True)
class _Coupled:
    first: int
    second: int
    opposite: bool
    rng: np.random.Generator | None = None

    def random(self, shape: tuple[int, int]) -> Floats:
        assert self.rng is not None
        uniforms = self.rng.random(shape)
        uniforms[self.second] = 1 - uniforms[self.first] if self.opposite else uniforms[self.first]
        return uniforms


@dataclass(frozen=True)
class TrueFirstReport(SimulatedClient):
    """A share of the clients sends the value without noise in the first report."""

    share: float = 0.001

    def reports(
        self,
        values: Sequence[AuditedValue],
        clients: int,
        of_cohort: np.random.Generator,
        of_permanent: np.random.Generator,
        of_instantaneous: np.random.Generator,
    ) -> ClientReports:
        made = super().reports(values, clients, of_cohort, of_permanent, of_instantaneous)
        bare = of_permanent.random(clients) < self.share
        made.bits[bare, 0] = true_bits(self.metric, values[0])[made.cohorts[bare]]
        return made


class CopyOfTheFirstReport(SimulatedClient):
    """Each later report is a copy of the first one, as long as the value stays."""

    def reports(
        self,
        values: Sequence[AuditedValue],
        clients: int,
        of_cohort: np.random.Generator,
        of_permanent: np.random.Generator,
        of_instantaneous: np.random.Generator,
    ) -> ClientReports:
        made = super().reports(values, clients, of_cohort, of_permanent, of_instantaneous)
        firsts = [list(values).index(value) for value in values]
        return ClientReports(made.cohorts, made.bits[:, firsts])


@dataclass(frozen=True)
class RedrawnEachFifthReport(SimulatedClient):
    """The permanent response is drawn again for each fifth report."""

    every: int = 5

    def response(self, value: AuditedValue, period: int) -> Hashable:
        return super().response(value, period), period // self.every


@dataclass(frozen=True)
class AnotherItemEachPeriod(SimulatedClient):
    """A client of a set answers for another item each period. `hides`: it reports the item of the first period."""

    hides: bool = False

    def reports(
        self,
        values: Sequence[AuditedValue],
        clients: int,
        of_cohort: np.random.Generator,
        of_permanent: np.random.Generator,
        of_instantaneous: np.random.Generator,
    ) -> ClientReports:
        made = [
            super(AnotherItemEachPeriod, self).reports([value], clients, of_cohort, of_permanent, of_instantaneous)
            for value in values
        ]
        cohorts = np.stack([reports.cohorts for reports in made], axis=1)
        bits = np.concatenate([reports.bits for reports in made], axis=1)
        moved = np.zeros(clients, bool) if self.hides else (cohorts != cohorts[:, :1]).any(axis=1)
        return ClientReports(cohorts[:, 0], bits, moved)


@dataclass
class _ChangedStream:
    change: Callable[[list[Floats], Floats], Floats]
    rng: np.random.Generator
    earlier: list[Floats] = field(default_factory=list)

    def random(self, shape: tuple[int, int]) -> Floats:
        self.earlier.append(self.change(self.earlier, self.rng.random(shape)))
        return self.earlier[-1]


@dataclass(frozen=True)
class ChangedNoise(SimulatedClient):
    """The uniform numbers of a report, (k, clients), are a function of those of the earlier reports and of new ones."""

    change: Callable[[list[Floats], Floats], Floats]

    def reports(
        self,
        values: Sequence[AuditedValue],
        clients: int,
        of_cohort: np.random.Generator,
        of_permanent: np.random.Generator,
        of_instantaneous: np.random.Generator,
    ) -> ClientReports:
        stream = _ChangedStream(self.change, of_instantaneous)
        return super().reports(values, clients, of_cohort, of_permanent, stream)  # type: ignore[arg-type]


def of_the_bit_before(earlier: list[Floats], uniforms: Floats) -> Floats:
    """Each bit has the noise that the bit before it had in the report before."""
    return np.roll(earlier[-1], 1, axis=0) if earlier else uniforms


def of_two_reports(earlier: list[Floats], uniforms: Floats) -> Floats:
    """The noise of each third report is the sum of those of the two before: each two of the three are independent."""
    return (earlier[-1] + earlier[-2]) % 1 if len(earlier) % 3 == 2 else uniforms


def of_the_client_before(earlier: list[Floats], uniforms: Floats) -> Floats:
    """Each second client has the noise of the client before it."""
    return np.repeat(uniforms[:, ::2], 2, axis=1)[:, : uniforms.shape[1]]


@dataclass(frozen=True)
class ReportsWithoutNoise(SimulatedClient):
    """Some reports of a history have no noise: `bare` says of the earlier values and the value of a report whether it has none."""

    bare: Callable[[Sequence[AuditedValue], AuditedValue], bool]

    def reports(
        self,
        values: Sequence[AuditedValue],
        clients: int,
        of_cohort: np.random.Generator,
        of_permanent: np.random.Generator,
        of_instantaneous: np.random.Generator,
    ) -> ClientReports:
        made = super().reports(values, clients, of_cohort, of_permanent, of_instantaneous)
        for period, value in enumerate(values):
            if self.bare(values[:period], value):
                made.bits[:, period] = true_bits(self.metric, value)[made.cohorts]
        return made


@dataclass(frozen=True)
class AnotherCohortForEachValue(SimulatedClient):
    """A client draws another cohort when its value changes."""

    def reports(
        self,
        values: Sequence[AuditedValue],
        clients: int,
        of_cohort: np.random.Generator,
        of_permanent: np.random.Generator,
        of_instantaneous: np.random.Generator,
    ) -> ClientReports:
        made = [
            super(AnotherCohortForEachValue, self).reports(
                list(same), clients, of_cohort, of_permanent, of_instantaneous
            )
            for _, same in groupby(values)
        ]
        moved = np.any([of_value.cohorts != made[0].cohorts for of_value in made], axis=0)
        return ClientReports(made[0].cohorts, np.concatenate([of_value.bits for of_value in made], axis=1), moved)


class AsksForAnItemOfTheSet(SimulatedClient):
    """A client with some of the items is asked for the first one that it has."""

    def cohorts(self, values: Sequence[AuditedValue], clients: int, rng: np.random.Generator) -> NDArray[np.int64]:
        items, drawn = self.metric.kind.named_values, super().cohorts(values, clients, rng)
        own = values[0] if isinstance(values[0], tuple) else ()
        return np.full(clients, items.index(own[0])) if 0 < len(own) < num_cohorts(self.metric) else drawn


@dataclass(frozen=True)
class OneMoreOne:
    """Client of this project with one more one in a share of the reports of one value of a row."""

    metric: Metric
    value: AuditedValue
    share: float = 0.02

    def __call__(self, values: Sequence[AuditedValue], seed: int, clients: int) -> ClientReports:
        made, rng = EncoderClient(self.metric)(values, seed, clients), np.random.default_rng(seed)
        bits = made.bits.copy()
        for report, value in enumerate(values):
            if value == self.value:
                more = np.flatnonzero(rng.random(clients) < self.share)
                free = np.where(bits[more, report] == 0, rng.random((len(more), bits.shape[2])), -1.0)
                bits[more, report, free.argmax(axis=1)] = 1
        return ClientReports(made.cohorts, bits)


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
class DependentMetrics:
    """The first metric's report is one of no value in a share of the clients whose second metric has a value."""

    metrics: tuple[Metric, ...]
    share: float = 0.1

    def __call__(self, values: Sequence[AuditedValue], seed: int, clients: int) -> ClientReports:
        made, sound = SimulatedMetrics(self.metrics)(values, seed, clients), SimulatedClient(self.metrics[0])
        rng = np.random.default_rng([seed, 9])
        changed = rng.random(clients) < self.share
        for report, value in enumerate(values):
            if isinstance(value, tuple) and value[1] is not None:
                bits = sound([None], seed + 1, clients).bits[changed, 0]
                made.bits[changed, report, : self.metrics[0].num_bits] = bits
        return made


@dataclass(frozen=True)
class BareBesideNoValue:
    """The second metric's report has no noise if the first metric has no value."""

    metrics: tuple[Metric, ...]

    def __call__(self, values: Sequence[AuditedValue], seed: int, clients: int) -> ClientReports:
        made, start = SimulatedMetrics(self.metrics)(values, seed, clients), self.metrics[0].num_bits
        for report, value in enumerate(values):
            if isinstance(value, tuple) and value[0] is None:
                made.bits[:, report, start:] = true_bits(self.metrics[1], value[1])[made.cohorts[:, 1]]
        return made


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


def spoiled_estimates(metric: Metric) -> Iterator[Fault]:
    """Faults that spoil estimates and keep epsilon."""
    yield Fault("exchanged p and q", ExchangedProbabilities(metric))
    if metric.num_cohorts > 1:
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
