"""Faulty clients: the Python client with lines changed, and the rule of `hubbub conformance` that each breaks."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hubbub.conformance.adapter import Adapter
from tests.support.paths import REPOSITORY

_PACKAGE = REPOSITORY / "client" / "hubbub"
_TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class Fault:
    """A client with one change.

    rule   : number of the rule that the report names first
    words  : what the client does
    module : file below client/hubbub
    before : code, which occurs once in the file
    after  : what stands there instead
    others : further changes, where two places of the client prevent the same fault
    """

    rule: int
    words: str
    module: str
    before: str
    after: str
    others: tuple[tuple[str, str, str], ...] = ()

    def __str__(self) -> str:
        return self.words

    def write(self, folder: Path) -> Path:
        """Write the faulty client into a folder, and return the folder from which it is imported."""
        shutil.copytree(_PACKAGE, folder / "hubbub", ignore=shutil.ignore_patterns("vectors.json", "__pycache__"))
        for module, before, after in ((self.module, self.before, self.after), *self.others):
            path = folder / "hubbub" / module
            source = path.read_text()
            assert source.count(before) == 1, f"{module}: {before!r} occurs {source.count(before)} times"
            path.write_text(source.replace(before, after))
        return folder


@contextmanager
def adapter_of(fault: Fault, folder: Path) -> Iterator[Adapter]:
    """Start the adapter of the Python client with a faulty client."""
    paths = os.pathsep.join([str(fault.write(folder)), str(REPOSITORY)])
    program = (
        f"import sys; sys.path[:0] = {paths.split(os.pathsep)!r}; from examples.conformance_adapter import run; run()"
    )
    with Adapter([sys.executable, "-c", program], _TIMEOUT_SECONDS) as adapter:
        yield adapter


ENCODERS, BUILDER, RECORDER = (
    "sdk/recording/subject_encoders.py",
    "sdk/recording/batch_builder.py",
    "sdk/recording/recorder.py",
)
SEALER = "encoding/sealed_values.py"
RETRY = "sdk/upload/retry_policy.py"
STATE, SECRET_FILE = "sdk/storage/state.py", "sdk/storage/secret_file.py"
LEDGER, ALLOCATION, POLICY = "privacy/ledger.py", "privacy/allocation.py", "privacy/policy.py"
COSTS = 'costs_unit = account.unit != "value" or tag not in account.tags'


def noise(words: str, definition: str) -> Fault:
    """Return a client whose noise comes from another generator, where the kit gives no bytes."""
    use = "InstantaneousResponse(metric.blocks, random_bytes)"
    other = "InstantaneousResponse(metric.blocks, OWN if random_bytes is system_random_bytes else random_bytes)"
    module = "encoding/encoder.py"
    return Fault(114, words, module, use, other, ((module, "class Encoder:\n", f"{definition}\n\n\nclass Encoder:\n"),))


FAULTS = (
    Fault(101, "a day without a recording has no report", BUILDER, "report = self._encoders.encoder(metric, account.subject, secret).encode_period(account, None, name)", "pass"),
    Fault(102, "consent is on until it is withdrawn", STATE, "        self.consent = Consent.OFF\n", "        self.consent = Consent.ON\n"),
    Fault(103, "503 ends a report", RETRY, "            | ProblemType.UNAVAILABLE\n", "", ((RETRY, "case ProblemType.PERIOD_CLOSED:", "case ProblemType.PERIOD_CLOSED | ProblemType.UNAVAILABLE:"),)),
    Fault(104, "Retry-After is ignored", RETRY, "return min(float(text[:9]), MAX_RETRY_AFTER_SECONDS)", "return 0.0"),
    Fault(105, "a report of a closed period is sent again", RETRY, "return Action.DROP_BATCH", "return Action.RETRY"),
    Fault(107, "each process draws a secret", ENCODERS, "secret = self._load() if", "secret = self._load() and Secret.generate() if"),
    Fault(109, "a clock that is set back opens periods again", BUILDER, "replanned_before=max(account.replanned_before, account.next_period_start)", 'replanned_before=""', ((BUILDER, "return self._clock.now().timestamp() < state.clock_confirmed_at - CLOCK_TOLERANCE.total_seconds()", "return False"),)),
    Fault(110, "a file has each value", RECORDER, "        try:\n            self._check_consent(state)", "        (self._journal.directory / 'log').write_text(str(value))\n        try:\n            self._check_consent(state)"),
    Fault(113, "a report that is too large is sent again", RETRY, "return Action.QUARANTINE if possibly_delivered or len(batch) == 1 else Action.SPLIT", "return Action.RETRY"),
    Fault(117, "a clock of 1970 is believed", "sdk/runtime/clock.py", "return EARLIEST_DAY <= now.date() <= LATEST_DAY", "return now.date() <= LATEST_DAY"),
    noise("noise has a constant as its seed", "OWN = __import__('random').Random(7).randbytes"),
    noise("noise has the time of the start as its seed", "OWN = __import__('random').Random(__import__('time').time() // 1000).randbytes"),
    noise("a pool of 64 blocks of noise is used again", "POOL: list[bytes] = []\n\n\ndef OWN(n: int) -> bytes:\n    POOL.append(system_random_bytes(n) if len(POOL) < 64 else POOL[-64])\n    return POOL[-1]"),
    noise("random bytes are odd", "def OWN(n: int) -> bytes:\n    return bytes(byte | 1 for byte in system_random_bytes(n))"),
    noise("one bit in a byte has no noise", "def OWN(n: int) -> bytes:\n    return bytes(byte & 127 for byte in system_random_bytes(n))"),
    Fault(108, "later values are free of charge", ENCODERS, COSTS, 'costs_unit = account.unit != "value" or not account.tags'),
    Fault(118, "the value reported first stands in", LEDGER, "            sealed=report.sealed,", "            sealed=self.sealed or report.sealed,"),
    Fault(118, "the third value is free of charge", ENCODERS, COSTS, 'costs_unit = account.unit != "value" or (tag not in account.tags and len(account.tags) < 2)'),
    Fault(119, "no value is free of charge", ENCODERS, COSTS, f"{COSTS[:13]}bool(bloom) and ({COSTS[13:]})"),
    Fault(119, "a day without a recording repeats the last value", BUILDER, ".encode_period(account, None, name)", "._repeat_last(account, None)"),
    Fault(120, "hold is not kept through its epoch", ENCODERS, "if epoch is not None and account.sealed and account.epoch == epoch:", "if False:"),
    Fault(120, "epochs begin a day late", ENCODERS, "period_number(metric.period, period) // metric.hold", "(period_number(metric.period, period) - 1) // metric.hold"),
    Fault(121, "epochs are free of charge", LEDGER, "units=self.units + report.costs_unit,", 'units=self.units + (report.costs_unit and self.unit != "epoch"),'),
    Fault(122, "reports without permanent noise are free of charge", LEDGER, "units=self.units + report.costs_unit,", 'units=self.units + (report.costs_unit and self.unit != "period"),'),
    Fault(123, "epsilon_enrollment is ignored", POLICY, "affordable_units(self.epsilon_enrollment, price)", "affordable_units(self.epsilon_metric, price)"),
    Fault(124, "a new enrollment forgets what was spent", ALLOCATION, "spent = units_kept.get(account.digest, 0)\n", "spent = units_kept.get(account.digest, 0) * (account.enrollment == enrollment)\n"),
    Fault(124, "an enrollment counts only the values that it reported", ALLOCATION, "bound = min(account.reserved_units, periods + 1, max_units)", "bound = 0"),
    Fault(125, "epsilon_total is ignored", ALLOCATION, "epsilon_left = policy.epsilon_total\n", "epsilon_left = math.inf\n"),
    Fault(125, "the later metrics reserve first", ALLOCATION, "for metric, account in requested:\n        spent", "for metric, account in reversed(requested):\n        spent"),
    Fault(126, "epsilon_total forgets earlier definitions", ALLOCATION, "for account in accounts if units_kept[account.digest]", "for account in accounts if account.digest in collected and units_kept[account.digest]"),
    Fault(127, "lifetime_epsilon of older versions is ignored", ALLOCATION, "in (*seen, *(", "in (*seen[:0], *("),
    Fault(127, "lifetime_epsilon counts one version", ALLOCATION, "for account in accounts if account.metric == name", "for account in accounts if account.metric == name and account.digest in collected"),
    Fault(128, "epsilon_report is ignored", POLICY, "if once > self.epsilon_report + ROUNDING_SLACK:", "if False:"),
    Fault(129, "the queue is kept through a withdrawal", STATE, "        self.queue.clear()\n", ""),
    Fault(130, "drafts are kept through a withdrawal", STATE, "        self.drafts.clear()\n", "", ((STATE, "report=draft.report._replace(bits=b\"\", costs_unit=False), number=b\"\"", "report=draft.report"),)),
    Fault(131, "recordings wait until consent is given", RECORDER, "        if self._journal.lock_unavailable:\n            self.postpone", "        if self._journal.lock_unavailable or state.consent is Consent.OFF:\n            self.postpone", ((RECORDER, "while self._postponed and not self._journal.lock_unavailable:", "while self._postponed and state.consent is not Consent.OFF:"), (RECORDER, "            self.ignore(\"consent\", len(self._postponed))\n            self._postponed.clear()", "            pass"))),
    Fault(132, "the secret is kept after a withdrawal", SECRET_FILE, "            destroy_secret(self.path, self._disk)\n        except OSError as problem:\n            self._journal.degrade(problem, self.path)\n            return False", "            pass\n        except OSError as problem:\n            return False"),
    Fault(132, "the secret is renamed at a withdrawal", SECRET_FILE, "            disk.remove(name)\n        except", "            os.rename(name, path.parent / 'old')\n        except"),
    Fault(133, "a process keeps the secret of an earlier consent", ENCODERS, "if self._secret is None or self._secret_tag != state.secret_tag:", "if self._secret is None:"),
    Fault(116, "a period has the label of the time of building", BUILDER, "state.group_label(metric.digest, period)", "state.group_label(metric.digest, self._clock.current(metric.period).name)"),
    Fault(116, "a period has the label of its last run", "sdk/storage/group_labels.py", "if steps and current < steps[-1][0] and not was_ahead:", "if False:"),
    Fault(134, "a permanent response is used again after the clock is set back", LEDGER, "return epoch if newest is None or epoch > newest else -1 - (self.units << 32) - (epoch + (1 << 31))", "return epoch"),
    Fault(135, "a clock behind a confirmed time is believed", BUILDER, "return self._clock.now().timestamp() < state.clock_confirmed_at - CLOCK_TOLERANCE.total_seconds()", "return False"),
    Fault(136, "reports of future days are sent", RETRY, "if queued.batch.period <= open_until and not queued.local", "if not queued.local"),
    Fault(137, "a start makes the reports of three days", BUILDER, "self._clock.now().toordinal() - MAX_BATCH_AGE.days", "self._clock.now().toordinal() - 3"),
    Fault(137, "a start makes the reports of all days", BUILDER, "self._clock.now().toordinal() - MAX_BATCH_AGE.days", "self._clock.now().toordinal() - 60", ((BUILDER, "if certain >= queued.period_end() + MAX_BATCH_AGE:", "if certain >= queued.period_end() + 3 * MAX_BATCH_AGE:"),)),
    Fault(138, "reports are kept for ever", BUILDER, "if certain >= queued.period_end() + MAX_BATCH_AGE:", "if False:"),
    Fault(138, "reports are kept for a week", BUILDER, "if certain >= queued.period_end() + MAX_BATCH_AGE:", "if certain >= queued.period_end() + MAX_BATCH_AGE / 4:"),
    Fault(139, "reports leave exactly at the end of a period", BUILDER, "send_at = end.timestamp() + uniform(random_bytes) *", "send_at = end.timestamp() + 0 *"),
    Fault(139, "reports leave in the first hour of the next period", BUILDER, "min(following_end - end, MAX_BATCH_AGE).total_seconds()", "LATE_WITHIN_SECONDS"),
    Fault(139, "all reports of a client leave at one time of the day", BUILDER, "send_at = end.timestamp() + uniform(random_bytes) *", "send_at = end.timestamp() + uniform(lambda number: reports[0][0].tag[:1] * 0 + str(end).encode()[:number]) *"),
    Fault(140, "reports of a week leave on the next day", BUILDER, "min(following_end - end, MAX_BATCH_AGE)", "min(following_end - end, timedelta(days=1))"),
    Fault(141, "late reports leave at once", BUILDER, "send_at = now.timestamp() + uniform(random_bytes) * LATE_WITHIN_SECONDS", "send_at = now.timestamp()"),
    Fault(141, "reports whose time passed leave at once", RETRY, "send_at = {batch_id: now + uniform(random_bytes) * LATE_WITHIN_SECONDS for", "send_at = {batch_id: now for"),
    Fault(142, "there is no backoff without Retry-After", RETRY, "return at_least + uniform(random_bytes) * longest", "return at_least"),
    Fault(143, "unauthorized is an answer as 503", RETRY, "            | ProblemType.UNAUTHORIZED\n", "", ((RETRY, "            | ProblemType.TOO_MANY\n            |", "            | ProblemType.TOO_MANY\n            | ProblemType.UNAUTHORIZED\n            |"),)),
    Fault(144, "a metric is held for an hour", RETRY, "HOLD_SECONDS = 86400.0", "HOLD_SECONDS = 3600.0"),
    Fault(145, "the last recording wins", RECORDER, "uniform_below(count, self._random_bytes) == 0", "True"),
    Fault(145, "the first recording wins", RECORDER, "uniform_below(count, self._random_bytes) == 0", "False"),
    Fault(146, "an ordinal metric reports one of its recordings", ENCODERS, "number = buckets.combine(number, value)", "number = value if number is None else number"),
    Fault(146, "a number is forgotten when the app ends", ENCODERS, "number = self._sealer.open_number(sealed)", "number = self._sealer.open_number(sealed) if self._sealer in OPENED else OPENED.add(self._sealer)", ((ENCODERS, "_MAX_ENCODERS = 4096", "_MAX_ENCODERS = 4096\nOPENED: set[Sealer] = set()"),)),
    Fault(147, "a set has the items of one recording", ENCODERS, "value = BloomBits(value | self._sealer.open(sealed))", "value = BloomBits(value)"),
    Fault(148, "sealed values have the nonce 0", SEALER, "nonce = self._random_bytes(TAG_BYTES)\n        return nonce + self._xor_pad(self._key(bloom), nonce)", "nonce = bytes(TAG_BYTES)\n        return nonce + self._xor_pad(self._key(bloom), nonce)"),
    Fault(148, "a value has one nonce", SEALER, "nonce = self._random_bytes(TAG_BYTES)\n        return nonce + self._xor_pad(self._key(bloom), nonce)", "nonce = self.tag(bloom)\n        return nonce + self._xor_pad(self._key(bloom), nonce)"),
)  # fmt: skip
