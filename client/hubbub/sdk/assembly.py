"""Assembly of a client: what it uses of the outside, and the objects that it is built of."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from hubbub.metrics.periods import utc_now
from hubbub.randomness import RandomBytes, system_random_bytes
from hubbub.sdk.configuration import Configuration
from hubbub.sdk.recording.backlog import Backlog
from hubbub.sdk.recording.batch_builder import BatchBuilder
from hubbub.sdk.recording.consent_changes import ConsentLimit, ConsentManager
from hubbub.sdk.recording.enrollment import Enrollment
from hubbub.sdk.recording.recorder import Recorder
from hubbub.sdk.recording.subject_encoders import SubjectEncoders
from hubbub.sdk.runtime.clock import PeriodClock
from hubbub.sdk.runtime.process import Process, this_process
from hubbub.sdk.runtime.threads import AsyncWorker
from hubbub.sdk.storage.compaction import Compactor
from hubbub.sdk.storage.copy_detection import CopyDetector, MachineIdReader, read_machine_id
from hubbub.sdk.storage.filesystem import Disk, MemoryDisk, MissingDisk, SystemDisk, close_inherited
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.storage.secret_file import SecretFile
from hubbub.sdk.storage.state import State
from hubbub.sdk.upload.transport import HttpTransport, Transport
from hubbub.sdk.upload.uploader import EXIT_TIMEOUT_SECONDS, Sender, Uploader

DETACHED_SEND_DELAY_SECONDS = 60.0
EXIT_WAIT_SECONDS = 1.0
"""Longest wait of a program's end for another process, if recordings would be lost otherwise."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Collaborators:
    """Objects that a client is built of, one per concern.

    Internal: for `hubbub.testing` and for tests that need more of a client than its public methods, see `hubbub.client.collaborators`.

    process    : process that built them: a forked child inherits locks that may never open, threads that do not run, and files whose locks
                 do not exclude the parent
    lock_type  : `threading.Lock` when they were built: gevent and eventlet replace it, and a lock of the other kind blocks all greenlets
    detaches   : whether a detached process sends the reports
    successors : what replaced them, by the same two things
    """

    process: Process
    lock_type: object
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
    async_worker: AsyncWorker
    detaches: bool
    successors: dict[tuple[Process, object], Collaborators] = field(default_factory=dict)

    @property
    def is_current(self) -> bool:
        """Whether this process, with its threads of today, built them."""
        return self.process is this_process() and self.lock_type is threading.Lock

    def rebuild(self, configuration: Configuration, seams: AllSeams) -> Collaborators:
        """Return the objects that replace these in this process. It takes no lock, and all threads get the same ones."""
        close_inherited()
        key = this_process(), threading.Lock
        return self.successors.setdefault(key, build(configuration, seams, self._inheritance(configuration, seams)))

    def _inheritance(self, configuration: Configuration, seams: AllSeams) -> Inheritance:
        """Return what those that replace these take over: in a forked child only the limit, so a withdrawal of consent holds there, too."""
        if self.process is this_process():
            return Inheritance(self.limit, self.disk, self.recorder.backlog, self.builder.notes_runs)
        new = Inheritance.of_new_client(configuration, seams)
        return replace(new, limit=self.limit, notes_runs=configuration.is_in_memory)

    def save_at_exit(self) -> None:
        """Save what is in memory. Counts wait for another process no longer than for the upload thread, recordings a second."""
        has_recordings = bool(self.recorder.backlog.recordings)
        self.journal.limit_last_wait(EXIT_WAIT_SECONDS if has_recordings else EXIT_TIMEOUT_SECONDS)
        self.recorder.drain()

    def close(self) -> None:
        """End the upload thread, save what is in memory, and close the files."""
        self.uploader.stop()
        self.recorder.drain()
        self._close_files()

    def retire(self) -> None:
        """End what `rebuild` replaced in this process. Its successors have what waits in memory."""
        self.uploader.stop()
        self.journal.limit_wait(EXIT_TIMEOUT_SECONDS)
        self._close_files()

    def _close_files(self) -> None:
        self.sender.close()
        if self.journal.has_unsynced:
            self.journal.sync()
        self.journal.close()

    def send_all_now(self, seconds: float = math.inf) -> int:
        """End every period now and send all reports, without their random delays; return the number of attempted uploads.

        Later recordings belong to the next period.

        seconds : no upload is started after this time
        """
        deadline = time.monotonic() + seconds
        batch_ids = self.journal.run(self._end_periods)
        return sum(self.sender.send_now(batch_id) for batch_id in batch_ids if time.monotonic() < deadline)

    def _end_periods(self, state: State) -> list[str]:
        self.recorder.record_waiting(state)
        if not self.journal.is_outdated:
            self.builder.build_all(state, include_open_periods=True)
        return list(state.queue)


