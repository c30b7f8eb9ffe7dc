"""Drafts -> reports: one for each metric and period of everyone who takes part, whether or not anything was recorded.

The exceptions are metrics with `hold` or f = 0 whose share of the budget is spent: they have no more reports.

A period is over: its draft, or the empty report, becomes a batch with its id, once, in one record with the ledger's entry.
Nothing here may be called but inside `with journal`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime

from hubbub.consent import Consent
from hubbub.encoding.secret import Secret
from hubbub.metrics.definitions import Definitions
from hubbub.metrics.metric import has_expired
from hubbub.metrics.periods import OPEN_BEFORE, Period, PeriodKind, midnight
from hubbub.privacy.ledger import Account, EncodedReport, Key
from hubbub.randomness import RandomBytes, draw, uniform
from hubbub.sdk.recording.enrollment import AT_ONCE, Enroller
from hubbub.sdk.recording.queue_limits import KEPT_FOR, Limits, given_up
from hubbub.sdk.recording.subject_encoders import SubjectEncoders
from hubbub.sdk.runtime.clock import Current, Today
from hubbub.sdk.runtime.safe_logging import Once, tell
from hubbub.sdk.storage.events import Event
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.storage.state import State, account_event, batch_event
from hubbub.wire.batch import Batch, new_batch_id

_FAR_AHEAD = 40
"""In days: no period of a clock that was always right is over later than that."""


class Former:
    """Forms what is over, and gives up what waits for too long or is too much."""

    def __init__(
        self,
        journal: Journal,
        definitions: Definitions,
        encoders: SubjectEncoders,
        enroller: Enroller,
        today: Today,
        *,
        limits: Limits,
        random_bytes: RandomBytes,
    ) -> None:
        self._journal = journal
        self._definitions = definitions
        self._encoders = encoders
        self._enroller = enroller
        self._today = today
        self._limits = limits
        self._coins = random_bytes
        self._left: list[Key] = []
        self._soonest = date.max
        self._is_new = Once()

    def form(self, state: State) -> bool:
        """Turn what is over into batches, drop what is too old or too much; return whether there is more of it.

        A part at a time, so that nobody who records waits long.
        """
        secret = self._encoders.secret(state)
        if secret is None:
            return False
        if self._enroller.enrol_others(state):
            return True
        today = self._today.now().date()
        self._today.current(PeriodKind.DAY)  # sees that the clock went back
        far = date.max.toordinal() > state.soonest.toordinal() > today.toordinal() + _FAR_AHEAD
        if not self._left and (self._today.may_be_earlier or far or state.soonest <= today):
            self._today.may_be_earlier = False
            self._left = list(state.accounts)
            self._soonest = state.soonest = date.max
        part = draw(self._left, AT_ONCE, self._coins)  # whose rows share a batch says nothing either
        self.bring_back(state, filter(None, map(state.accounts.get, part)))
        taking_part = list(self._taking_part(state, part))
        self._form(state, secret, [account.key for account in taking_part if account.period_end() <= today], today)
        if part:
            overs = (account.period_end() for account in self._taking_part(state, part))
            self._soonest = min(self._soonest, min(overs, default=date.max))
            if not self._left:
                state.soonest = min(state.soonest, self._soonest)
        self._give_up(state)
        return bool(self._left)

    def catch_up(self, state: State, account: Account, current: Current) -> Account:
        """Bring an account to the current period, so that a value can be recorded; return the account as it is then."""
        if account.next_period_start > current.latest:
            self.bring_back(state, [account])
            account = state.accounts[account.key]
        if account.next_period_start < current.name:
            self._form_first(state, account)
            account = state.accounts[account.key]
        return account

    def _form_first(self, state: State, account: Account) -> None:
        """Form what is over of one account: something is to be recorded for the period after it."""
        secret = self._encoders.secret(state)
        if secret is not None:
            self._form(state, secret, [account.key], self._today.now().date())
            self._give_up(state)

    def form_everything(self, state: State, *, ahead: bool = False) -> None:
        """Form all that is over; `ahead`: as if the current periods were."""
        secret = None if state.consent is Consent.OFF else self._encoders.secret(state)
        if secret is None:
            return
        while self._enroller.enrol_others(state):
            pass
        if ahead:
            self._form(state, secret, [account.key for account in self._taking_part(state, state.accounts)], date.max)
        while self.form(state):
            pass

    def next_end(self, state: State) -> datetime | None:
        """Return when the next period is over that somebody has an account for."""
        if state.soonest == date.max:
            return None
        return midnight(state.soonest)

    def bring_back(self, state: State, accounts: Iterable[Account]) -> None:
        """Plan anew from today for accounts that a clock which was ahead has moved far into the future.

        Nothing is told twice: of the periods until there, those that wait or were ever tried are passed over when they come. What was
        spent stays spent. Where an aggregator once confirmed a later date, today's clock is the wrong one, and nothing changes.
        """
        far = [
            account for account in accounts if account.next_period_start > self._today.current(account.period).latest
        ]
        if not far:
            return
        if self._today.now().timestamp() < state.confirmed - OPEN_BEFORE.total_seconds():
            self._say("the clock is behind what the aggregator confirmed earlier: no report is made until it is right")
            return
        self._say(
            f"the clock was ahead: the next report was planned for {max(account.next_period_start for account in far)}; it is planned anew"
        )
        self._journal.write(
            *(
                account_event(
                    replace(
                        account,
                        next_period_start=self._today.current(account.period).name,
                        replanned_before=max(account.replanned_before, account.next_period_start),
                    )
                )
                for account in far
            )
        )

    def _say(self, told: str) -> None:
        if self._is_new(told):
            tell("%s", told)

    def _warn_stood_in(self, reports: Sequence[tuple[EncodedReport, Account]]) -> None:
        """Log the first report of each definition that repeats the value reported last."""
        account = next(account for report, account in reports if report.stood_in)
        if self._is_new(account.digest):
            tell(
                "%s: the budget has room for %d values (eps = %.3f), and a value beyond them was recorded. The report repeats the "
                "value reported last, and accounting() counts it as `stood_in`. Many such reports bias the estimates: raise "
                "epsilon_enrollment in Policy, or set `hold` in the definition.",
                account.metric,
                account.reserved_units,
                account.reserved_epsilon,
            )

    def _taking_part(self, state: State, keys: Iterable[Key]) -> Iterator[Account]:
        known = (state.accounts[key] for key in keys if key in state.accounts)
        return (each for each in known if self._is_current(state, each, each.next_period()))

    def _is_current(self, state: State, account: Account, period: Period) -> bool:
        metric = self._definitions.get(account.metric)
        return (
            metric is not None
            and metric.digest == account.digest
            and not account.refused
            and account.enrollment == state.enrollments
            and not has_expired(metric, period.start)
        )

    def _form(self, state: State, secret: Secret, keys: Sequence[Key], until: date) -> None:
        ready: dict[tuple[str, str], list[tuple[EncodedReport, Account]]] = {}
        silent: list[Event] = []
        accounts = [state.accounts[key] for key in keys if key in state.accounts]
        waiting: set[tuple[str, str]] = set()
        if any(account.replanned_before for account in accounts):
            waiting = {(each.batch.digest, each.batch.period) for each in state.waiting.values()}
        for known in accounts:
            account = replace(known, tags=list(known.tags))
            told = account.next_period_start
            end = min(until, self._today.current(account.period).period.next().start)
            for ended, report in self._reports(state, secret, account, end, waiting):
                after = replace(account, tags=list(account.tags))
                ready.setdefault((account.digest, ended), []).append((report, after))
                told = account.next_period_start
            if account.next_period_start != told:  # the last periods passed in silence
                silent.append(account_event(account))
        events: list[Event] = []
        formed = state.formed
        for (_, ended), reports in sorted(ready.items(), key=lambda item: item[0][1]):
            formed += len(reports)
            event = _formed(ended, reports, formed, self._today.now(), self._coins)
            events.append(event | {"local": state.consent is Consent.LOCAL})
            if event["stood_in"]:
                self._warn_stood_in(reports)
        if events or silent:
            self._journal.write(*events, *silent)

    def _reports(
        self, state: State, secret: Secret, account: Account, until: date, waiting: Container[tuple[str, str]]
    ) -> Iterator[tuple[str, EncodedReport]]:
        """Move an account past each period that is over; yield (period, report) for each that has one.

        Under consent `local` the ledger is not charged: what is made then is never sent.
        """
        metric, charged = self._definitions.get(account.metric), state.consent is not Consent.LOCAL
        oldest = date.fromordinal(max(1, self._today.now().toordinal() - KEPT_FOR.days))
        account.next_period_start = max(
            account.next_period_start, str(Period.containing(account.period, oldest))
        )  # those before are too old
        if (
            account.next_period_start < state.reports_from <= str(self._today.now().date())
        ):  # after today: a clock was ahead
            first = Period.containing(account.period, date.fromisoformat(state.reports_from))
            account.next_period_start = max(account.next_period_start, str(first))
        while (period := account.next_period()).next().start <= until:
            if metric is None or not self._is_current(state, account, period):
                return  # not even a draft: that there is one says that something was recorded
            ended, account.next_period_start = account.next_period_start, str(period.next())
            told = (account.digest, ended)
            if ended < account.replanned_before and (told in waiting or state.was_tried(*told)):
                continue
            draft = state.drafts.get(account.key)
            report: EncodedReport | None = None
            if draft is not None and draft.period == ended and draft.bits and not (draft.local and charged):
                report = draft
            if report is None:
                report = self._encoders.encoder(metric, account.subject, secret).encode_period(account, None, ended)
            if report is not None:
                if charged:
                    account.charge(report)
                yield ended, report

    def _give_up(self, state: State) -> None:
        gone = given_up(state, self._definitions, self._limits, self._today.now())
        if gone:
            self._journal.write(*({"e": "gone", "id": batch_id, "why": why} for batch_id, why in gone.items()))


def _formed(
    ended: str, reports: list[tuple[EncodedReport, Account]], formed: int, now: datetime, random_bytes: RandomBytes
) -> Event:
    """Return the event of a batch, to be sent at a random time of the period after its own.

    Its rows are in a random order: in that of the accounts, row i would be one person on every day and for every metric.
    """
    account, rows = reports[0][1], draw([report for report, _ in reports], len(reports), random_bytes)
    batch = Batch(
        new_batch_id(random_bytes),
        account.metric,
        account.digest,
        ended,
        bytes(report.cohort for report in rows),
        b"".join(report.bits for report in rows),
    )
    following = Period(date.fromisoformat(ended), account.period).next()
    end, next_end = midnight(following.start), midnight(following.next().start)
    start = max(now, end)
    latest = min(start + (next_end - end), end + KEPT_FOR)
    return {
        "e": "formed",
        "formed": formed,
        "batch": batch_event(batch),
        "kind": account.period,
        "at": start.timestamp() + uniform(random_bytes) * max(0.0, (latest - start).total_seconds()),
        "accounts": [after.to_dict() for _, after in reports],
        "stood_in": sum(report.stood_in for report, _ in reports),
    }
