"""Retained reports -> the full likelihood of the shares, in blocks, by Newton's method.

Conventions: the M + 2 components of the mixture are the candidates (columns of the design), the average unlisted string, and "no
value"; z are their shares, which sum to one. r_v(s) = P(report s | v) / P(report s | no value) = prod over the bits i of v of
w_i, with w_i = q*/p* where bit i of s is set and (1-q*)/(1-p*) where it is not; r = 1 of no value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import SummaryError
from hubbub.metric import Metric
from hubbub.params import Params
from hubbub.summary import BitCounts
from hubbub.summary.kernel import count_bits
from hubbub_decoder.covariance import RandomString
from hubbub_decoder.design_matrix import DesignMatrix
from hubbub_decoder.marginals import bit_shares

_CELLS_AT_ONCE = 1 << 20
_THINNED = (64, 8, 1)  # Newton starts on every 64th report, then on every 8th: most steps cost little
_ENOUGH = 50  # reports a component, below which a thinned sample is not worth a start
_CLOSE = 0.02  # standard errors from the maximum; one more step leaves (.02 / .98)**2 of one, self-concordance says
_SHORT = 0.25
_MOST_STEPS = 40
_MOST_HALVINGS = 4
_STEPS_OF_EM = 3
_RUNAWAY = -1.0
_UNLIKELY = 1e-3  # reports
_PROBES = 256
_NO_NOISE = 1e-12  # p* = 0 would make a ratio infinite
_SINGLE_RANGE = 1e15  # ratios beyond it need double precision
_NULL = 1e-9

Floats = NDArray[np.float64]
Ratios = NDArray[Any]  # float32, or float64 where single precision has not the range


@dataclass(frozen=True, eq=False)
class ReportFit:
    """Shares of the reports, and how uncertain they are as shares of a population the reports are drawn from.

    shares        : (M,) unconstrained, so possibly negative; nan where the reports do not determine it
    unlisted      : share of strings without a candidate
    without_value : share of "no value"
    covariance    : (M + 2, M + 2) of (shares, unlisted, without_value); its rows sum to 0 up to the random effect
    num_reports   : N
    scatter       : tau**2, the sum of squared shares of unlisted strings, from the excess scatter of the bits
    held          : (M + 2,) shares held at 0: the likelihood rises for ever below it, as it does of a string that no report
                    can be without noise
    distance      : how far the shares are from the maximum, in standard errors; below 0.001 in good order
    """

    shares: Floats
    unlisted: float
    without_value: float
    covariance: Floats
    num_reports: int
    scatter: float
    held: NDArray[np.bool_]
    distance: float

    @property
    def std_errors(self) -> Floats:
        """Of the shares among those who reported: Var - x (1 - x) / N; (M + 2,), the unlisted and no value last."""
        x = np.clip([*self.shares, self.unlisted, self.without_value], 0, 1)
        error: Floats = np.sqrt(np.maximum(np.diag(self.covariance) - x * (1 - x) / self.num_reports, 0))
        return error


@dataclass(frozen=True, eq=False)
class _Reports:
    """Reports by cohort, and what turns them into ratios.

    starts  : (m + 1,) where each cohort's rows begin
    places  : (m, M, h) bits of each candidate, k where it has fewer
    average : (k + 1,) ratio of the average string to a report of so many ones
    """

    rows: NDArray[np.uint8]
    starts: NDArray[np.int64]
    params: Params
    places: NDArray[np.intp]
    average: Floats
    dtype: type

    def number(self, every: int) -> int:
        """Return how many reports there are, or are left of every so-many-th of each cohort."""
        return int(np.sum(-(-np.diff(self.starts) // every)))

    def blocks(self, cohort: int, every: int, places: NDArray[np.intp]) -> Iterator[Ratios]:
        """Yield ratios (components, reports) of every so-many-th report of a cohort."""
        rows = self.rows[self.starts[cohort] : self.starts[cohort + 1] : every]
        k = self.params.num_bits
        when_unset, when_set = _ratios(self.params)
        at_once = max(64, _CELLS_AT_ONCE // (len(places) + 2))
        for start in range(0, len(rows), at_once):
            bits = np.unpackbits(rows[start : start + at_once].T, axis=0, count=k, bitorder="little")
            factors: Ratios = np.ones((k + 1, bits.shape[1]), self.dtype)
            np.multiply(bits, self.dtype(when_set - when_unset), out=factors[:k])
            factors[:k] += self.dtype(when_unset)
            ratios: Ratios = np.ones((len(places) + 2, bits.shape[1]), self.dtype)
            listed = ratios[:-2]
            for place in places.T:
                listed *= factors[place]
            ratios[-2] = self.average[bits.sum(axis=0, dtype=np.int32)]
            yield ratios


@dataclass(frozen=True, eq=False)
class _Slope:
    """What is climbed, sum_n (log f - sum z), its gradient and minus its second derivative: sum r / f - n, sum r r' / f**2.

    Taking off n sum z puts the maximum where the sum is one, so that no constraint is needed (Lindsay 1983).
    """

    value: float
    gradient: Floats
    information: Floats


def fit_reports(
    cohorts: NDArray[Any], rows: NDArray[np.uint8], params: Params, design: DesignMatrix, *, seed: int = 0
) -> ReportFit:
    """Fit the shares of candidates, unlisted strings and "no value" to the reports themselves.

        maximize  sum_n log f(s_n)     f = sum_v z_v r_v,  sum z = 1
        Cov z = J^-1 - z z' / N + tau**2 J^-1 B J^-1       J = sum_n r r' / f**2

    f is linear in z, so the problem is concave and Newton's method finds its one maximum. Shares are not kept from being
    negative, so they are unbiased up to O(1/N). B is the covariance that the hashing of one unlisted string, independent
    between cohorts, gives the gradient (`_hashing_of_one`).

    cohorts : (n,)      rows : (n, ceil(k / 8)) as on the wire      design : made for the same `params`
    seed    : of the random strings that stand for unlisted ones in B

    Time O(n M**2), memory O(n k / 8 + M**2). Raises SummaryError for reports that are not of these parameters.
    """
    reports = _by_cohort(cohorts, rows, params, design)
    n, components = len(rows), len(design.groups) + 2
    z = np.full(components, 0.5 / components)
    z[-2:] += 0.25
    held = np.zeros(components, np.bool_)
    for every in _THINNED:
        if every == 1:
            held[:] = False
        elif n < _ENOUGH * every * components:
            continue
        z, distance, slope = _maximum(reports, z, held, every)
    inverse, known = _inverse(slope.information, held)
    covariance = inverse - np.outer(z, z) / n
    scatter = max(0.0, _scatter(reports, z, covariance, design))
    if scatter > 0:
        covariance += scatter * inverse @ _hashing_of_one(reports, z, np.random.default_rng(seed)) @ inverse
    covariance[held, held] = 1 / n**2
    shares = np.where(known, z, np.nan)
    return ReportFit(shares[:-2], float(shares[-2]), float(shares[-1]), covariance, n, scatter, held, distance)


def _by_cohort(cohorts: NDArray[Any], rows: NDArray[np.uint8], params: Params, design: DesignMatrix) -> _Reports:
    if design.params != params:
        raise SummaryError(
            "the design matrix was made for other parameters than the reports': hash the candidates anew"
        )
    if len(rows) == 0 or rows.shape != (len(cohorts), params.row_bytes):
        raise SummaryError(
            f"rows must be (n, {params.row_bytes}) for n = {len(cohorts)} >= 1 reports of {params.num_bits} bits, "
            f"got {rows.shape}"
        )
    if int(cohorts.max()) >= params.num_cohorts or int(cohorts.min()) < 0:
        raise SummaryError(f"cohorts must be in [0, {params.num_cohorts}), got {cohorts.min()} to {cohorts.max()}")
    order = np.argsort(cohorts, kind="stable")
    starts = np.concatenate(([0], np.cumsum(np.bincount(cohorts, minlength=params.num_cohorts))))
    average = _average_ratio(params)
    low, high = (ratio**params.num_hashes for ratio in sorted(_ratios(params)))
    dtype = np.float32 if max(high, 1 / low) < _SINGLE_RANGE else np.float64
    return _Reports(rows[order], starts, params, _places(design), average, dtype)


def _ratios(params: Params) -> tuple[float, float]:
    """Return (1-q*)/(1-p*) and q*/p*, which a bit of the value contributes where the report's is unset, set."""
    p, q = (min(max(star, _NO_NOISE), 1 - _NO_NOISE) for star in (params.p_star, params.q_star))
    return (1 - q) / (1 - p), q / p


