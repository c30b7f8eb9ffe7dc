"""Functions and adapters as clients: their protocol, and an error for each kind of bad output."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hubbub import Metric, Params, UnaryResponse
from hubbub_decoder.audit.external_clients import AdapterClient, FunctionClient, Selection
from hubbub_decoder.errors import AuditError
from tests.support.paths import REPOSITORY

ADAPTER = [sys.executable, str(REPOSITORY / "examples" / "conformance_adapter.py")]
COINS: dict[str, Any] = {"prob_p": 0, "prob_q": 1, "prob_f": 0.5}
DARK = Metric.boolean("dark", UnaryResponse(**COINS))
PAGE = Metric.string("page", Params(num_bits=12, num_hashes=1, num_cohorts=8, **COINS), period="month", hold=3)


def answering(line: str, *metrics: Metric) -> AdapterClient:
    """Adapter that answers each request by one line."""
    code = f"import sys\nfor _ in sys.stdin: print({line!r})"
    return AdapterClient([sys.executable, "-c", code], metrics or (DARK,), timeout=30)


def asked(tmp_path: Path, *metrics: Metric) -> tuple[AdapterClient, Path]:
    """Adapter that writes its input into a file."""
    path = tmp_path / "requests"
    code = f"import sys\nopen({str(path)!r}, 'w').write(sys.stdin.read()); print('{{}}')"
    return AdapterClient([sys.executable, "-c", code], metrics), path


def test_adapter_is_asked_for_each_report_in_consecutive_periods_from_the_start_of_an_epoch(tmp_path: Path) -> None:
    client, path = asked(tmp_path, DARK, PAGE)
    with pytest.raises(AuditError, match="answered 1 line to 8 requests"):
        client([(True, "a"), (None, "b")], 5, 2)
    requests = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(request["definition"]["name"], request["value"], request["period"]) for request in requests[:4]] == [
        ("dark", True, "2026-01-01"),
        ("page", "a", "2026-01-01"),
        ("dark", None, "2026-01-02"),
        ("page", "b", "2026-02-01"),
    ]
    assert all(request.keys() == {"call", "definition", "secret", "value", "period"} for request in requests)
    secrets = [request["secret"] for request in requests]
    assert len(set(secrets[:4])) == len(set(secrets[4:])) == 1
    assert len(set(secrets)) == 2
    assert {len(bytes.fromhex(secret)) for secret in secrets} == {32}


def test_epochs_begin_where_the_number_of_the_period_is_a_multiple_of_hold(tmp_path: Path) -> None:
    client, path = asked(tmp_path, replace(PAGE, hold=5))
    with pytest.raises(AuditError):
        client(["a"], 5, 1)
    (request,) = map(json.loads, path.read_text().splitlines())
    assert request["period"] == "2026-04-01"  # 675 months after 1970


def test_reports_of_the_adapter_of_this_project_have_the_bits_of_their_secrets() -> None:
    """At f = 0, p = 0 and q = 1 a report is the true bit. Two calls with one seed have the same clients."""
    exact = Metric.categorical("os", ("a", "b", "c"), UnaryResponse(prob_p=0, prob_q=0.75, prob_f=0))
    made = AdapterClient(ADAPTER, (exact, PAGE))([("b", "v1"), (None, "v1")], 5, 40)
    assert made.bits.shape == (40, 2, 15)
    assert made.cohorts.shape == (40, 2)
    assert not made.bits[:, :, [0, 2]].any()
    assert 0 < made.bits[:, 0, 1].sum() < 40  # fails with probability 0.75**40, 1e-5
    assert not made.bits[:, 1, 1].any()
    assert len(set(made.cohorts[:, 1].tolist())) > 1
    again = AdapterClient(ADAPTER, (PAGE,))(["v1", "v1"], 5, 40)
    assert (again.bits == made.bits[:, :, 3:]).all()
    assert (again.cohorts == made.cohorts[:, 1]).all()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "hello",
        "[1]",
        "{}",
        '{"refused": true}',
        '{"unknown": true}',
        '{"cohort": -1, "bits": "00"}',
        '{"cohort": "x", "bits": "00"}',
        '{"cohort": 0, "bits": "0000"}',
        '{"cohort": 0, "bits": "0x"}',
        '{"cohort": 0, "bits": 1}',
    ],
)
def test_an_answer_that_is_no_report_is_rejected(line: str) -> None:
    with pytest.raises(AuditError, match=r"It is not a report of dark, which has a cohort and 1 byte of bits"):
        answering(line)([True], 1, 2)


def test_an_adapter_with_several_cohorts_for_one_secret_has_moved() -> None:
    code = 'import sys\nfor at, _ in enumerate(sys.stdin): print(\'{"cohort": %d, "bits": "00"}\' % at)'
    made = AdapterClient([sys.executable, "-c", code], (DARK,))([True, True], 1, 1)
    assert made.cohorts.tolist() == [0]
    assert made.moved is not None
    assert made.moved.tolist() == [True]


def test_an_adapter_that_fails_is_reported_with_its_message() -> None:
    code = "import sys; sys.stderr.write('no battery'); sys.exit(3)"
    with pytest.raises(AuditError, match="exit code 3: no battery"):
        AdapterClient([sys.executable, "-c", code], (DARK,))([True], 1, 1)


def test_an_adapter_that_does_not_end_is_stopped() -> None:
    with pytest.raises(AuditError, match=r"did not end within 0.3 seconds .* raise --timeout"):
        AdapterClient([sys.executable, "-c", "import time; time.sleep(60)"], (DARK,), timeout=0.3)([True], 1, 1)


def test_a_missing_adapter_is_reported() -> None:
    with pytest.raises(AuditError, match="cannot be started: No such file"):
        AdapterClient(["./no-such-client"], (DARK,))([True], 1, 1)


def test_metric_is_selected_from_the_reports_of_several() -> None:
    """The second metric has the last three bits. The function receives no value of the first."""
    function = FunctionClient(
        "m:f",
        lambda values, *_: ([[3, 0]], [[[0, 1, value[0] is None, value[1] == "b"]] for value in values]),
        Selection(2, 1, (1, 4)),
    )
    made = function(["b"], 5, 1)
    assert made.cohorts.tolist() == [0]
    assert made.bits.tolist() == [[[1, 1, 1]]]


def test_report_of_several_metrics_with_one_cohort_is_rejected() -> None:
    with pytest.raises(AuditError, match=r"a pair of cohorts of shape \(1, 2\)"):
        replace(returning(([3], [[[0, 1]]])), selection=Selection(2))(["v"], 1, 1)


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