@dataclass(frozen=True, kw_only=True, slots=True)
class Seams:
    """What an app's tests replace of what a client uses of the outside.

    Parameters
    ----------
    transport
        Connection to the aggregator. None: HTTP to the URL of the client.
    clock
        Function that returns the current time, with its time zone.
    random_bytes
        Randomness of the noise.

    Examples
    --------
    >>> from datetime import date
    >>> from hubbub.testing import ManualClock, RecordingTransport
    >>> seams = Seams(clock=ManualClock(date(2026, 11, 21)), transport=RecordingTransport())
    """

    transport: Transport | None = None
    clock: Callable[[], datetime] = utc_now
    random_bytes: RandomBytes = system_random_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class AllSeams(Seams):
    """Also what only debug mode and the tests of hubbub replace.

    disk         : None: the machine's file system, or memory (`Configuration.is_in_memory`)
    machine_id   : identity of the machine
    recorder     : class of the recorder
    before_stop  : called before the upload thread ends: at `close` and at the end of the program
    at_exit      : called at the end of the program, after the upload thread has ended
    """

    disk: Disk | None = None
    machine_id: MachineIdReader = read_machine_id
    recorder: type[Recorder] = Recorder
    before_stop: Callable[[Collaborators], object] = lambda _: None
    at_exit: Callable[[], object] = lambda: None

    @classmethod
    def of(cls, seams: Seams) -> AllSeams:
        """Return the seams of a client with those that its app chose."""
        if isinstance(seams, cls):
            return seams
        return cls(transport=seams.transport, clock=seams.clock, random_bytes=seams.random_bytes)

    def disk_of(self, configuration: Configuration) -> Disk:
        """Return the disk of a client's state."""
        if self.disk is not None:
            return self.disk
        if configuration.is_in_memory:
            return MemoryDisk()
        return MissingDisk(configuration.unresolved) if configuration.unresolved else SystemDisk()

    def transport_of(self, configuration: Configuration) -> Transport:
        """Return the connection to the aggregator."""
        if self.transport is not None:
            return self.transport
        return HttpTransport(configuration.url, configuration.ca_certs, configuration.authorization)


@dataclass(frozen=True, slots=True)
class Inheritance:
    """What the collaborators of a client take over from those that they replace.

    limit      : highest consent level of this process
    disk       : where the state is
    backlog    : what waits in memory
    notes_runs : whether this process was started, and not forked, or has a state of its own
    """

    limit: ConsentLimit
    disk: Disk
    backlog: Backlog
    notes_runs: bool

    @classmethod
    def of_new_client(cls, configuration: Configuration, seams: AllSeams) -> Inheritance:
        """Return what the collaborators of a new client begin with."""
        return cls(ConsentLimit(configuration.consent_limit), seams.disk_of(configuration), Backlog(), notes_runs=True)


def build(configuration: Configuration, seams: AllSeams, inherited: Inheritance | None = None) -> Collaborators:
    """Build the collaborators of a client, and hand each to those that need it.

    inherited : what they take over; None for a new client
    """
    definitions, random_bytes, clock = configuration.definitions, seams.random_bytes, seams.clock
    inherited = inherited or Inheritance.of_new_client(configuration, seams)
    disk, limit, today = inherited.disk, inherited.limit, PeriodClock(clock)
    journal = Journal(configuration.directory, disk)
    compactor = Compactor(journal, disk)
    secret_file = SecretFile(journal, disk, random_bytes)
    encoders = SubjectEncoders(journal, secret_file.load, random_bytes)
    enrollment = Enrollment(
        journal, definitions, configuration.policy, today, include_client=not configuration.per_subject
    )
    builder = BatchBuilder(
        journal,
        definitions,
        encoders,
        enrollment,
        today,
        labels=configuration.groups,
        limits=configuration.limits,
        random_bytes=random_bytes,
        notes_runs=inherited.notes_runs,
    )
    recorder = seams.recorder(
        journal, definitions, encoders, enrollment, builder, today, limit, random_bytes, inherited.backlog
    )
    machine_id = (lambda: None) if configuration.is_in_memory else seams.machine_id
    copies = CopyDetector(journal, secret_file, machine_id, renew=configuration.renew_identity_when_copied)
    consent_manager = ConsentManager(
        journal,
        compactor,
        secret_file,
        encoders,
        enrollment,
        builder,
        copies,
        limit,
        clock,
        before_change=recorder.before_consent_change,
    )
    detaches = _detaches(configuration)
    sender = _sender(configuration, seams, inherited, journal, recorder, detaches=detaches)
    return Collaborators(
        this_process(),
        threading.Lock,
        disk,
        journal,
        compactor,
        encoders,
        enrollment,
        builder,
        recorder,
        limit,
        consent_manager,
        sender,
        Uploader(journal, compactor, sender, recorder.drain),
        AsyncWorker(),
        detaches,
    )


def _detaches(configuration: Configuration) -> bool:
    """Return whether a detached process sends the reports."""
    if not configuration.detached:
        return False
    from hubbub.sdk.upload.detached import can_detach  # it imports subprocess, which other clients do not need

    return can_detach()


def _sender(
    configuration: Configuration,
    seams: AllSeams,
    inherited: Inheritance,
    journal: Journal,
    recorder: Recorder,
    *,
    detaches: bool,
) -> Sender:
    """Return the sender: it leaves the first minute to a detached process, and hurries where none can be started."""
    return Sender(
        journal,
        seams.transport_of(configuration),
        disk=inherited.disk,
        clock=seams.clock,
        random_bytes=seams.random_bytes,
        limit=inherited.limit,
        prepare=recorder.prepare_upload,
        sends_after=DETACHED_SEND_DELAY_SECONDS if detaches else 0.0,
        hurries=configuration.detached and not detaches,
    )
