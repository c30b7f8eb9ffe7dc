"""Components of one part of a joint metric, and the scores of reports under them.

Model: given its cohort, the bits s of a part come from a mixture of C components with shares z: the candidates, the average random
string in place of the unlisted strings, and "no value". A categorical or boolean part has no unlisted strings.

    l_v(s) = P(s | v) / f(s)        f(s) = sum_v z_v P(s | v)

l is the score of the shares. If the reports come from shares x, then E l = A x with A = E_f l l', for every x; and E l = 1 at x = z.
docs/explanation/mathematics.md, equations (20.1) and (20.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from hubbub.mechanisms.mechanism import Mechanism
from hubbub.metrics.metric import Metric
from hubbub.summary import Reports
from hubbub_decoder.array_types import Bits, Floats, Indices
from hubbub_decoder.errors import CandidateError
from hubbub_decoder.estimators.reports.likelihood_ratios import Mixture
from hubbub_decoder.model.design_matrix import design_matrix

UNLISTED, NO_VALUE = "(unlisted)", "(no value)"
_BLOCK_REPORTS = 1 << 14


@dataclass(frozen=True, eq=False)
class Components:
    """Components of a part: names (C,), and the likelihood ratios of reports relative to "no value".

    listed   : number of candidates or categories, which come first
    ratio_of : ratios (C, n) of the bits (k, n) of n reports of a cohort
    """

    metric: Metric
    names: tuple[str, ...]
    listed: int
    ratio_of: Callable[[Bits, int], Floats]

    @classmethod
    def of_part(cls, part: Metric, candidates: Sequence[str] | None) -> Components:
        """Components of a part; `candidates` are needed for strings only.

        Raises CandidateError for a string part without candidates, and for candidates with the same bits in every cohort.
        """
        if not part.kind.needs_candidates:
            if candidates is not None:
                raise CandidateError(f"{part.name}: a {part.kind} part has its own values. Leave out its candidates.")
            names, mechanism = part.kind.labels, part.params.mechanism
            rest = part.kind.named_values[len(names) :] or (NO_VALUE,)  # a boolean without a true bit is false
            if not mechanism.has_independent_bits:
                return cls(part, (*names, NO_VALUE), len(names), partial(_ratios_of_rows, mechanism))
            positions = np.arange(len(names)).reshape(1, -1, 1)
            mixture = Mixture(part.params, positions, np.ones(part.params.num_bits + 1))
            return cls(part, (*names, *rest), len(names), partial(_ratios_without_unlisted, mixture))
        if candidates is None:
            raise CandidateError(
                f"{part.name}: a string part needs candidates, and none were given. Pass its candidates."
            )
        design = design_matrix(list(candidates), part.params)
        same = next((group for group in design.groups if len(group) > 1), None)
        if same is not None:
            shown = " and ".join(map(repr, same[:2]))
            raise CandidateError(
                f"{part.name}: the candidates {shown} have the same bits in every cohort, so no report distinguishes them. Leave out one."
            )
        names, mixture = tuple(group[0] for group in design.groups), Mixture.from_design(design)
        return cls(part, (*names, UNLISTED, NO_VALUE), len(names), partial(_ratios, mixture))

    def __len__(self) -> int:
        return len(self.names)

    def ratios(self, rows: np.ndarray, cohort: int) -> Floats:
        """P(s | v) / P(s | no value) of packed reports (n, bytes) of one cohort, (C, n)."""
        bits = np.unpackbits(rows, axis=1, count=self.metric.num_bits, bitorder="little").T
        return self.ratio_of(np.ascontiguousarray(bits).astype(bool), cohort)


def _ratios(mixture: Mixture, bits: Bits, cohort: int) -> Floats:
    return mixture.ratios(bits, mixture.positions[cohort if len(mixture.positions) > 1 else 0])


def _ratios_without_unlisted(mixture: Mixture, bits: Bits, cohort: int) -> Floats:
    return np.delete(_ratios(mixture, bits, cohort), -2, axis=0)


def _ratios_of_rows(mechanism: Mechanism, bits: Bits, _cohort: int) -> Floats:
    """Each component has a bit of its own, "no value" the last one."""
    logs = mechanism.log_likelihoods(bits.T.astype(np.float64)).T
    return np.asarray(np.exp(logs - logs[-1]))


@dataclass(frozen=True, eq=False)
class Sample:
    """Reports of all parts, sorted by cohort.

    rows   : packed bits of each part, (N, bytes)
    starts : (m + 1,) index of each cohort's first report
    """

    parts: tuple[Components, ...]
    rows: tuple[np.ndarray, ...]
    starts: Indices

    @classmethod
    def from_reports(cls, reports: Reports, parts: tuple[Components, ...]) -> Sample:
        order = np.argsort(reports.cohorts, kind="stable")
        rows = tuple(reports.part(part.metric.name).rows[order] for part in parts)
        sizes = np.bincount(reports.cohorts, minlength=reports.metric.num_cohorts)
        return cls(parts, rows, np.concatenate([[0], np.cumsum(sizes)]))

    @property
    def num_reports(self) -> int:
        """N."""
        return int(self.starts[-1])

    @property
    def sizes(self) -> Indices:
        """Reports of each cohort, (m,)."""
        return np.diff(self.starts)

    def thin(self, most: int) -> Sample:
        """Every s-th report of each cohort, with about `most` reports in all: the order within a cohort carries no information."""
        step = -(-self.num_reports // most)
        if step == 1:
            return self
        kept = np.concatenate([np.arange(a, b, step) for a, b in zip(self.starts, self.starts[1:], strict=False)])
        sizes = -(-self.sizes // step)
        return Sample(self.parts, tuple(rows[kept] for rows in self.rows), np.concatenate([[0], np.cumsum(sizes)]))

    def blocks(self, part: int) -> Iterator[tuple[int, Floats]]:
        """Yield the cohort and the ratios (C, n) of blocks of reports of a part."""
        for cohort, (start, stop) in enumerate(zip(self.starts, self.starts[1:], strict=False)):
            for first in range(start, stop, _BLOCK_REPORTS):
                rows = self.rows[part][first : min(first + _BLOCK_REPORTS, stop)]
                yield cohort, self.parts[part].ratios(rows, cohort)
