"""Scenarios of consent: what a withdrawal deletes, in every process, and what it keeps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, time, timedelta
from pathlib import Path

from hubbub.conformance.world import BrokenError, ScenarioRule, World, fingerprint
from hubbub.encoding.encoder import Encoder
from hubbub.encoding.responses import PermanentResponse
from hubbub.encoding.secret import SECRET_BYTES, Secret
from hubbub.files.regular_files import read_regular

_FIRST = fingerprint("first")
_FOUR = tuple(fingerprint(f"queued_{number}") for number in range(4))
_OF_A_COHORT = fingerprint("of_a_cohort", num_cohorts=256)
_HEX = re.compile(rb"[0-9a-fA-F]{64,}")
_DAY = timedelta(days=1)


def erases_the_queue(world: World) -> None:
    """Reports that wait are not sent after a withdrawal, also if consent is given again."""
    world.agree()
    recorded = world.today
    for metric in _FOUR:
        world.record(metric, "a")
    midnight = datetime.combine(recorded + _DAY, time(), world.aggregator.now.tzinfo)
    world.set_time(midnight + timedelta(minutes=1))
    sent = len(world.aggregator.requests)
    world.renew_consent()
    world.live("a..")
    _ = world.batches
    late = [batch for batch in world.batches_of(world.aggregator.requests[sent:]) if batch.period <= str(recorded)]
    if late:
        raise BrokenError(f"a report of {recorded} was sent after consent was withdrawn and given again")


def erases_the_draft(world: World) -> None:
    """A value of the open period is not reported after a withdrawal, also if consent is given again."""
    world.agree()
    first = world.today
    world.record(_FIRST, "a")
    world.renew_consent()
    world.live("....")
    world.expect_history(_FIRST, first, "aaa")


def records_nothing_under_off(world: World) -> None:
    """A value that is recorded without consent is not reported, also if consent is given on the same day; days without consent have no report."""
    world.start()
    first = world.today
    world.record(_FIRST, "a")
    world.set_consent("on")
    world.live("....")
    world.expect_history(_FIRST, first, "aaa")
    world.set_consent("off")
    withdrawn = world.today
    world.live("aaa")
    world.set_consent("on")
    world.live("...")
    world.expect_history(_FIRST, withdrawn, "---aa")


def erases_the_secret(world: World) -> None:
    """After a withdrawal no file has the secret, and a new consent draws another one."""
    world.agree()
    first = world.today
    world.live("aaa")
    kept = [path for path in world.directory.rglob("*") if _has_secret(path, world, str(first))]
    key = next((key for path in kept for key in _secrets(path, world, str(first))), None)
    world.set_consent("off")
    if key is not None:
        _check_erased(world.directory, key)
    world.restart()
    if key is not None:
        _check_erased(world.directory, key)
    world.set_consent("on")
    again = world.today
    world.live("aaa")
    rows = world.rows(_OF_A_COHORT)
    if rows[str(first)] == rows[str(again)]:
        raise BrokenError("a value has the same permanent response after consent was withdrawn and given again")


def _has_secret(path: Path, world: World, day: str) -> bool:
    return next(_secrets(path, world, day), None) is not None


def _secrets(path: Path, world: World, day: str) -> Iterator[bytes]:
    """Yield the secret if a file has it, as bytes or in hex: the bytes that explain the cohort and the bits of a report."""
    cohort, row = world.rows(_OF_A_COHORT)[day]
    text = b""
    with suppress(OSError):  # no file, or deleted meanwhile
        text = read_regular(path)
    for key in {
        *_windows(text),
        *(
            key
            for found in _HEX.findall(text)
            for key in _windows(bytes.fromhex(found[: len(found) // 2 * 2].decode()))
        ),
    }:
        secret = Secret(key)
        if secret.cohort(256) == cohort[0]:
            bits = PermanentResponse(_OF_A_COHORT, secret)(Encoder(_OF_A_COHORT, secret).bloom_bits("a"))
            if bits.to_bytes(len(row), "little") == row:
                yield key


def _windows(text: bytes) -> set[bytes]:
    return {text[start : start + SECRET_BYTES] for start in range(len(text) - SECRET_BYTES + 1)}


def _check_erased(directory: Path, key: bytes) -> None:
    for path in directory.rglob("*"):
        with suppress(OSError):  # no file, or deleted meanwhile
            text = read_regular(path)
            if key in text or key.hex().encode() in text.lower():
                raise BrokenError(f"{path.name} has the secret after consent was withdrawn")


def shares_a_directory(world: World) -> None:
    """Two processes share the drafts and the secret, and a withdrawal in one ends the other's reports."""
    world.agree()
    first = world.today
    with world.kit.beside() as kit:
        other = replace(world, kit=kit)
        other.start()
        for recording, beside in ((world, other), (other, world), (world, other)):
            _live_together(recording, beside, "a")
        world.renew_consent()
        again = world.today
        for recording, beside in ((other, world), (world, other)):
            _live_together(recording, beside, "a")
        for _ in range(2):
            _live_together(world, other, ".")
        world.expect_history(_FIRST, first, "aa")
        world.expect_history(_FIRST, again, "aa")
        world.set_consent("off")
        sent = len(world.aggregator.requests)
        for _ in range(3):
            _live_together(other, world, "a")
        if len(world.aggregator.requests) > sent:
            raise BrokenError("a process sent a report after another one had withdrawn consent")
        other.stop()


def _live_together(recording: World, other: World, value: str) -> None:
    """Let a day pass in which one process records, and both send."""
    if value != ".":
        recording.record(_FIRST, value)
    recording.set_time(recording.aggregator.now + _DAY)
    other.set_time(recording.aggregator.now)


RULES = (
    ScenarioRule(
        129,
        "a withdrawal deletes the queue",
        "client.md, Consent",
        "It deletes queued batches, drafts and the secret for every process that shares `state`.",
        erases_the_queue,
        _FOUR,
    ),
    ScenarioRule(
        130,
        "a withdrawal deletes the drafts",
        "client.md, Consent",
        "It deletes queued batches, drafts and the secret for every process that shares `state`.",
        erases_the_draft,
        (_FIRST,),
    ),
    ScenarioRule(
        131,
        "nothing is recorded without consent",
        "client.md, Consent",
        "sends one report per metric and period, from values recorded under `on`",
        records_nothing_under_off,
        (_FIRST,),
    ),
    ScenarioRule(
        132,
        "a withdrawal deletes the secret",
        "client.md, Consent",
        "it draws a new secret, which starts a new enrollment",
        erases_the_secret,
        (_OF_A_COHORT,),
    ),
    ScenarioRule(
        133,
        "processes that share a directory",
        "client.md, Client SDK",
        "All processes that share the state directory are one client: they share a secret, a ledger, and one draft per metric.",
        shares_a_directory,
        (_FIRST,),
    ),
)
