"""Public names of the decoder: decode summaries, download them, simulate them, plan metrics and audit clients.

Submodules are imported on first use of a name, so that the `hubbub` command starts without numpy.
Plots are in `hubbub_decoder.plots`.

>>> from hubbub import Metric, UnaryResponse
>>> from hubbub.summary import BitCounts
>>> from hubbub_decoder import decode
>>> survey = Metric.boolean("from_jfk", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
>>> round(decode(BitCounts(survey, [1000], [[400]]))["true"].share, 3)  # (2/5 - 1/4) / (3/4 - 1/4)
0.3
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from hubbub.text import install_hint

if TYPE_CHECKING:
    from hubbub_decoder.association.association import Association, Cell, Conditional, associate
    from hubbub_decoder.audit.audit import Audit, audit_client, audit_metric
    from hubbub_decoder.comparison.compare import compare
    from hubbub_decoder.comparison.results import Change, Comparison, Overlap
    from hubbub_decoder.comparison.trends import Trends, decode_each
    from hubbub_decoder.data.candidates import read_candidates
    from hubbub_decoder.data.pull import pull_reports, pull_summary
    from hubbub_decoder.discovery.discover import Discoveries, discover
    from hubbub_decoder.documents.finding import Finding, Severity
    from hubbub_decoder.errors import (
        AuditError,
        CandidateError,
        EventError,
        ForeignFileError,
        OutputError,
        PlanError,
        PopulationError,
        PullError,
    )
    from hubbub_decoder.inference.goodness_of_fit import FitTest
    from hubbub_decoder.options import Options
    from hubbub_decoder.pipeline import decode
    from hubbub_decoder.planning.description import Description, describe
    from hubbub_decoder.planning.plan import Plan, plan
    from hubbub_decoder.planning.wishes import Wishes
    from hubbub_decoder.report.write import write_report
    from hubbub_decoder.results.decoding import Decoding
    from hubbub_decoder.results.diagnosis import Diagnosis
    from hubbub_decoder.results.estimates import Estimate, ShareEstimate
    from hubbub_decoder.results.unlisted_strings import UnlistedString
    from hubbub_decoder.simulation import (
        simulate,
        simulate_reports,
        simulate_two_periods,
    )

__all__ = [
    "Association",
    "Audit",
    "AuditError",
    "CandidateError",
    "Cell",
    "Change",
    "Comparison",
    "Conditional",
    "Decoding",
    "Description",
    "Diagnosis",
    "Discoveries",
    "Estimate",
    "EventError",
    "Finding",
    "FitTest",
    "ForeignFileError",
    "Options",
    "OutputError",
    "Overlap",
    "Plan",
    "PlanError",
    "PopulationError",
    "PullError",
    "Severity",
    "ShareEstimate",
    "Trends",
    "UnlistedString",
    "Wishes",
    "associate",
    "audit_client",
    "audit_metric",
    "compare",
    "decode",
    "decode_each",
    "describe",
    "discover",
    "plan",
    "pull_reports",
    "pull_summary",
    "read_candidates",
    "simulate",
    "simulate_reports",
    "simulate_two_periods",
    "write_report",
]

_MODULES = {
    "Change": "comparison.results",
    "Comparison": "comparison.results",
    "Overlap": "comparison.results",
    "compare": "comparison.compare",
    "associate": "association.association",
    "Association": "association.association",
    "Cell": "association.association",
    "Conditional": "association.association",
    "Audit": "audit.audit",
    "audit_client": "audit.audit",
    "audit_metric": "audit.audit",
    "Trends": "comparison.trends",
    "decode_each": "comparison.trends",
    "Options": "options",
    "decode": "pipeline",
    "Decoding": "results.decoding",
    "Estimate": "results.estimates",
    "Diagnosis": "results.diagnosis",
    "Finding": "documents.finding",
    "FitTest": "inference.goodness_of_fit",
    "Severity": "documents.finding",
    "ShareEstimate": "results.estimates",
    "UnlistedString": "results.unlisted_strings",
    "Plan": "planning.plan",
    "plan": "planning.plan",
    "Wishes": "planning.wishes",
    "Description": "planning.description",
    "describe": "planning.description",
    "Discoveries": "discovery.discover",
    "discover": "discovery.discover",
    "pull_reports": "data.pull",
    "pull_summary": "data.pull",
    "read_candidates": "data.candidates",
    "simulate": "simulation",
    "simulate_reports": "simulation",
    "simulate_two_periods": "simulation",
    "write_report": "report.write",
}
"""The module of each public name; exceptions are in `errors`."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_MODULES.get(name, 'errors')}")
    except ModuleNotFoundError as error:
        message = f"hubbub_decoder.{name} needs {error.name}: {install_hint('decoder')}"
        raise ModuleNotFoundError(message, name=error.name) from None
    return getattr(module, name)
