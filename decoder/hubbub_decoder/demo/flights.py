"""Flight data: every flight is a client with one value for each of three metrics."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from hubbub.metrics.definitions import Definitions, parse_definitions
from hubbub_decoder.random_state import seeded


class Flight(NamedTuple):
    """True values of one flight, in the order of the metrics; private data that only the encoder may read."""

    destination: str
    carrier: str
    from_jfk: bool


def definitions() -> Definitions:
    """Metric definitions of the demo."""
    return parse_definitions(_text("metrics.toml"))


def definitions_text() -> str:
    """Metric definitions of the demo as TOML text."""
    return _text("metrics.toml")


def airports() -> dict[str, str]:
    """Names of 505 airports by code; the codes are the candidates for the destination."""
    return {row["airport"]: row["name"] for row in csv.DictReader(_text("airports.csv").splitlines())}


def airlines() -> dict[str, str]:
    """Names of the 16 airlines by code."""
    return {row["carrier"]: row["name"] for row in csv.DictReader(_text("airlines.csv").splitlines())}


def sample_flights(number: int | None, seed: int = 2013) -> list[Flight]:
    """Random sample of flights without replacement; all 336,776 if `number` is None, repeated if it is larger."""
    rows = list(csv.DictReader(_text("flights_2013.csv").splitlines()))
    distinct = [Flight(row["dest"], row["carrier"], row["origin"] == "JFK") for row in rows]
    flights = np.repeat(np.arange(len(distinct)), [int(row["count"]) for row in rows])
    rng = seeded(seed)
    size = len(flights) if number is None else number
    permutations = [rng.permutation(flights) for _ in range(-(-size // len(flights)))]
    return [distinct[index] for index in np.concatenate(permutations)[:size]]


def true_shares(population: Sequence[Flight]) -> dict[str, Mapping[str, float]]:
    """Share of the flights with each value, by metric; for a boolean metric the share of true."""
    n = len(population)
    return {
        "destination": _shares(Counter(flight.destination for flight in population), n),
        "carrier": _shares(Counter(flight.carrier for flight in population), n),
        "from_jfk": {"true": sum(flight.from_jfk for flight in population) / n},
    }


def _shares(counts: Counter[str], n: int) -> dict[str, float]:
    return {value: count / n for value, count in counts.most_common()}


def _text(name: str) -> str:
    return files("hubbub_decoder.demo").joinpath(name).read_text(encoding="utf-8")
