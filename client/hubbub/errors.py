"""Exceptions of hubbub.

    HubbubError
    ├── ParameterError      invalid argument                                   (also a ValueError)
    ├── DefinitionError     invalid metric definition or definitions file      (also a ValueError)
    ├── InvalidValueError   recorded value that does not fit its metric        (also a ValueError)
    ├── RefusedError        batch or request that an aggregator refuses, with its `ProblemType`: `wire/problems.py`
    └── SummaryError        invalid or mismatched summary or report file       (also a ValueError)

Messages contain the value, the rule and the next step. The message of `InvalidValueError` contains only the type of
the value, because recorded values are private.
"""

from __future__ import annotations


class HubbubError(Exception):
    """Base class of all errors that hubbub raises deliberately."""


class ParameterError(HubbubError, ValueError):
    """Argument of the wrong type or outside its range.

    Parameters
    ----------
    rule
        What the argument must be, with its name. Without `got`, it is the whole message.
    got
        The value, and what follows from it.
    """

    def __init__(self, rule: str, got: str = "") -> None:
        super().__init__(f"{rule}, got {got}" if got else rule)
        self.rule = rule
        self.got = got


class DefinitionError(HubbubError, ValueError):
    """Metric definition that is incomplete, contradictory or not allowed for new reports."""


class InvalidValueError(HubbubError, ValueError):
    """Recorded value of the wrong kind for its metric. The message never contains the value."""


class SummaryError(HubbubError, ValueError):
    """Summary, report file or array that is invalid or does not match its metric."""