def _average_ratio(params: Params) -> Floats:
    """Return the mean of r over all strings for a report of t = 0 .. k ones, exactly: only how many matters.

        murmur3-v1 : e_h(t) / C(k, h)      google-md5 : sum_d P(d distinct bits of h) e_d(t) / C(k, d)
        e_d(t) = sum_l C(t, l) C(k-t, d-l) a**l b**(d-l)

    Where k does not divide 256, google-md5's slight preference for low bits is left out.
    """
    k, h = params.num_bits, params.num_hashes
    unset, set_ = _ratios(params)
    if params.hash_scheme == "google-md5":
        distinct = [0.0] * h
        distinct[0] = 1.0
        for _ in range(h - 1):
            distinct = [distinct[d] * (d + 1) / k + (distinct[d - 1] * (k - d) / k if d else 0) for d in range(h)]
    else:
        distinct = [0.0] * (h - 1) + [1.0]
    return np.array([
        math.fsum(
            chance * math.comb(t, ones) * math.comb(k - t, d - ones) / math.comb(k, d) * set_**ones * unset ** (d - ones)
            for d, chance in enumerate(distinct, start=1)
            if chance
            for ones in range(max(0, d - (k - t)), min(d, t) + 1)
        )
        for t in range(k + 1)
    ])  # fmt: skip


