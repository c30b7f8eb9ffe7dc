"""`Client` and `Subject`: the public recording API. `record` returns at once and never raises.

record -> draft -> (its period ends) -> report, batch, ledger -> (a random time of the next period) -> upload
"""

from __future__ import annotations

import atexit
import logging
import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from hubbub.consent import Consent, ConsentRecord
from hubbub.encoding.bloom import JointValue, Value
from hubbub.errors import HubbubError, ParameterError
from hubbub.metrics.definitions import Definitions, load_definitions
from hubbub.metrics.periods import utc_now
from hubbub.privacy.policy import Policy
from hubbub.randomness import RandomBytes, system_random_bytes
from hubbub.sdk.recording.batch_builder import BatchBuilder, Limits
from hubbub.sdk.recording.consent_changes import ConsentLimit, ConsentManager
from hubbub.sdk.recording.enrollment import Enrollment
from hubbub.sdk.recording.recorder import Recorder
from hubbub.sdk.recording.subject_encoders import SubjectEncoders
from hubbub.sdk.runtime.arguments import (
    absolute,
    check_ca_certs,
    check_consent_text,
    check_subject_id,
    check_timeout,
    instance_or_default,
)
from hubbub.sdk.runtime.async_worker import AsyncWorker
from hubbub.sdk.runtime.clock import PeriodClock
from hubbub.sdk.runtime.environment import environment_settings
from hubbub.sdk.runtime.error_guard import call_safely, log, report_failure
from hubbub.sdk.runtime.fork_safety import HeldSection, register, registered_clients
from hubbub.sdk.runtime.machine_id import MachineIdReader, read_machine_id
from hubbub.sdk.runtime.safe_logging import holds_journal
from hubbub.sdk.storage.compaction import Compactor
from hubbub.sdk.storage.copy_detection import CopyDetector
from hubbub.sdk.storage.definition_lease import DefinitionLease
from hubbub.sdk.storage.filesystem import Disk, MemoryDisk, SystemDisk
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.storage.secret_file import SecretFile
from hubbub.sdk.storage.state import State
from hubbub.sdk.storage.state_reader import inspection_report, ledger_report, read_state

if TYPE_CHECKING:
    from hubbub.sdk.transparency.debug_mode import DebugMode
    from hubbub.sdk.upload.sender import Sender
    from hubbub.sdk.upload.transport import Transport
    from hubbub.sdk.upload.uploader import Uploader

logging.getLogger("hubbub").addHandler(logging.NullHandler())

T = TypeVar("T")
Durability = Literal["process", "power", "memory"]
DETACHED_SEND_DELAY_SECONDS = 60.0
DEBUG_SEND_SECONDS = 5.0
"""Time after which debug mode starts no more uploads at `close` and at the end of the program."""

_debugged_clients: list[Client] = []
"""Clients in debug mode, kept until the exit hook has sent their reports."""


@dataclass(frozen=True, slots=True)
class Collaborators:
    """Objects that a client is built of, one per concern.

    Internal: for `hubbub.testing` and for tests that need more of a client than its public methods, see `collaborators`.
    """

    disk: Disk
    journal: Journal
    compactor: Compactor
    encoders: SubjectEncoders
    enrollment: Enrollment
    builder: BatchBuilder
    recorder: Recorder
    limit: ConsentLimit
    consent_manager: ConsentManager
    sender: Sender
    uploader: Uploader


