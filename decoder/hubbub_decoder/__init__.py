"""hubbub's decoder: from summaries to estimates, tables and plots.

Names are loaded when they are first asked for, so that the commands list themselves without numpy.

>>> from hubbub import Metric
>>> from hubbub.summary import BitCounts
>>> from hubbub_decoder import decode
>>> survey = Metric.boolean("from_jfk", prob_p=0, prob_q=1, prob_f=0.5)
>>> round(decode(BitCounts(survey, [1000], [[400]]))["true"].share, 3)  # (2/5 - 1/4) / (3/4 - 1/4)
0.3
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from hubbub.text import how_to_install

if TYPE_CHECKING:
    from hubbub_decoder.errors import CandidateError, ForeignFileError, OutputError, PopulationError, PullError
    from hubbub_decoder.pipeline import decode
    from hubbub_decoder.results.decoding import Decoding
    from hubbub_decoder.results.estimates import Estimate, ShareEstimate

__all__ = [
    "CandidateError",
    "Decoding",
    "Estimate",
    "ForeignFileError",
    "OutputError",
    "PopulationError",
    "PullError",
    "ShareEstimate",
    "decode",
]

_HOMES = {
    "decode": "pipeline",
    "Decoding": "results.decoding",
    "Estimate": "results.estimates",
    "ShareEstimate": "results.estimates",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = import_module(f"{__name__}.{_HOMES.get(name, 'errors')}")
    except ModuleNotFoundError as problem:
        lacking = f"hubbub_decoder.{name} needs {problem.name}: {how_to_install('decoder')}"
        raise ModuleNotFoundError(lacking, name=problem.name) from None
    return getattr(home, name)
