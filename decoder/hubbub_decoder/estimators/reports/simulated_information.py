"""Fisher information of a report about the shares of the mixture, from simulated reports.

With x = r / f at shares z (`likelihood_ratios.py`), for one report s with mean bits w, and an unlisted string u with bits b_u:

    A = E x x'                                     information (M + 2, M + 2)
    N = E_v Cov(x | v)                             part of it that the noise alone makes, the reporters fixed
    B = sum_j (n_j / n)**2 E_u h_j h_j'            covariance that one unlisted string u gives the score; h_j = E_s (r_u - r_o) r / f**2
    C = (n_j / n) E_u (b_u - w) h_j'               covariance of the score with the bits of cohort j, that u gives

Reports are simulated at z, so these matrices do not depend on the noise of the true reports. With T reports of a client, R of them of one
permanent response (`model/repetition.py`), the mean x of a client has the noise

    N_T / T        N_T = E x x' + (R - 1) E x y' + (T - R) E x y~' - T E_v E(x | v) E(x | v)'

where y is of a second report of the same response, and y~ of one of the same value and cohort, but of another response.

docs/explanation/mathematics.md, sections 11 and 15.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hubbub.metrics.params import Params
from hubbub_decoder.array_types import Bits, Floats, Indices
from hubbub_decoder.estimators.reports.bit_residuals import BitResiduals, HashMoments
from hubbub_decoder.estimators.reports.likelihood_ratios import Mixture
from hubbub_decoder.inference.error_law import ErrorCumulants
from hubbub_decoder.model.random_string import draw_bit_positions
from hubbub_decoder.model.repetition import ONCE, Repetition

_MIN_SIMULATED, _SIMULATED_PER_COMPONENT = 1 << 15, 24  # reports in all
_MIN_SIMULATED_PER_COHORT = 16
_RANDOM_STRINGS, _MIN_RANDOM_STRINGS = 256, 2_048  # in each cohort, and at least in all, for B and C
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class SimulatedReports:
    """Simulated reports of one cohort.

    bits : (k, n)      component : (n,) component of the mixture from which each was drawn      weight : share of the cohort over n
    others : other reports of the same clients: their number for each report, and the bits (k, n) of one of them
    """

    cohort: int
    bits: Bits
    component: Indices
    weight: float
    others: tuple[tuple[float, Bits], ...] = ()


def sample_size(mixture: Mixture) -> int:
    """Number of reports to simulate for a mixture: 24 for each component, at least 32,768."""
    return max(_MIN_SIMULATED, _SIMULATED_PER_COMPONENT * mixture.size)


def draw_reports(
    mixture: Mixture,
    cohorts: Floats,
    z: Floats,
    total: int,
    rng: np.random.RandomState,
    repetition: Repetition = ONCE,
) -> Iterator[SimulatedReports]:
    """Simulate reports in every cohort that has any, half of them from z and half from all components equally.

    cohorts : (m,) share of the true reports in each      z : (M + 2,)      total : number of reports
    """
    params, k = mixture.params, mixture.params.num_bits
    reach, of_same_response = np.cumsum(proposal_shares(z)), _repeat_probabilities(params)
    for cohort, positions in enumerate(mixture.positions):
        if not cohorts[cohort]:
            continue
        size = max(_MIN_SIMULATED_PER_COHORT, round(total * cohorts[cohort]))
        evenly = (rng.permutation(size) + rng.random()) / size
        component = np.minimum(np.searchsorted(reach, evenly), mixture.size - 1)
        true = np.zeros((size, k + 1), np.bool_)
        listed = np.flatnonzero(component < len(positions))
        true[listed[:, None], positions[component[listed]]] = True
        unlisted = np.flatnonzero(component == len(positions))
        true[unlisted[:, None], draw_bit_positions(params, len(unlisted), rng)] = True
        reported = np.where(true[:, :k], params.mechanism.q_star, params.mechanism.p_star)
        bits = rng.random((size, k)) < reported
        repeated = of_same_response[true[:, :k].astype(np.intp), bits.astype(np.intp)]
        pairs = ((repetition.per_response - 1, repeated), (repetition.per_client - repetition.per_response, reported))
        others = tuple(
            (number, (rng.random((size, k)) < chance).T.astype(np.uint8)) for number, chance in pairs if number > 0
        )
        yield SimulatedReports(cohort, bits.T.astype(np.uint8), component, cohorts[cohort] / size, others)


def _repeat_probabilities(params: Params) -> Floats:
    """P(bit of a second report = 1 | true bit, bit of the first report), (2, 2), for two reports of one permanent response."""
    p, q, a, b = (
        params.mechanism.prob_p,
        params.mechanism.prob_q,
        params.mechanism.permanent_q,
        params.mechanism.permanent_p,
    )
    of_response = np.array([[1 - b, b], [1 - a, a]])[:, None, :] * np.array([[1 - p, 1 - q], [p, q]])
    total = of_response.sum(axis=2)
    return np.asarray(of_response @ np.array([p, q]) / np.where(total > 0, total, 1))


def proposal_shares(z: Floats) -> Floats:
    """Shares of the mixture that reports are simulated from, g."""
    return z / 2 + 0.5 / len(z)


def information(mixture: Mixture, z: Floats, simulated: list[SimulatedReports]) -> Floats:
    """Information A = E x x' = E_g x x' f/g of one report, (M + 2, M + 2); g the mixture that reports were simulated from."""
    total = np.zeros((mixture.size, mixture.size))
    proposal = proposal_shares(z)
    for batch in simulated:
        x = mixture.ratios(batch.bits, mixture.positions[batch.cohort])
        f, g = z @ x, proposal @ x
        x /= f
        total += batch.weight * (x * (f / g)) @ x.T
    return total


def noise_covariance(
    mixture: Mixture, z: Floats, simulated: list[SimulatedReports], repetition: Repetition = ONCE
) -> Floats:
    """Covariance of the mean x of a client's reports by their noise alone, N_T / T, (M + 2, M + 2).

    N_T is that of the module's docstring; it is N = E_v Cov(x | v) for one report.
    """
    size = mixture.size
    second, first, chance = np.zeros((size, size)), np.zeros((size, size)), np.zeros(size)
    proposal = proposal_shares(z)
    for batch in simulated:
        x = mixture.ratios(batch.bits, mixture.positions[batch.cohort])
        x /= z @ x
        weights = batch.weight * (z / proposal)[batch.component]
        second += (x * weights) @ x.T
        for number, bits in batch.others:
            y = mixture.ratios(bits, mixture.positions[batch.cohort])
            product = (x * (weights / (z @ y))) @ y.T
            second += number / 2 * (product + product.T)
        order = np.argsort(batch.component, kind="stable")
        drawn_from, starts = np.unique(batch.component[order], return_index=True)
        first[:, drawn_from] += batch.weight * np.add.reduceat(x[:, order], starts, axis=1)
        chance += batch.weight * np.bincount(batch.component, minlength=size)
    mean = first / np.maximum(chance, np.finfo(float).tiny)
    of_clients = (mean * (z / proposal * chance)) @ mean.T
    return np.asarray((second - repetition.per_client * of_clients) / repetition.per_client)


def client_covariance(information: Floats, noise: Floats, z: Floats, repetition: Repetition) -> Floats:
    """Covariance of the mean x of a client, (M + 2, M + 2): A of one report; otherwise `noise` and that of drawing clients, A diag(z) A.

    information : (M + 2, M + 2) A      noise : (M + 2, M + 2) `noise_covariance`
    """
    return information if repetition == ONCE else np.asarray(noise + (information * z) @ information)


def hash_moments(
    mixture: Mixture, z: Floats, simulated: list[SimulatedReports], residuals: BitResiduals, rng: np.random.RandomState
) -> HashMoments:
    """Covariances B (M + 2, M + 2) and X'S^-1 C (M + 1, M + 2) that the hashing of one unlisted string gives, per squared share.

    Two halves of a cohort's simulated reports each estimate h_j. Their noise is independent, so it does not enlarge B.
    """
    k, h = mixture.params.num_bits, mixture.params.num_hashes
    number = max(_RANDOM_STRINGS, _MIN_RANDOM_STRINGS // len(simulated))
    scores, bits = np.zeros((mixture.size, mixture.size)), np.zeros((mixture.size - 1, mixture.size))
    proposal = proposal_shares(z)
    for batch in simulated:
        listed = mixture.positions[batch.cohort]
        width = max(listed.shape[1], h)
        positions = np.full((len(listed) + number, width), k, np.intp)
        positions[: len(listed), : listed.shape[1]] = listed
        drawn = positions[len(listed) :, :h] = draw_bit_positions(mixture.params, number, rng)
        ratios = mixture.ratios(batch.bits, positions)
        x = np.concatenate([ratios[: len(listed)], ratios[-2:]])
        random = (ratios[len(listed) : -2] - ratios[-2]) / (proposal @ x)
        x /= z @ x
        one, other = (2 * random[:, half::2] @ x[:, half::2].T for half in (0, 1))
        scores += batch.weight**2 / number * one.T @ other
        bits += batch.weight / number * residuals.string_scores(batch.cohort, drawn) @ ((one + other) / 2)
    values, vectors = np.linalg.eigh(scores + scores.T)
    return HashMoments((vectors * np.maximum(values / 2, 0)) @ vectors.T, bits)


def score_cumulants(
    mixture: Mixture, z: Floats, simulated: list[SimulatedReports], num_reports: float
) -> ErrorCumulants:
    """Cumulants of the noise of the estimates from so many reports of different clients, for the tails of their errors.

    Model: the estimate of candidate v alone, beside the average unlisted string and "no value", is a mean over reports of

        i = (r_v - l r_o - l_0) / (f D)        E i = 0 without reports of v, and 1 from a report of v

    with l, l_0 and D from the information A. Where p* is small, few reports look like v by chance, and i is large for these: the estimate is
    as skewed as their number. Moments under the mixture f and under v come from reports simulated at shares z, by their weights f/g and r_v/g.
    docs/explanation/mathematics.md, sections 10 and 11.

    z           : (M + 2,) shares at which reports were simulated
    num_reports : with repeated reports, their number over the `noise_effect` of the bits

    Strings hash at random, so without their own reports all candidates have nearly the same cumulants. Each gets the median, which has
    less noise of the simulation than its own.
    """
    listed = mixture.size - 2
    proposal = proposal_shares(z)
    own, cross, fixed = np.zeros(listed), np.zeros((2, listed)), np.zeros((2, 2))
    parts = []
    for batch in simulated:
        x = mixture.ratios(batch.bits, mixture.positions[batch.cohort])
        f, g = z @ x, proposal @ x
        weights, of_v = batch.weight * f / g, batch.weight * x[:listed] / g
        x /= f
        own += x[:listed] ** 2 @ weights
        cross += (x[listed:] * weights) @ x[:listed].T
        fixed += (x[listed:] * weights) @ x[listed:].T
        parts.append((x, weights, of_v))
    level = np.linalg.pinv(fixed) @ cross
    length = np.maximum(own - np.sum(level * cross, axis=0), _TINY)
    total, alone = np.zeros((2, listed)), np.zeros((3, listed))
    for x, weights, of_v in parts:
        score = (x[:listed] - level.T @ x[listed:]) / length[:, None]
        power = score
        for order in range(3):
            alone[order] += np.sum(of_v * power, axis=1)
            power = power * score
            if order < 2:
                total[order] += power @ weights
    first, second, third = alone
    n, at = num_reports, z[:listed]
    values = (
        *(total[0] - at * second, second - first**2 - total[0] + at * second),
        *(total[1] - at * third, third - 3 * second * first + 2 * first**3 - total[1] + at * third),
    )
    typical = [float(np.median(value)) for value in values]
    scales = (1 / n, 1 / n, 1 / n**2, 1 / n**2)
    return ErrorCumulants(*(np.full(listed, value * scale) for value, scale in zip(typical, scales, strict=True)))
