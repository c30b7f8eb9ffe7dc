"""Exceptions of the decoder; each is a `hubbub.errors.HubbubError`.

HubbubError
├── CandidateError      invalid candidates, or an invalid candidate file         (also a ValueError)
├── PopulationError     a population that cannot be simulated                    (also a ValueError)
├── ForeignFileError    an invalid file of another program (google/rappor)       (also a ValueError)
├── EventError          an invalid file of events, such as releases                (also a ValueError)
├── AuditError          a client under audit that fails, or returns no valid reports (also a ValueError)
├── OutputError         an output file that cannot be written or read again                  (also a ValueError)
└── PullError           a failed download from an aggregator
"""

from __future__ import annotations

from hubbub.errors import HubbubError


class CandidateError(HubbubError, ValueError):
    """Invalid candidates: not strings, none at all, or a file that cannot be read."""


class PopulationError(HubbubError, ValueError):
    """A population that cannot be simulated: unknown distribution, negative or missing counts."""


class ForeignFileError(HubbubError, ValueError):
    """A file of another program that is malformed or does not fit the parameters."""


class EventError(HubbubError, ValueError):
    """A file of events, such as releases, that cannot be read or is malformed."""


class AuditError(HubbubError, ValueError):
    """A client under audit that cannot be run, fails, or returns output that is not reports."""


class OutputError(HubbubError, ValueError):
    """An output file that cannot be written, or read again: wrong suffix, missing directory, no permission."""


class PullError(HubbubError):
    """A failed download: no response, an error status, or a response that is not the requested summary."""


class PlanError(HubbubError, ValueError):
    """Wishes that no definition fulfils. The text has the fields of `Wishes` in backticks, with their values: "`hold = 3`"."""
