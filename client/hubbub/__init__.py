"""hubbub: telemetry under local differential privacy.

This is the SDK that apps embed: parameters, metrics, hashing, randomization, the wire format and the privacy arithmetic.
"""

from __future__ import annotations

from hubbub.batch import Batch
from hubbub.client import Client, Subject
from hubbub.consent import Consent, ConsentRecord
from hubbub.definitions import Definitions, load_definitions, parse_definitions
from hubbub.encoder import Encoder
from hubbub.errors import (
    DefinitionError,
    HubbubError,
    InvalidValueError,
    ParameterError,
    RefusedError,
    SummaryError,
)
from hubbub.limits import Limits
from hubbub.metric import Kind, Metric
from hubbub.params import Params
from hubbub.periods import Period, PeriodKind
from hubbub.policy import Policy
from hubbub.refusals import Refusal
from hubbub.report import Report
from hubbub.secret import Secret
from hubbub.secret_file import secret_at

__all__ = [
    "Batch",
    "Client",
    "Consent",
    "ConsentRecord",
    "DefinitionError",
    "Definitions",
    "Encoder",
    "HubbubError",
    "InvalidValueError",
    "Kind",
    "Limits",
    "Metric",
    "ParameterError",
    "Params",
    "Period",
    "PeriodKind",
    "Policy",
    "Refusal",
    "RefusedError",
    "Report",
    "Secret",
    "Subject",
    "SummaryError",
    "load_definitions",
    "parse_definitions",
    "secret_at",
]
