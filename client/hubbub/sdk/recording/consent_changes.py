"""Consent changes: grant consent, withdraw it, and erase the data of a withdrawal."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from hubbub.consent import Consent, stricter_consent
from hubbub.sdk.recording.batch_builder import BatchBuilder
from hubbub.sdk.recording.enrollment import Enrollment
from hubbub.sdk.recording.subject_encoders import SubjectEncoders
from hubbub.sdk.runtime.clock import is_plausible
from hubbub.sdk.storage.compaction import Compactor
from hubbub.sdk.storage.copy_detection import CopyDetector
from hubbub.sdk.storage.events import ConsentChange, Erasure
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.storage.secret_file import SecretFile
from hubbub.sdk.storage.state import State


class ConsentLimit:
    """Highest consent level that this process may use.

    The environment sets it; a withdrawal that the disk refused lowers it, so the withdrawal holds in this process nevertheless.
    """

    def __init__(self, environment: Consent) -> None:
        self._environment = self.allowed = environment

    def lower_to(self, level: Consent) -> None:
        """Allow at most `level`, and never more than the environment does."""
        self.allowed = stricter_consent(level, self._environment)

    def effective(self, consent: Consent) -> Consent:
        """Lesser of a granted consent level and the limit."""
        return consent if self.allowed is Consent.ON else stricter_consent(consent, self.allowed)


class ConsentManager:
    """Changes the consent of one state directory.

    before_change : called inside `with journal` before the event of consent is written, with the state and the new level
    """

    def __init__(
        self,
        journal: Journal,
        compactor: Compactor,
        secret_file: SecretFile,
        encoders: SubjectEncoders,
        enrollment: Enrollment,
        builder: BatchBuilder,
        copies: CopyDetector,
        limit: ConsentLimit,
        clock: Callable[[], datetime],
        before_change: Callable[[State, Consent], None],
    ) -> None:
        self._journal = journal
        self._compactor = compactor
        self._secret_file = secret_file
        self._encoders = encoders
        self._enrollment = enrollment
        self._builder = builder
        self._copies = copies
        self._limit = limit
        self._clock = clock
        self._before_change = before_change

    def grant(self, consent: Consent, text: str) -> list[str]:
        """Save consent `local` or `on`, and enroll; return one message for each part that the disk refused."""
        self._limit.lower_to(consent)
        before = self._journal.run(lambda state: state.consent_event())
        if not self._journal.run(self._agree, consent, text):
            return [f"consent stays off, because the previous secret could not be deleted: {self._journal.problem}"]
        is_new = self._journal.run(lambda state: state.consent_event()) != before
        if self._journal.is_degraded or (is_new and not self._journal.sync()):
            lost = "the new consent could not be saved; the previous value may apply after a restart"
            return [f"{lost}: {self._journal.problem}"]
        self._limit.lower_to(Consent.ON)
        return []

    def withdraw(self, text: str) -> list[str]:
        """Save consent `off`, destroy the secret and erase the data; return one message for each part that the disk refused.

        The event comes first, so that no process sends any more. Then the secret is destroyed, without which the rest is noise.
        """
        self._limit.lower_to(Consent.OFF)
        missing = []
        if not self._journal.run(self._erase, text):
            missing.append(f"the secret could not be deleted; delete the file {self._secret_file.path}")
        if not self._compactor.compact(always=True):
            if not self._journal.sync():
                missing.append("the new consent could not be saved; the previous value may apply after a restart")
            cause = (
                self._journal.problem
                or "another process or thread kept the state locked; the next start of the app erases it"
            )
            missing.append(f"recorded data is not erased yet: {cause}")
        if not missing:
            self._limit.lower_to(Consent.ON)
        return missing

    def finish_erasure(self) -> None:
        """Finish an erasure that a kill interrupted between its event and the compaction."""
        if self._journal.run(self._is_half_erased):
            self._compactor.compact(always=True)

    def enroll(self, state: State) -> None:
        """Enroll the client under the granted consent. Call it inside `with journal`."""
        if self._journal.is_outdated or not self._journal.is_read or not is_plausible(self._clock()):
            return
        self._copies.check(state)
        if self._encoders.secret(state) is None:
            return
        self._copies.check(state)  # the first enrollment made the ledger key that the check needs
        self._enrollment.enroll(state)
        self._builder.note_run(state, is_start=True)
        # one slice of the accounts, before anything is recorded; the upload thread builds the rest
        self._builder.build_due(state)

    def _agree(self, state: State, consent: Consent, text: str) -> bool:
        before = state.consent
        if before is Consent.OFF and state.enrollments and not self._secret_file.destroy():
            return False
        self._before_change(state, consent)
        self._journal.write(self._changed(state, consent, text))
        if before is Consent.OFF and self._limit.allowed is not Consent.OFF:
            self.enroll(state)
        return True

    def _changed(self, state: State, consent: Consent, text: str) -> ConsentChange:
        """Event of the new consent. The same level and text again change neither the time nor the first day of reports."""
        now = self._clock()
        same = consent is state.consent and text == state.consent_text and state.consent_time > 0
        becomes_on = consent is Consent.ON and state.consent is not Consent.ON
        return ConsentChange(
            consent,
            text,
            time=state.consent_time if same else now.timestamp(),
            reports_from=now.date().isoformat() if becomes_on else state.reports_from,
        )

    def _erase(self, state: State, text: str) -> bool:
        self._before_change(state, Consent.OFF)
        self._journal.write(self._changed(state, Consent.OFF, text), Erasure())
        self._encoders.forget_secret()
        return self._secret_file.destroy()

    def _is_half_erased(self, state: State) -> bool:
        if state.erasure_pending and state.consent is Consent.OFF:
            self._secret_file.destroy()  # before the compaction
        return state.erasure_pending
