"""Covariance of the change of a cohort's bit shares between two samples of reports, with a share s of clients in both.

Model: the clients of `bit_covariance.py` in two samples A and B, of N_A and N_B clients with T_A and T_B reports each. s min(N_A, N_B)
clients have the same value in both. Per cohort, with n = T N reports:

    Cov (y_B - y_A) (q* - p*)**2 = C_A / n_A + C_B / n_B - 2 s K        K = min(N_A, N_B) / (n_A n_B) (R G + T H)

    C        covariance of a report, D + R_A G + T_A H (`repetition.py`)
    G, H     permanent noise and choice of the clients, at the mean of both samples
    T, R     pairs of reports of a client, T_A T_B, and of a permanent response (`CommonReports`)

docs/explanation/mathematics.md, equation (19.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from hubbub_decoder.array_types import Floats
from hubbub_decoder.model.bit_covariance import report_covariance
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.model.repetition import CommonReports, Repetition

# of the mean variance: without instantaneous noise the reports of s = 1 are the same, and nothing is random
_RELATIVE_RIDGE = 1e-9


@dataclass(frozen=True, eq=False)
class Sample:
    """Evidence of one sample, and the shares (M + 1,) of the candidates and of the unlisted strings that are expected in it."""

    evidence: Evidence
    expected: Floats

    def possible_shares(self) -> Floats:
        """Expected shares cut to [0, 1] and scaled to sum to at most 1."""
        cut = np.maximum(np.nan_to_num(self.expected), 0)
        cut[-1] = max(cut[-1], 1 / self.evidence.num_reports)
        return np.asarray(cut / max(1.0, cut.sum()))


@dataclass(frozen=True, eq=False)
class CohortChange:
    """Change of one cohort's bit shares.

    change      : (k,) y_B - y_A      bits : (k, M) of the candidates
    independent : (k, k) its covariance at s = 0      common : (k, k) what it loses per unit of s, 2 K / (q* - p*)**2
    """

    change: Floats
    bits: sparse.csr_array
    independent: Floats
    common: Floats

    def covariance(self, overlap: float) -> Floats:
        """Covariance (k, k) at s, with a ridge of 1e-9 of the mean variance of independent samples."""
        covariance = self.independent - overlap * self.common
        covariance[np.diag_indices_from(covariance)] += _RELATIVE_RIDGE * self.independent.trace() / len(covariance)
        return covariance


def cohort_changes(
    before: Sample, after: Sample, design: DesignMatrix, moved: Floats | None = None
) -> Iterator[CohortChange]:
    """Yield the change of each cohort with reports in both samples.

    moved : (M,) shares of clients that have the candidate in one sample only, at least: their permanent noise for the candidate's bits is
            not common, although the mean share counts half of them. None: 0
    """
    params, samples = before.evidence.params, (before, after)
    common = CommonReports.from_periods(before.evidence.metric, before.evidence.periods, after.evidence.periods)
    shared = Repetition(common.per_client, common.per_response)
    contrast = (params.mechanism.q_star - params.mechanism.p_star) ** 2
    shares = [sample.possible_shares() for sample in samples]
    of_absent, of_present = params.mechanism.noise_variances(np.array([0.0, 1.0]))[1]
    own_noise = max(float(of_present - of_absent), 0.0)
    y = [sample.evidence.bit_shares for sample in samples]
    for j, bits in enumerate(design.blocks()):
        n = [int(sample.evidence.counts.reports[j]) for sample in samples]
        if not all(n):
            continue
        independent, both = np.zeros((2, params.num_bits, params.num_bits))
        for sample, reports, x in zip(samples, n, shares, strict=True):
            args = bits, x[:-1], float(x[-1]), sample.evidence.random_string, params
            independent += report_covariance(*args, sample.evidence.repetition) / reports
            both += report_covariance(*args, shared) - report_covariance(*args, Repetition(0.0, 0.0))
        if moved is not None and own_noise:
            both[np.diag_indices_from(both)] -= common.per_response * own_noise * (bits @ moved)
        clients = min(
            sample.evidence.repetition.num_clients(reports) for sample, reports in zip(samples, n, strict=True)
        )
        yield CohortChange(y[1][j] - y[0][j], bits, independent / contrast, clients * both / (n[0] * n[1] * contrast))


def sampling_variance(before: Sample, after: Sample, overlap: float) -> Floats:
    """Variance (M + 1,) of the change of shares by the draw of the reporters from a population, as `cohort_changes` has it.

    x_A (1 - x_A) / N_A + x_B (1 - x_B) / N_B - s min(N_A, N_B) / (N_A N_B) (x_A (1 - x_A) + x_B (1 - x_B))
    """
    of_one = [x * (1 - x) for x in (np.clip(sample.expected, 0, 1) for sample in (before, after))]
    n = before.evidence.num_clients, after.evidence.num_clients
    return np.asarray(of_one[0] / n[0] + of_one[1] / n[1] - overlap * sum(of_one) / max(n))
