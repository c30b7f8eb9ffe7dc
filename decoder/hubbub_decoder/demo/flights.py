"""A real population: every flight is a person with one answer to each of three questions."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from hubbub.metrics.definitions import Definitions, parse_definitions


class Flight(NamedTuple):
    """One flight's true answers, in the order of the metrics: what must not leave it unrandomized."""

    destination: str
    carrier: str
    from_jfk: bool


def definitions() -> Definitions:
    """Return the demo's metrics."""
    return parse_definitions(_text("metrics.toml"))


def definitions_text() -> str:
    """Return the file the aggregator is started with."""
    return _text("metrics.toml")


def airports() -> dict[str, str]:
    """Return the dictionary: names of 505 airports by code, of which the flights went to 105."""
    return {row["airport"]: row["name"] for row in csv.DictReader(_text("airports.csv").splitlines())}


def airlines() -> dict[str, str]:
    """Return names of the 16 airlines by code."""
    return {row["carrier"]: row["name"] for row in csv.DictReader(_text("airlines.csv").splitlines())}


def sample_flights(number: int | None, seed: int = 2013) -> list[Flight]:
    """Return all flights of the year in random order, or a random `number` of them; more than there are repeat."""
    rows = list(csv.DictReader(_text("flights_2013.csv").splitlines()))
    kinds = [Flight(row["dest"], row["carrier"], row["origin"] == "JFK") for row in rows]
    flights = np.repeat(np.arange(len(kinds)), [int(row["count"]) for row in rows])
    rng = np.random.default_rng(seed)
    wanted = len(flights) if number is None else number
    rounds = [rng.permutation(flights) for _ in range(-(-wanted // len(flights)))]
    return [kinds[index] for index in np.concatenate(rounds)[:wanted]]


def true_shares(population: Sequence[Flight]) -> dict[str, Mapping[str, float]]:
    """Return for each metric the share of the population with each answer; of a boolean, of `true`."""
    n = len(population)
    return {
        "destination": _shares(Counter(person.destination for person in population), n),
        "carrier": _shares(Counter(person.carrier for person in population), n),
        "from_jfk": {"true": sum(person.from_jfk for person in population) / n},
    }


def _shares(counted: Counter[str], n: int) -> dict[str, float]:
    return {value: count / n for value, count in counted.most_common()}


def _text(name: str) -> str:
    return files("hubbub_decoder.demo").joinpath(name).read_text(encoding="utf-8")
