"""Recordings -> drafts: of several in a period one is reported, each with the same chance.

The n-th recording of a period replaces its draft with probability 1/n. What a draft holds is final: both randomizations are behind it.
Nothing here but `postpone` may be called but inside `with journal`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from datetime import datetime
from itertools import islice
from typing import Any

from hubbub.consent import Consent, stricter_consent
from hubbub.encoding.bloom import Value
from hubbub.encoding.secret import Secret
from hubbub.errors import InvalidValueError
from hubbub.metrics.definitions import Definitions
from hubbub.metrics.metric import has_expired
from hubbub.privacy.policy import Policy
from hubbub.randomness import RandomBytes, uniform_below
from hubbub.sdk.recording.batch_builder import Former
from hubbub.sdk.recording.enrollment import Enroller
from hubbub.sdk.recording.queue_limits import Limits
from hubbub.sdk.recording.subject_encoders import SubjectEncoders
from hubbub.sdk.runtime.clock import Today
from hubbub.sdk.runtime.safe_logging import Once, tell
from hubbub.sdk.storage.definition_lease import DefinitionLease
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.storage.state import State

MAX_POSTPONED = 10_000
"""So many recordings wait in memory for the journal, where a signal handler made them or another process does not let go of it."""

_LONGEST_NAME, _NAMED = 64, 10


class Recorder:
    """Takes what is recorded for one client: for itself (subject "", unless `own` is False) and for its subjects.

    encoders : whose reports they are          enroller : who takes part          former : what becomes of drafts
    """

    def __init__(
        self,
        journal: Journal,
        definitions: Definitions,
        *,
        secret: Callable[[], Secret | None],
        policy: Policy,
        limits: Limits,
        clock: Callable[[], datetime],
        random_bytes: RandomBytes,
        own: bool = True,
        lease: DefinitionLease | None = None,
    ) -> None:
        self._journal = journal
        self._definitions = definitions
        self._coins = random_bytes
        self.allowed: Callable[[], Consent] = lambda: Consent.ON
        """The most that this process may do, whatever was agreed to; `Agreement` sets it."""
        self._today = Today(clock)
        self.encoders = SubjectEncoders(journal, secret, random_bytes)
        self.enroller = Enroller(journal, definitions, policy, self._today, own=own, lease=lease)
        self.former = Former(
            journal, definitions, self.encoders, self.enroller, self._today, limits=limits, random_bytes=random_bytes
        )
        self._is_new, self._is_new_name = Once(), Once()
        self._postponed: deque[tuple[str | None, str, Value]] = deque()
        self.unsaved_ignored: Counter[str] = Counter()

    def take(self, state: State, subject_id: str | None, name: str, value: Value) -> Consent:
        """Take one recording, and those that were postponed; return the consent under which."""
        self.record(state, subject_id, name, value)
        self.record_postponed(state)
        return state.consent

    def record(self, state: State, subject_id: str | None, name: str, value: Value) -> None:
        """Take one recording; a value that is not taken is counted, by reason."""
        if self._journal.locked_out:
            self.postpone(subject_id, name, value)
            return
        why = self._draft(state, subject_id, name, value)
        if why is not None:
            self.unsaved_ignored[why] += 1

    def _draft(self, state: State, subject_id: str | None, name: str, value: Value) -> str | None:
        """Let a recording become its period's draft, or not; return why it is ignored, if it is."""
        if state.consent is Consent.OFF:
            self.encoders.forget_secret()  # another process may have destroyed its file
            return "consent"
        if stricter_consent(state.consent, self.allowed()) is not state.consent:
            return "consent"  # the draft is shared with processes that send it
        metric = self._definitions.get(name) if isinstance(name, str) else None
        if metric is None:
            self._tell_unknown(name)
            return "unknown-metric"
        secret = self.encoders.secret(state)
        if secret is None:
            return "no-state"
        subject = "" if subject_id is None else self.encoders.subject(state, secret, subject_id)
        encoder = self.encoders.encoder(metric, subject, secret)
        try:
            bloom = encoder.bloom_bits(value)
        except InvalidValueError as problem:
            self._say(f"record: {problem}")
            return "invalid"
        period, today, latest = self._today.current(metric.period)
        if has_expired(metric, period.start):
            return "expired"
        key = subject, metric.digest
        account = state.accounts.get(key)
        if account is None or account.enrollment != state.enrollments or not self.enroller.has_enrolled(state, subject):
            self.enroller.enroll(state, subject)
            account = state.accounts[key]
        if account.refused:
            return "policy"
        if account.next_period_start > latest:
            self.former.bring_back(state, [account])
            account = state.accounts[key]
        if account.next_period_start < today:
            self.former.form_first(state, secret, account)
            account = state.accounts[key]
        day = max(account.next_period_start, today)  # a clock that was set back does not open a period anew
        draft = state.drafts.get(key)
        n = draft.n + 1 if draft is not None and draft.period == day else 1
        if n > 1 and uniform_below(n, self._coins) > 0:
            self._journal.write({"e": "again", "s": subject, "m": metric.digest, "p": day, "n": n})
            return None
        report = encoder.encode_period(account, bloom, day)
        if report is None:
            return "policy"
        self._journal.write(
            {
                "e": "draft",
                "s": subject,
                "m": metric.digest,
                "p": day,
                "n": n,
                "report": report.to_dict(),
                "local": state.consent is Consent.LOCAL,
            }
        )
        return None

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

    def drop_postponed(self) -> None:
        """Ignore what was postponed: it was recorded under another consent than the one that holds from now on."""
        self.unsaved_ignored["consent"] += len(self._postponed)
        self._postponed.clear()

    def save_ignored(self, state: State) -> None:
        """Write down how many recordings were not taken."""
        if self.unsaved_ignored and state.consent is not Consent.OFF:
            self._journal.write({"e": "ignored", "add": dict(self.unsaved_ignored)})
            self.unsaved_ignored.clear()

    def accounting(self, state: State) -> dict[str, Any]:
        """Return the state's counters, with what is not written down yet."""
        self.record_postponed(state)
        ignored, counts = self.unsaved_ignored, state.accounting()
        counts["recorded"] += ignored.total()
        counts["ignored"] = {reason: n + ignored[reason] for reason, n in counts["ignored"].items()}
        return counts

    def _tell_unknown(self, name: object) -> None:
        """Warn once of each name that is none, as long as they are few."""
        if not isinstance(name, str):
            self._say(f"record: a metric's name is a str, got a {type(name).__name__}")
        elif self._is_new_name(short := name[:_LONGEST_NAME]):
            self._say(_unknown(short, self._definitions))

    def _say(self, told: str) -> None:
        """Say once what is wrong with how `record` is called: a name or a type, never a value."""
        if self._is_new(told):
            tell("%s", told)


def _unknown(name: str, definitions: Definitions) -> str:
    """Tell of a metric that is not there, by the names that are: what was given may be a value in a name's place."""
    from difflib import get_close_matches

    near = get_close_matches(name, definitions, 1)
    meant = f"was {near[0]!r} meant? " if near else ""
    return f"record: no such metric is defined; {meant}(what is: {', '.join(islice(definitions, _NAMED))}): nothing is recorded for it"
