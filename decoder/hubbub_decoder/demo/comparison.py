"""Estimates beside the truth, which only a demo has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hubbub.privacy import PrivacyFigures, privacy_figures
from hubbub.privacy.policy import Policy
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.estimates import Estimate


@dataclass(frozen=True, slots=True)
class Comparison:
    """A decoding of one metric and the true shares of the people who reported."""

    decoding: Decoding
    truth: Mapping[str, float]

    def true_share(self, estimate: Estimate) -> float:
        """Return the truth behind an estimate: of all candidates that set the same bits."""
        return sum(self.truth.get(name, 0.0) for name in (estimate.candidate, *estimate.indistinguishable_from))

    def is_covered(self, estimate: Estimate) -> bool:
        """Say whether the interval holds the truth."""
        return estimate.low <= self.true_share(estimate) <= estimate.high

    @property
    def true_detections(self) -> int:
        """Detected and really there."""
        return sum(self.true_share(estimate) > 0 for estimate in self.decoding.detected)

    @property
    def false_detections(self) -> int:
        """Detected, but nobody reported it."""
        return len(self.decoding.detected) - self.true_detections

    @property
    def covered(self) -> int:
        """Intervals, of all candidates, that hold the truth."""
        return sum(map(self.is_covered, self.decoding.estimates))

    @property
    def privacy(self) -> PrivacyFigures:
        """Epsilons of the metric under the default policy."""
        return privacy_figures(self.decoding.metric, Policy())

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {
            "metric": self.decoding.metric.name,
            "privacy": self.privacy.to_dict(),
            "true_detections": self.true_detections,
            "false_detections": self.false_detections,
            "covered_intervals": self.covered,
            "candidates": len(self.decoding.estimates),
            "truth": dict(self.truth),
            "decoding": self.decoding.to_dict(),
        }
