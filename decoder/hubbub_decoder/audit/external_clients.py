"""Clients of other projects under audit: a Python function `module:function`, or a command that prints reports.

Both have the arguments of `clients.AuditedClient`: value, seed, clients, reports.

- A function returns the bits, (clients, reports, k) of 0 and 1, or a pair (cohorts, bits) with one cohort for each client.
- A command has them as its last four arguments, the value as JSON (null: no value). It prints clients * reports lines, the reports
  of a client one after another. A line is the bits (`0110`), a cohort and the bits (`3 0110`), or JSON (`{"cohort": 3, "bits": "0110"}`).
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

from hubbub.encoding.bloom import Value
from hubbub.text import format_count
from hubbub_decoder.array_types import Bits
from hubbub_decoder.audit.clients import ClientReports
from hubbub_decoder.errors import AuditError

MAX_COHORT = 255
_SHOWN_CHARACTERS = 200
_PROTOCOL = 'print one line for each report: 0110, or "3 0110" with a cohort, or {"cohort": 3, "bits": "0110"}'


@dataclass(frozen=True, slots=True)
class FunctionClient:
    """Python function `module:function` as a client. Raises AuditError if it fails or returns no valid reports."""

    spec: str
    function: Callable[[Value, int, int, int], Any]

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

    def __call__(self, value: Value, seed: int, clients: int, reports: int) -> ClientReports:
        try:
            returned = self.function(value, seed, clients, reports)
        except Exception as problem:
            raise AuditError(
                f"{self.spec}({value!r}, {seed}, {clients}, {reports}) raised {type(problem).__name__}: {problem}. "
                "The audit has no reports of this value. Correct the function, or choose other values with --value."
            ) from problem
        cohorts, bits = returned if isinstance(returned, tuple) and len(returned) == 2 else (None, returned)
        return _checked(self.spec, cohorts, bits, clients, reports)


@dataclass(frozen=True, slots=True)
class CommandClient:
    """Command as a client: one process for each call. Raises AuditError if it fails or prints no valid reports.

    timeout : seconds of one process
    """

    command: Sequence[str]
    timeout: float = 600.0

    def __call__(self, value: Value, seed: int, clients: int, reports: int) -> ClientReports:
        return self.reports_of(self.start(value, seed, clients, reports), clients, reports)

    def start(self, value: Value, seed: int, clients: int, reports: int) -> subprocess.Popen[str]:
        """Start the command. The caller passes the process to `reports_of`."""
        arguments = [*self.command, json.dumps(value), str(seed), str(clients), str(reports)]
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
        cohorts = [each[0] for each in by_client]
        return _checked(self._name, cohorts, bits.reshape(clients, reports, width), clients, reports)

    @property
    def _name(self) -> str:
        return " ".join(self.command)

    def _parse(self, line: str) -> tuple[int, str]:
        """Cohort and bits of a line; cohort 0 if it has none."""
        try:
            if line.startswith("{"):
                fields = json.loads(line)
                cohort, bits = int(fields.get("cohort", 0)), str(fields["bits"])
            else:
                *before, bits = line.split(" ")
                cohort = int(before[0]) if len(before) == 1 else 0 if not before else -1
        except (ValueError, KeyError, TypeError, AttributeError):
            cohort, bits = -1, ""
        if cohort < 0 or not bits or bits.strip("01"):
            raise AuditError(
                f"{self._name} printed the line {line[:_SHOWN_CHARACTERS]!r}. It is not a report. Instead, {_PROTOCOL}."
            )
        return cohort, bits


def _checked(name: str, cohorts: Any, bits: Any, clients: int, reports: int) -> ClientReports:
    """Reports from returned arrays; raises AuditError for a wrong shape, bits other than 0 and 1, or cohorts above 255."""
    try:
        array = np.asarray(bits)
        numbers = np.zeros(clients, np.int64) if cohorts is None else np.asarray(cohorts)
        shapes = array.shape, numbers.shape
    except ValueError:
        array, numbers, shapes = np.zeros(0), np.zeros(0), ((), ())
    if array.ndim != 3 or array.shape[:2] != (clients, reports) or not array.shape[2] or numbers.shape != (clients,):
        raise AuditError(
            f"{name} returned bits of shape {shapes[0]} and cohorts of shape {shapes[1]}. Reports cannot be assigned to clients. "
            f"Return bits of shape ({clients}, {reports}, k), or a pair of cohorts of shape ({clients},) and these bits."
        )
    if array.dtype.kind not in "buif" or not np.isin(array, (0, 1)).all():
        raise AuditError(f"{name} returned bits other than 0 and 1. They are not reports. Return an array of 0 and 1.")
    if numbers.dtype.kind not in "ui" or numbers.min() < 0 or numbers.max() > MAX_COHORT:
        raise AuditError(
            f"{name} returned cohorts that are not integers in [0, {MAX_COHORT}]. The audit learns each cohort on its own. "
            "Reduce the number of cohorts."
        )
    checked: Bits = array.astype(np.uint8)
    return ClientReports(numbers.astype(np.int64), checked)
