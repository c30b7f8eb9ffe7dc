"""Trials of an audit: one client with one value is one trial. Clients run in blocks, so memory does not grow with the trials."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hubbub.errors import ParameterError
from hubbub.number_checks import check_integer
from hubbub_decoder.array_types import Floats
from hubbub_decoder.audit.clients import AuditedClient, AuditedValue, ClientReports
from hubbub_decoder.audit.distinguisher import Distinguisher
from hubbub_decoder.errors import AuditError
from hubbub_decoder.options import Progress

_MAX_CLIENTS_PER_BLOCK = 8_192
_MAX_BITS_PER_BLOCK = 1 << 24


@dataclass(frozen=True, slots=True)
class Schedule:
    """Reports of each client.

    Attributes
    ----------
    reports
        Number of reports.
    per_epoch
        Number of consecutive reports from one permanent response.
    """

    reports: int
    per_epoch: int

    @property
    def epochs(self) -> int:
        """Number of permanent responses."""
        return self.reports // self.per_epoch

    @classmethod
    def of(cls, reports: int, hold: int | None) -> Schedule:
        """Return the schedule of consecutive reports, from the start of an epoch.

        hold : epoch length in periods. None: all reports come from one permanent response.

        Raises ParameterError.

        >>> Schedule.of(5, None), Schedule.of(6, 3).epochs, Schedule.of(2, 3).epochs
        (Schedule(reports=5, per_epoch=5), 2, 1)
        """
        check_integer("num_reports", reports, 1, hint="each client sends one report or more")
        if hold is not None:
            check_integer("hold", hold, 1, hint="leave it out for reports of one permanent response")
        if hold is None or reports <= hold:
            return cls(reports, reports)
        if reports % hold:
            raise ParameterError(
                f"num_reports must be at most hold = {hold} or a multiple of it, got {reports}: epochs of different lengths have different "
                f"laws; use {reports // hold * hold} or {-(-reports // hold) * hold} reports"
            )
        return cls(reports, hold)


def count_trials(progress: Progress, trials: int) -> Callable[[int], None]:
    """Function that takes the number of trials that were finished since its last call, and passes the share of `trials` on."""
    done = 0

    def count(number: int) -> None:
        nonlocal done
        done += number
        progress(f"{done:,} clients", min(done / trials, 1.0))

    return count


@dataclass(frozen=True, slots=True)
class Laboratory:
    """Source of trials: the client under audit, k, m, its schedule, the seeds, and a function that counts finished trials."""

    client: AuditedClient
    num_bits: int
    num_cohorts: int
    schedule: Schedule
    rng: np.random.RandomState
    count: Callable[[int], None]

    def reports(self, values: Sequence[AuditedValue], clients: int) -> Iterator[ClientReports]:
        """Yield reports of new clients with one value for each report, in blocks. Raises AuditError for reports of another metric."""
        most = max(1, min(_MAX_CLIENTS_PER_BLOCK, _MAX_BITS_PER_BLOCK // (len(values) * self.num_bits)))
        for start in range(0, clients, most):
            number = min(most, clients - start)
            made = self.client(values, int(self.rng.randint(1 << 62)), number)
            if made.bits.shape[2] != self.num_bits or made.cohorts.max() >= self.num_cohorts:
                raise AuditError(
                    f"the client made reports of {made.bits.shape[2]} bits in cohorts up to {made.cohorts.max()}. The definition has "
                    f"{self.num_bits} bits and the cohorts 0 to {self.num_cohorts - 1}. Audit the client with the definition that it implements."
                )
            yield made
            self.count(number)

    def observe(self, value: AuditedValue, clients: int) -> Iterator[ClientReports]:
        """Yield reports of new clients with an unchanging value, in blocks."""
        yield from self.reports([value] * self.schedule.reports, clients)

    def scores(self, value: AuditedValue, clients: int, distinguishers: Sequence[Distinguisher]) -> list[Floats]:
        """Scores of new clients with a value, (clients,) by each distinguisher."""
        blocks = [
            [distinguisher.scores(made) for distinguisher in distinguishers] for made in self.observe(value, clients)
        ]
        return [np.concatenate(column) for column in zip(*blocks, strict=True)]
