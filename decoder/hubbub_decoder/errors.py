"""What the decoder refuses on purpose; part of the tree in hubbub.errors.

HubbubError
├── CandidateError      candidates, or a file of them, that cannot be tested     (also a ValueError)
├── PopulationError     a population that cannot be simulated                    (also a ValueError)
├── ForeignFileError    a file of another program that does not hold what it must (also a ValueError)
├── OutputError         a result that cannot be written where it was asked for   (also a ValueError)
└── PullError           an aggregator that did not answer with a summary
"""

from __future__ import annotations

from hubbub.errors import HubbubError


class CandidateError(HubbubError, ValueError):
    """Candidates that cannot be tested."""


class PopulationError(HubbubError, ValueError):
    """A population that cannot be simulated."""


class ForeignFileError(HubbubError, ValueError):
    """A file of another program that does not hold what it must."""


class OutputError(HubbubError, ValueError):
    """A result that cannot be written where it was asked for."""


class PullError(HubbubError):
    """An aggregator that did not answer with a summary of the metric."""