def _places(design: DesignMatrix) -> NDArray[np.intp]:
    """Read the bits of each column in each cohort from the matrix: (m, M, h), padded with k."""
    params = design.params
    k, m = params.num_bits, params.num_cohorts
    matrix = design.matrix
    column = np.repeat(np.arange(matrix.shape[1]), np.diff(matrix.indptr))
    cell = column * m + matrix.indices // k
    order = np.argsort(cell, kind="stable")
    nth = np.arange(len(cell)) - np.searchsorted(cell[order], cell[order])
    width = int(nth.max(initial=0)) + 1
    places = np.full((matrix.shape[1] * m, width), k, np.intp)
    places[cell[order], nth] = matrix.indices[order] % k
    return np.ascontiguousarray(places.reshape(matrix.shape[1], m, width).transpose(1, 0, 2))


def _slope(reports: _Reports, z: Floats, every: int) -> _Slope | None:
    """Sum over every so-many-th report; None where some report would have no positive likelihood."""
    value, gradient, information = 0.0, np.zeros(len(z)), np.zeros((len(z), len(z)))
    weights: Ratios = z.astype(reports.dtype)
    for cohort, places in enumerate(reports.places):
        for ratios in reports.blocks(cohort, every, places):
            f = weights @ ratios
            if f.min() <= 0:
                return None
            value += float(np.log(f.astype(np.float64)).sum()) - len(f) * float(z.sum())
            ratios /= f
            gradient += ratios.sum(axis=1, dtype=np.float64) - len(f)
            information += ratios @ ratios.T
    return _Slope(value, gradient, information)


