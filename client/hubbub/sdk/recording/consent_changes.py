"""Give and withdraw consent. A withdrawal holds in this process, whatever the disk says."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from hubbub.consent import Consent, stricter_consent
from hubbub.sdk.recording.recorder import Recorder
from hubbub.sdk.storage.compaction import Compactor
from hubbub.sdk.storage.copy_detection import CopyDetector
from hubbub.sdk.storage.events import Event
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.storage.secret_file import SecretFile
from hubbub.sdk.storage.state import State


class Agreement:
    """Changes one directory's consent; `allowed` is the most that this process may do, and `environment` the most it ever may."""

    def __init__(
        self,
        journal: Journal,
        compactor: Compactor,
        recorder: Recorder,
        secret: SecretFile,
        environment: Consent,
        clock: Callable[[], datetime],
        copies: CopyDetector,
    ) -> None:
        self._journal = journal
        self._compactor = compactor
        self._recorder = recorder
        self._secret = secret
        self._clock = clock
        self._copies = copies
        self._environment = self.allowed = environment
        recorder.allowed = lambda: self.allowed

    def agree(self, consent: Consent, text: str) -> list[str]:
        """Write down that so much was agreed to, and enrol; return what the disk does not have of it."""
        self._allow(consent)
        before = self._journal.run(lambda state: state.consent_event())
        if not self._journal.run(self._agree, consent, text):
            return [f"it stays off: the secret of before cannot be deleted, {self._journal.problem}"]
        is_new = self._journal.run(lambda state: state.consent_event()) != before
        if self._journal.degraded or (is_new and not self._journal.sync()):
            return [f"it is not written down: {self._journal.problem}"]
        self._allow(Consent.ON)
        return []

    def withdraw(self, text: str) -> list[str]:
        """First say it, so that nobody sends any more; then destroy the secret, without which what is left is noise; then erase that."""
        self._allow(Consent.OFF)
        missing = []
        if not self._journal.run(self._erase, text):
            missing.append(f"the secret is still there: delete {self._secret.path}")
        if not self._compactor.compact(always=True):
            if not self._journal.sync():
                missing.append("it is not written down: the next start may find the consent of before")
            missing.append(f"what was recorded is not erased yet: {self._journal.problem}")
        if not missing:
            self._allow(Consent.ON)
        return missing

    def end_erasing(self) -> None:
        """Do what is left to do if a kill came between the erasing and the writing anew."""
        if self._journal.run(self._is_half_erased):
            self._compactor.compact(always=True)

    def enroll(self, state: State) -> None:
        """Let who agreed take part."""
        if self._journal.locked_out or not self._journal.is_read:
            return
        self._copies.check(state)
        if self._recorder.encoders.secret(state) is None:
            return
        self._copies.check(state)  # the first enrollment made the key
        self._recorder.enroller.enroll(state)
        self._recorder.former.form(state)  # of many people some; the uploader's thread forms the rest

    def _allow(self, most: Consent) -> None:
        self.allowed = stricter_consent(most, self._environment)

    def _agree(self, state: State, consent: Consent, text: str) -> bool:
        before = state.consent
        if before is Consent.OFF and state.enrollments and not self._secret.destroy():
            return False
        self._recorder.record_postponed(state)
        if consent is not before:
            self._recorder.drop_postponed()
        self._journal.write(self._changed(state, consent, text))
        if before is Consent.OFF and self.allowed is not Consent.OFF:
            self.enroll(state)
        return True

    def _changed(self, state: State, consent: Consent, text: str) -> Event:
        """Return the event of consent as it is now; to say the same again changes neither its time nor what is reported."""
        now = self._clock()
        same = consent is state.consent and text == state.consent_text and state.consent_time > 0
        becomes_on = consent is Consent.ON and state.consent is not Consent.ON
        return state.consent_event() | {
            "to": consent,
            "text": text,
            "time": state.consent_time if same else now.timestamp(),
            "reports_from": now.date().isoformat() if becomes_on else state.reports_from,
        }

    def _erase(self, state: State, text: str) -> bool:
        self._journal.write(self._changed(state, Consent.OFF, text), {"e": "erased"})
        self._recorder.encoders.forget_secret()
        return self._secret.destroy()

    def _is_half_erased(self, state: State) -> bool:
        if state.erased and state.consent is Consent.OFF:
            self._secret.destroy()  # it goes first
        return state.erased
