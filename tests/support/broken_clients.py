"""Clients with known faults, for tests of the audit. Each implements a definition below, with one error.

Signature: that of `hubbub_decoder.audit.clients.AuditedClient`, returning (cohorts, bits).
"""

from __future__ import annotations

import math
import random
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub import Metric, Params
from hubbub.encoding.bloom import Value
from hubbub_decoder.audit.distinguisher import true_bits

Bits = NDArray[np.uint8]
Returned = tuple[NDArray[np.int64], Bits]

PAGE_F, ONE_TIME_F = 0.5, 0.1
PAGE = Metric.string("page", Params(num_bits=32, num_hashes=2, num_cohorts=4, prob_p=0.25, prob_q=0.75, prob_f=PAGE_F))
ONE_TIME = Metric.boolean("one_time", prob_p=0, prob_q=1, prob_f=ONE_TIME_F)
"""One permanent bit at f = .1: the declared epsilon is ln 19 = 2.944, that of f = 12/128 is ln(61/3) = 3.012."""


def _truth(metric: Metric, value: Value, clients: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], Bits]:
    cohorts = rng.integers(metric.params.num_cohorts, size=clients)
    return cohorts, true_bits(metric, value)[cohorts]


def _permanent(bits: Bits, f: float, rng: np.random.Generator) -> Bits:
    masked = rng.random(bits.shape) < f
    return np.where(masked, rng.integers(2, size=bits.shape), bits).astype(np.uint8)


def _instantaneous(bits: Bits, params: Params, rng: np.random.Generator) -> Bits:
    return (rng.random(bits.shape) < np.where(bits, params.prob_q, params.prob_p)).astype(np.uint8)


def _repeated(bits: Bits, reports: int) -> Bits:
    return np.repeat(bits[:, None, :], reports, axis=1)


def correct(value: Value, seed: int, clients: int, reports: int) -> Returned:
    """A correct client of PAGE, as a control."""
    rng = np.random.default_rng(seed)
    cohorts, truth = _truth(PAGE, value, clients, rng)
    permanent = _permanent(truth, PAGE_F, rng)
    return cohorts, _instantaneous(_repeated(permanent, reports), PAGE.params, rng)


def correct_one_time(value: Value, seed: int, clients: int, reports: int) -> Returned:
    """A correct client of ONE_TIME, as a control."""
    rng = np.random.default_rng(seed)
    cohorts, truth = _truth(ONE_TIME, value, clients, rng)
    return cohorts, _repeated(_permanent(truth, ONE_TIME_F, rng), reports)


def never_clears_a_one(value: Value, seed: int, clients: int, reports: int) -> Returned:
    """Noise sets bits and never clears one, as in the RAPPOR of pure-LDP 1.2.0."""
    cohorts, bits = correct(value, seed, clients, reports)
    truth = true_bits(PAGE, value)[cohorts]
    return cohorts, bits | truth[:, None, :]


def new_permanent_bits_each_report(value: Value, seed: int, clients: int, reports: int) -> Returned:
    """The permanent response is drawn anew for each report, so noise averages out."""
    rng = np.random.default_rng(seed)
    cohorts, truth = _truth(PAGE, value, clients, rng)
    permanent = _permanent(_repeated(truth, reports), PAGE_F, rng)
    return cohorts, _instantaneous(permanent, PAGE.params, rng)


def f_floored_to_128ths(value: Value, seed: int, clients: int, reports: int) -> Returned:
    """f is rounded down to a multiple of 1/128, so each permanent bit has less noise than declared."""
    rng = np.random.default_rng(seed)
    cohorts, truth = _truth(ONE_TIME, value, clients, rng)
    floored = math.floor(ONE_TIME_F * 128) / 128
    return cohorts, _repeated(_permanent(truth, floored, rng), reports)


def last_bit_without_noise(value: Value, seed: int, clients: int, reports: int) -> Returned:
    """A loop that ends one bit early: the last bit is sent as it is."""
    cohorts, bits = correct(value, seed, clients, reports)
    truth = true_bits(PAGE, value)[cohorts]
    bits[:, :, -1] = truth[:, None, -1]
    return cohorts, bits


def seeded_with_the_time(value: Value, seed: int, clients: int, reports: int) -> Returned:
    """The generator is seeded with the current second: the distribution over seeds is right, and the seed is public."""
    return correct(value, int(time.time()), clients, reports)


_import_time_generator: Any = random.Random(time.time_ns())  # noqa: S311  (the fault under test)


def seeded_at_import(value: Value, seed: int, clients: int, reports: int) -> Returned:
    """The generator is seeded once, with the nanosecond of the import: calls of one process differ."""
    return correct(value, _import_time_generator.getrandbits(60), clients, reports)
