"""Admission of a batch while the clock has two candidate times."""

from __future__ import annotations

from datetime import datetime

from hubbub.metrics.definitions import Definitions
from hubbub.wire.batch import Batch
from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.api.batch_validation import check_admissible
from hubbub_aggregator.errors import RefusedWithHeaderError
from hubbub_aggregator.pipeline.credible_clock import Reading
from hubbub_aggregator.settings import Settings

_FINAL_PROBLEMS = {ProblemType.PERIOD_CLOSED, ProblemType.METRIC_EXPIRED}
"""Problems after which a client drops its reports."""
_RETRY_AFTER_SECONDS = 3600


def admit(batch: Batch, definitions: Definitions, clock: Reading, settings: Settings) -> None:
    """Raise the RefusedError of `check_admissible`, or 503 if the candidate times disagree on whether a batch is too late.

    A period that has started by only one of the times is admitted: storing its reports deletes nothing.
    """
    refusals = [_refusal(batch, definitions, now, settings) for now in clock.candidates]
    is_final = [each is not None and each.problem_type in _FINAL_PROBLEMS for each in refusals]
    if any(is_final) and not all(is_final):
        raise RefusedWithHeaderError(
            ProblemType.UNAVAILABLE,
            f"the aggregator's clock is in doubt: the period {batch.period} is closed by one of two candidate times. "
            "Send the same batch again later",
            ("Retry-After", str(_RETRY_AFTER_SECONDS)),
        )
    others = [each for each in refusals if each is None or each.problem_type is not ProblemType.PERIOD_NOT_STARTED]
    refused = (others or refusals)[0]
    if refused is not None:
        raise refused


def _refusal(batch: Batch, definitions: Definitions, now: datetime, settings: Settings) -> RefusedError | None:
    try:
        check_admissible(batch, definitions, now, settings)
    except RefusedError as refused:
        return refused
    return None
