"""The tree of all exceptions.

    HubbubError
    ├── ParameterError      an argument, a probability or a size that cannot be    (also a ValueError)
    ├── DefinitionError     a metric, or a file of metrics, that cannot be used    (also a ValueError)
    ├── InvalidValueError   a value that the metric has no bits for                (also a ValueError)
    ├── RefusedError        a batch that an aggregator must refuse, with its `ProblemType`
    └── SummaryError        a summary that is not one, or does not fit             (also a ValueError)

Messages say the value, the rule and the next step. The one exception is `InvalidValueError`: what an app
records is private, so its message names the value's type only.
"""

from __future__ import annotations


class HubbubError(Exception):
    """Whatever hubbub refuses on purpose."""


class ParameterError(HubbubError, ValueError):
    """An argument that is of the wrong kind, or outside its interval."""


class DefinitionError(HubbubError, ValueError):
    """A metric definition that is incomplete, contradictory, or may not be collected under."""


class InvalidValueError(HubbubError, ValueError):
    """A value of the wrong kind for its metric; the message never repeats the value."""


class SummaryError(HubbubError, ValueError):
    """A summary file or array that does not have the shape its metric says."""
