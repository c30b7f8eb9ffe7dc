"""The background thread: makes recordings durable, forms what is over, sends what is due, starts another that compacts."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue

from hubbub.sdk.runtime.error_guard import guarded
from hubbub.sdk.storage.compaction import Compactor
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.upload.sender import LONGEST_SLEEP, OTHER_SENDS, Sender

SYNC_WITHIN = 0.5


class Uploader:
    """Runs the attempts of a `sender`, whenever somebody asks or something is due."""

    def __init__(self, journal: Journal, compactor: Compactor, sender: Sender) -> None:
        self._journal = journal
        self._compactor = compactor
        self.sender = sender
        self._calls: SimpleQueue[None] = SimpleQueue()
        self._asked = self._dirty = self._stopped = False
        self._begun = self._ended = 0
        self._waiting: list[SimpleQueue[None]] = []
        self._pause = 0.0
        self._thread: threading.Thread | None = None
        self._compacting: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, if it does not run."""
        if self._thread is None or not self._thread.is_alive():
            self._stopped = False
            self._thread = threading.Thread(target=self._run, name="hubbub", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the interpreter is shutting down; what is on disk waits for the next start
                self._thread = None

    def wake(self) -> None:
        """Say that something was written; within half a second it is made durable."""
        if not self._dirty:
            self._dirty = True
            self._calls.put(None)

    def flush(self, timeout: float) -> bool:
        """Wait until nothing that is due waits any more, at most so many seconds; return whether that is so."""
        deadline = time.monotonic() + timeout
        self.sender.sends_from, self.sender.hurry = 0.0, True
        self.start()
        wanted, ended = self._begun + 1, SimpleQueue[None]()
        self._waiting.append(ended)
        try:
            while self._ended < wanted or self._pause == 0:
                self._asked = True
                self._calls.put(None)
                left = deadline - time.monotonic()
                if left <= 0 or self._thread is None:
                    return False
                with suppress(Empty):
                    ended.get(timeout=left)
            return not self.sender.overdue
        finally:
            self._waiting.remove(ended)

    def stop(self, timeout: float) -> None:
        """Ask the thread to end and wait so many seconds, for a compaction too; what is on disk is safe without them."""
        deadline = time.monotonic() + timeout
        self.end()
        for name in ("_thread", "_compacting"):  # the first may start the second
            thread: threading.Thread | None = getattr(self, name)
            if thread is not None and thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def end(self) -> None:
        """Ask the thread to end; without a lock, for a finalizer may ask."""
        self._stopped = True
        self._calls.put(None)

    def _run(self) -> None:
        while not self._stopped:
            self._asked = self._dirty = False
            self._begun += 1
            pause = guarded(self._round, OTHER_SENDS)
            self._pause, self._ended = pause, self._begun
            for ended in tuple(self._waiting):
                ended.put(None)
            self._sleep(min(pause, LONGEST_SLEEP))
        self._journal.close()

    def _sleep(self, seconds: float) -> None:
        """Wait for somebody who asks; or, once something was written, a little for more of it."""
        until, noticed = time.monotonic() + seconds, False
        while not (self._asked or self._stopped):
            if self._dirty and not noticed:
                until, noticed = time.monotonic() + SYNC_WITHIN, True
            try:
                self._calls.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                return

    def _round(self) -> float:
        if self._journal.unsynced:
            self._journal.sync()
        pause = self.sender.attempt()
        self._start_compactor()
        return pause

    def _start_compactor(self) -> None:
        """Let another thread compact: syncing and sending go on."""
        if self._compactor.is_due() and (self._compacting is None or not self._compacting.is_alive()):
            compact = partial(guarded, self._compactor.compact, False)
            self._compacting = threading.Thread(target=compact, name="hubbub-compactor", daemon=True)
            self._compacting.start()
