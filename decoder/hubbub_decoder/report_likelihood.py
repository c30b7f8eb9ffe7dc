"""Retained reports -> the full likelihood of the shares, by its efficient score at plausible shares.

Conventions: the M + 2 components of the mixture are the candidates (columns of the design), the average unlisted string, and "no
value"; z are their shares, which sum to one. r_v(s) = P(report s | v) / P(report s | no value) = prod over the bits i of v of
w_i, with w_i = q*/p* where bit i of s is set and (1-q*)/(1-p*) where it is not; r = 1 of no value. f = sum_v z_v r_v.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from hubbub.errors import SummaryError
from hubbub.params import Params
from hubbub.summary import BitCounts, Reports
from hubbub_decoder.best_guess import best_guess
from hubbub_decoder.covariance import RandomString
from hubbub_decoder.design_matrix import DesignMatrix
from hubbub_decoder.error_law import ErrorLaw, RandomPlaces, chance_to_look_there
from hubbub_decoder.fit import Fit
from hubbub_decoder.inference import p_values, p_values_by_themselves
from hubbub_decoder.marginals import bit_shares

MAX_CANDIDATES = 1500

_CELLS_AT_ONCE = 1 << 20
_THINNED = (64, 8, 1, 1, 1)  # looks at every 64th report, every 8th, then three times at all
_ENOUGH = 50  # reports a component, below which a look at fewer than all is worth little
_DRAWN, _DRAWN_EACH = 1 << 15, 24  # reports simulated for the information: so many, and so many a component,
_ROUGHLY = 4  # and a quarter of that for all looks but the last
_LITTLE = 1e-3  # the least share of unlisted strings, of no value, and of all candidates together, that weights expect
_PROBES = 256
_STRINGS, _STRING_RATIOS = (256, 2048), 1 << 28  # random strings to compare candidates with, and times reports
_LEAST_ERROR = 0.1  # reports: what is simulated is not known better, and nearly noiseless reports leave nothing else
_NO_NOISE = 1e-12  # p* = 0 would make a ratio infinite
_NULL = 1e-9

Floats = NDArray[np.float64]
Bits = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class _Mixture:
    """Components as they set bits, and what turns reports into ratios.

    places  : (m, M, h) bits of each candidate, k where it has fewer
    average : (k + 1,) ratio of the average string to a report of so many ones
    cohorts : (m,) share of the reports in each
    """

    params: Params
    places: NDArray[np.intp]
    average: Floats
    cohorts: Floats

    @property
    def size(self) -> int:
        """M + 2."""
        return int(self.places.shape[1]) + 2

    def ratios(self, bits: Bits, places: NDArray[np.intp]) -> Floats:
        """Return r of the strings at `places`, the average string and no value for reports (k, n): (strings + 2, n)."""
        k = self.params.num_bits
        unset, set_ = _ratios(self.params)
        factors = np.ones((k + 1, bits.shape[1]))
        factors[:k] = np.where(bits, set_, unset)
        ratios = np.ones((len(places) + 2, bits.shape[1]))
        listed = ratios[:-2]
        for place in places.T:
            listed *= factors[place]
        ratios[-2] = self.average[bits.sum(axis=0, dtype=np.int32)]
        return ratios


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Simulated reports of one cohort: bits (k, n), the component each was drawn from, and 1/n of the cohort's share."""

    cohort: int
    bits: Bits
    component: NDArray[np.intp]
    weight: float


@dataclass(frozen=True, eq=False)
class _Look:
    """What the reports say, looked at with the weights of shares z.

    step : P g, from z to the estimate        projected : P, the inverse information of shares that sum to one
    covariance : of the estimate of the shares among the reporters        unexplained : directions without information
    """

    step: Floats
    projected: Floats
    covariance: Floats
    unexplained: Floats


