"""Recordings -> drafts -> reports: one for each metric and period, whatever was recorded.

    record  the n-th recording of a period replaces its draft with probability 1/n: each is as likely to be the one reported
    form    the period is over: its draft, or the empty report, becomes a batch with its id, once, in one record with the ledger's entry

What a draft holds is final: both randomizations are behind it. Nothing here may be called but inside `with journal`.
"""

from __future__ import annotations

import uuid
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import islice

from hubbub.batch import Batch
from hubbub.coins import Coins, below, uniform
from hubbub.consent import Consent
from hubbub.definitions import Definitions
from hubbub.encoder import Encoder, Value
from hubbub.errors import HubbubError, InvalidValueError, ParameterError
from hubbub.journal import Journal
from hubbub.metric import Metric
from hubbub.periods import OPEN_BEFORE, Period, PeriodKind
from hubbub.policy import Policy
from hubbub.sealing import Sealer
from hubbub.secret import SECRET_BYTES, Secret
from hubbub.shares import opened, share_out
from hubbub.state import Account, Event, Key, State, batch_event
from hubbub.telling import tell

KEPT_FOR = timedelta(days=28)
"""How long after its period ends a report is worth sending: two days less than a period stays open."""

AT_ONCE = 500
"""So many people or accounts are looked at under one lock, and formed if their period is over."""

MAX_POSTPONED = 10_000
"""So many recordings wait in memory for the journal, where a signal handler made them or another process does not let go of it."""

_MAX_CHANNELS = 4096
_MAX_WARNINGS = 100
_LONGEST_NAME, _NAMED = 64, 10
_FAR_AHEAD = 40
"""In days: no period of a clock that was always right is over later than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much may wait to be sent; beyond it the oldest goes, counted as `quota`.

    max_reports : reports          max_bytes : bytes on disk, roughly
    """

    max_reports: int = 10_000
    max_bytes: int = 4 << 20

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ParameterError(f"{name} must be a whole number, at least 1, got {value!r}")


@dataclass(slots=True)
class _Channel:
    """One subject's way through one metric."""

    encoder: Encoder
    sealer: Sealer


@dataclass(slots=True)
class _Choice:
    """The bits of one report and what they cost: `fresh` is one more unit."""

    row: str
    tag: str
    sealed: str
    epoch: int | None
    fresh: bool


