"""Clients of other projects under audit: a Python function `module:function`, or a command that prints reports.

Both have the arguments of `clients.AuditedClient`: values, seed, clients.

- A function returns the bits, (clients, reports, k) of 0 and 1, or a pair (cohorts, bits) with one cohort for each client.
- A command has them as its last three arguments, the values as a JSON array (null: no value). It prints a line for each report of
  each client, the reports of a client one after another. A line is the bits (`0110`), a cohort and the bits (`3 0110`), or JSON (`{"cohort": 3, "bits": "0110"}`).

The label of a metric with a group is a part of the cohort: value number g of the list and cohort c of m are the number g m + c.
A label that depends on the value is so found as any other difference is.

A value of a joint metric is the tuple of its parts' values (JSON: an array). If several metrics are audited, a value is the tuple of their
values, a report has the bits of all metrics, one metric after another, and a client has one cohort for each metric: an array
(clients, metrics), a line `3,0 0110`, or `{"cohort": [3, 0], "bits": "0110"}`.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hubbub.metrics.group import MAX_VALUES
from hubbub.text import format_count
from hubbub_decoder.array_types import Bits
from hubbub_decoder.audit.clients import MAX_COHORTS, AuditedValue, ClientReports
from hubbub_decoder.errors import AuditError

_SHOWN_CHARACTERS = 200
_PROTOCOL = 'print one line for each report: 0110, or "3 0110" with a cohort, or {"cohort": 3, "bits": "0110"}'


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
        return ClientReports(made.cohorts[:, self.number], made.bits[:, :, slice(*self.of_bits)])


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
class CommandClient:
    """Command as a client: one process for each call. Raises AuditError if it fails or prints no valid reports.

    timeout : seconds of one process
    """

    command: Sequence[str]
    timeout: float = 600.0
    selection: Selection = Selection()

    def __call__(self, values: Sequence[AuditedValue], seed: int, clients: int) -> ClientReports:
        return self.reports_of(self.start(values, seed, clients), clients, len(values))

    def start(self, values: Sequence[AuditedValue], seed: int, clients: int) -> subprocess.Popen[str]:
        """Start the command. The caller passes the process to `reports_of`."""
        arguments = [*self.command, json.dumps(self.selection.values(values)), str(seed), str(clients)]
        try:
            return subprocess.Popen(  # noqa: S603  (the user names the command)
                arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
            )
        except OSError as problem:
            raise AuditError(
                f"{self._name} cannot be started: {problem.strerror}. Nothing was audited. Check the path and its execute permission."
            ) from None

    def reports_of(self, process: subprocess.Popen[str], clients: int, reports: int) -> ClientReports:
        """Reports that a started command prints."""
        try:
            printed, complaints = process.communicate(timeout=self.timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise AuditError(
                f"{self._name} did not end within {self.timeout:g} seconds for {format_count(clients, 'client')} of "
                f"{format_count(reports, 'report')}. The audit has no reports of this call. Raise --timeout, or make the command faster."
            ) from None
        if process.returncode:
            raise AuditError(
                f"{self._name} failed with exit code {process.returncode}: {complaints.strip()[-_SHOWN_CHARACTERS:] or 'no message'}. "
                "The audit has no reports of this call. Correct the command."
            )
        lines = printed.split("\n")
        lines = [line for line in map(str.strip, lines) if line]
        if len(lines) != clients * reports:
            raise AuditError(
                f"{self._name} printed {format_count(len(lines), 'line')} for {format_count(clients, 'client')} of "
                f"{format_count(reports, 'report')}. Reports cannot be assigned to clients. Print {clients * reports:,} lines: {_PROTOCOL}."
            )
        parsed = [self._parse(line) for line in lines]
        width = len(parsed[0][1])
        if any(len(bits) != width for _, bits in parsed):
            raise AuditError(
                f"{self._name} printed reports of {min(len(b) for _, b in parsed)} to {max(len(b) for _, b in parsed)} bits. "
                "Bits of such reports cannot be compared. Print equally many bits in each line."
            )
        bits = np.frombuffer("".join(bits for _, bits in parsed).encode(), np.uint8) - ord("0")
        by_client = [
            [cohort for cohort, _ in parsed[start : start + reports]] for start in range(0, len(parsed), reports)
        ]
        if any(len(set(each)) > 1 for each in by_client):
            raise AuditError(
                f"{self._name} printed several cohorts for one client. The cohort is a property of a client. "
                "Print the reports of a client one after another, with its cohort."
            )
        metrics = self.selection.metrics
        cohorts = np.array([each[0] for each in by_client])
        made = _checked(
            self._name,
            cohorts[:, 0] if metrics == 1 else cohorts,
            bits.reshape(clients, reports, width),
            (clients, reports, metrics),
        )
        return self.selection.reports(made)

    @property
    def _name(self) -> str:
        return " ".join(self.command)

    def _parse(self, line: str) -> tuple[tuple[int, ...], str]:
        """Cohort of each metric and bits of a line; cohort 0 if it has none."""
        metrics, given = self.selection.metrics, None
        try:
            if line.startswith("{"):
                fields = json.loads(line)
                given, bits = fields.get("cohort"), str(fields["bits"])
            else:
                *before, bits = line.split(" ")
                given = before[0].split(",") if len(before) == 1 else before or None
            each = [0] * metrics if given is None else given if isinstance(given, list) else [given]
            cohorts = tuple(int(cohort) for cohort in each)
        except (ValueError, KeyError, TypeError, AttributeError):
            cohorts, bits = (), ""
        if len(cohorts) != metrics or min(cohorts) < 0 or not bits or bits.strip("01"):
            several = f", with one cohort for each of {metrics} metrics" if metrics > 1 else ""
            raise AuditError(
                f"{self._name} printed the line {line[:_SHOWN_CHARACTERS]!r}. It is not a report. Instead, {_PROTOCOL}{several}."
            )
        return cohorts, bits


def value_of_json(parsed: Any) -> AuditedValue:
    """Value of parsed JSON: an array is the tuple of the values of parts or metrics.

    >>> value_of_json(["UA", ["a", None]])
    ('UA', ('a', None))
    """
    return tuple(value_of_json(each) for each in parsed) if isinstance(parsed, list) else parsed


def _checked(name: str, cohorts: Any, bits: Any, sizes: tuple[int, int, int]) -> ClientReports:
    """Reports from returned arrays; raises AuditError for a wrong shape, bits other than 0 and 1, or cohorts above 255.

    sizes : numbers of clients, of reports of a client, and of metrics
    """
    clients, reports, metrics = sizes
    per_client = (clients,) if metrics == 1 else (clients, metrics)
    try:
        array = np.asarray(bits)
        numbers = np.zeros(per_client, np.int64) if cohorts is None else np.asarray(cohorts)
        shapes = array.shape, numbers.shape
    except ValueError:
        array, numbers, shapes = np.zeros(0), np.zeros(0), ((), ())
    if array.ndim != 3 or array.shape[:2] != (clients, reports) or not array.shape[2] or numbers.shape != per_client:
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
    return ClientReports(numbers.astype(np.int64), checked)