class Client:
    """Telemetry client of one installation. All processes that share `state` are one client.

    definitions : TOML file of metric definitions, or the result of `load_definitions`
    state       : directory for the secret, the ledger and queued reports; created if it does not exist
    url         : URL of the aggregator: https, or http to a loopback address
    durability  : "process": `record` returns after the write; data is fsynced within one second, and always before it is uploaded.
                  "power": `record` returns after the fsync.
                  "memory": nothing is written to disk, and every start is a new client with a new ledger
    policy      : the largest epsilon that the client may spend; only your code can change it
    limits      : limits on queued reports
    detached    : for programs that end at once: at most once a day a background process sends due reports; this process sends only after
                  it has run for a minute. A frozen program (PyInstaller) sends due reports itself, at its start
    per_subject : disable `record` on the client itself; use `subject(id).record` (for servers that report for many users)
    renew_identity_when_copied : if `state` was used on another machine before, create a new secret, which spends epsilon again;
                  by default the client warns once and keeps the secret
    ca_certs    : file of certificates to trust instead of the system's
    transport, disk, clock, random_bytes, environment, machine_id : replacements for tests

    Nothing is recorded before `set_consent("on")` or `set_consent("local")`; `state` keeps the consent.

    The constructor raises HubbubError if definitions or url are wrong. Other methods raise only if they are called wrongly.
    """

    def __init__(
        self,
        definitions: str | Path | Definitions,
        state: str | Path,
        url: str,
        *,
        durability: Durability = "process",
        policy: Policy | None = None,
        limits: Limits | None = None,
        detached: bool = False,
        per_subject: bool = False,
        renew_identity_when_copied: bool = False,
        ca_certs: str | None = None,
        transport: Transport | None = None,
        disk: Disk | None = None,
        clock: Callable[[], datetime] = utc_now,
        random_bytes: RandomBytes = system_random_bytes,
        environment: Mapping[str, str] | None = None,
        machine_id: MachineIdReader = read_machine_id,
    ) -> None:
        if durability not in ("process", "power", "memory"):
            raise ParameterError(f'durability must be "process", "power" or "memory", got {durability!r}')
        if detached and (durability == "memory" or transport is not None or disk is not None):
            raise ParameterError(
                "detached=True starts a process that reads `state` and sends to `url`, so it cannot be combined with "
                'durability="memory", transport or disk: omit one of them'
            )
        self._definitions = definitions if isinstance(definitions, Definitions) else load_definitions(definitions)
        ca_certs = check_ca_certs(ca_certs)
        self._policy = instance_or_default("policy", policy, Policy)
        self._limits = instance_or_default("limits", limits, Limits)
        settings = environment_settings(os.environ if environment is None else environment)
        for warning in settings.warnings:
            log(logging.WARNING, "%s", warning)
        if settings.url is not None:
            log(logging.INFO, "HUBBUB_URL is set: reports are sent to %s", settings.url)
            url = settings.url
        self._environment_allows = settings.consent
        self._debug: DebugMode | None = None
        if settings.is_debug:
            from hubbub.sdk.transparency.debug_mode import DebugMode

            log(
                logging.WARNING, "HUBBUB_DEBUG is set: the state is temporary, and no report is sent to another machine"
            )
            self._debug = DebugMode(url, ca_certs)
            _debugged_clients.append(self)
            transport, disk, detached = self._debug.transport, None, False
            if self._debug.directory is None:
                durability = "memory"
            else:
                state = self._debug.directory
        if transport is None:
            from hubbub.sdk.upload.transport import HttpTransport

            transport = HttpTransport(url, ca_certs)
        self._transport = transport
        self._url, self._ca_certs = url, ca_certs
        self._detached, self._sends_at_start = detached, False
        if detached:
            from hubbub.sdk.upload.detached import can_detach

            self._detached = can_detach()
            self._sends_at_start = not self._detached
        self._directory = absolute("state", state)
        self._durability = durability
        self._per_subject = per_subject
        self._renew_identity = renew_identity_when_copied
        self._machine_id = machine_id if durability != "memory" else lambda: None
        self._clock = clock
        self._random_bytes = random_bytes
        self._given_disk = disk
        self._async_worker = AsyncWorker()
        self._parts = self._build()
        register(self)
        call_safely(self._resume, None)
        if self._parts.journal.problem:
            warnings.warn(
                "hubbub cannot use its state directory and will not persist or send reports: "
                f"{self._parts.journal.problem}",
                RuntimeWarning,
                stacklevel=2,
            )

    def _build(self) -> Collaborators:
        """Build the collaborators, and hand each to those that need it."""
        from hubbub.sdk.upload.sender import Sender
        from hubbub.sdk.upload.uploader import Uploader

        definitions, random_bytes = self._definitions, self._random_bytes
        disk = self._given_disk or (MemoryDisk() if self._durability == "memory" else SystemDisk())
        journal = Journal(self._directory, disk)
        compactor = Compactor(journal, disk)
        secret_file = SecretFile(journal, disk, random_bytes)
        today, limit = PeriodClock(self._clock), ConsentLimit(self._environment_allows)
        lease = DefinitionLease(self._directory, disk, (metric.digest for metric in definitions.values()))
        encoders = SubjectEncoders(journal, secret_file.load, random_bytes)
        enrollment = Enrollment(
            journal, definitions, self._policy, today, include_client=not self._per_subject, lease=lease
        )
        builder = BatchBuilder(
            journal, definitions, encoders, enrollment, today, limits=self._limits, random_bytes=random_bytes
        )
        recorder = Recorder(journal, definitions, encoders, enrollment, builder, today, limit, random_bytes)
        copies = CopyDetector(journal, secret_file, self._machine_id, renew=self._renew_identity)
        consent_manager = ConsentManager(
            journal,
            compactor,
            secret_file,
            encoders,
            enrollment,
            builder,
            copies,
            limit,
            self._clock,
            before_change=recorder.before_consent_change,
        )
        sender = Sender(
            journal,
            self._transport,
            disk=disk,
            clock=self._clock,
            random_bytes=random_bytes,
            limit=limit,
            prepare=recorder.prepare_upload,
            sends_after=DETACHED_SEND_DELAY_SECONDS if self._detached else 0.0,
            hurries=self._sends_at_start,
        )
        uploader = Uploader(journal, compactor, sender)
        return Collaborators(
            disk, journal, compactor, encoders, enrollment, builder, recorder, limit, consent_manager, sender, uploader
        )

    def record(self, metric: str, value: Value | JointValue = None) -> None:
        """Record a value; returns at once and never raises.

        Of several recordings in a period one is reported, each with the same probability. None means "no value". A recording that is
        ignored (unknown metric, wrong type, no consent, spent budget) is counted in `accounting()`.
        """
        self._record(None, metric, value)

    async def arecord(self, metric: str, value: Value | JointValue = None) -> None:
        """Record from asyncio, in a dedicated thread, so that the event loop never waits for a disk. Never raises, like `record`."""
        await self._async_worker.run(self._record, None, metric, value)

    def subject(self, subject_id: str) -> Subject:
        """Return the recorder of one of many people, with their own secret, cohort, drafts and ledger.

        Servers must use this: a client counts as one person and sends one report per metric and period.
        The id is not stored, only a keyed hash of it.
        """
        return Subject(self, check_subject_id(subject_id))

    @property
    def consent(self) -> ConsentRecord:
        """Consent of the user (level, text, time), and the effective level in this process."""
        return self._parts.journal.run(self._consent)

    def set_consent(self, consent: Consent | Literal["off", "local", "on"], text: str = "") -> bool:
        """Save the consent of the user and the text they read; return whether the disk saved all of it.

        `on`    : the client sends one report per metric and period, of values recorded under `on`.
        `local` : the client builds reports and keeps them on this device for inspection. It never sends them: `on` drops them
                  (`dropped["local"]` of `accounting()`). They cost no budget.
        `off`   : deletes queued batches, drafts and the secret for every process that shares `state`. The ledger is kept, because reports
                  already sent still count against the budget. `on` afterwards creates a new secret.

        If the disk cannot save or delete a part, a RuntimeWarning names it. The new level holds in this process nevertheless: after `off`
        neither it nor its children send anything. Call `set_consent` again when the disk works.
        """
        if consent not in tuple(Consent):
            raise ParameterError(f"consent must be one of {', '.join(Consent)}, got {consent!r}")
        text = check_consent_text(text)
        missing = call_safely(
            lambda: self._set_consent(Consent(consent), text), ["an internal error occurred, see the log"]
        )
        if missing and consent != Consent.ON:
            warnings.warn(
                f"consent is {consent} in this process, but not all of it was saved: {'; '.join(missing)}. Call set_consent again when the "
                "disk works",
                RuntimeWarning,
                stacklevel=2,
            )
        return not missing

    def flush(self, timeout: float) -> bool:
        """Wait until all due reports are delivered, at most `timeout` seconds; return whether they are.

        A report is due after its period has ended and its random send time has passed.
        """
        seconds = check_timeout(timeout)
        return call_safely(lambda: self._parts.uploader.flush(seconds), otherwise=False)

    def close(self) -> None:
        """Stop the background thread. Nothing is lost: the next start continues."""
        call_safely(self._close, None)

    def accounting(self) -> dict[str, Any]:
        """Return the counters of recordings and reports; both identities of `hubbub.sdk.storage.state` hold."""
        return self._parts.journal.run(self._parts.recorder.accounting)

    def inspect(self, last: int = 1) -> dict[str, Any]:
        """Return the output of `hubbub inspect --json --last LAST`: consent, queued batches, bodies of the last batches sent (at most 10).

        For an app's settings page. Reads the files without waiting for the directory's lock; never raises.
        """
        return self._report(lambda state: inspection_report(state, last))

    def inspect_html(self, last: int = 10) -> str:
        """Return the page of `hubbub inspect --html`: consent, who can learn what, budget, reports held, the last `last` batches sent.

        For an app's settings page: one self-contained HTML document without scripts. Reads the files without waiting for the directory's
        lock; never raises. After an internal error, the log has it and the page is empty: a page that says "nothing is held" could be wrong.
        """

        def page() -> str:
            from hubbub.sdk.transparency.state_page import state_page
            from hubbub.sdk.upload.transport import HttpTransport

            url = self._url if isinstance(self._transport, HttpTransport) else None
            return self._build_report(
                lambda state: state_page(state, last=last, definitions=self._definitions, url=url)
            )

        return call_safely(page, otherwise="")

    def ledger(self) -> dict[str, Any]:
        """Return the output of `hubbub ledger --json`: epsilon spent and reserved, by metric definition.

        For an app's settings page. Reads the files without waiting for the directory's lock; never raises.
        """
        return self._report(ledger_report)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _consent(self, state: State) -> ConsentRecord:
        time = datetime.fromtimestamp(state.consent_time, UTC) if state.consent_time else None
        return ConsentRecord(state.consent, state.consent_text, time, self._parts.limit.effective(state.consent))

    def _report(self, report: Callable[[State], T]) -> T:
        return call_safely(lambda: self._build_report(report), report(State()))

    def _build_report(self, report: Callable[[State], T]) -> T:
        """Report on the files; without files, or if the disk refused events, on the state in memory."""
        parts = self._parts
        if isinstance(parts.disk, SystemDisk) and not parts.journal.problem:
            with suppress(HubbubError):
                return report(read_state(self._directory))
        return parts.journal.run(report)

    def _record(self, subject_id: str | None, metric: str, value: Value | JointValue) -> None:
        try:
            parts = self._parts
            if parts.limit.allowed is Consent.OFF and self._debug is None:
                parts.recorder.ignore("consent")
                return
            if subject_id is None and self._per_subject:
                parts.recorder.ignore_wrong_call(
                    "this client is per_subject: call client.subject(id).record(...) instead of client.record(...)"
                )
                return
            if holds_journal():
                parts.recorder.postpone(subject_id, metric, value)
                if parts.uploader.is_started:
                    parts.uploader.wake()
                return
            if self._take(subject_id, metric, value) is Consent.OFF:
                return
            if self._durability == "power":
                parts.journal.sync()
            parts.uploader.wake()
        except Exception as failure:  # noqa: BLE001  (the contract: `record` never raises into its host)
            report_failure(failure)

    def _take(self, subject_id: str | None, metric: str, value: Value | JointValue) -> Consent:
        """Take one recording; return the saved consent. In debug mode, print its report."""
        parts = self._parts
        if self._debug is None:
            return parts.journal.run(parts.recorder.take, subject_id, metric, value)
        from hubbub.sdk.transparency.debug_mode import print_line, record_and_describe

        consent, text = parts.journal.run(
            record_and_describe, parts.recorder, parts.encoders, self._definitions, subject_id, metric, value
        )
        print_line(text)
        return consent

    def _resume(self) -> None:
        """Build the reports of the periods since the last run, and continue to send."""
        parts = self._parts
        if parts.limit.allowed is Consent.OFF:
            return
        parts.consent_manager.finish_erasure()
        consented, detaching = parts.journal.run(self._begin)
        if consented:
            parts.uploader.start()
        if detaching:
            from hubbub.sdk.upload.detached import detach

            detach(self._directory, self._url, self._ca_certs)

    def _begin(self, state: State) -> tuple[bool, bool]:
        """Enroll if consent was given; return whether it was, and whether another process must be started to send."""
        if state.consent is Consent.OFF:
            return False, False
        self._parts.consent_manager.enroll(state)
        if not self._detached or self._parts.limit.effective(state.consent) is not Consent.ON:
            return True, False
        from hubbub.sdk.upload.detached import claim_daily_run

        return True, claim_daily_run(self._parts.journal, state, self._clock().timestamp())

    def _set_consent(self, consent: Consent, text: str) -> list[str]:
        """Change the consent; return one message for each part that the disk refused."""
        if consent is Consent.OFF:
            return self._parts.consent_manager.withdraw(text)
        missing = self._parts.consent_manager.grant(consent, text)
        self._parts.uploader.wake()
        return missing

    def _close(self) -> None:
        self._async_worker.close()
        self._send_in_debug_mode()
        parts = self._parts
        parts.uploader.stop()
        parts.sender.close()
        if parts.journal.has_unsynced:
            parts.journal.sync()
        parts.enrollment.release_lease()
        parts.journal.close()

    def _send_in_debug_mode(self) -> None:
        """In debug mode, send the reports of the current periods now."""
        parts = self._parts
        if self._debug is not None and parts.limit.allowed is not Consent.OFF:
            from hubbub.sdk.upload.immediate import send_all_now

            send_all_now(parts.journal, parts.recorder, parts.builder, parts.sender, DEBUG_SEND_SECONDS)

    def _stop(self) -> None:
        """At exit: end the upload thread."""
        call_safely(self._send_in_debug_mode, None)
        self._parts.uploader.stop()
        if self._debug is not None:
            self._debug.delete_state()

    def _freeze(self) -> HeldSection:
        """Before a fork: hold the journal's lock, so that no thread changes it meanwhile."""
        return self._parts.journal.freeze()

    def _after_fork_in_child(self) -> None:
        """After a fork: open files and locks anew; the next recording starts a thread."""
        self._async_worker = AsyncWorker()
        self._parts.uploader.after_fork_in_child()
        if self._durability == "memory":
            self._parts = self._build()  # the parent keeps the reports in memory: the child is a client of its own
        else:
            self._parts.journal.after_fork_in_child()
            self._parts.compactor.after_fork_in_child()
            self._parts.enrollment.after_fork_in_child()

    def __del__(self) -> None:
        parts = getattr(self, "_parts", None)
        if parts is not None:
            parts.uploader.end()

    def __repr__(self) -> str:
        return f"<hubbub.Client {str(self._directory)!r}>"


class Subject:
    """Recorder of one of the people that a server reports for, see `Client.subject`."""

    __slots__ = ("_client", "_id")

    def __init__(self, client: Client, subject_id: str) -> None:
        self._client = client
        self._id = subject_id

    def record(self, metric: str, value: Value | JointValue = None) -> None:
        """Record a value of this subject, like `Client.record`."""
        self._client._record(self._id, metric, value)

    async def arecord(self, metric: str, value: Value | JointValue = None) -> None:
        """Record a value of this subject from asyncio, like `Client.arecord`."""
        await self._client._async_worker.run(self._client._record, self._id, metric, value)

    def __repr__(self) -> str:
        return "<hubbub.Subject>"


def collaborators(client: Client) -> Collaborators:
    """Objects that a client is built of. Internal: for `hubbub.testing` and for tests."""
    return client._parts


def _stop_at_exit() -> None:
    for client in registered_clients():
        if isinstance(client, Client):
            client._stop()


atexit.register(_stop_at_exit)
