"""`Client` and `Subject`: the public recording API. `record` returns at once and never raises.

record -> draft -> (its period ends) -> report, batch, ledger -> (a random time of the next period) -> upload
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from hubbub.consent import Consent, ConsentRecord
from hubbub.errors import HubbubError, ParameterError
from hubbub.files.posix import unsupported_platform
from hubbub.metrics.definitions import Definitions
from hubbub.metrics.kinds import JointValue, Value
from hubbub.metrics.periods import from_timestamp
from hubbub.privacy.policy import Policy
from hubbub.sdk.configuration import Durability, check_consent_text, check_subject_id, check_timeout, configure
from hubbub.sdk.recording.batch_builder import Limits
from hubbub.sdk.runtime.automation import sign_of_automation, sign_of_this_program
from hubbub.sdk.runtime.error_guard import call_safely, log, report_failure
from hubbub.sdk.runtime.process import Process, this_process
from hubbub.sdk.runtime.safe_logging import holds_journal
from hubbub.sdk.storage.state import Accounting, State

if TYPE_CHECKING:
    from hubbub.sdk.assembly import Collaborators, Seams
    from hubbub.sdk.transparency.state_reports import Inspection, Ledger

logging.getLogger("hubbub").addHandler(logging.NullHandler())

T = TypeVar("T")

debugged_clients: list[Client] = []
"""Clients in debug mode, kept until the exit hook has sent their reports."""

_clients: weakref.WeakSet[Client] = weakref.WeakSet()


class Client:
    """Telemetry client of one installation. All processes that share `state` are one client.

    Nothing is recorded before `set_consent("on")` or `set_consent("local")`. `state` keeps the consent. Methods raise
    only if they are called wrongly. On Windows the client is paused: it records, stores and sends nothing.

    Parameters
    ----------
    definitions
        TOML file of metric definitions, or the result of `load_definitions`.
    state
        Directory for the secret, the ledger and queued reports. It is created if it does not exist.
    url
        URL of the aggregator: https, or http to a loopback address.
    durability
        "process": `record` returns after the write, and data is fsynced within one second, and always before it is
        uploaded. "power": `record` returns after the fsync. "memory": nothing is written to disk, and every start is a
        new client with a new ledger.
    policy
        The largest epsilon that the client may spend. Only your code can change it. None: the default `Policy`.
    limits
        Limits on queued reports. None: the default `Limits`.
    groups
        Public labels of this app by the names of the groups of the definitions, such as ``{"version": "1.4.2"}``. They
        are sent in clear. A report has the label with which the app first ran in its period, or last ran before it if
        it did not run. A label must not depend on what is recorded.
    detached
        For programs that end at once. At most once a day a background process sends due reports, and this process
        sends only after it has run for a minute. A frozen program (PyInstaller) sends due reports itself, at its
        start.
    per_subject
        Disable `record` on the client itself. Use `subject(id).record`, for servers that report for many users.
    renew_identity_when_copied
        If `state` was used on another machine before, create a new secret, which spends epsilon again. By default the
        client warns once and keeps the secret.
    pause_when_automated
        Pause if the environment shows a runner of continuous integration or a test runner: record, store and send
        nothing, and leave consent as it is. False: count such runs too. A client with a transport for tests never pauses,
        nor one where `HUBBUB_CONSENT` is `on` or `local`.
    ca_certs
        File of certificates to trust instead of the system's.
    authorization
        Function that returns a report token, without "Bearer", for an aggregator with `--require-report-token`. It is
        called in a thread of its own, once for each request, and again after a 401. It may raise and block: the report
        then waits, and `inspect` has the reason. Tokens of up to 2,048 characters are padded to one length, and never
        stored or logged. A token that only one user has identifies all of this client's requests.
    environment
        Environment variables to read. None: those of the process; an empty mapping ignores them all.
    seams
        Replacements of the clock, the randomness and the network for tests, see `hubbub.testing.Seams`.

    Raises
    ------
    HubbubError
        The definitions, the URL or another argument is wrong.
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
        groups: Mapping[str, str] | None = None,
        detached: bool = False,
        per_subject: bool = False,
        renew_identity_when_copied: bool = False,
        pause_when_automated: bool = True,
        ca_certs: str | None = None,
        authorization: Callable[[], str] | None = None,
        environment: Mapping[str, str] | None = None,
        seams: Seams | None = None,
    ) -> None:
        from hubbub.sdk.assembly import AllSeams, build

        all_seams = AllSeams() if seams is None else AllSeams.of(seams)
        variables = os.environ if environment is None else environment
        automation = sign_of_automation(variables, sign_of_this_program() if environment is None else None)
        configuration = configure(
            definitions,
            state,
            url,
            variables,
            durability=durability,
            policy=policy,
            limits=limits,
            groups=groups,
            detached=detached,
            per_subject=per_subject,
            renew_identity_when_copied=renew_identity_when_copied,
            ca_certs=ca_certs,
            authorization=authorization,
            automation=automation if pause_when_automated and all_seams.transport is None else None,
            platform=unsupported_platform(),
            has_transport=all_seams.transport is not None,
            has_disk=all_seams.disk is not None,
        )
        if configuration.paused:
            all_seams = replace(all_seams, disk=None)
        for level, message in configuration.messages:
            log(level, "%s", message)
        if configuration.is_debug:
            from hubbub.sdk.transparency.debug_mode import debugged

            configuration, all_seams = debugged(configuration, all_seams)
            debugged_clients.append(self)
        self._configuration, self._seams = configuration, all_seams
        self._built = build(configuration, all_seams)
        _clients.add(self)
        call_safely(self._resume, None)

    def record(self, metric: str, value: Value | JointValue = None) -> None:
        """Record a value. The method returns at once and never raises.

        Of several recordings in a period one is reported, each with the same probability.

        Parameters
        ----------
        metric
            Name of the metric.
        value
            Value of the metric's kind. None means "no value".

        Notes
        -----
        A recording that is ignored (unknown metric, wrong type, no consent, spent budget) is counted in
        `accounting()`. One that finds the state in use for about 50 ms waits in memory, where a kill loses it.
        """
        self._record(None, metric, value)

    async def arecord(self, metric: str, value: Value | JointValue = None) -> None:
        """Record a value from asyncio, in a dedicated thread, so that the event loop never waits for a disk.

        Parameters
        ----------
        metric
            Name of the metric.
        value
            Value of the metric's kind. None means "no value".

        Notes
        -----
        It never raises, like `record`.
        """
        await self._parts.async_worker.run(self._record, None, metric, value)

    def subject(self, subject_id: str) -> Subject:
        """Return the recorder of one of many people, with their own secret, cohort, drafts and ledger.

        Servers must use this method, because a client counts as one person and sends one report per metric and period.

        Parameters
        ----------
        subject_id
            Stable id of the person. It is not stored, only a keyed hash of it.

        Returns
        -------
        Subject
            Recorder of this person.

        Raises
        ------
        ParameterError
            The id is not a string, or is empty.
        """
        return Subject(self, check_subject_id(subject_id))

    @property
    def consent(self) -> ConsentRecord:
        """Consent of the user (level, text, time), the effective level in this process, and why it is paused."""
        return self._report(self._consent) if self._configuration.paused else self._parts.journal.run(self._consent)

    def set_consent(self, consent: Consent | Literal["off", "local", "on"], text: str = "") -> bool:
        """Save the consent of the user and the text they read.

        Parameters
        ----------
        consent
            "on": the client sends one report per metric and period, of values recorded under "on". "local": the client
            builds reports and keeps them on this device for inspection. It never sends them, and they cost no budget;
            "on" drops them (`dropped["local"]` of `accounting()`). "off": queued batches, drafts and the secret are
            deleted for every process that shares `state`. The ledger is kept, because reports already sent still count
            against the budget. A later "on" creates a new secret.
        text
            Text that the user read, or its version.

        Returns
        -------
        bool
            Whether the disk saved all of it. It does not say that reports are sent: a variable such as DO_NOT_TRACK may
            lower the level. Show the user ``client.consent.effective``.

        Raises
        ------
        ParameterError
            The level is unknown, or the text is not a string of at most 65,536 characters.

        Notes
        -----
        If the disk cannot save or delete a part, a logged warning names it. The new level holds in this process
        nevertheless: after "off" neither it nor its children send anything. Call `set_consent` again when the disk
        works. A client that is paused saves "off" alone, and only if `state` holds a client's state; for other levels
        the result is False.
        """
        if consent not in tuple(Consent):
            raise ParameterError(f"consent must be one of {', '.join(Consent)}, got {consent!r}")
        text = check_consent_text(text)
        missing = call_safely(
            lambda: self._set_consent(Consent(consent), text), ["an internal error occurred, see the log"]
        )
        if missing and consent != Consent.ON and (consent == Consent.OFF or not self._configuration.paused):
            log(
                logging.WARNING,
                "consent is %s in this process, but not all of it was saved: %s. Call set_consent again when the disk works",
                consent,
                "; ".join(missing),
            )
        return not missing

    def flush(self, timeout: float) -> bool:
        """Wait until all due reports are delivered.

        A report is due after its period has ended and its random send time has passed.

        Parameters
        ----------
        timeout
            Longest time to wait, in seconds.

        Returns
        -------
        bool
            Whether all due reports are delivered.

        Raises
        ------
        ParameterError
            The timeout is not a number.
        """
        seconds = check_timeout(timeout)
        return call_safely(lambda: self._parts.uploader.flush(seconds), otherwise=False)

    def close(self) -> None:
        """Stop the background thread. Nothing is lost: the next start continues."""
        call_safely(self._close, None)

    def accounting(self) -> Accounting:
        """Return the counters of recordings and reports.

        Returns
        -------
        Accounting
            Counters of this client and all its subjects.
        """
        return self._parts.journal.run(self._parts.recorder.accounting)

    def inspect(self, last: int = 1) -> Inspection:
        """Return what `hubbub inspect` shows: consent, queued batches and the last bodies sent.

        It is made for an app's settings page. It reads the files without waiting for the directory's lock, and never
        raises.

        Parameters
        ----------
        last
            Number of bodies of the last batches sent, at most 10.

        Returns
        -------
        Inspection
            What the state directory holds.
        """
        from hubbub.sdk.transparency.state_reports import inspect_state

        inspection = self._report(lambda state: inspect_state(state, last))
        waiting = len(self._parts.recorder.backlog.recordings)
        return replace(inspection, accounting=replace(inspection.accounting, waiting=waiting))

    def inspect_html(self, last: int = 10) -> str:
        """Return the page of `hubbub inspect --html`, for an app's settings page.

        The page is one self-contained HTML document without scripts. It says who can learn what, and lists consent,
        budget, the reports held and the last batches sent. The method reads the files without waiting for the
        directory's lock, and never raises.

        Parameters
        ----------
        last
            Number of the last batches sent, at most 10.

        Returns
        -------
        str
            HTML document. After an internal error the log has the error and the page is empty, because a page that
            says "nothing is held" could be wrong.
        """

        def page() -> str:
            from hubbub.sdk.transparency.state_page import state_page

            configuration = self._configuration
            url = configuration.url if self._seams.transport is None else None
            return self._build_report(
                lambda state: state_page(state, last=last, definitions=configuration.definitions, url=url)
            )

        return call_safely(page, otherwise="")

    def ledger(self) -> Ledger:
        """Return the ledger that `hubbub inspect` shows: epsilon spent and reserved, by metric definition.

        It is made for an app's settings page. It reads the files without waiting for the directory's lock, and never
        raises.

        Returns
        -------
        Ledger
            Account of each metric definition and subject.
        """
        from hubbub.sdk.transparency.state_reports import ledger_of_state

        return self._report(ledger_of_state)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _parts(self) -> Collaborators:
        """The objects that the client is built of in this process. Every call begins here, before it touches a lock."""
        parts = self._built
        if parts.is_current:
            return parts
        self._built = parts.rebuild(self._configuration, self._seams)
        if parts.process is this_process():  # threads were replaced
            was_started = parts.uploader.is_started
            call_safely(parts.retire, None)
            if was_started:
                call_safely(self._built.uploader.start, None)
        return self._built

    def _consent(self, state: State) -> ConsentRecord:
        time = from_timestamp(state.consent_time) if state.consent_time else None
        effective = self._parts.limit.effective(state.consent)
        return ConsentRecord(state.consent, state.consent_text, time, effective, self._configuration.paused)

    def _report(self, report: Callable[[State], T]) -> T:
        return call_safely(lambda: self._build_report(report), report(State()))

    def _build_report(self, report: Callable[[State], T]) -> T:
        """Report on the files; without files, or if the disk refused events, on the state in memory."""
        from hubbub.sdk.storage.filesystem import SystemDisk
        from hubbub.sdk.storage.state_reader import read_state

        parts = self._parts
        if self._configuration.paused or (isinstance(parts.disk, SystemDisk) and not parts.journal.problem):
            with suppress(HubbubError):
                return report(read_state(self._configuration.directory))
        return parts.journal.run(report)

    def _record(self, subject_id: str | None, metric: str, value: Value | JointValue) -> None:
        try:
            parts = self._parts
            if parts.limit.allowed is Consent.OFF:
                parts.recorder.ignore("consent")
                return
            if subject_id is None and self._configuration.per_subject:
                parts.recorder.ignore_wrong_call(
                    "this client is per_subject: call client.subject(id).record(...) instead of client.record(...)"
                )
                return
            recorder = parts.recorder
            consent = None
            if not holds_journal():
                consent = parts.journal.run_within(recorder.wait_seconds, recorder.take, subject_id, metric, value)
            if consent is None:
                recorder.postpone(subject_id, metric, value)
                _save_at_exit_of_multiprocessing()
                if parts.journal.is_known_off or (holds_journal() and not parts.uploader.is_started):
                    return
            elif consent is Consent.OFF:
                return
            elif self._configuration.durability == "power":
                parts.journal.sync()
            parts.uploader.wake()
        except Exception as failure:  # noqa: BLE001  (the contract: `record` never raises into its host)
            report_failure(failure)

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

            detach(self._configuration.directory, self._configuration.url, self._configuration.ca_certs)

    def _begin(self, state: State) -> tuple[bool, bool]:
        """Enroll if consent was given; return whether it was, and whether another process must be started to send."""
        if state.consent is Consent.OFF:
            return False, False
        parts = self._parts
        parts.consent_manager.enroll(state)
        if not parts.detaches or parts.limit.effective(state.consent) is not Consent.ON:
            return True, False
        from hubbub.sdk.upload.detached import claim_daily_run

        return True, claim_daily_run(parts.journal, state, self._seams.clock().timestamp())

    def _set_consent(self, consent: Consent, text: str) -> list[str]:
        """Change the consent; return one message for each part that the disk refused."""
        if self._configuration.paused:
            return self._set_consent_when_paused(consent, text)
        if consent is Consent.OFF:
            return self._parts.consent_manager.withdraw(text)
        missing = self._parts.consent_manager.grant(consent, text)
        self._parts.uploader.wake()
        return missing

    def _set_consent_when_paused(self, consent: Consent, text: str) -> list[str]:
        """Save a withdrawal in a directory that holds a state, and nothing else."""
        refusal = [f"this process is paused, {self._configuration.paused}"]
        if consent is not Consent.OFF:
            return refusal
        from hubbub.sdk.assembly import build
        from hubbub.sdk.storage.events import JOURNAL, SNAPSHOT

        if not any((self._configuration.directory / name).exists() for name in (JOURNAL, SNAPSHOT)):
            return []
        if unsupported_platform():
            return refusal
        parts = build(replace(self._configuration, paused=""), self._seams)
        try:
            return parts.consent_manager.withdraw(text)
        finally:
            parts.journal.close()

    def _close(self) -> None:
        parts = self._parts
        parts.async_worker.close()
        self._seams.before_stop(parts)
        parts.close()

    def _stop(self) -> None:
        """At exit: end the upload thread."""
        call_safely(lambda: self._seams.before_stop(self._parts), None)
        self._parts.uploader.stop()
        call_safely(self._save_at_exit, None)
        self._seams.at_exit()

    def _save_at_exit(self) -> None:
        self._parts.save_at_exit()

    def __del__(self) -> None:
        parts = getattr(self, "_built", None)
        if parts is not None:
            parts.uploader.end()

    def __repr__(self) -> str:
        return f"<hubbub.Client {str(self._configuration.directory)!r}>"