def fit_reports(reports: Reports, design: DesignMatrix, *, seed: int = 0) -> Fit:
    """Fit the shares of candidates, unlisted strings and "no value" to the reports themselves.

        x_n = r(s_n) / f(s_n)        g = mean x - 1        A = E x x'        P = A^-1 - A^-1 1 1' A^-1 / (1' A^-1 1)
        z <- z + P g                 Cov z = P E_v Cov(x | v) P / n + tau**2 P B P, of the shares among those who reported

    E x = 1 + A (the true shares - z), whatever shares z weight the reports, so one step is unbiased; it is efficient where they are
    near the truth. z is what a population can have (`best_guess`), so that no weight leans on an estimate below 0; it is found in
    a few looks, the first at some of the reports. A and the covariance come from reports simulated at z, and so know nothing of
    the noise of g. B is the covariance that the hashing of one unlisted string, independent between cohorts, gives g.

    reports : at least one      design : made for the same parameters      seed : of the simulated reports

    Time O(n M h + M**3), memory O(n k / 8 + M**2). Source: the one-step estimator, Le Cam 1956; van der Vaart 1998, sec. 5.7.
    """
    params = reports.metric.params
    if design.params != params:
        raise SummaryError(
            "the design matrix was made for other parameters than the reports': hash the candidates anew"
        )
    n = reports.num_reports
    if n == 0:
        raise SummaryError("there is no report to fit")
    order = np.argsort(reports.cohorts, kind="stable")
    rows = reports.rows[order]
    number = np.bincount(reports.cohorts, minlength=params.num_cohorts)
    starts = np.concatenate(([0], np.cumsum(number)))
    mixture = _Mixture(params, design.places(), _average_ratio(params), number / n)
    rng = np.random.default_rng(seed)
    z = np.full(mixture.size, 0.5 / mixture.size)
    z[-2:] += 0.25
    expected = z
    enough = [every for every in _THINNED if every == 1 or n >= _ENOUGH * every * mixture.size]
    drawings = max(_DRAWN, _DRAWN_EACH * mixture.size)
    for more, every in zip(reversed(range(len(enough))), enough, strict=True):
        expected = z
        drawn = list(_draw(mixture, expected, drawings // _ROUGHLY if more else drawings, rng))
        look = _look(mixture, expected, drawn, _score(mixture, rows, starts, every, expected))
        estimate = expected + look.step
        z = _plausible(estimate, np.sqrt(np.maximum(np.diag(look.projected), 0) * every / n))
    counts = reports.bit_counts()
    noise = look.covariance / n + (_LEAST_ERROR / n) ** 2 * np.eye(mixture.size)
    people = (np.diag(expected) - np.outer(expected, expected)) / n
    scatter, scatter_std = _scatter(counts, estimate, noise + people, design)
    if scatter > 0:
        noise += scatter * look.projected @ _hashing_of_one(mixture, expected, drawn, rng) @ look.projected
    found = Fit(
        shares=estimate[:-2],
        unlisted=float(estimate[-2]),
        covariance=(noise + people)[:-1, :-1],
        unexplained=linalg.orth(look.unexplained[:-1]) if look.unexplained.size else look.unexplained[:-1],
        scatter=scatter,
        scatter_std=scatter_std,
        noise=noise[:-1, :-1],
    )
    if not design.groups:
        return found
    strings = _random_places(params, int(np.clip(_STRING_RATIOS // n, *_STRINGS)), rng)

    def scores(shares: Floats, some: NDArray[np.intp]) -> Iterator[tuple[Floats, Floats]]:
        return _scores(mixture, rows, starts, expected, shares, some, strings)

    law, p = _tested(found, estimate, look.projected, scores, RandomPlaces.of_bits(params), int((number > 0).sum()))
    return replace(found, law=law, p_values=p)


def _scores(
    mixture: _Mixture,
    rows: Bits,
    starts: NDArray[np.int64],
    z: Floats,
    shares: Floats,
    some: NDArray[np.intp],
    strings: NDArray[np.intp],
) -> Iterator[tuple[Floats, Floats]]:
    """Yield what each cohort's reports say for more of a string than the shares have, (D,) of some candidates and (U, D) of some strings.

        s_c(u) = n_c / n (mean over its reports of r_u (2 - f_x / f_z) / f_z  -  1)

    is the score at shares x, to the first order in x - z, as the step to the estimate is.

    shares : (M + 2, D) x, a column for each of the candidates      strings : (U, h) their places, the same in every cohort
    """
    k = mixture.params.num_bits
    at_once = max(64, _CELLS_AT_ONCE // (mixture.size + len(strings) + k))
    for cohort, places in enumerate(mixture.places):
        seen = rows[starts[cohort] : starts[cohort + 1]]
        own, sums = np.zeros(len(some)), np.zeros((len(strings), len(some)))
        for start in range(0, len(seen), at_once):
            bits = np.unpackbits(seen[start : start + at_once].T, axis=0, count=k, bitorder="little")
            ratios = mixture.ratios(bits, places)
            f = z @ ratios
            weights = (2 - (shares.T @ ratios) / f) / f
            own += np.sum(ratios[some] * weights, axis=1)
            sums += mixture.ratios(bits, strings)[:-2] @ weights.T
        if len(seen):
            yield mixture.cohorts[cohort] * (own / len(seen) - 1), mixture.cohorts[cohort] * (sums / len(seen) - 1)


def _tested(
    found: Fit,
    estimate: Floats,
    projected: Floats,
    scores: Callable[[Floats, NDArray[np.intp]], Iterable[tuple[Floats, Floats]]],
    strings: RandomPlaces,
    cohorts: int,
) -> tuple[ErrorLaw, Floats]:
    """Return how random strings err, and how often one would look as frequent as each candidate.

    A string's score times P_jj is its share; where candidate j is left out, the shares are z - P e_j z_j / P_jj. Scores away from z err by the information that the
    reports happen to have as well, which no estimate does: their spread is brought down to that of the errors, and only their shape is taken.
    """
    size = len(found.shares)
    known = found.identified(np.eye(size + 1))[:size]
    if not known.any():
        return ErrorLaw.of([]), np.full(size, np.nan)
    errors = np.where(known, np.sqrt(np.diag(found.covariance)[:size]), np.nan)
    scale = np.diag(projected)[:size] / errors
    anybody = np.zeros(1, np.intp)
    seen = [float(np.nanmedian(scale)) * all_[:, 0] for _, all_ in _levelled(scores(estimate[:, None], anybody))]
    spread = max(1.0, math.sqrt(sum(float(score.var()) for score in seen)))
    common = ErrorLaw.of(score / spread for score in seen)
    p, normal = (np.where(known, p_values(found.shares, errors, law), np.nan) for law in (common, None))

    def chances(some: NDArray[np.intp]) -> Iterator[float]:
        if not len(some):
            return
        moved = projected[:, some] * (estimate[some] / np.diag(projected)[some])
        parts = [
            (scale[some] * own, scale[some] * all_) for own, all_ in _levelled(scores(estimate[:, None] - moved, some))
        ]
        for place in range(len(some)):
            of_strings = [all_[:, place] / spread for _, all_ in parts]
            yield chance_to_look_there([float(own[place]) for own, _ in parts], of_strings, strings.same)

    return common, p_values_by_themselves(p, normal, chances, cohorts, strings.alike(cohorts))


def _levelled(scores: Iterable[tuple[Floats, Floats]]) -> list[tuple[Floats, Floats]]:
    """Take away what all strings score together, the same in every cohort: shares sum to one, so only differences count."""
    parts = list(scores)
    level = sum(all_.mean(axis=0) for _, all_ in parts) / len(parts)
    return [(own - level, all_ - level) for own, all_ in parts]


def worth_fitting(design: DesignMatrix) -> bool:
    """Say whether the reports tell enough more than their bit counts to be worth the time."""
    return len(design.groups) <= MAX_CANDIDATES


def _plausible(estimate: Floats, errors: Floats) -> Floats:
    """Return shares that a population can have and every report a chance under: shrunk where they are mostly noise."""
    listed = estimate[:-2]
    guess = np.maximum(best_guess(listed, errors[:-2]).shares, _LITTLE / max(1, len(listed))) if len(listed) else listed
    z = np.concatenate([guess, np.maximum(estimate[-2:], _LITTLE)])
    return np.asarray(z / z.sum())


def _score(mixture: _Mixture, rows: Bits, starts: NDArray[np.int64], every: int, z: Floats) -> Floats:
    """Return g = mean r / f - 1 over every so-many-th report, each cohort with its share of the reports."""
    k = mixture.params.num_bits
    at_once = max(64, _CELLS_AT_ONCE // (mixture.size + k))
    score = np.full(mixture.size, -1.0)
    for cohort, places in enumerate(mixture.places):
        seen = rows[starts[cohort] : starts[cohort + 1] : every]
        for start in range(0, len(seen), at_once):
            bits = np.unpackbits(seen[start : start + at_once].T, axis=0, count=k, bitorder="little")
            ratios = mixture.ratios(bits, places)
            score += ratios @ (1 / (z @ ratios)) * (mixture.cohorts[cohort] / len(seen))
    return score


def _draw(mixture: _Mixture, z: Floats, total: int, rng: np.random.Generator) -> Iterator[_Drawn]:
    """Simulate reports, half of them from z and half from all components alike, in every cohort that has reports."""
    params, k = mixture.params, mixture.params.num_bits
    reach = np.cumsum(_proposal(z))
    for cohort, places in enumerate(mixture.places):
        if not mixture.cohorts[cohort]:
            continue
        size = max(16, round(total * mixture.cohorts[cohort]))
        evenly = (rng.permutation(size) + rng.random()) / size
        component = np.minimum(np.searchsorted(reach, evenly), mixture.size - 1)
        true = np.zeros((size, k + 1), np.bool_)
        listed = np.flatnonzero(component < len(places))
        true[listed[:, None], places[component[listed]]] = True
        unlisted = np.flatnonzero(component == len(places))
        true[unlisted[:, None], _random_places(params, len(unlisted), rng)] = True
        bits = rng.random((size, k)) < np.where(true[:, :k], params.q_star, params.p_star)
        yield _Drawn(cohort, bits.T.astype(np.uint8), component, mixture.cohorts[cohort] / size)


def _proposal(z: Floats) -> Floats:
    return z / 2 + 0.5 / len(z)


def _look(mixture: _Mixture, z: Floats, drawn: list[_Drawn], score: Floats) -> _Look:
    """Weigh the score with the information at z.

    A = E_g x x' f/g        E_v Cov(x | v) = sum_v z_v (E_v x x' - E_v x E_v x')        g the proposal's mixture
    """
    size = mixture.size
    information, second = np.zeros((size, size)), np.zeros((size, size))
    first, chance = np.zeros((size, size)), np.zeros(size)
    proposal = _proposal(z)
    for each in drawn:
        x = mixture.ratios(each.bits, mixture.places[each.cohort])
        f, g = z @ x, proposal @ x
        x /= f
        information += each.weight * (x * (f / g)) @ x.T
        second += each.weight * (x * (z / proposal)[each.component]) @ x.T
        order = np.argsort(each.component, kind="stable")
        drawn_from, starts = np.unique(each.component[order], return_index=True)
        first[:, drawn_from] += each.weight * np.add.reduceat(x[:, order], starts, axis=1)
        chance += each.weight * np.bincount(each.component, minlength=size)
    mean = first / np.maximum(chance, np.finfo(float).tiny)
    within = second - (mean * (z / proposal * chance)) @ mean.T
    inverse, unexplained = _inverse(information)
    ones = inverse.sum(axis=1)
    projected = inverse - np.outer(ones, ones) / ones.sum()
    return _Look(projected @ score, projected, projected @ within @ projected, unexplained)


def _inverse(information: Floats) -> tuple[Floats, Floats]:
    """Invert, leaving out directions without information: (M + 2, M + 2), and those (M + 2, d)."""
    scale = np.sqrt(np.diag(information))
    values, vectors = np.linalg.eigh(information / np.outer(scale, scale))
    seen = values > _NULL * values[-1]
    half = vectors[:, seen] / np.sqrt(values[seen]) / scale[:, None]
    return half @ half.T, linalg.orth(vectors[:, ~seen] / scale[:, None])


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


def _scatter(counts: BitCounts, z: Floats, covariance: Floats, design: DesignMatrix) -> tuple[float, float]:
    """Return tau**2 by the method of moments on the bits, not below 0, and its standard error where tau = 0.

        E r r' = S - X Cov X' + tau**2 V (1 - d)      r = y - X z,  d = tr(S^-1 X Cov X') / rows
        S = pi (1 - pi) / (n_j (q* - p*)**2) on the diagonal

    Each bit is weighted by 1 / S. X has a column for the average string. The bits are an unbiased estimate of X z, so their covariance with
    an efficient one is X Cov X'. That the fit takes up the same share d of the scatter V as of the noise is an approximation: with
    50 candidates to 128 bits tau**2 comes out 13 % too small.
    """
    params = counts.metric.params
    used = np.repeat(counts.reports > 0, params.num_bits)
    average = np.tile(RandomString.of(params).mean, params.num_cohorts)
    contrast = params.q_star - params.p_star
    plausible = np.clip(z[:-1], 0, 1)
    mu = np.clip(design.matrix @ plausible[:-1] + average * plausible[-1], 0, 1)
    pi = np.clip(params.p_star + contrast * mu, _NO_NOISE, 1 - _NO_NOISE)
    variance = pi * (1 - pi) / (np.maximum(np.repeat(counts.reports, params.num_bits), 1) * contrast**2)
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
    per_unit = float(weight @ (average * (1 - average))) * (1 - fitted / rows)
    if per_unit <= 0:
        return 0.0, math.inf
    return max(0.0, excess / per_unit), math.sqrt(2 * rows) / per_unit


def _hashing_of_one(mixture: _Mixture, z: Floats, drawn: list[_Drawn], rng: np.random.Generator) -> Floats:
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
        places[len(listed) :, :h] = _random_places(mixture.params, _PROBES, rng)
        ratios = mixture.ratios(each.bits, places)
        x = np.concatenate([ratios[: len(listed)], ratios[-2:]])
        probed = (ratios[len(listed) : -2] - ratios[-2]) / (proposal @ x)
        x /= z @ x
        one, other = (2 * probed[:, half::2] @ x[:, half::2].T for half in (0, 1))
        total += each.weight**2 / _PROBES * one.T @ other
    values, vectors = np.linalg.eigh(total + total.T)
    return np.asarray((vectors * np.maximum(values / 2, 0)) @ vectors.T)


def _random_places(params: Params, size: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw the bits of strings that hash anywhere: (size, h), coincident ones replaced by k."""
    k, h = params.num_bits, params.num_hashes
    if params.hash_scheme != "google-md5":
        return np.argsort(rng.random((size, k)), axis=1)[:, :h]
    places = np.sort(rng.integers(256, size=(size, h)) % k, axis=1).astype(np.intp)
    places[:, 1:][places[:, 1:] == places[:, :-1]] = k
    return places
