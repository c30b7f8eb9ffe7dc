"""What reports would say of each string, were shares as supposed: by reports simulated so, which know nothing of the noise of the true ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hubbub_decoder.array_types import Bits, Floats, Indices
from hubbub_decoder.estimators.reports.likelihood_ratios import Mixture
from hubbub_decoder.model.random_string import random_places

_PROBES = 256


@dataclass(frozen=True, eq=False)
class Drawn:
    """Simulated reports of one cohort: bits (k, n), the component each was drawn from, and 1/n of the cohort's share."""

    cohort: int
    bits: Bits
    component: Indices
    weight: float


def draw(mixture: Mixture, cohorts: Floats, z: Floats, total: int, rng: np.random.Generator) -> Iterator[Drawn]:
    """Simulate reports, half of them from z and half from all components alike, in every cohort that has reports.

    cohorts : (m,) share of the reports in each
    """
    params, k = mixture.params, mixture.params.num_bits
    reach = np.cumsum(_proposal(z))
    for cohort, places in enumerate(mixture.places):
        if not cohorts[cohort]:
            continue
        size = max(16, round(total * cohorts[cohort]))
        evenly = (rng.permutation(size) + rng.random()) / size
        component = np.minimum(np.searchsorted(reach, evenly), mixture.size - 1)
        true = np.zeros((size, k + 1), np.bool_)
        listed = np.flatnonzero(component < len(places))
        true[listed[:, None], places[component[listed]]] = True
        unlisted = np.flatnonzero(component == len(places))
        true[unlisted[:, None], random_places(params, len(unlisted), rng)] = True
        bits = rng.random((size, k)) < np.where(true[:, :k], params.q_star, params.p_star)
        yield Drawn(cohort, bits.T.astype(np.uint8), component, cohorts[cohort] / size)


def _proposal(z: Floats) -> Floats:
    return z / 2 + 0.5 / len(z)


def information(mixture: Mixture, z: Floats, drawn: list[Drawn]) -> Floats:
    """Return A = E x x' = E_g x x' f/g, of one report, x = r/f; g the mixture that reports were drawn from."""
    total = np.zeros((mixture.size, mixture.size))
    proposal = _proposal(z)
    for each in drawn:
        x = mixture.ratios(each.bits, mixture.places[each.cohort])
        f, g = z @ x, proposal @ x
        x /= f
        total += each.weight * (x * (f / g)) @ x.T
    return total


def noise(mixture: Mixture, z: Floats, drawn: list[Drawn]) -> Floats:
    """Return the covariance of one report's x that its noise alone makes: E_v Cov(x | v) = sum_v z_v (E_v x x' - E_v x E_v x')."""
    size = mixture.size
    second, first, chance = np.zeros((size, size)), np.zeros((size, size)), np.zeros(size)
    proposal = _proposal(z)
    for each in drawn:
        x = mixture.ratios(each.bits, mixture.places[each.cohort])
        x /= z @ x
        second += each.weight * (x * (z / proposal)[each.component]) @ x.T
        order = np.argsort(each.component, kind="stable")
        drawn_from, starts = np.unique(each.component[order], return_index=True)
        first[:, drawn_from] += each.weight * np.add.reduceat(x[:, order], starts, axis=1)
        chance += each.weight * np.bincount(each.component, minlength=size)
    mean = first / np.maximum(chance, np.finfo(float).tiny)
    return np.asarray(second - (mean * (z / proposal * chance)) @ mean.T)


def hashing_of_one(mixture: Mixture, z: Floats, drawn: list[Drawn], rng: np.random.Generator) -> Floats:
    """Return B = sum_j (n_j / n)**2 E h h', h = E_s (r_u - r_o) r / f**2 in cohort j for a random string u, r_o the average ratio.

    Two halves of the cohort's simulated reports each estimate h, so that their noise, which does not correlate, does not make B larger.
    """
    k, h = mixture.params.num_bits, mixture.params.num_hashes
    total = np.zeros((mixture.size, mixture.size))
    proposal = _proposal(z)
    for each in drawn:
        listed = mixture.places[each.cohort]
        width = max(listed.shape[1], h)
        places = np.full((len(listed) + _PROBES, width), k, np.intp)
        places[: len(listed), : listed.shape[1]] = listed
        places[len(listed) :, :h] = random_places(mixture.params, _PROBES, rng)
        ratios = mixture.ratios(each.bits, places)
        x = np.concatenate([ratios[: len(listed)], ratios[-2:]])
        probed = (ratios[len(listed) : -2] - ratios[-2]) / (proposal @ x)
        x /= z @ x
        one, other = (2 * probed[:, half::2] @ x[:, half::2].T for half in (0, 1))
        total += each.weight**2 / _PROBES * one.T @ other
    values, vectors = np.linalg.eigh(total + total.T)
    return np.asarray((vectors * np.maximum(values / 2, 0)) @ vectors.T)
