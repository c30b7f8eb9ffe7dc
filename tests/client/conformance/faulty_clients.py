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
    program = f"import sys; sys.path[:0] = {paths.split(os.pathsep)!r}; from examples.conformance_adapter import run; run()"
    with Adapter([sys.executable, "-c", program], _TIMEOUT_SECONDS) as adapter:
        yield adapter


ENCODERS, BUILDER, RECORDER = (
    "sdk/recording/subject_encoders.py",
    "sdk/recording/batch_builder.py",
    "sdk/recording/recorder.py",
)
STATE, SECRET_FILE = "sdk/storage/state.py", "sdk/storage/secret_file.py"
LEDGER, ALLOCATION, POLICY = "privacy/ledger.py", "privacy/allocation.py", "privacy/policy.py"
COSTS = 'costs_unit = account.unit != "value" or tag not in account.tags'

FAULTS = (
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
)  # fmt: skip