class Recorder:
    """Drafts and reports of one client: its own (subject "", unless `own` is False) and those of its subjects."""

    def __init__(
        self,
        journal: Journal,
        definitions: Definitions,
        *,
        secret: Callable[[], Secret | None],
        policy: Policy,
        limits: Limits,
        clock: Callable[[], datetime],
        coins: Coins,
        own: bool = True,
    ) -> None:
        self._journal = journal
        self._definitions = definitions
        self._load_secret = secret
        self._policy = policy
        self._limits = limits
        self._clock = clock
        self._coins = coins
        self._secret: Secret | None = None
        self._secret_tag = ""
        self._ledger_secret: Secret | None = None
        self._ledger_tag = ""
        self._channels: dict[Key, _Channel] = {}
        self._periods: tuple[date | None, dict[PeriodKind, tuple[Period, str, str]]] = (None, {})
        self._own = own
        self._shared_out = 0
        self._unshared: set[str] = set()
        self._left: list[Key] = []
        self._look_at_all = True
        self._soonest = date.max
        self._warned: set[str] = set()
        self._unknown_names: set[str] = set()
        self._postponed: deque[tuple[str | None, str, Value]] = deque()
        self.unsaved_ignored: Counter[str] = Counter()

    def record(self, state: State, subject_id: str | None, name: str, value: Value) -> None:
        """Take one recording; a value that is not taken is counted, by reason."""
        if self._journal.locked_out:
            self.postpone(subject_id, name, value)
            return
        if state.consent is Consent.OFF:
            self.forget_secret()  # another process may have destroyed its file
            self.unsaved_ignored["consent"] += 1
            return
        metric = self._definitions.get(name) if isinstance(name, str) else None
        if metric is None:
            self.unsaved_ignored["unknown-metric"] += 1
            self._tell_unknown(name)
            return
        secret = self.secret(state)
        if secret is None:
            self.unsaved_ignored["no-state"] += 1
            return
        subject = "" if subject_id is None else self._subject_tag(state, secret, subject_id)
        channel = self._channel(metric, subject, secret)
        try:
            bloom = channel.encoder.bloom(value)
        except InvalidValueError as problem:
            self.unsaved_ignored["invalid"] += 1
            self._warn_of_use(f"record: {problem}")
            return
        period, today, latest = self._current(metric.period)
        if metric.expires is not None and period.start >= metric.expires:
            self.unsaved_ignored["expired"] += 1
            return
        account = state.accounts.get((subject, metric.digest))
        shared = self._shared_out == state.enrolments and subject not in self._unshared
        if account is None or account.enrolment != state.enrolments or not shared:
            self.enrol(state, subject)
            account = state.accounts[subject, metric.digest]
        if account.refused:
            self.unsaved_ignored["policy"] += 1
            return
        if account.next > latest:
            self.bring_back(state, [account])
            account = state.accounts[account.key]
        if account.next < today:
            self._form(state, [account.key], self._clock().date())
            self._drop(state, self._clock())
            account = state.accounts[account.key]
        day = max(account.next, today)  # a clock that was set back does not open a period anew
        draft = state.drafts.get(account.key)
        n = draft.n + 1 if draft is not None and draft.period == day else 1
        if n > 1 and below(n, self._coins) > 0:
            self._journal.write({"e": "again", "s": subject, "m": metric.digest, "p": day, "n": n})
            return
        choice = self._choose(account, metric, channel, bloom, day)
        if choice is None:
            self.unsaved_ignored["policy"] += 1
            return
        self._journal.write(
            {
                "e": "draft",
                "s": subject,
                "m": metric.digest,
                "p": day,
                "n": n,
                "c": channel.encoder.cohort,
                "row": choice.row,
                "tag": choice.tag,
                "sealed": choice.sealed,
                "epoch": choice.epoch,
                "fresh": choice.fresh,
            }
        )

    def postpone(self, subject_id: str | None, name: str, value: Value) -> None:
        """Remember a recording until the journal is free; of too many none."""
        if len(self._postponed) < MAX_POSTPONED:
            self._postponed.append((subject_id, name, value))
        else:
            self.unsaved_ignored["no-state"] += 1

    def record_postponed(self, state: State) -> None:
        """Take what was postponed."""
        while self._postponed and not self._journal.locked_out:
            self.record(state, *self._postponed.popleft())

    def enrol(self, state: State, subject: str = "") -> None:
        """Give a subject its share for every metric: from now on there is one report a period, recorded or not.

        All others who take part get theirs from `form`, or when something is recorded for them.
        """
        if self._shared_out != state.enrolments:
            self._shared_out = state.enrolments
            self._unshared = set(state.digests)
        self._unshared.discard(subject)
        if subject or self._own:
            self._share_out(state, subject)

    def _tell_unknown(self, name: object) -> None:
        """Warn once of each name that is none, as long as they are few."""
        if not isinstance(name, str):
            self._warn_of_use(f"record: a metric's name is a str, got a {type(name).__name__}")
        elif (short := name[:_LONGEST_NAME]) not in self._unknown_names and len(self._unknown_names) < _MAX_WARNINGS:
            self._unknown_names.add(short)
            self._warn_of_use(_unknown(short, self._definitions))

    def _warn_of_use(self, told: str) -> None:
        """Say once what is wrong with how `record` is called, or with the clock: a name, a type or a date, never a value."""
        if told not in self._warned and len(self._warned) < _MAX_WARNINGS:
            self._warned.add(told)
            tell("%s", told)

    def _share_out_some(self, state: State) -> bool:
        """Give `AT_ONCE` of those who take part their shares; return whether there were any."""
        some = [self._unshared.pop() for _ in range(min(AT_ONCE, len(self._unshared)))]
        for subject in some:
            if any(account.enrolment == state.enrolments for account in state.accounts_of(subject)):
                self._share_out(state, subject)
        return bool(some)

    def _share_out(self, state: State, subject: str) -> None:
        wanted = []
        for metric in self._definitions.values():
            period, *_ = self._current(metric.period)
            if metric.expires is None or period.start < metric.expires:
                wanted.append((metric, self._account(state, subject, metric, period)))
        accounts = state.accounts_of(subject)
        changed = list(share_out(self._policy, accounts, wanted, state.enrolments))
        if changed:
            self._journal.write(*(account.event() for account in changed))
        for account in changed:
            if account.refused and account.digest not in self._warned:
                self._warned.add(account.digest)
                tell("%s: it is not collected", account.refused)

    def _account(self, state: State, subject: str, metric: Metric, period: Period) -> Account:
        """Return an account as it would begin, or go on: one that was silent does not make up for it."""
        account = state.accounts.get((subject, metric.digest))
        if account is None:
            return opened(subject, metric, period)
        silent = account.refused or account.enrolment != state.enrolments
        if silent and account.next < str(period):
            return replace(account, next=str(period))
        return account

    def form(self, state: State) -> bool:
        """Turn what is over into batches, drop what is too old or too much; return whether there is more of it.

        A part at a time, so that nobody who records waits long.
        """
        if self.secret(state) is None:
            return False
        if self._shared_out != state.enrolments:
            self.enrol(state)
        if self._share_out_some(state):
            return True
        today = self._clock().date()
        self._current(PeriodKind.DAY)  # sees that the clock went back
        far = date.max.toordinal() > state.soonest.toordinal() > today.toordinal() + _FAR_AHEAD
        if not self._left and (self._look_at_all or far or state.soonest <= today):
            self._look_at_all = False
            self._left, self._soonest, state.soonest = list(state.accounts), date.max, date.max
        part = self._left[-AT_ONCE:]
        del self._left[-AT_ONCE:]
        self.bring_back(state, filter(None, map(state.accounts.get, part)))
        taking_part = list(self._taking_part(state, part))
        self._form(state, [account.key for account in taking_part if account.over() <= today], today)
        if part:
            overs = (account.over() for account in self._taking_part(state, part))
            self._soonest = min(self._soonest, min(overs, default=date.max))
            if not self._left:
                state.soonest = min(state.soonest, self._soonest)
        self._drop(state, self._clock())
        return bool(self._left)

    def bring_back(self, state: State, accounts: Iterable[Account]) -> None:
        """Plan anew from today for accounts that a clock which was ahead has moved far into the future.

        Nothing is told twice: of the periods until there, those that wait or were ever tried are passed over when they come. What was
        spent stays spent. Where an aggregator once confirmed a later date, today's clock is the wrong one, and nothing changes.
        """
        far = [account for account in accounts if account.next > self._current(account.period)[2]]
        if not far:
            return
        if self._clock().timestamp() < state.confirmed - OPEN_BEFORE.total_seconds():
            self._warn_of_use(
                "the clock is behind what the aggregator confirmed earlier: no report is made until it is right"
            )
            return
        self._warn_of_use(
            f"the clock was ahead: the next report was planned for {max(account.next for account in far)}; it is planned anew"
        )
        self._journal.write(
            *(
                replace(account, next=self._current(account.period)[1], ahead=max(account.ahead, account.next)).event()
                for account in far
            )
        )

    def form_everything(self, state: State, *, ahead: bool = False) -> None:
        """Form all that is over; `ahead`: as if the current periods were."""
        if state.consent is Consent.OFF or self.secret(state) is None:
            return
        while self._share_out_some(state):
            pass
        if ahead:
            self._form(state, [account.key for account in self._taking_part(state, state.accounts)], date.max)
        while self.form(state):
            pass

    def _form(self, state: State, keys: Sequence[Key], until: date) -> None:
        ready: dict[tuple[str, str], list[tuple[Account, int, str]]] = {}
        silent: list[Event] = []
        accounts = [state.accounts[key] for key in keys if key in state.accounts]
        waiting: set[tuple[str, str]] = set()
        if any(account.ahead for account in accounts):
            waiting = {(each.batch.digest, each.batch.period) for each in state.waiting.values()}
        for known in accounts:
            account = replace(known, tags=list(known.tags))
            told = account.next
            end = min(until, self._current(account.period)[0].next().start)
            for ended, cohort, row, after in self._reports(state, account, end, waiting):
                ready.setdefault((account.digest, ended), []).append((after, cohort, row))
                told = after.next
            if account.next != told:  # the last periods passed in silence
                silent.append(account.event())
        events: list[Event] = []
        formed = state.formed
        for (_, ended), reports in sorted(ready.items(), key=lambda item: item[0][1]):
            formed += len(reports)
            events.append(self._formed(ended, reports, formed, self._clock()))
        if events or silent:
            self._journal.write(*events, *silent)

    def _taking_part(self, state: State, keys: Iterable[Key]) -> Iterator[Account]:
        known = (state.accounts[key] for key in keys if key in state.accounts)
        return (each for each in known if self._is_current(state, each, each.next_period()))

    def next_end(self, state: State) -> datetime | None:
        """Return when the next period is over that somebody has an account for."""
        if state.soonest == date.max:
            return None
        return datetime.combine(state.soonest, datetime.min.time(), tzinfo=UTC)

    def save_ignored(self, state: State) -> None:
        """Write down how many recordings were not taken."""
        if self.unsaved_ignored and state.consent is not Consent.OFF:
            self._journal.write({"e": "ignored", "add": dict(self.unsaved_ignored)})
            self.unsaved_ignored.clear()

    def secret(self, state: State) -> Secret | None:
        """Return the client's secret; one that the ledger has not seen is a new enrolment.

        None while the disk shows no ledger or no secret: a file that cannot be opened today is no reason to enrol anew.
        """
        if self._secret is None or self._secret_tag != state.secret_tag:
            secret = self._load_secret() if self._journal.is_read else None
            if secret is None:
                return None
            tag = secret.stream("hubbub/enrolment/v1").digest(16).hex()
            if tag != state.secret_tag:
                if not state.ledger_key:
                    self._journal.write({"e": "ledger_key", "key": self._coins(SECRET_BYTES).hex()})
                self._journal.write({"e": "enrolment", "number": state.enrolments + 1, "tag": tag})
            self._secret, self._secret_tag = secret, tag
            self._channels.clear()
        return self._secret

    def forget_secret(self) -> None:
        """Drop it from memory: consent was withdrawn, or another process must not share it."""
        self._secret, self._secret_tag = None, ""
        self._channels.clear()

    def _channel(self, metric: Metric, subject: str, secret: Secret) -> _Channel:
        key = (subject, metric.digest)
        channel = self._channels.get(key)
        if channel is None:
            if len(self._channels) >= _MAX_CHANNELS:
                self._channels.clear()
            own = (
                Secret(secret.stream("hubbub/subject/v1", bytes.fromhex(subject)).digest(SECRET_BYTES))
                if subject
                else secret
            )
            channel = _Channel(Encoder(metric, own, self._coins), Sealer(metric, own, self._coins))
            self._channels[key] = channel
        return channel

    def _current(self, kind: PeriodKind) -> tuple[Period, str, str]:
        """Return today's period, its name, and the last one that an account of a clock that was always right may have come to."""
        today = self._clock().date()
        if self._periods[0] != today:
            self._look_at_all |= self._periods[0] is not None and today < self._periods[0]
            periods = [Period.containing(kind, today) for kind in PeriodKind]
            self._periods = (
                today,
                {period.kind: (period, str(period), str(period.next().next())) for period in periods},
            )
        return self._periods[1][kind]

    def _is_current(self, state: State, account: Account, period: Period) -> bool:
        metric = self._definitions.get(account.metric)
        return (
            metric is not None
            and metric.digest == account.digest
            and not account.refused
            and account.enrolment == state.enrolments
            and not _expired(metric, period)
        )

    def _subject_tag(self, state: State, secret: Secret, subject_id: str) -> str:
        """Name a subject under the ledger's key, which `off` keeps; a directory from before there was one goes on under the secret."""
        if self._ledger_tag != state.ledger_key:
            self._ledger_tag = state.ledger_key
            self._ledger_secret = Secret(bytes.fromhex(state.ledger_key)) if state.ledger_key else None
        return subject_tag(self._ledger_secret or secret, subject_id)

    def _choose(self, account: Account, metric: Metric, channel: _Channel, bloom: int, day: str) -> _Choice | None:
        """Decide which bits a value is reported as, and encode them; None where the policy leaves nothing to report."""
        remembered = account.sealed
        epoch = None if metric.hold is None else ordinal(metric.period, day) // metric.hold
        if epoch is not None and remembered and account.epoch == epoch:
            return self._encoded(channel, channel.sealer.open(remembered), epoch, account.tag, remembered, fresh=False)
        tag = channel.sealer.tag(bloom)
        fresh = account.unit != "value" or tag not in account.tags
        if fresh and not account.has_room:
            if account.unit != "value" or not remembered:
                return None
            return self._encoded(channel, channel.sealer.open(remembered), None, account.tag, remembered, fresh=False)
        return self._encoded(channel, bloom, epoch, tag, channel.sealer.seal(bloom), fresh=fresh)

    def _encoded(
        self, channel: _Channel, bloom: int, epoch: int | None, tag: str, sealed: str, *, fresh: bool
    ) -> _Choice:
        width = channel.encoder.metric.params.row_bytes
        row = channel.encoder.respond(bloom, epoch).to_bytes(width, "little").hex()
        return _Choice(row, tag, sealed, epoch, fresh)

    def _reports(
        self, state: State, account: Account, until: date, waiting: Container[tuple[str, str]]
    ) -> Iterator[tuple[str, int, str, Account]]:
        """Move an account past each period that is over; yield (period, cohort, row, account then) for each that has a report."""
        now = self._clock()
        metric = self._definitions.get(account.metric)
        oldest = date.fromordinal(max(1, now.toordinal() - KEPT_FOR.days))
        account.next = max(account.next, str(Period.containing(account.period, oldest)))  # those before are too old
        while (period := account.next_period()).next().start <= until:
            if metric is None or not self._is_current(state, account, period):
                return  # not even a draft: that there is one says that something was recorded
            draft = state.drafts.get(account.key)
            choice = cohort = None
            told = (account.digest, account.next)
            if account.next < account.ahead and (told in waiting or state.was_tried(*told)):
                pass
            elif draft is not None and draft.period == account.next and draft.row:
                choice = _Choice(draft.row, draft.tag, draft.sealed, draft.epoch, draft.fresh)
                cohort = draft.cohort
            else:
                channel = self._channel_of(state, metric, account.subject)
                choice = self._choose(account, metric, channel, 0, account.next)
                cohort = channel.encoder.cohort
            ended, account.next = account.next, str(period.next())
            if choice is None or cohort is None:
                continue
            account.units += choice.fresh
            account.reports += 1
            account.tag, account.sealed, account.epoch = choice.tag, choice.sealed, choice.epoch
            if account.unit == "value" and choice.fresh:
                account.tags.append(choice.tag)
            yield ended, cohort, choice.row, replace(account, tags=list(account.tags))

    def _channel_of(self, state: State, metric: Metric, subject: str) -> _Channel:
        secret = self.secret(state)
        if secret is None:
            raise HubbubError(
                f"a report of {metric.name} is due, and there is no secret: nothing can be made without one"
            )
        return self._channel(metric, subject, secret)

    def _formed(self, ended: str, reports: list[tuple[Account, int, str]], formed: int, now: datetime) -> Event:
        account = reports[0][0]
        batch = Batch(
            uuid.UUID(bytes=self._coins(16), version=4),
            account.metric,
            account.digest,
            ended,
            bytes(cohort for _, cohort, _ in reports),
            bytes.fromhex("".join(row for _, _, row in reports)),
        )
        period = Period(date.fromisoformat(ended), account.period)
        start = max(now, _end(period))
        latest = min(start + (_end(period.next()) - _end(period)), _end(period) + KEPT_FOR)
        return {
            "e": "formed",
            "formed": formed,
            "batch": batch_event(batch),
            "kind": account.period,
            "at": start.timestamp() + uniform(self._coins) * max(0.0, (latest - start).total_seconds()),
            "accounts": [after.event()["account"] for after, _, _ in reports],
        }

    def _drop(self, state: State, now: datetime) -> None:
        gone: dict[str, str] = {}
        certain = min(now, datetime.fromtimestamp(state.confirmed, UTC))  # a clock that is ahead drops nothing
        for batch_id, waiting in state.waiting.items():
            metric = self._definitions.version(waiting.batch.metric, waiting.batch.digest)
            if certain >= _end(Period(date.fromisoformat(waiting.batch.period), waiting.period)) + KEPT_FOR:
                gone[batch_id] = "age"
            elif metric is not None and metric.expires is not None and now.date() >= metric.expires:
                gone[batch_id] = "expired"
        left = [waiting for batch_id, waiting in state.waiting.items() if batch_id not in gone]
        reports = sum(len(waiting.batch) for waiting in left)
        size = sum(_size(waiting.batch) for waiting in left)
        for waiting in sorted(left, key=lambda waiting: waiting.batch.period):
            if reports <= self._limits.max_reports and size <= self._limits.max_bytes:
                break
            gone[str(waiting.batch.batch_id)] = "quota"
            reports -= len(waiting.batch)
            size -= _size(waiting.batch)
        if gone:
            self._journal.write(*({"e": "gone", "id": batch_id, "why": why} for batch_id, why in gone.items()))


