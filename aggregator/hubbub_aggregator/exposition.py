"""Numbers for Prometheus, in its text format; none of them is about a person."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

from hubbub_aggregator.shared_numbers import SharedNumbers

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Samples = Iterable[tuple[Mapping[str, str], float]]


class Durations:
    """A histogram of seconds, counted by one thread of each worker.

    numbers : has the NAMES
    """

    BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
    _BUCKETS = (*map(str, BOUNDS), "+Inf")
    NAMES = (*_BUCKETS, "seconds")

    def __init__(self, numbers: SharedNumbers) -> None:
        self._numbers = numbers

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self._numbers.add(self._BUCKETS[bisect_left(self.BOUNDS, seconds)])
        self._numbers.add("seconds", seconds)

    def lines(self, name: str, about: str) -> Iterator[str]:
        """Yield the histogram's lines: cumulative counts, sum and count."""
        yield f"# HELP {name} {about}"
        yield f"# TYPE {name} histogram"
        total = 0
        for bound in self._BUCKETS:
            total += int(self._numbers[bound])
            yield f'{name}_bucket{{le="{bound}"}} {total}'
        yield f"{name}_sum {self._numbers['seconds']:.6f}"
        yield f"{name}_count {total}"


def metric(name: str, kind: str, about: str, samples: Samples) -> Iterator[str]:
    """Yield a metric's lines.

    >>> list(metric("hubbub_batches_total", "counter", "Answers.", [({"verdict": "stored"}, 3)]))[2]
    'hubbub_batches_total{verdict="stored"} 3'
    """
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        inside = ",".join(f'{label}="{text}"' for label, text in labels.items())
        yield f"{name}{{{inside}}} {value:.17g}" if inside else f"{name} {value:.17g}"
