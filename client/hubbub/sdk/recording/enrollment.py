"""Open ledger accounts for a new subject or metric: every report is paid from a budget that is reserved in advance.

Many subjects are enrolled one slice at a time; a subject that records a value is enrolled first. Call every
method inside `with journal`.
"""

from __future__ import annotations

from hubbub.metrics.definitions import Definitions
from hubbub.metrics.metric import Metric, has_expired
from hubbub.metrics.periods import Period
from hubbub.privacy.allocation import allocate, new_account
from hubbub.privacy.ledger import Account
from hubbub.privacy.policy import Policy
from hubbub.sdk.runtime.clock import PeriodClock
from hubbub.sdk.runtime.safe_logging import OncePerKey, log_when_unlocked
from hubbub.sdk.storage.events import AccountChange
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.storage.state import State

ACCOUNTS_PER_SLICE = 500
"""Subjects, or accounts, that are handled in one section of the journal."""


class Enrollment:
    """Enrolls the client (subject "") and its subjects: reserves a share of the budget for each metric.

    include_client : whether the client itself is a subject
    """

    def __init__(
        self,
        journal: Journal,
        definitions: Definitions,
        policy: Policy,
        clock: PeriodClock,
        *,
        include_client: bool,
    ) -> None:
        self._journal = journal
        self._definitions = definitions
        self._policy = policy
        self._clock = clock
        self._include_client = include_client
        self._enrolled_under = 0
        # a dictionary, because it is smaller than a set
        self._not_enrolled: dict[str, None] = {}
        self._is_new = OncePerKey()

    def account(self, state: State, subject: str, metric: Metric) -> Account:
        """Return the account of a subject and metric under this enrollment; enroll the subject first if this process has not."""
        account = state.subjects.read(subject).accounts.get(metric.digest)
        if account is None or account.enrollment != state.enrollments or not self._has_enrolled(state, subject):
            self.enroll(state, subject)
            account = state.accounts[subject, metric.digest]
        return account

    def _has_enrolled(self, state: State, subject: str) -> bool:
        """Return whether this process enrolled a subject under the current enrollment."""
        return self._enrolled_under == state.enrollments and subject not in self._not_enrolled

    def enroll(self, state: State, subject: str = "") -> None:
        """Enroll a subject in every metric: from now on each period has one report, while the reserved budget lasts.

        `enroll_others` enrolls the other subjects, or `account` when one of them records a value.
        """
        if self._enrolled_under != state.enrollments:
            self._enrolled_under = state.enrollments
            self._not_enrolled = dict.fromkeys(state.subjects)
        self._not_enrolled.pop(subject, None)
        if subject or self._include_client:
            self._allocate(state, subject)

    def enroll_others(self, state: State) -> bool:
        """Enroll one slice of the other subjects; return whether there were any."""
        if self._enrolled_under != state.enrollments:
            self.enroll(state)
        subjects = [self._not_enrolled.popitem()[0] for _ in range(min(ACCOUNTS_PER_SLICE, len(self._not_enrolled)))]
        for subject in subjects:
            if any(account.enrollment == state.enrollments for account in state.accounts_of(subject)):
                self._allocate(state, subject)
        return bool(subjects)

    def _allocate(self, state: State, subject: str) -> None:
        requests = []
        for metric in self._definitions.values():
            period = self._clock.current(metric.period).period
            if not has_expired(metric, period.start):
                requests.append((metric, _account(state, subject, metric, period)))
        changed = list(allocate(self._policy, state.accounts_of(subject), requests, state.enrollments))
        if changed:
            self._journal.write(*(AccountChange(account) for account in changed))
        for account in changed:
            if account.refused and self._is_new(account.digest):
                log_when_unlocked("%s. The metric is not collected", account.refused)


def _account(state: State, subject: str, metric: Metric, period: Period) -> Account:
    """Return the account of a subject and metric, new or continued. Periods without reports are not made up for."""
    account = state.accounts.get((subject, metric.digest))
    if account is None:
        account = new_account(subject, metric, period)
        sent_until = max((end for _, end in state.attempted_periods.get(metric.digest, ())), default="")
        return account._replace(replanned_before=sent_until) if sent_until > account.next_period_start else account
    is_paused = account.refused or account.enrollment != state.enrollments
    if is_paused and account.next_period_start < str(period):
        return account._replace(next_period_start=str(period))
    return account
