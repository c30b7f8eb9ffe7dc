"""Changes of the shares of categories, one bit each and no hashing.

    d_i = x_Bi - x_Ai        Var d_i among the reporters = Var x_Ai + Var x_Bi - 2 s min(N_A, N_B) / (n_A n_B) R G_i / (q* - p*)**2

Each category has its own share, so no residual shows s: unless it is known, s = 0, which is conservative.
docs/explanation/mathematics.md, section 19.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hubbub_decoder.array_types import Floats
from hubbub_decoder.comparison.covariance import Sample, sampling_variance
from hubbub_decoder.comparison.overlap import Overlap
from hubbub_decoder.estimators.categories import fit_categories
from hubbub_decoder.model.repetition import CommonReports
from hubbub_decoder.options import Target


def category_changes(
    before: Sample, after: Sample, selected: Sequence[str], overlap: Overlap, target: Target
) -> tuple[Floats, Floats]:
    """Changes (a,) of the selected categories, and their variances (a,).

    before, after : with the expected shares (a,) of the selected categories
    """
    evidence, params = (before.evidence, after.evidence), before.evidence.params
    fits = [fit_categories(each, selected) for each in evidence]
    variances = fits[0].reporter_variances + fits[1].reporter_variances
    if target == "population":
        variances = variances + sampling_variance(before, after, overlap.low)
    x = [np.clip(fit.shares, 0, 1) for fit in fits]
    pairs = CommonReports.from_periods(evidence[0].metric, evidence[0].periods, evidence[1].periods).per_response
    permanent = params.mechanism.noise_variances(np.minimum(*x))[
        1
    ]  # a client that moved to or from the category has another response
    clients = min(each.num_clients for each in evidence)
    reports = evidence[0].num_reports * evidence[1].num_reports
    common = 2 * clients * pairs * permanent / (reports * (params.mechanism.q_star - params.mechanism.p_star) ** 2)
    return fits[1].shares - fits[0].shares, np.maximum(variances - overlap.low * common, 0)
