"""Functions and commands as clients: their protocol, and an error for each kind of bad output."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hubbub_decoder.audit.external_clients import CommandClient, FunctionClient, Selection
from hubbub_decoder.errors import AuditError


def printing(text: str) -> CommandClient:
    """Command that prints a text."""
    code = f"import sys; sys.stdout.write({text!r})"
    return CommandClient([sys.executable, "-c", code], timeout=30)


def test_command_receives_values_seed_and_clients() -> None:
    code = "import sys, json; v, *n = sys.argv[1:]; assert json.loads(v) == [None, 'a', 'a'] and n == ['5', '2'], n; print('01\\n' * 6)"
    made = CommandClient([sys.executable, "-c", code])([None, "a", "a"], 5, 2)
    assert made.bits.shape == (2, 3, 2)
    assert made.bits[1, 2].tolist() == [0, 1]
    assert made.cohorts.tolist() == [0, 0]


@pytest.mark.parametrize("line", ["3 0110", '{"cohort": 3, "bits": "0110"}'])
def test_command_prints_cohorts(line: str) -> None:
    made = printing(f"{line}\n{line}\n")(["v"], 1, 2)
    assert made.cohorts.tolist() == [3, 3]
    assert made.bits[0, 0].tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("line", ["3,0 0110", '{"cohort": [3, 0], "bits": "0110"}'])
def test_metric_is_selected_from_the_reports_of_several(line: str) -> None:
    """The second metric has the last three bits. The command receives no value of the first."""
    code = f"import sys, json; assert json.loads(sys.argv[1]) == [[None, ['a', None]]]; print({line!r})"
    client = CommandClient([sys.executable, "-c", code], selection=Selection(2, 1, (1, 4)))
    made = client([("a", None)], 5, 1)
    assert made.cohorts.tolist() == [0]
    assert made.bits.tolist() == [[[1, 1, 0]]]
    function = FunctionClient(
        "m:f",
        lambda values, *_: ([[3, 0]], [[[0, 1, 1, value[1] == "b"]] for value in values]),
        Selection(2, 1, (1, 4)),
    )
    assert function(["b"], 5, 1).bits.tolist() == [[[1, 1, 1]]]


def test_report_of_several_metrics_with_one_cohort_is_rejected() -> None:
    with pytest.raises(AuditError, match=r"It is not a report. .* with one cohort for each of 2 metrics"):
        replace(printing("3 0110\n"), selection=Selection(2))(["v"], 1, 1)
    with pytest.raises(AuditError, match=r"a pair of cohorts of shape \(1, 2\)"):
        replace(returning(([3], [[[0, 1]]])), selection=Selection(2))(["v"], 1, 1)


@pytest.mark.parametrize(
    ("printed", "message"),
    [
        ("", "printed 0 lines for 2 clients of 1 report. .* Print 2 lines"),
        ("01\n", "printed 1 line for"),
        ("01\n012\n", "printed the line '012'. It is not a report"),
        ("01\n0101\n", "printed reports of 2 to 4 bits"),
        ("01\nx 01\n", "It is not a report"),
        ("01\n-1 01\n", "It is not a report"),
        ("01\n5000 01\n", "cohorts that are not integers in"),
        ("01\n{}\n", "It is not a report"),
        ('01\n{"bits": 7}\n', "It is not a report"),
        ("01\n[1]\n", "It is not a report"),
    ],
)
def test_command_with_bad_output_is_rejected(printed: str, message: str) -> None:
    with pytest.raises(AuditError, match=message):
        printing(printed)(["v"], 1, 2)


def test_command_with_several_cohorts_for_one_client_is_rejected() -> None:
    with pytest.raises(AuditError, match="several cohorts for one client"):
        printing("1 01\n2 01\n")(["v", "v"], 1, 1)


def test_command_that_fails_is_reported_with_its_message() -> None:
    with pytest.raises(AuditError, match="exit code 3: no battery"):
        CommandClient([sys.executable, "-c", "import sys; sys.stderr.write('no battery'); sys.exit(3)"])(["v"], 1, 1)


def test_command_that_hangs_is_stopped() -> None:
    with pytest.raises(AuditError, match=r"did not end within 0.3 seconds .* Raise --timeout"):
        CommandClient([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.3)(["v"], 1, 1)


def test_missing_command_is_reported() -> None:
    with pytest.raises(AuditError, match="cannot be started: No such file"):
        CommandClient(["./no-such-client"])(["v"], 1, 1)


def returning(thing: Any) -> FunctionClient:
    return FunctionClient("m:f", lambda *_: thing)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "bits of shape"),
        ([[0, 1]], r"bits of shape \(1, 2\)"),
        (np.zeros((1, 2, 8)), r"bits of shape \(1, 2, 8\)"),
        (np.full((2, 1, 8), 2), "bits other than 0 and 1"),
        (np.full((2, 1, 8), "0"), "bits other than 0 and 1"),
        ((np.array([0, 4096]), np.zeros((2, 1, 8))), "cohorts that are not integers"),
        ((np.array([0.5, 0]), np.zeros((2, 1, 8))), "cohorts that are not integers"),
        ((np.array([0]), np.zeros((2, 1, 8))), r"cohorts of shape \(1,\)"),
        ([[[0, 1]], [[0]]], "bits of shape"),
    ],
)
def test_function_with_bad_output_is_rejected(returned: Any, message: str) -> None:
    with pytest.raises(AuditError, match=message):
        returning(returned)(["v"], 1, 2)


def test_function_that_raises_is_reported_with_its_arguments() -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("no noise left")

    with pytest.raises(AuditError, match=r"m:f\(\['v'\], 1, 2\) raised RuntimeError: no noise left"):
        FunctionClient("m:f", fails)(["v"], 1, 2)


@pytest.mark.parametrize("spec", ["json", "json:", ":dumps", "json:nothing", "no_such_module:f"])
def test_function_that_cannot_be_imported_is_reported(spec: str) -> None:
    with pytest.raises(AuditError, match=r"module:function|cannot be imported"):
        FunctionClient.load(spec)
