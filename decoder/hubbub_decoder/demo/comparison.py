"""Comparison of estimates with the true shares."""

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
    """Decoding of one metric, and the true share of each value among the reports."""

    decoding: Decoding
    truth: Mapping[str, float]

    def true_share(self, estimate: Estimate) -> float:
        """True share of the estimate's candidate, including candidates that are indistinguishable from it."""
        return estimate.true_share(self.truth)

    def is_covered(self, estimate: Estimate) -> bool:
        """Whether the confidence interval contains the true share."""
        return estimate.low <= self.true_share(estimate) <= estimate.high

    @property
    def true_detections(self) -> int:
        """Number of detected candidates with a true share above 0."""
        return sum(self.true_share(estimate) > 0 for estimate in self.decoding.detected)

    @property
    def false_detections(self) -> int:
        """Number of detected candidates with a true share of 0."""
        return len(self.decoding.detected) - self.true_detections

    @property
    def covered_intervals(self) -> int:
        """Number of intervals that contain the true share, over all candidates."""
        return sum(map(self.is_covered, self.decoding.estimates))

    @property
    def privacy(self) -> PrivacyFigures:
        """Epsilons of the metric under the default policy."""
        return privacy_figures(self.decoding.metric, Policy())

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as JSON-compatible values."""
        return {
            "metric": self.decoding.metric.name,
            "privacy": self.privacy.to_dict(),
            "true_detections": self.true_detections,
            "false_detections": self.false_detections,
            "covered_intervals": self.covered_intervals,
            "candidates": len(self.decoding.estimates),
            "true_shares": dict(self.truth),
            "decoding": self.decoding.to_dict(),
        }
