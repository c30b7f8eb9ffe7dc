"""Residuals of the bit counts, which show where the estimates of a string metric do not fit."""

from __future__ import annotations

import numpy as np

from hubbub_decoder.array_types import Floats
from hubbub_decoder.model.design_matrix import DesignMatrix, design_matrix
from hubbub_decoder.model.evidence import Collected, Evidence
from hubbub_decoder.results.decoding import Decoding


def bit_residuals(summary: Collected, decoding: Decoding, design: DesignMatrix | None = None) -> Floats | None:
    """Residuals of the bit counts after the estimates of a string metric, in standard errors: (m, k); nan where a cohort has no reports.

        z_cj = (ones_cj - n_c v_cj) / sqrt(r n_c v_cj (1 - v_cj))        v_cj = p* + (q* - p*) t_cj

    t_cj is the share of reports with bit j that the estimates predict in cohort c. Unlisted strings without known bits count as random
    strings. r is the number of periods if the same clients report in each, because their noise repeats, and 1 otherwise.

    summary : of which `decoding` is the result
    design  : of the candidates, if their bits are not those of the metric's hash scheme
    returns : None for another kind, because its estimates fit all counts exactly, and if the share of unlisted strings is not determined
    """
    if not decoding.metric.kind.needs_candidates:
        return None
    if design is None:
        design = design_matrix([estimate.candidate for estimate in decoding], decoding.metric.params)
    return evidence_residuals(Evidence(summary).held_out(), decoding, design)


def evidence_residuals(evidence: Evidence, decoding: Decoding, design: DesignMatrix) -> Floats | None:
    """Return the residuals of `bit_residuals` from the evidence of the clients that report whole values."""
    params, unlisted = decoding.metric.params, decoding.unlisted.share
    if np.isnan(unlisted):
        return None
    estimated = {estimate.candidate: estimate.share for estimate in decoding}
    shares = np.nan_to_num([estimated[group[0]] for group in design.groups])
    some = np.flatnonzero(shares)
    listed = design.matrix[:, some] @ shares[some]
    true = listed.reshape(params.num_cohorts, params.num_bits)
    for string in decoding.unlisted_strings:
        unlisted -= string.share
        for cohort in string.signature:
            true[cohort.cohort, list(cohort.bits)] += string.share
    true += unlisted * evidence.random_string.mean
    rate = params.mechanism.p_star + (params.mechanism.q_star - params.mechanism.p_star) * np.clip(true, 0, 1)
    counts, n = evidence.counts, evidence.counts.reports[:, None]
    repeated = len(counts.periods) if decoding.same_clients else 1
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((counts.ones - n * rate) / np.sqrt(repeated * n * rate * (1 - rate)))
