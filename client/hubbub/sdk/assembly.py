"""Assembly of a client: what it uses of the outside, and the objects that it is built of."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
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
        return self.successors.setdefault(key, build(configuration, seams, self))

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


def build(configuration: Configuration, seams: AllSeams, before: Collaborators | None = None) -> Collaborators:
    """Build the collaborators of a client, and hand each to those that need it.

    before : those that they replace. A withdrawal of consent holds here, too; in the same process they share what waits in memory
    """
    is_forked = before is not None and before.process is not this_process()
    definitions, random_bytes, clock = configuration.definitions, seams.random_bytes, seams.clock
    in_memory = configuration.is_in_memory
    disk = seams.disk or (MemoryDisk() if in_memory else _system_disk(configuration.unresolved))
    if before is not None and not is_forked:
        disk = before.disk
    journal = Journal(configuration.directory, disk)
    compactor = Compactor(journal, disk)
    secret_file = SecretFile(journal, disk, random_bytes)
    today, limit = PeriodClock(clock), ConsentLimit(configuration.consent_limit) if before is None else before.limit
    encoders = SubjectEncoders(journal, secret_file.load, random_bytes)
    enrollment = Enrollment(
        journal,
        definitions,
        configuration.policy,
        today,
        include_client=not configuration.per_subject,
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
        notes_runs=in_memory or before is None or (not is_forked and before.builder.notes_runs),
    )
    backlog = Backlog() if before is None or is_forked else before.recorder.backlog
    recorder = seams.recorder(journal, definitions, encoders, enrollment, builder, today, limit, random_bytes, backlog)
    machine_id = (lambda: None) if in_memory else seams.machine_id
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
    detaches = configuration.detached and _can_detach()
    sender = Sender(
        journal,
        seams.transport or HttpTransport(configuration.url, configuration.ca_certs, configuration.authorization),
        disk=disk,
        clock=clock,
        random_bytes=random_bytes,
        limit=limit,
        prepare=recorder.prepare_upload,
        sends_after=DETACHED_SEND_DELAY_SECONDS if detaches else 0.0,
        hurries=configuration.detached and not detaches,
    )
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


def _system_disk(unresolved: str) -> Disk:
    return MissingDisk(unresolved) if unresolved else SystemDisk()


def _can_detach() -> bool:
    from hubbub.sdk.upload.detached import can_detach  # it imports subprocess, which other clients do not need

    return can_detach()
