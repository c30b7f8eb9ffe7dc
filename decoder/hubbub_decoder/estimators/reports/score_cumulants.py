"""Cumulants of the noise of estimates from retained reports, for the tails of their errors.

Model: the estimate of candidate v alone, beside the average unlisted string and "no value", is a mean over reports of

    i = (r_v - l r_o - l_0) / (f D)        E i = 0 without reports of v, and 1 from a report of v

with l, l_0 and D from the information A. Where p* is small, few reports look like v by chance, and i is large for these: the estimate is
as skewed as their number. Moments under the mixture f and under v come from reports simulated at shares z, by their weights f/g and r_v/g.
docs/explanation/mathematics.md, sections 10 and 11.
"""

from __future__ import annotations

import numpy as np

from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.reports.likelihood_ratios import Mixture
from hubbub_decoder.estimators.reports.simulated_information import SimulatedReports, proposal_shares
from hubbub_decoder.inference.error_law import ErrorCumulants

_TINY = 1e-300


def score_cumulants(
    mixture: Mixture, z: Floats, simulated: list[SimulatedReports], num_reports: float
) -> ErrorCumulants:
    """Noise cumulants of the estimates from so many reports of different clients.

    z           : (M + 2,) shares at which reports were simulated
    num_reports : with repeated reports, their number over the `noise_effect` of the bits

    Strings hash at random, so without their own reports all candidates have nearly the same cumulants. Each gets the median, which has
    less noise of the simulation than its own.
    """
    listed = mixture.size - 2
    proposal = proposal_shares(z)
    own, cross, fixed = np.zeros(listed), np.zeros((2, listed)), np.zeros((2, 2))
    parts = []
    for each in simulated:
        x = mixture.ratios(each.bits, mixture.positions[each.cohort])
        f, g = z @ x, proposal @ x
        weights, of_v = each.weight * f / g, each.weight * x[:listed] / g
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
