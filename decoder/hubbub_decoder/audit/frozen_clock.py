"""Clocks of Python, stopped: a generator that is seeded with the time then repeats itself.

As a program, runs a Python function in a new process with the clock stopped, as a command of `external_clients.CommandClient`:

    python -m hubbub_decoder.audit.frozen_clock module:function METRICS VALUES SEED CLIENTS
"""

from __future__ import annotations

import datetime
import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from hubbub_decoder.audit.external_clients import FunctionClient, Selection, value_of_json

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


def main(arguments: list[str]) -> None:
    """Print the reports of one call of a function; the function is imported after the clock has stopped."""
    spec, metrics, values, seed, clients = arguments
    history = [value_of_json(value) for value in json.loads(values)]
    with frozen_clock():
        client = replace(FunctionClient.load(spec), selection=Selection(int(metrics)))
        made = client(history, int(seed), int(clients))
    for cohorts, reports in zip(made.cohorts.reshape(len(made.bits), -1).tolist(), made.bits.tolist(), strict=True):
        for bits in reports:
            sys.stdout.write(f"{','.join(map(str, cohorts))} {''.join(map(str, bits))}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
