"""Types that occur in public signatures, for the annotations of host applications."""

from __future__ import annotations

from hubbub.encoding.secret import Shake
from hubbub.mechanisms.blanket import Blanket
from hubbub.mechanisms.mechanism import Mechanism
from hubbub.metrics.discovery import DiscoveryMethod
from hubbub.metrics.kinds.kind import BlockKind, BloomBits, ChangeWords, Fact, JointValue, Value
from hubbub.metrics.params import HasBlocks
from hubbub.privacy.lifetime import FigureRow
from hubbub.randomness import RandomBytes
from hubbub.sdk.configuration import Durability
from hubbub.sdk.storage.copy_detection import MachineIdReader
from hubbub.sdk.storage.filesystem import Disk
from hubbub.sdk.transparency.state_reports import LedgerAccount, QuarantinedBatch, QueuedBatch, SavedConsent
from hubbub.sdk.upload.retry_policy import UploadResponse
from hubbub.sdk.upload.transport import Transport
from hubbub.wire.batch import BatchFields

__all__ = [
    "BatchFields",
    "Blanket",
    "BlockKind",
    "BloomBits",
    "ChangeWords",
    "DiscoveryMethod",
    "Disk",
    "Durability",
    "Fact",
    "FigureRow",
    "HasBlocks",
    "JointValue",
    "LedgerAccount",
    "MachineIdReader",
    "Mechanism",
    "QuarantinedBatch",
    "QueuedBatch",
    "RandomBytes",
    "SavedConsent",
    "Shake",
    "Transport",
    "UploadResponse",
    "Value",
]
