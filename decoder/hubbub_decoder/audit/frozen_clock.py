"""Clocks of Python, stopped: a generator that is seeded with the time then repeats itself.

As a program, writes the reports of one call of a Python function into a file, with the clock stopped:

    python -m hubbub_decoder.audit.frozen_clock module:function METRICS VALUES SEED CLIENTS FILE
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from hubbub_decoder.audit.clients import AuditedValue, ClientReports
from hubbub_decoder.audit.external_clients import FunctionClient, Selection, value_of_json
from hubbub_decoder.errors import AuditError

_CLOCKS = ("time", "monotonic", "perf_counter", "process_time")
_FROZEN_SECONDS = 1_700_000_000


class _FrozenDatetime(datetime.datetime):
    """`datetime.datetime` with a constant present."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> _FrozenDatetime:
        return cls.fromtimestamp(_FROZEN_SECONDS, tz)

    @classmethod
    def utcnow(cls) -> _FrozenDatetime:
        return cls.fromtimestamp(_FROZEN_SECONDS, datetime.UTC).replace(tzinfo=None)


@contextmanager
def frozen_clock(module: str | None = None) -> Iterator[None]:
    """Stop the clocks of `time` and `datetime` for this process.

    module : also replace clocks that this module imported by name, as in `from time import time`
    """
    frozen: dict[Any, Any] = {datetime.datetime: _FrozenDatetime}
    for name in _CLOCKS:
        frozen[getattr(time, name)] = lambda: float(_FROZEN_SECONDS)
        frozen[getattr(time, f"{name}_ns")] = lambda: _FROZEN_SECONDS * 10**9
    holders = [time, datetime, *([sys.modules[module]] if module in sys.modules else [])]
    with ExitStack() as stack:
        for holder in holders:
            for name, thing in list(vars(holder).items()):
                if callable(thing) and thing.__hash__ is not None and thing in frozen:
                    stack.enter_context(patch.object(holder, name, frozen[thing]))
        yield


def batches_at_once(
    client: FunctionClient, values: Sequence[AuditedValue], seeds: tuple[int, int], clients: int
) -> list[ClientReports]:
    """Reports of a function from two new processes that run at the same time, with stopped clocks. Raises AuditError if one fails."""
    asked = json.dumps(client.selection.values(values))
    program = [sys.executable, "-m", __spec__.name, client.spec, str(client.selection.metrics), asked]
    with tempfile.TemporaryDirectory(prefix="hubbub-audit-") as directory:
        files = [Path(directory, f"{number}.npz") for number in range(len(seeds))]
        started = [
            subprocess.Popen([*program, str(seed), str(clients), str(file)], stderr=subprocess.PIPE)  # noqa: S603  (this module)
            for seed, file in zip(seeds, files, strict=True)
        ]
        complaints = [process.communicate()[1].decode(errors="replace").strip() for process in started]
        for process, complaint in zip(started, complaints, strict=True):
            if process.returncode:
                raise AuditError(
                    f"{client.spec} failed in a new process: {complaint[-200:]}. The audit has no reports of this call. Correct the function."
                )
        made = [np.load(file) for file in files]
        return [client.selection.reports(ClientReports(arrays["cohorts"], arrays["bits"])) for arrays in made]


def main(arguments: list[str]) -> None:
    """Write the reports of one call of a function; the function is imported after the clock has stopped."""
    spec, metrics, values, seed, clients, file = arguments
    history = [value_of_json(value) for value in json.loads(values)]
    with frozen_clock():
        client = replace(FunctionClient.load(spec), selection=Selection(int(metrics)))
        made = client(history, int(seed), int(clients))
    np.savez(file, cohorts=made.cohorts, bits=made.bits)


if __name__ == "__main__":
    main(sys.argv[1:])
