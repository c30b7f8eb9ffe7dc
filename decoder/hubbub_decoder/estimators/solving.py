"""Solve a mixed model in whichever way takes less arithmetic."""

from __future__ import annotations

from hubbub_decoder.estimators.in_observations import InObservations
from hubbub_decoder.estimators.in_shares import InShares
from hubbub_decoder.estimators.mixed_model import Beliefs, MixedModel
from hubbub_decoder.estimators.reports.in_reports import InReports, ScoredReports
from hubbub_decoder.estimators.solution import Solved

_LOOKUP = 500  # what looking up a candidate's pair of filters costs, in multiplications


def solve(model: MixedModel, beliefs: Beliefs, scatter: float) -> Solved:
    """Solve under these beliefs; scatter : tau**2."""
    if isinstance(model, ScoredReports):
        return InReports(model, beliefs, scatter)
    d, m = len(model.y), model.candidates
    looks = model.places.shape[0] * model.places.shape[1]
    if d**3 + _LOOKUP * looks**2 * m < d * m**2 + m**3:
        return InObservations(model, beliefs, scatter)
    return InShares(model, beliefs, scatter)