def _maximum(reports: _Reports, z: Floats, held: NDArray[np.bool_], every: int) -> tuple[Floats, float, _Slope]:
    """Climb from z; returns where, its distance, and the slope there. Shares without a maximum are held at 0, in place.

    Far from the maximum, where Newton's step leads nowhere, steps of EM go on: z_v <- the mean chance that a report is of v. A
    share without a maximum runs away below -1, or EM finds less than a thousandth of a report likely to be of that string.
    """
    slope = _slope(reports, z, every) or _surely(_slope(reports, z := _plausible(z, held), every))
    distance = math.inf
    for _ in range(_MOST_STEPS):
        inverse, _known = _inverse(slope.information, held)
        uphill = np.where(held, 0, slope.gradient)
        step = inverse @ uphill
        distance = math.sqrt(max(0.0, float(step @ uphill)))
        if distance < _CLOSE:
            z = z + step
            distance = (distance / (1 - distance)) ** 2
            break
        climbed = _climbed(reports, z, step, slope, distance, every)
        away = (climbed[0] if climbed else z) < _RUNAWAY
        if climbed and not away.any():
            z, slope = climbed
            continue
        for _ in range(_STEPS_OF_EM):
            z = _plausible(z, held)
            slope = _surely(_slope(reports, z, every))
            z *= 1 + slope.gradient / reports.number(every)
        held |= away | (z * reports.number(every) < _UNLIKELY)
        z = _plausible(z, held)
        slope = _surely(_slope(reports, z, every))
    return z / z.sum(), distance, slope


def _climbed(
    reports: _Reports, z: Floats, step: Floats, slope: _Slope, distance: float, every: int
) -> tuple[Floats, _Slope] | None:
    """Take the step, or the largest half, quarter ... of it that goes up; None if none does.

    A short step goes up by itself, since sums of -log are self-concordant (Nesterov & Nemirovskii 1994): no rounding of the
    value can stop it.
    """
    for halvings in range(_MOST_HALVINGS):
        there = z + step / 2**halvings
        slope_there = _slope(reports, there, every)
        if slope_there is not None and (distance < _SHORT or slope_there.value >= slope.value):
            return there, slope_there
    return None


def _surely(slope: _Slope | None) -> _Slope:
    """Every report has a positive likelihood where all shares are positive, unless none of its strings has one."""
    if slope is None:
        raise SummaryError(
            "some reports cannot come from any candidate, any other string or no value: "
            "the parameters or the hash scheme are not those of the reports"
        )
    return slope


def _plausible(z: Floats, held: NDArray[np.bool_]) -> Floats:
    """Cut to shares that a population can have; each keeps a little."""
    cut = np.where(held, 0, np.maximum(z, 1e-6 / len(z)))
    return np.asarray(cut / cut.sum())


def _inverse(information: Floats, held: NDArray[np.bool_]) -> tuple[Floats, NDArray[np.bool_]]:
    """Invert what is not held, leaving out directions without information; also which shares are clear of those."""
    free = np.flatnonzero(~held)
    scale = np.sqrt(np.diag(information)[free])
    scale[scale == 0] = 1
    values, vectors = np.linalg.eigh(information[np.ix_(free, free)] / np.outer(scale, scale))
    seen = values > _NULL * values[-1]
    half = vectors[:, seen] / np.sqrt(values[seen]) / scale[:, None]
    inverse = np.zeros_like(information)
    inverse[np.ix_(free, free)] = half @ half.T
    known = np.ones(len(information), np.bool_)
    known[free] = np.linalg.norm(vectors[:, ~seen] / scale[:, None], axis=1) <= 1e-6 / scale.max()
    return inverse, known


