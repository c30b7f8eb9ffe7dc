"""Types that occur in public signatures, for the annotations of host applications."""

from __future__ import annotations

from hubbub.mechanisms.mechanism import Mechanism
from hubbub.metrics.kinds.kind import BloomBits, JointValue, Value
from hubbub.metrics.metric import MetricFields
from hubbub.randomness import RandomBytes
from hubbub.sdk.configuration import Durability
from hubbub.sdk.transparency.state_reports import LedgerAccount, QuarantinedBatch, QueuedBatch, SavedConsent
from hubbub.sdk.upload.retry_policy import UploadResponse
from hubbub.sdk.upload.transport import Transport

__all__ = [
    "BloomBits",
    "Durability",
    "JointValue",
    "LedgerAccount",
    "Mechanism",
    "MetricFields",
    "QuarantinedBatch",
    "QueuedBatch",
    "RandomBytes",
    "SavedConsent",
    "Transport",
    "UploadResponse",
    "Value",
]
