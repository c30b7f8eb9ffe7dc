"""`Finding` about a result, with its `Severity`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from textwrap import shorten

_MOST_LETTERS = 60  # of a text in a repr


class Severity(StrEnum):
    """How much a finding matters, from the least to the most.

    Attributes
    ----------
    NOTE
        Nothing is wrong. The finding says how the result was made.
    WARNING
        The result can be used within the limits that the finding names.
    PROBLEM
        The result is wrong or may be wrong. Find the cause before you use it.
    """

    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"

    @property
    def label(self) -> str:
        """Word before a finding.

        >>> Severity.PROBLEM.label
        'Problem'
        """
        return self.value.capitalize()


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding about a result: what was found, and what to do.

    `str(finding)` is both in one line, and `finding.line` has the severity before them.

    Attributes
    ----------
    kind
        Stable word for programs, such as `few_reports`.
    text
        What was found, with its numbers and its meaning.
    remedy
        Next step. It may be empty.
    severity
        How much it matters.
    """

    kind: str
    text: str
    remedy: str = ""
    severity: Severity = Severity.WARNING

    def __str__(self) -> str:
        return f"{self.text} {self.remedy}" if self.remedy else self.text

    def __repr__(self) -> str:
        return f"<Finding {self.kind}: {shorten(self.text, _MOST_LETTERS, placeholder=' ...')}>"

    @property
    def line(self) -> str:
        """The severity in a word, what was found and what to do, as in the terminal.

        >>> Finding("few_reports", "Only 7 reports.", "Decode 30.").line
        'Warning: Only 7 reports. Decode 30.'
        """
        return f"{self.severity.label}: {self}"
