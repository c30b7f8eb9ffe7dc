"""Clients of other projects under audit: a Python function `module:function`, or an adapter of `hubbub conformance`.

- A function has the arguments of `clients.AuditedClient`: values, seed, clients. It returns the bits, (clients, reports, k) of 0 and 1, or a
  pair (cohorts, bits) with one cohort for each client, or for each of its reports.
- An adapter is asked to `encode` each report of each client, with a secret that the seed gives, and without `random`: it draws the noise.

The label of a metric with a group is a part of the cohort that a function returns: value number g of the list and cohort c of m are the
number g m + c. A label that depends on the value is so found as any other difference is.

A value of a joint metric is the tuple of its parts' values. If several metrics are audited, a value is the tuple of their values, a report
has the bits of all metrics, one metric after another, and a client has one cohort for each metric: an array (clients, metrics).
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import islice
from typing import Any

import numpy as np

from hubbub.metrics.group import MAX_VALUES
from hubbub.metrics.metric import Metric
from hubbub.metrics.periods import Period, period_number
from hubbub.text import format_count
from hubbub_decoder.array_types import Bits
from hubbub_decoder.audit.clients import MAX_COHORTS, AuditedValue, ClientReports
from hubbub_decoder.errors import AuditError
from hubbub_decoder.random_state import seeded

_SHOWN_CHARACTERS = 200
_FROM = date(2026, 1, 1)


@dataclass(frozen=True, slots=True)
class Selection:
    """Metric under audit among all metrics that a client reports together.

    metrics  : number of metrics
    number   : position of the metric under audit; None for all of them
    of_bits  : its first bit in a report of all metrics, and the bit after its last
    """

    metrics: int = 1
    number: int | None = None
    of_bits: tuple[int, int] = (0, 0)

    def values(self, values: Sequence[AuditedValue]) -> list[AuditedValue]:
        """Return the values to ask the client for: every other metric has no value."""
        if self.number is None:
            return list(values)
        return [tuple(value if at == self.number else None for at in range(self.metrics)) for value in values]

    def reports(self, made: ClientReports) -> ClientReports:
        """Return the reports of the metric under audit."""
        if self.number is None:
            return made
        moved = None if made.moved is None else made.moved[:, self.number]
        return ClientReports(made.cohorts[:, self.number], made.bits[:, :, slice(*self.of_bits)], moved)


@dataclass(frozen=True, slots=True)
class FunctionClient:
    """Python function `module:function` as a client. Raises AuditError if it fails or returns no valid reports."""

    spec: str
    function: Callable[[Sequence[AuditedValue], int, int], Any]
    selection: Selection = Selection()

    @classmethod
    def load(cls, spec: str) -> FunctionClient:
        """Import a function; modules of the working directory are found. Raises AuditError if there is none."""
        module, _, name = spec.partition(":")
        if not module or not name:
            raise AuditError(
                f"--client must be module:function, got {spec!r}. The function makes the reports. Write mypackage.clients:encode, for example."
            )
        if os.getcwd() not in sys.path:  # noqa: PTH109  (sys.path holds strings)
            sys.path.insert(0, os.getcwd())  # noqa: PTH109
        try:
            function = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, SyntaxError) as problem:
            raise AuditError(
                f"{spec} cannot be imported: {problem}. Nothing was audited. Run the command in the directory of {module}, or install it."
            ) from None
        return cls(spec, function)

    def __call__(self, values: Sequence[AuditedValue], seed: int, clients: int) -> ClientReports:
        asked = self.selection.values(values)
        try:
            returned = self.function(asked, seed, clients)
        except Exception as problem:
            raise AuditError(
                f"{self.spec}({asked!r}, {seed}, {clients}) raised {type(problem).__name__}: {problem}. "
                "The audit has no reports of these values. Correct the function, or choose other values with --value."
            ) from problem
        cohorts, bits = returned if isinstance(returned, tuple) and len(returned) == 2 else (None, returned)
        return self.selection.reports(
            _checked(self.spec, cohorts, bits, (clients, len(values), self.selection.metrics))
        )


@dataclass(frozen=True, slots=True)
class AdapterClient:
    """Adapter of `hubbub conformance` as a client: one process for each call. Raises AuditError if it fails or makes no reports.

    metrics : metrics that a client reports with one secret
    timeout : seconds of one process
    """

    command: Sequence[str]
    metrics: tuple[Metric, ...]
    timeout: float = 600.0

    def __call__(self, values: Sequence[AuditedValue], seed: int, clients: int) -> ClientReports:
        answers = self._answers(self._requests(values, seed, clients), clients * len(values) * len(self.metrics))
        parsed = [self._parse(line, self.metrics[at % len(self.metrics)]) for at, line in enumerate(answers)]
        cohorts = np.array([cohort for cohort, _ in parsed]).reshape(clients, len(values), len(self.metrics))
        bits = [self._bits([row for _, row in parsed], number, clients) for number in range(len(self.metrics))]
        of_clients = cohorts[:, :, 0] if len(self.metrics) == 1 else cohorts
        return _checked(self._name, of_clients, np.concatenate(bits, axis=2), (clients, len(values), len(self.metrics)))

    def _requests(self, values: Sequence[AuditedValue], seed: int, clients: int) -> Iterator[bytes]:
        """Lines that ask for each report of each client, and for each metric of a report."""
        periods = [[*islice(_periods(metric), len(values))] for metric in self.metrics]
        reports = [
            {"call": "encode", "definition": metric.to_dict(), "value": part, "period": periods[number][at]}
            for at, value in enumerate(values)
            for number, (metric, part) in enumerate(
                zip(self.metrics, (value,) if len(self.metrics) == 1 else value, strict=True)  # type: ignore[arg-type]
            )
        ]
        rng = seeded(seed)
        for _ in range(clients):
            secret = rng.bytes(32).hex()
            yield from (json.dumps({**report, "secret": secret}).encode() + b"\n" for report in reports)

    def _answers(self, requests: Iterator[bytes], number: int) -> list[str]:
        """Lines that a new process answers."""
        try:
            with tempfile.TemporaryFile() as given:
                given.writelines(requests)
                given.seek(0)
                done = subprocess.run(  # noqa: S603  (the user names the command)
                    self.command, stdin=given, capture_output=True, timeout=self.timeout, check=False
                )
        except OSError as problem:
            raise AuditError(
                f"{self._name} cannot be started: {problem.strerror}. Nothing was audited. Check the path and its execute permission."
            ) from None
        except subprocess.TimeoutExpired:
            raise AuditError(
                f"{self._name} did not end within {self.timeout:g} seconds for {format_count(number, 'report')}. The audit has no reports of "
                "this call. End the adapter where its input ends, make it faster, or raise --timeout."
            ) from None
        if done.returncode:
            complaints = done.stderr.decode(errors="replace").strip()[-_SHOWN_CHARACTERS:]
            raise AuditError(
                f"{self._name} failed with exit code {done.returncode}: {complaints or 'no message'}. "
                "The audit has no reports of this call. Correct the adapter."
            )
        lines = done.stdout.decode(errors="backslashreplace").splitlines()
        if len(lines) != number:
            raise AuditError(
                f"{self._name} answered {format_count(len(lines), 'line')} to {format_count(number, 'request')}. "
                "Reports cannot be assigned to clients. Answer each line by one."
            )
        return lines

    def _parse(self, line: str, metric: Metric) -> tuple[int, bytes]:
        """Cohort and bits of an answer."""
        try:
            fields = json.loads(line)
            cohort, row = int(fields["cohort"]), bytes.fromhex(fields["bits"])
        except (ValueError, KeyError, TypeError):
            cohort, row = -1, b""
        if cohort < 0 or len(row) != metric.row_bytes:
            raise AuditError(
                f"{self._name} answered {line[:_SHOWN_CHARACTERS]!r} to encode. It is not a report of {metric.name}, which has a cohort and "
                f"{format_count(metric.row_bytes, 'byte')} of bits. Check the adapter with `hubbub conformance`."
            )
        return cohort, row

    def _bits(self, rows: list[bytes], number: int, clients: int) -> Bits:
        """Bits of one of the metrics, (clients, reports, k)."""
        metric = self.metrics[number]
        packed = np.frombuffer(b"".join(rows[number :: len(self.metrics)]), np.uint8)
        return np.unpackbits(
            packed.reshape(clients, -1, metric.row_bytes), axis=2, count=metric.num_bits, bitorder="little"
        )

    @property
    def _name(self) -> str:
        return " ".join(self.command)


def _periods(metric: Metric) -> Iterator[str]:
    """Yield the first days of consecutive periods from the start of an epoch."""
    period = Period.containing(metric.period, _FROM)
    while period_number(metric.period, str(period)) % (metric.hold or 1):
        period = period.next()
    while True:
        yield str(period)
        period = period.next()


def value_of_json(parsed: Any) -> AuditedValue:
    """Value of parsed JSON: an array is the tuple of the values of parts or metrics.

    >>> value_of_json(["UA", ["a", None]])
    ('UA', ('a', None))
    """
    return tuple(value_of_json(part) for part in parsed) if isinstance(parsed, list) else parsed


def _checked(name: str, cohorts: Any, bits: Any, sizes: tuple[int, int, int]) -> ClientReports:
    """Reports from returned arrays; raises AuditError for a wrong shape, bits other than 0 and 1, or cohorts above 255.

    sizes : numbers of clients, of reports of a client, and of metrics
    """
    clients, reports, metrics = sizes
    of_metrics = () if metrics == 1 else (metrics,)
    per_client, per_report = (clients, *of_metrics), (clients, reports, *of_metrics)
    try:
        array = np.asarray(bits)
        numbers = np.zeros(per_client, np.int64) if cohorts is None else np.asarray(cohorts)
        shapes = array.shape, numbers.shape
    except ValueError:
        array, numbers, shapes = np.zeros(0), np.zeros(0), ((), ())
    if (
        array.ndim != 3
        or array.shape[:2] != (clients, reports)
        or not array.shape[2]
        or numbers.shape not in (per_client, per_report)
    ):
        raise AuditError(
            f"{name} returned bits of shape {shapes[0]} and cohorts of shape {shapes[1]}. Reports cannot be assigned to clients. "
            f"Return bits of shape ({clients}, {reports}, k), or a pair of cohorts of shape {per_client} and these bits."
        )
    if array.dtype.kind not in "buif" or not np.isin(array, (0, 1)).all():
        raise AuditError(f"{name} returned bits other than 0 and 1. They are not reports. Return an array of 0 and 1.")
    if numbers.dtype.kind not in "ui" or numbers.min() < 0 or numbers.max() >= MAX_COHORTS * MAX_VALUES:
        raise AuditError(
            f"{name} returned cohorts that are not integers in [0, {MAX_COHORTS * MAX_VALUES - 1}]. The audit learns each cohort on its own. "
            "Reduce the number of cohorts."
        )
    checked: Bits = array.astype(np.uint8)
    if numbers.shape == per_client:
        return ClientReports(numbers.astype(np.int64), checked)
    moved = (numbers != numbers[:, :1]).any(axis=1)
    return ClientReports(numbers[:, 0].astype(np.int64), checked, moved)
