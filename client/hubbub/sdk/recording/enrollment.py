"""Who takes part: a person has their share for every metric before anything is reported for them.

Many people get theirs a part at a time; whoever records something gets it first. Nothing here may be called but inside `with journal`.
"""

from __future__ import annotations

from dataclasses import replace

from hubbub.metrics.definitions import Definitions
from hubbub.metrics.metric import Metric, has_expired
from hubbub.metrics.periods import Period
from hubbub.privacy.allocation import allocate, new_account
from hubbub.privacy.ledger import Account
from hubbub.privacy.policy import Policy
from hubbub.sdk.runtime.clock import Today
from hubbub.sdk.runtime.safe_logging import Once, tell
from hubbub.sdk.storage.definition_lease import DefinitionLease
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.storage.state import State, account_event

AT_ONCE = 500
"""So many people or accounts are looked at under one lock."""


class Enroller:
    """Gives the client (subject "", unless `own` is False) and its subjects their shares."""

    def __init__(
        self,
        journal: Journal,
        definitions: Definitions,
        policy: Policy,
        today: Today,
        *,
        own: bool,
        lease: DefinitionLease | None,
    ) -> None:
        self._journal = journal
        self._definitions = definitions
        self._policy = policy
        self._today = today
        self._own = own
        self._lease = lease
        self._elsewhere: frozenset[str] = frozenset()
        self._in_use: frozenset[str] = frozenset()
        self._enrollment = 0
        self._left: set[str] = set()
        self._is_new = Once()

    def account(self, state: State, subject: str, metric: Metric) -> Account:
        """Return the account of a subject and metric under this enrollment; enroll the subject first if this process has not."""
        key = subject, metric.digest
        account = state.accounts.get(key)
        if account is None or account.enrollment != state.enrollments or not self._has_enrolled(state, subject):
            self.enroll(state, subject)
            account = state.accounts[key]
        return account

    def _has_enrolled(self, state: State, subject: str) -> bool:
        """Whether this process gave a subject its shares under this enrollment."""
        return self._enrollment == state.enrollments and subject not in self._left

    def enroll(self, state: State, subject: str = "") -> None:
        """Give a subject its share for every metric: from now on there is one report a period, recorded or not, while the share lasts.

        All others who take part get theirs from `enrol_others`, or when something is recorded for them.
        """
        if self._enrollment != state.enrollments:
            self._enrollment = state.enrollments
            self._left = set(state.digests)
            if self._lease is not None:
                was_live = self._lease.is_held
                self._lease.take()
                self._elsewhere = self._lease.in_use_elsewhere()
                self._in_use = self._elsewhere | self._lease.digests if was_live else self._elsewhere
        self._left.discard(subject)
        if subject or self._own:
            self._share_out(state, subject)

    def enrol_others(self, state: State) -> bool:
        """Give `AT_ONCE` of those who take part their shares; return whether there were any."""
        if self._has_freed_shares():
            self._enrollment = 0
        if self._enrollment != state.enrollments:
            self.enroll(state)
        some = [self._left.pop() for _ in range(min(AT_ONCE, len(self._left)))]
        for subject in some:
            if any(account.enrollment == state.enrollments for account in state.accounts_of(subject)):
                self._share_out(state, subject)
        return bool(some)

    def end(self) -> None:
        """End the lease on this process's definitions; the next recording takes it again."""
        self._enrollment = 0
        if self._lease is not None:
            self._lease.release()

    def after_fork_in_child(self) -> None:
        """Enrol anew in the child, with a lease of its own."""
        self._enrollment = 0
        if self._lease is not None:
            self._lease.after_fork_in_child()

    def _has_freed_shares(self) -> bool:
        """Return whether a process with other definitions ended, so that there may be more to share out."""
        if self._lease is None or self._elsewhere <= self._lease.digests:
            return False
        return not self._elsewhere <= self._lease.in_use_elsewhere()

    def _share_out(self, state: State, subject: str) -> None:
        wanted = []
        for metric in self._definitions.values():
            period = self._today.current(metric.period).period
            if not has_expired(metric, period.start):
                wanted.append((metric, _account(state, subject, metric, period)))
        changed = list(allocate(self._policy, state.accounts_of(subject), wanted, state.enrollments, self._in_use))
        if changed:
            self._journal.write(*(account_event(account) for account in changed))
        for account in changed:
            if account.refused and self._is_new(account.digest):
                tell("%s: it is not collected", account.refused)


def _account(state: State, subject: str, metric: Metric, period: Period) -> Account:
    """Return an account as it would begin, or go on: one that was silent does not make up for it."""
    account = state.accounts.get((subject, metric.digest))
    if account is None:
        account = new_account(subject, metric, period)
        sent_until = max((end for _, end in state.tried.get(metric.digest, ())), default="")
        return replace(account, replanned_before=sent_until) if sent_until > account.next_period_start else account
    silent = account.refused or account.enrollment != state.enrollments
    if silent and account.next_period_start < str(period):
        return replace(account, next_period_start=str(period))
    return account
