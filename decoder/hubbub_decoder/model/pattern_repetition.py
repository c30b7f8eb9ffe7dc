"""Covariance between the scores of two reports of one client, for pattern counts.

With R = P(pattern | filter), pi = R theta and the score w(s) = R_s / pi_s of a report s (`pattern_likelihood.py`), T reports of one client
and value add to the counts' covariance (`repetition.py`):

    Cov sum_t w(r_t) = T (I + (R_e - 1) E_B h h' + (T - R_e) E_v h h')        second moments: the number of clients is random

    I       = E w w' = R' diag(1/pi) R                   h(v) = E(w | v), row v of I, so E_v h h' = I diag(theta) I
    h(B)    = E(w | B) = sum_s P(s | B) w(s)             B ~ P(B) = sum_v theta_v P(B | v), over all 2**k permanent responses
    T, R_e  reports of a client, and of a permanent response

The bits of a response are independent given the filter, so sums over 2**k patterns are taken over two halves of the bits in turn.
docs/explanation/mathematics.md, equation (15.5).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hubbub.metrics.params import Params
from hubbub_decoder.array_types import Floats
from hubbub_decoder.model.repetition import Repetition


def repeated_score_covariance(
    filters: NDArray[np.int64], theta: Floats, pi: Floats, information: Floats, params: Params, repetition: Repetition
) -> Floats:
    """Covariance (F, F) that a report adds to its own information: (R_e - 1) E_B h h' + (T - R_e) E_v h h'.

    filters     : (F,) bits of each filter as an integer      theta : (F,) their shares
    pi          : (2**k,) probabilities of the patterns        information : (F, F) I, of one report
    """
    k = params.num_bits
    responses = np.zeros(1 << k)
    responses[filters] = theta
    responses = _apply(_channel(params.mechanism.permanent_p, params.mechanism.permanent_q, k), responses[:, None])[
        :, 0
    ]
    reported, given_response = (
        _channel(params.mechanism.p_star, params.mechanism.q_star, k),
        _channel(params.mechanism.prob_p, params.mechanism.prob_q, k),
    )
    scores = _columns(reported, filters) / pi[:, None]
    expected = _apply((given_response[0].T, given_response[1].T), scores)
    of_response = (expected * responses[:, None]).T @ expected
    of_client = (information * theta) @ information
    apart = repetition.per_client - repetition.per_response
    return np.asarray((repetition.per_response - 1) * of_response + apart * of_client)


def _channel(from_zero: float, from_one: float, num_bits: int) -> tuple[Floats, Floats]:
    """P(pattern out | pattern in) of the high and the low half of the bits, each (2**b, 2**b), bit by bit independent."""
    bit = np.array([[1 - from_zero, 1 - from_one], [from_zero, from_one]])
    low = num_bits // 2
    return _kronecker_power(bit, num_bits - low), _kronecker_power(bit, low)


def _kronecker_power(matrix: Floats, exponent: int) -> Floats:
    power: Floats = np.ones((1, 1))
    for _ in range(exponent):
        power = np.asarray(np.kron(power, matrix), np.float64)
    return power


def _apply(channel: tuple[Floats, Floats], columns: Floats) -> Floats:
    """Product of the whole channel (2**k, 2**k) with columns (2**k, n)."""
    high, low = channel
    halves = columns.reshape(len(high), len(low), -1)
    return np.tensordot(high, np.tensordot(low, halves, (1, 1)), (1, 1)).reshape(columns.shape)


def _columns(channel: tuple[Floats, Floats], patterns: NDArray[np.int64]) -> Floats:
    """Columns of the whole channel at some patterns, (2**k, n)."""
    high, low = channel
    product = high[:, None, patterns // len(low)] * low[None, :, patterns % len(low)]
    return np.asarray(product.reshape(-1, len(patterns)))