def _scatter(reports: _Reports, z: Floats, covariance: Floats, design: DesignMatrix) -> float:
    """Return tau**2 by the method of moments on the bits; below 0 by chance.

        E r r' = S - X Cov X' + tau**2 V (1 - d)      r = y - X z,  d = tr(S^-1 X Cov X') / rows
        S = pi (1 - pi) / (n_j (q* - p*)**2) on the diagonal

    Each bit is weighted by 1 / S. X has a column for the average string. The bits are an unbiased estimate of X z, so their covariance with
    an efficient one is X Cov X'. That the fit takes up the same share d of the scatter V as of the noise is an approximation: with
    50 candidates to 128 bits tau**2 comes out 13 % too small.
    """
    params = reports.params
    m, k = params.num_cohorts, params.num_bits
    order = np.repeat(np.arange(m), np.diff(reports.starts))
    counts = BitCounts(Metric.string("reports", params), *count_bits(order, reports.rows, m, k))
    used = np.repeat(counts.reports > 0, k)
    average = np.tile(RandomString.of(params).mean, m)
    contrast = params.q_star - params.p_star
    plausible = np.clip(z[:-1], 0, 1)
    mu = np.clip(design.matrix @ plausible[:-1] + average * plausible[-1], 0, 1)
    pi = np.clip(params.p_star + contrast * mu, _NO_NOISE, 1 - _NO_NOISE)
    variance = pi * (1 - pi) / (np.maximum(np.repeat(counts.reports, k), 1) * contrast**2)
    weight = np.where(used, 1 / variance, 0)
    residual = np.where(used, bit_shares(counts).ravel(), 0) - design.matrix @ z[:-2] - average * z[-2]
    weighted = design.matrix.T.multiply(weight).tocsr()
    cross = weighted @ average
    gram = np.zeros((len(z) - 1, len(z) - 1))
    gram[:-1, :-1] = (weighted @ design.matrix).toarray()
    gram[:-1, -1] = gram[-1, :-1] = cross
    gram[-1, -1] = float(weight @ average**2)
    rows, fitted = int(used.sum()), float(np.sum(gram * covariance[:-1, :-1]))
    excess = float(weight @ residual**2) - rows + fitted
    return excess / (float(weight @ (average * (1 - average))) * (1 - fitted / rows))


def _hashing_of_one(reports: _Reports, z: Floats, rng: np.random.Generator) -> Floats:
    """Return B = sum_j n_j**2 E h h', h = E_s (r_u - r_o) r / f**2 for a random string u, r_o the average ratio.

    The mean over a cohort's reports stands for E_s, whose own noise makes B larger, by about a share tau**2 E (r_u / f)**2 of J: errors
    come out a little too wide rather than too narrow, much too wide only where reports are nearly free of noise.
    """
    weights: Ratios = z.astype(reports.dtype)
    k, h = reports.params.num_bits, reports.params.num_hashes
    total = np.zeros((len(z), len(z)))
    for cohort, listed in enumerate(reports.places):
        width = max(listed.shape[1], h)
        places = np.full((len(listed) + _PROBES, width), k, np.intp)
        places[: len(listed), : listed.shape[1]] = listed
        places[len(listed) :, :h] = _random_places(reports.params, rng)
        summed = np.zeros((_PROBES, len(z)))
        for ratios in reports.blocks(cohort, 1, places):
            mixture = np.concatenate([ratios[: len(listed)], ratios[-2:]])
            f = weights @ mixture
            mixture /= f
            summed += ((ratios[len(listed) : -2] - ratios[-2]) / f) @ mixture.T
        total += summed.T @ summed / _PROBES
    return total


def _random_places(params: Params, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw the bits of strings that hash anywhere: (probes, h), coincident ones replaced by k."""
    k, h = params.num_bits, params.num_hashes
    if params.hash_scheme != "google-md5":
        return np.argsort(rng.random((_PROBES, k)), axis=1)[:, :h]
    places = np.sort(rng.integers(256, size=(_PROBES, h)) % k, axis=1).astype(np.intp)
    places[:, 1:][places[:, 1:] == places[:, :-1]] = k
    return places
