"""Record values: reservoir-sample one draft for each subject, metric and period.

The n-th recording of a period replaces its draft with probability 1/n, so each of them is reported with the same probability.
A draft is final: its bits are randomized twice before they are written.
The draft of an ordinal metric that reports a sum, a maximum or the last number, and that of a set, is replaced at each recording, and keeps
that number, or whether the item was in a set, sealed.
A recording that cannot get the journal within `WAIT_SECONDS` waits in the backlog, and is taken before the next one.
Call every method inside `with journal`, except `postpone`, `ignore` and `drain`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from hubbub.consent import Consent
from hubbub.errors import InvalidValueError
from hubbub.metrics.definitions import Definitions
from hubbub.metrics.kinds import BloomBits, JointValue, Value
from hubbub.metrics.metric import Metric, has_expired
from hubbub.privacy.ledger import Account
from hubbub.randomness import RandomBytes, uniform_below
from hubbub.sdk.recording.backlog import MAX_WAITING, Backlog, WaitingRecording
from hubbub.sdk.recording.batch_builder import BatchBuilder
from hubbub.sdk.recording.consent_changes import ConsentLimit
from hubbub.sdk.recording.enrollment import Enrollment
from hubbub.sdk.recording.subject_encoders import SubjectEncoder, SubjectEncoders
from hubbub.sdk.runtime.clock import PeriodClock, current_at, is_plausible
from hubbub.sdk.runtime.safe_logging import OncePerKey
from hubbub.sdk.storage.events import DraftMerge, DraftReplacement, IgnoredRecordings
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.storage.state import Accounting, State

WAIT_SECONDS = 0.05
"""Longest wait of one recording for other threads and processes."""

MAX_TAKEN_BEFORE = 100
"""Recordings that one `record` takes before its own; the upload thread takes the rest."""

SECRET_RETRY_SECONDS = CLOCK_RETRY_SECONDS = 60.0
_MAX_LOGGED_NAME, _MAX_LISTED_METRICS = 64, 10


class UploadReadiness(NamedTuple):
    """Result of the work before an upload.

    may_send : whether batches may be sent        seconds : until there is more to build; infinite if no period is open
    """

    may_send: bool
    seconds: float


class _Ignored(Exception):  # noqa: N818  (it ends a recording, it reports no error)
    """A recording that is not taken; `reason` is the key under `ignored` in `Client.accounting()`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Recorder:
    """Records values of one client (subject "") and of its subjects."""

    def __init__(
        self,
        journal: Journal,
        definitions: Definitions,
        encoders: SubjectEncoders,
        enrollment: Enrollment,
        builder: BatchBuilder,
        clock: PeriodClock,
        limit: ConsentLimit,
        random_bytes: RandomBytes,
        backlog: Backlog,
    ) -> None:
        self._journal = journal
        self._definitions = definitions
        self._encoders = encoders
        self._enrollment = enrollment
        self._builder = builder
        self._clock = clock
        self._limit = limit
        self._random_bytes = random_bytes
        # messages have names and types, never a value
        self._once, self._is_new_name = OncePerKey(), OncePerKey()
        self.backlog = backlog

    @property
    def wait_seconds(self) -> float:
        """How long the next recording may wait: not at all behind others that wait already."""
        return 0.0 if self.backlog.recordings else WAIT_SECONDS

    def take(self, state: State, subject_id: str | None, name: str, value: Value | JointValue) -> Consent | None:
        """Take recordings that wait, then one more; return the saved consent. None: it must wait itself, behind others or for the journal."""
        if self.backlog.recordings:
            self.record_waiting(state, MAX_TAKEN_BEFORE)
        if self.backlog.recordings or self._journal.is_outdated:
            return None
        self.record(state, subject_id, name, value)
        return state.consent

    def record(
        self, state: State, subject_id: str | None, name: str, value: Value | JointValue, moment: datetime | None = None
    ) -> None:
        """Take one recording, or count it as ignored with its reason.

        The steps: check the consent, find the definition and its encoder, read the account once, write the draft.

        moment : when it was made, if it has waited
        """
        try:
            self._check_consent(state)
            if not is_plausible(moment or self._clock.now()):
                raise _Ignored("clock")
            metric = self._definition(name)
            subject, encoder, valid = self._encoder(state, metric, subject_id, value)
            account, period = self._account(state, subject, metric, moment)
            self._draft(state, account, period, encoder, valid)
        except _Ignored as ignored:
            self.ignore(ignored.reason)

    def _check_consent(self, state: State) -> None:
        if state.consent is Consent.OFF:
            self._encoders.forget_secret()  # another process may have destroyed its file
            raise _Ignored("consent")
        if self._limit.effective(state.consent) is not state.consent:
            raise _Ignored("consent")  # the draft would be shared with processes that send it

    def _definition(self, name: str) -> Metric:
        metric = self._definitions.get(name) if isinstance(name, str) else None
        if metric is None:
            self._warn_unknown(name)
            raise _Ignored("unknown-metric")
        return metric

    def _encoder(
        self, state: State, metric: Metric, subject_id: str | None, value: Value | JointValue
    ) -> tuple[str, SubjectEncoder, Value | JointValue | BloomBits]:
        """Subject, its encoder of a metric, and a valid value or its Bloom filter bits."""
        secret = self._encoders.secret(state)
        if secret is None:
            raise _Ignored("no-state")
        subject = "" if subject_id is None else self._encoders.subject(state, secret, subject_id)
        encoder = self._encoders.encoder(metric, subject, secret)
        if metric.kind.is_valid_at_sight(value):
            return subject, encoder, value  # valid; its bits are computed only if it becomes the draft
        try:
            return subject, encoder, encoder.check(value)
        except InvalidValueError as problem:
            self._once.log(f"record: {problem}")
            raise _Ignored("invalid") from None

    def _account(self, state: State, subject: str, metric: Metric, moment: datetime | None) -> tuple[Account, str]:
        """Account of a subject and metric, brought to the recording's period, and the period of the draft."""
        current = self._clock.current(metric.period) if moment is None else current_at(metric.period, moment)
        if has_expired(metric, current.period.start):
            self._once.log(
                f"record: {metric.name} expired on {metric.expires}: its recordings are ignored. Remove them from the app, or ship a later "
                "`expires`"
            )
            raise _Ignored("expired")
        account = self._enrollment.account(state, subject, metric)
        if account.refused:
            raise _Ignored("policy")
        account = self._builder.catch_up(state, account, current)
        # a clock that was set back does not reopen a period
        return account, max(account.next_period_start, current.name)

    def _draft(
        self,
        state: State,
        account: Account,
        period: str,
        encoder: SubjectEncoder,
        value: Value | JointValue | BloomBits,
    ) -> None:
        """Write the recording as the period's draft, or as one more recording that the draft stands for."""
        draft = state.subjects.read(account.subject).drafts.get(account.digest)
        count = draft.num_recordings + 1 if draft is not None and draft.period == period else 1
        local = state.consent is Consent.LOCAL
        kept = draft.number if draft is not None and count > 1 and draft.local == local else b""
        value, number = encoder.add_recording(value, kept)
        if count == 1 or number or uniform_below(count, self._random_bytes) == 0:
            report = encoder.encode_period(account, value, period)
            if report is None:
                raise _Ignored("policy")
            self._journal.write(
                DraftReplacement(account.subject, account.digest, period, count, report, local=local, number=number)
            )
        else:
            self._journal.write(DraftMerge(account.subject, account.digest, period, count))

    def postpone(self, subject_id: str | None, name: str, value: Value | JointValue) -> None:
        """Let a recording wait in memory. If consent was off when the state was read last, or too many wait, count it as ignored."""
        if self._journal.is_known_off:
            self.ignore("consent")
        elif not self.backlog.add(
            WaitingRecording(subject_id, name, value, self._clock.now(), self._journal.known_consent)
        ):
            self.ignore("no-state")

    def record_waiting(self, state: State, most: int = MAX_WAITING) -> None:
        """Take the recordings that wait, unless the state is outdated. Those of an earlier consent are ignored."""
        for _ in range(most):
            waiting = None if self._journal.is_outdated else self.backlog.take()
            if waiting is None:
                return
            if self._is_of_this_consent(state, waiting):
                moment = min(waiting.moment, self._clock.now())
                self.record(state, waiting.subject_id, waiting.name, waiting.value, moment)
            else:
                self.ignore("consent")

    def _is_of_this_consent(self, state: State, waiting: WaitingRecording) -> bool:
        """Return whether a recording was made under the saved consent: what was recorded before a withdrawal must not be reported."""
        if waiting.consent is not None:
            return waiting.consent == state.consent_identity
        return state.consent_time <= waiting.moment.timestamp() <= self._clock.now().timestamp()

    def before_consent_change(self, state: State, consent: Consent) -> None:
        """Take the recordings that wait, unless consent is withdrawn. If the level changes, ignore those that wait still."""
        if consent is not Consent.OFF:
            self.record_waiting(state)
        if consent is Consent.OFF or consent is not state.consent:
            while self.backlog.take() is not None:
                self.ignore("consent")

    def prepare_upload(self, state: State) -> UploadReadiness:
        """Take the recordings that wait, save the ignored counts, and build one slice of the due batches."""
        self.save(state)
        if state.consent is Consent.OFF:
            self._encoders.forget_secret()
        if self._limit.effective(state.consent) is Consent.OFF:
            return UploadReadiness(may_send=False, seconds=math.inf)
        if self._encoders.secret(state) is None:
            return UploadReadiness(may_send=False, seconds=SECRET_RETRY_SECONDS)
        if not is_plausible(self._clock.now()):
            self._once.log(
                f"the system clock says {self._clock.now():%Y-%m-%d}, which cannot be right. Nothing is recorded or sent until it is set (ntp, chrony)"
            )
            return UploadReadiness(may_send=False, seconds=CLOCK_RETRY_SECONDS)
        if self._builder.build_due(state):
            return UploadReadiness(may_send=False, seconds=0.0)
        end = self._builder.next_period_end(state)
        seconds = math.inf if end is None else max((end - self._clock.now()).total_seconds(), 0.001)
        return UploadReadiness(may_send=True, seconds=seconds)

    def drain(self) -> None:
        """Save what is in memory alone: recordings that wait, and the counts of ignored ones, which are not saved under "off"."""
        unsaved = self.backlog.recordings or (self.backlog.ignored and not self._journal.is_known_off)
        if unsaved and self._limit.allowed is not Consent.OFF:
            self._journal.run(self.save)

    def save(self, state: State) -> None:
        """Take the recordings that wait, and save the ignored counts."""
        self.record_waiting(state)
        if self.backlog.ignored and state.consent is not Consent.OFF:
            self._journal.write(IgnoredRecordings(dict(self.backlog.take_ignored())))

    def accounting(self, state: State) -> Accounting:
        """Counters of the state, with the ignored recordings that are not saved yet, and the recordings that wait."""
        self.record_waiting(state)
        saved, unsaved = state.accounting(), self.backlog.ignored
        ignored = {reason: number + unsaved[reason] for reason, number in saved.ignored.items()}
        return replace(
            saved,
            recorded=saved.recorded + unsaved.total(),
            waiting=len(self.backlog.recordings),
            ignored=ignored,
        )

    def ignore(self, reason: str, number: int = 1) -> None:
        """Count recordings as ignored."""
        self.backlog.ignore(reason, number)

    def ignore_wrong_call(self, message: str) -> None:
        """Count a wrong call of `record` as ignored (`invalid`), and log its message once."""
        self._once.log(f"record: {message}")
        self.ignore("invalid")

    def _warn_unknown(self, name: object) -> None:
        """Warn once for each unknown name, up to the limit of `OncePerKey`."""
        if not isinstance(name, str):
            self._once.log(
                f"record: a metric's name must be a str, got {type(name).__name__}; the recording is ignored"
            )
        elif self._is_new_name(short := name[:_MAX_LOGGED_NAME]):
            self._once.log(_unknown(short, self._definitions))


def _unknown(name: str, definitions: Definitions) -> str:
    """Warning about an unknown metric. It quotes defined names only: `name` may be a value that was passed in the wrong place."""
    from difflib import get_close_matches

    near = get_close_matches(name, definitions, 1)
    meant = f"was {near[0]!r} meant? " if near else ""
    listed = ", ".join(islice(definitions, _MAX_LISTED_METRICS))
    return f"record: no such metric is defined; {meant}(defined: {listed}). The recording is ignored"