class Subject:
    """Recorder of one of the people that a server reports for: the result of `Client.subject`.

    Parameters
    ----------
    client
        Client that sends the reports.
    subject_id
        Stable id of the person.
    """

    __slots__ = ("_client", "_id")

    def __init__(self, client: Client, subject_id: str) -> None:
        self._client = client
        self._id = subject_id

    def record(self, metric: str, value: Value | JointValue = None) -> None:
        """Record a value of this subject, like `Client.record`.

        Parameters
        ----------
        metric
            Name of the metric.
        value
            Value of the metric's kind. None means "no value".
        """
        self._client._record(self._id, metric, value)

    async def arecord(self, metric: str, value: Value | JointValue = None) -> None:
        """Record a value of this subject from asyncio, like `Client.arecord`.

        Parameters
        ----------
        metric
            Name of the metric.
        value
            Value of the metric's kind. None means "no value".
        """
        await self._client._parts.async_worker.run(self._client._record, self._id, metric, value)

    def __repr__(self) -> str:
        return "<hubbub.Subject>"


def collaborators(client: Client) -> Collaborators:
    """Objects that a client is built of. Internal: for `hubbub.testing` and for tests."""
    return client._parts


_saving_child: Process | None = None


def _save_at_exit_of_multiprocessing() -> None:
    """Save what waits when this child of multiprocessing ends, because it ends without the functions of `atexit`."""
    global _saving_child
    util, process = map(sys.modules.get, ("multiprocessing.util", "multiprocessing.process"))
    if util and process and process.parent_process() and _saving_child is not this_process():
        _saving_child = this_process()
        util.Finalize(None, _save_at_exit, exitpriority=-100)


def _save_at_exit() -> None:
    for client in list(_clients):
        call_safely(client._save_at_exit, None)


def _stop_at_exit() -> None:
    for client in list(_clients):
        client._stop()


atexit.register(_stop_at_exit)
