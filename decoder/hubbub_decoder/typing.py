"""Types that occur in public signatures, for the annotations of analyses."""

from __future__ import annotations

from hubbub_decoder.association.dependence import IndependenceTest
from hubbub_decoder.association.joint_shares import JointShares
from hubbub_decoder.association.margins import MarginFit
from hubbub_decoder.audit.bound import Bound, Event
from hubbub_decoder.audit.clients import AuditedClient, AuditedValue, ClientReports
from hubbub_decoder.audit.evidence import NoiseTest
from hubbub_decoder.audit.trials import Schedule
from hubbub_decoder.documents.document import Document
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.evidence import Collected
from hubbub_decoder.options import DecodingMethod, DetectionFields, IntervalFields, OptionFields, Progress, Target
from hubbub_decoder.planning.law.accuracy import Accuracy
from hubbub_decoder.results.diagnosis import BitResidual, Residuals
from hubbub_decoder.results.ordinal import Numbers
from hubbub_decoder.results.suggestions import Suggestion
from hubbub_decoder.results.unlisted_strings import CohortBits
from hubbub_decoder.simulation import JointPopulation, Population, Transitions

__all__ = [
    "Accuracy",
    "AuditedClient",
    "AuditedValue",
    "BitResidual",
    "Bound",
    "ClientReports",
    "CohortBits",
    "Collected",
    "DecodingMethod",
    "DesignMatrix",
    "DetectionFields",
    "Document",
    "Event",
    "IndependenceTest",
    "IntervalFields",
    "JointPopulation",
    "JointShares",
    "MarginFit",
    "NoiseTest",
    "Numbers",
    "OptionFields",
    "Population",
    "Progress",
    "Residuals",
    "Schedule",
    "Suggestion",
    "Target",
    "Transitions",
]
