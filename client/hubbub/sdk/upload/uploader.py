"""Upload thread: syncs recordings, builds and sends due batches, and starts the thread that compacts the journal."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue

from hubbub.sdk.runtime.error_guard import call_safely
from hubbub.sdk.storage.compaction import Compactor
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.upload.sender import LEASE_RETRY_SECONDS, MAX_SLEEP_SECONDS, Sender

SYNC_WITHIN_SECONDS = 0.5
EXIT_TIMEOUT_SECONDS = 0.05


class Uploader:
    """The upload thread of a client: started by the first call that needs it, stopped by `stop`, started again on demand."""

    def __init__(self, journal: Journal, compactor: Compactor, sender: Sender) -> None:
        self._journal = journal
        self._compactor = compactor
        self._sender = sender
        self._starting = threading.RLock()
        self._loop: UploadLoop | None = None

    @property
    def is_started(self) -> bool:
        """Whether the thread was started and not stopped since."""
        return self._loop is not None

    def start(self) -> UploadLoop:
        """Start the thread, unless it is started; return its loop."""
        with self._starting:
            if self._loop is None:
                self._sender.begin()
                loop = UploadLoop(self._journal, self._compactor, self._sender)
                try:
                    loop.start()
                    self._loop = loop
                except BaseException:  # a signal handler's exception; the thread may have begun
                    self._loop = None
                    loop.end()
                    raise
            return self._loop

    def wake(self) -> None:
        """Report a write: the thread makes it durable within `SYNC_WITHIN_SECONDS`."""
        (self._loop or self.start()).wake()

    def flush(self, timeout: float) -> bool:
        """Wait until no batch is due, at most `timeout` seconds; return whether none is."""
        return self.start().flush(timeout)

    def stop(self, timeout: float = EXIT_TIMEOUT_SECONDS) -> None:
        """End the thread and wait for it, at most `timeout` seconds. Data on disk is safe if it does not end in time."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.stop(timeout)

    def end(self) -> None:
        """Ask the thread to end. Takes no lock, so a finalizer may call it."""
        if self._loop is not None:
            self._loop.end()

    def after_fork_in_child(self) -> None:
        """Forget the parent's thread, which does not exist in the child."""
        self._starting = threading.RLock()
        self._loop = None
        self._sender.after_fork_in_child()


class UploadLoop:
    """One run of the upload thread: calls `Sender.attempt` when woken and when a batch is due."""

    def __init__(self, journal: Journal, compactor: Compactor, sender: Sender) -> None:
        self._journal = journal
        self._compactor = compactor
        self._sender = sender
        self._wakeups: SimpleQueue[None] = SimpleQueue()
        self._flush_requested = self._dirty = self._stopped = False
        self._rounds_begun = self._rounds_ended = 0
        self._flushes: list[SimpleQueue[None]] = []
        self._pause = 0.0
        self._thread: threading.Thread | None = None
        self._compacting: threading.Thread | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start the thread, unless it runs. At the interpreter's end a new thread would never begin, so none is started."""
        if not self.is_alive and not sys.is_finalizing():
            self._stopped = False
            self._thread = threading.Thread(target=self._run, name="hubbub", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the interpreter is shutting down; the next start continues with the data on disk
                self._thread = None

    def wake(self) -> None:
        """Report a write."""
        if not self._dirty:
            self._dirty = True
            self._wakeups.put(None)

    def flush(self, timeout: float) -> bool:
        """Wait until no batch is due, at most `timeout` seconds; return whether none is."""
        deadline = time.monotonic() + timeout
        self._sender.hurry()
        self.start()
        wanted, ended = self._rounds_begun + 1, SimpleQueue[None]()
        self._flushes.append(ended)
        try:
            while self._rounds_ended < wanted or self._pause == 0:
                self._flush_requested = True
                self._wakeups.put(None)
                left = deadline - time.monotonic()
                if left <= 0 or self._thread is None:
                    return False
                with suppress(Empty):
                    ended.get(timeout=left)
            return not self._sender.overdue
        finally:
            self._flushes.remove(ended)

    def stop(self, timeout: float) -> None:
        """Ask the thread to end; wait for it and for a compaction, at most `timeout` seconds."""
        deadline = time.monotonic() + timeout
        self.end()
        for name in ("_thread", "_compacting"):  # the first may start the second
            thread: threading.Thread | None = getattr(self, name)
            if thread is not None and thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def end(self) -> None:
        """Ask the thread to end. Takes no lock, so a finalizer may call it."""
        self._stopped = True
        self._wakeups.put(None)

    def _run(self) -> None:
        while not self._stopped:
            self._flush_requested = self._dirty = False
            self._rounds_begun += 1
            pause = call_safely(self._round, LEASE_RETRY_SECONDS)
            self._pause, self._rounds_ended = pause, self._rounds_begun
            for ended in tuple(self._flushes):
                ended.put(None)
            self._sleep(min(pause, MAX_SLEEP_SECONDS))
        self._sender.close()
        self._journal.close()

    def _sleep(self, seconds: float) -> None:
        """Wait for a flush or the end; after a write at most `SYNC_WITHIN_SECONDS` more."""
        until, noticed = time.monotonic() + seconds, False
        while not (self._flush_requested or self._stopped):
            if self._dirty and not noticed:
                until, noticed = time.monotonic() + SYNC_WITHIN_SECONDS, True
            try:
                self._wakeups.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                return

    def _round(self) -> float:
        if self._journal.has_unsynced:
            self._journal.sync()
        pause = self._sender.attempt()
        self._start_compactor()
        return pause

    def _start_compactor(self) -> None:
        """Compact in another thread, so that this one continues to sync and send."""
        if self._compactor.is_due() and (self._compacting is None or not self._compacting.is_alive()):
            compact = partial(call_safely, self._compactor.compact, False)
            self._compacting = threading.Thread(target=compact, name="hubbub-compactor", daemon=True)
            self._compacting.start()