def subject_tag(secret: Secret, subject_id: str) -> str:
    """Return what stands for a subject in the directory: a keyed hash of its id, hex."""
    return secret.stream("hubbub/subject-id/v1", subject_id.encode("utf-8", "surrogatepass")).digest(16).hex()


def ordinal(kind: PeriodKind, start: str) -> int:
    """Number a period, so that epochs begin at the same time for everybody.

    >>> ordinal(PeriodKind.DAY, "1970-01-02"), ordinal(PeriodKind.WEEK, "1970-01-05"), ordinal(PeriodKind.MONTH, "1970-02-01")
    (1, 1, 1)
    """
    day = date.fromisoformat(start)
    if kind is PeriodKind.MONTH:
        return (day.year - 1970) * 12 + day.month - 1
    days = day.toordinal() - date(1970, 1, 1).toordinal()
    return days if kind is PeriodKind.DAY else (days + 3) // 7


def _unknown(name: str, definitions: Definitions) -> str:
    """Tell of a metric that is not there, by the names that are: what was given may be a value in a name's place."""
    from difflib import get_close_matches

    near = get_close_matches(name, definitions, 1)
    meant = f"was {near[0]!r} meant? " if near else ""
    return f"record: no such metric is defined; {meant}(what is: {', '.join(islice(definitions, _NAMED))}): nothing is recorded for it"


def _end(period: Period) -> datetime:
    return datetime.combine(period.next().start, datetime.min.time(), tzinfo=UTC)


def _expired(metric: Metric, period: Period) -> bool:
    return metric.expires is not None and period.start >= metric.expires


def _size(batch: Batch) -> int:
    return 512 + 2 * len(batch.rows) + 2 * len(batch.cohorts)
