"""Public names of the SDK: telemetry with local differential privacy (RAPPOR)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubbub.client import Client, Subject
from hubbub.consent import Consent, ConsentRecord
from hubbub.encoding.encoder import Encoder
from hubbub.encoding.secret import Secret
from hubbub.errors import DefinitionError, HubbubError, InvalidValueError, ParameterError, SummaryError
from hubbub.late_names import late_names
from hubbub.mechanisms.privset import PrivSet
from hubbub.mechanisms.subset import SubsetSelection
from hubbub.mechanisms.unary import UnaryResponse
from hubbub.metrics.buckets import Buckets, Estimand, Several
from hubbub.metrics.definitions import Definitions, load_definitions, parse_definitions
from hubbub.metrics.discovery import Discovery
from hubbub.metrics.group import Group
from hubbub.metrics.kinds import Kind, KindWord
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.metrics.periods import Period, PeriodKind
from hubbub.privacy.policy import Policy
from hubbub.sdk.recording.batch_builder import Limits
from hubbub.sdk.storage.secret_file import load_secret
from hubbub.sdk.storage.state import Accounting
from hubbub.wire.batch import Batch, Report
from hubbub.wire.problems import ProblemType, RefusedError

if TYPE_CHECKING:
    from hubbub.sdk.transparency.consent_notice import consent_notice
    from hubbub.sdk.transparency.state_reports import Inspection, Ledger
else:
    __getattr__ = late_names(
        __name__,
        {
            "sdk.transparency.consent_notice": "consent_notice",
            "sdk.transparency.state_reports": "Inspection Ledger",
        },
    )

__all__ = [
    "Accounting",
    "Batch",
    "Buckets",
    "Client",
    "Consent",
    "ConsentRecord",
    "DefinitionError",
    "Definitions",
    "Discovery",
    "Encoder",
    "Estimand",
    "Group",
    "HubbubError",
    "Inspection",
    "InvalidValueError",
    "Kind",
    "KindWord",
    "Ledger",
    "Limits",
    "Metric",
    "ParameterError",
    "Params",
    "Period",
    "PeriodKind",
    "Policy",
    "PrivSet",
    "ProblemType",
    "RefusedError",
    "Report",
    "Secret",
    "Several",
    "Subject",
    "SubsetSelection",
    "SummaryError",
    "UnaryResponse",
    "consent_notice",
    "load_definitions",
    "load_secret",
    "parse_definitions",
]
