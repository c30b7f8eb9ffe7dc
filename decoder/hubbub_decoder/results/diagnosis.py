"""`Diagnosis`: whether the estimates of a decoding can be used, and what argues against it. `Residuals` of the bit counts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hubbub.text import format_count
from hubbub_decoder.array_types import Floats
from hubbub_decoder.documents.finding import Finding, Severity
from hubbub_decoder.inference.goodness_of_fit import FitTest
from hubbub_decoder.result import Result

FAILED_FIT_TEST = "failed_fit_test"
_LARGEST = 8
_NOTABLE = 3.0  # standard errors
_NOTABLE_SHARE = 0.0027  # of standard normal numbers


@dataclass(frozen=True, slots=True, eq=False)
class BitResidual(Result):
    """Residual of the count of one bit in one cohort.

    Attributes
    ----------
    cohort
        Number of the cohort.
    bit
        Position of the bit.
    residual
        Count less its expectation, in standard errors.
    """

    cohort: int
    bit: int
    residual: float


@dataclass(frozen=True, slots=True, eq=False)
class Residuals(Result):
    """Residuals of the bit counts after the estimates of a string metric, in standard errors.

    `str(residuals)` is one sentence.

    Attributes
    ----------
    number
        Number of bit counts in cohorts with reports.
    num_notable
        Number of residuals beyond 3 standard errors.
    root_mean_square
        About 1 or less is expected.
    largest
        The 8 largest residuals in absolute value.
    """

    number: int
    num_notable: int
    root_mean_square: float
    largest: tuple[BitResidual, ...]

    @classmethod
    def of_array(cls, residuals: Floats) -> Residuals:
        """Return the summary of an array of residuals."""
        known = residuals[np.isfinite(residuals)]
        cells = np.argsort(-np.abs(np.nan_to_num(residuals)), axis=None)[: min(_LARGEST, known.size)].tolist()
        largest = (divmod(cell, residuals.shape[1]) for cell in cells)
        return cls(
            known.size,
            int((np.abs(known) > _NOTABLE).sum()),
            math.sqrt(float(np.mean(known**2))) if known.size else math.nan,
            tuple(BitResidual(cohort, bit, float(residuals[cohort, bit])) for cohort, bit in largest),
        )

    def __str__(self) -> str:
        if not self.number:
            return "No cohort has reports."
        return (
            f"{self.num_notable:,} of {format_count(self.number, 'residual')} {'is' if self.num_notable == 1 else 'are'} beyond "
            f"{_NOTABLE:.0f} standard errors; chance alone gives about {self.number * _NOTABLE_SHARE:,.1f}. "
            f"The root mean square is {self.root_mean_square:.2f}; about 1 or less is expected."
        )

    def __repr__(self) -> str:
        return f"<Residuals: {self.num_notable:,} of {self.number:,} beyond {_NOTABLE:.0f} standard errors, root mean square {self.root_mean_square:.2f}>"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Answer to "can I trust these estimates?".

    `str(diagnosis)` is the verdict, the findings, the goodness-of-fit tests and the residuals.

    Attributes
    ----------
    fit_tests
        Goodness-of-fit tests of the decoding, with their p-values.
    findings
        Findings of the decoding. Those of the kind `failed_fit_test` contradict the model of the reports.
    residuals
        Residuals of the bit counts of a string metric. None: the metric is of another kind, whose estimates fit all
        counts exactly, or the share of unlisted strings is not determined. `plots.plot_residuals` draws all of them.
    """

    fit_tests: tuple[FitTest, ...]
    findings: tuple[Finding, ...]
    residuals: Residuals | None = None

    def __repr__(self) -> str:
        fits = "fits" if self.fits else "does not fit"
        return f"<Diagnosis: {fits}, {format_count(len(self.fit_tests), 'fit test')}, {format_count(len(self.findings), 'finding')}>"

    @property
    def fits(self) -> bool:
        """Whether the reports agree with the metric's parameters: no goodness-of-fit test fails."""
        return all(finding.kind != FAILED_FIT_TEST for finding in self.findings)

    @property
    def verdict(self) -> str:
        """The answer in one line."""
        if not self.fits:
            return "The reports contradict the metric's parameters. Do not use the estimates before you know the cause."
        if any(finding.severity is Severity.PROBLEM for finding in self.findings):
            return "The reports fit the metric's parameters, but there is a problem. Do not use the estimates before you know its cause."
        if self.findings:
            return f"The reports fit the metric's parameters. Read {format_count(len(self.findings), 'finding')} before you use the estimates."
        return (
            "The reports fit the metric's parameters, and there is no finding. The estimates and intervals can be used."
        )

    def __str__(self) -> str:
        tests = (f"Fit test {test.name}: p = {test.p_value:.2g}" for test in self.fit_tests)
        residuals = () if self.residuals is None else (str(self.residuals),)
        return "\n".join([self.verdict, *(finding.line for finding in self.findings), *tests, *residuals])
