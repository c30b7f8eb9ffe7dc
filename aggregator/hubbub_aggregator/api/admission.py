"""Admission of a batch while two times may be the true one."""

from __future__ import annotations

from datetime import datetime

from hubbub.metrics.definitions import Definitions
from hubbub.wire.batch import Batch
from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.api.batch_validation import require_admissible
from hubbub_aggregator.errors import RefusedWithHeaderError
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.credible_clock import Reading

_FINAL = {ProblemType.PERIOD_CLOSED, ProblemType.METRIC_EXPIRED}
"""A client that is refused with one of these drops its reports."""
_RETRY_AFTER = "3600"


def admit(batch: Batch, definitions: Definitions, clock: Reading, settings: Settings) -> None:
    """Refuse a batch by `require_admissible`; where two times differ on whether it is too late, with 503.

    A period that has started by one of two times only is admitted: to store its reports deletes nothing.
    """
    refusals = [_refusal(batch, definitions, now, settings) for now in clock.candidates]
    final = [each is not None and each.problem_type in _FINAL for each in refusals]
    if any(final) and not all(final):
        raise RefusedWithHeaderError(
            ProblemType.UNAVAILABLE,
            f"the aggregator's clock is in doubt, and by one of two times {batch.period} takes no more reports: send the "
            "same batch again later",
            ("Retry-After", _RETRY_AFTER),
        )
    kept = [each for each in refusals if each is None or each.problem_type is not ProblemType.PERIOD_NOT_STARTED]
    refused = (kept or refusals)[0]
    if refused is not None:
        raise refused


def _refusal(batch: Batch, definitions: Definitions, now: datetime, settings: Settings) -> RefusedError | None:
    try:
        require_admissible(batch, definitions, now, settings)
    except RefusedError as refused:
        return refused
    return None
