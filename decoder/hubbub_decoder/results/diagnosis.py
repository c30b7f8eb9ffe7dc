"""`Diagnosis`: whether the estimates of a decoding can be used, and what argues against it."""

from __future__ import annotations

from dataclasses import dataclass

from hubbub.text import format_count
from hubbub_decoder.results.estimates import Finding, FitTest, Level

FAILED_FIT_TEST = "failed_fit_test"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Answer to "can I trust these estimates?": `str(diagnosis)` is the verdict, the findings and the goodness-of-fit tests.

    fit_tests : goodness-of-fit tests of the decoding, with their p-values
    findings  : of the decoding; those of the kind failed_fit_test contradict the model of the reports
    """

    fit_tests: tuple[FitTest, ...]
    findings: tuple[Finding, ...]

    @property
    def fits(self) -> bool:
        """Whether the reports agree with the metric's parameters: no goodness-of-fit test fails."""
        return all(finding.kind != FAILED_FIT_TEST for finding in self.findings)

    @property
    def verdict(self) -> str:
        """The answer in one line."""
        if not self.fits:
            return "The reports contradict the metric's parameters. Do not use the estimates before you know the cause."
        if any(finding.level is Level.PROBLEM for finding in self.findings):
            return "The reports fit the metric's parameters, but there is a problem. Do not use the estimates before you know its cause."
        if self.findings:
            return f"The reports fit the metric's parameters. Read {format_count(len(self.findings), 'finding')} before you use the estimates."
        return (
            "The reports fit the metric's parameters, and there is no finding. The estimates and intervals can be used."
        )

    def __str__(self) -> str:
        tests = (f"Fit test {test.name}: p = {test.p_value:.2g}" for test in self.fit_tests)
        return "\n".join([self.verdict, *(finding.line for finding in self.findings), *tests])
