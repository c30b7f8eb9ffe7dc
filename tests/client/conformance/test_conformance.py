"""`hubbub conformance`: the vectors, against a second implementation; the client of this project; bad adapters."""

from __future__ import annotations

import json
import shlex
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hubbub.cli import main
from hubbub.conformance.results import RuleResult, Verdict
from hubbub.conformance.rules import Case, EncodingRule, all_rules
from hubbub.conformance.world import new_world
from hubbub.metrics.periods import PeriodKind, period_number
from tests.client.wire.test_format import (
    bloom_of,
    cohort_of,
    digest_of,
    is_allowed,
    item_bits_of,
    parts_of,
    prr_of,
    report_of,
)
from tests.data import make_conformance_vectors
from tests.support.paths import REPOSITORY
from tests.support.quick_rules import QUICK_RULES, RULE_THAT_WAITS

ADAPTER = REPOSITORY / "examples" / "conformance_adapter.py"
ENCODING = [rule for rule in all_rules() if isinstance(rule, EncodingRule)]
Ask = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass
class InProcess:
    """An adapter that is a function of a request."""

    answer: Ask

    def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.answer(request)

    def kill(self) -> None:
        """End nothing."""

    @contextmanager
    def beside(self) -> Iterator[InProcess]:
        yield self


def results(of: Ask, *titles: str) -> dict[str, RuleResult]:
    """Results of the rules with these titles, or of all of the encoding."""
    rules = [rule for rule in all_rules() if rule.title in titles] if titles else ENCODING
    return {rule.title: rule.run(InProcess(of)) for rule in rules}


def verdicts(of: Ask, *titles: str) -> dict[str, Verdict]:
    return {title: result.verdict for title, result in results(of, *titles).items()}


def test_script_reproduces_the_vectors() -> None:
    path = REPOSITORY / "client" / "hubbub" / "conformance" / "vectors.json"
    assert json.loads(path.read_text()) == json.loads(json.dumps(make_conformance_vectors.vectors()))


def test_every_rule_of_the_encoding_has_both_sides() -> None:
    assert [rule.number for rule in all_rules()] == [*range(1, 18), *range(101, 150)]
    for rule in ENCODING:
        assert len({json.dumps(case.expected) for case in rule.cases}) > 1 or rule.number in (2, 6), rule.title


def test_a_second_implementation_gives_the_same_answers() -> None:
    """The one of tests/client/wire/test_format.py, which was written from the page; it has no subsets, discovery, means and asked items."""
    checked = whole_sets = 0
    for case in (case for rule in ENCODING for case in rule.cases):
        request, fields = case.request, case.request["definition"]
        is_whole_set = "max_items" in fields
        of_one = not is_whole_set and {"num_ones", "items"} & fields.keys()
        other = of_one or {"discover", "group"} & fields.keys() or fields.get("buckets", {}).get("estimate")
        if other or (request["call"] == "encode" and "refused" in case.expected) or request["call"] == "batch":
            continue
        checked += 1
        if request["call"] == "digest":
            assert is_allowed(fields) == ("digest" in case.expected), fields
            assert "refused" in case.expected or digest_of(fields) == case.expected["digest"]
            continue
        key, value = bytes.fromhex(request["secret"]), request["value"]
        cohort = cohort_of(key, max(part["num_cohorts"] for part, _ in parts_of(fields)))
        epoch = (
            None
            if fields["hold"] is None
            else period_number(PeriodKind(fields["period"]), request["period"]) // fields["hold"]
        )
        bloom = item_bits_of(fields, value, cohort) if is_whole_set else bloom_of(fields, value, cohort)
        assert bloom is not None
        whole_sets += is_whole_set
        prr = prr_of(fields, key, epoch, value, bloom)
        bits = report_of(fields, prr, bytes.fromhex(request["random"])).hex()
        assert case.expected == {"cohort": cohort, "bits": bits}, request
    assert checked > 250
    assert whole_sets > 40


def test_the_counterexample_is_the_smallest_and_calls_may_be_left_out() -> None:
    def broken(request: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"unknown": True} if request["call"] == "batch" else {"cohort": 0, "bits": ""}

    found = {result.number: result for result in results(broken).values()}
    assert found[16].verdict is Verdict.NOT_CLAIMED
    (rule,) = (rule for rule in ENCODING if rule.number == 4)
    assert found[4].failed == len(rule.cases)
    smallest = min(len(json.dumps(case.request)) for case in rule.cases)
    assert len(json.dumps(found[4].counterexample["request"])) == smallest
    assert verdicts(broken, "body of a request") == {"body of a request": Verdict.NOT_CLAIMED}


@pytest.mark.parametrize("body", [None, 1, "{}", "\ud800", "not JSON".ljust(512), "[" * 512])
def test_bodies_that_are_no_batch_are_not_accepted(body: object) -> None:
    case = Case({}, {"body": json.dumps({"metric": "a"}).ljust(512)})
    assert not case.accepts({"body": body})
    assert case.accepts({"body": json.dumps({"metric": "a"}, indent=1).ljust(512)})


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["conformance", *arguments])


def adapter(tmp_path: Path, program: str) -> str:
    path = tmp_path / "adapter.py"
    path.write_text(program)
    return shlex.join([sys.executable, str(path)])


@pytest.mark.parametrize("options", [QUICK_RULES, pytest.param([RULE_THAT_WAITS], marks=pytest.mark.slow)])
def test_this_project_passes(options: list[str]) -> None:
    passed = run("--command", shlex.join([sys.executable, str(ADAPTER)]), *options)
    assert (passed.exit_code, passed.stdout.count(" passed ")) == (0, len(options)), passed.output


def test_command(tmp_path: Path) -> None:
    own = shlex.join([sys.executable, str(ADAPTER)])
    passed = run("--command", own, "--rule", "16", "--rule", "107")
    assert (passed.exit_code, passed.stdout.count(" passed ")) == (0, 2)
    one = run("--command", own, "--rule", "16", "--json")
    assert [result["rule"] for result in json.loads(one.stdout)["rules"]] == [16]
    hostile = json.dumps({"digest": "\x1b[8m"})
    wrong = adapter(tmp_path, f"import sys\nfor _ in sys.stdin: print({hostile!r}, flush=True)")
    failed = run("--command", wrong, "--rule", "1")
    assert failed.exit_code == 3
    assert "48 of 48 cases" in failed.stdout
    assert "\x1b" not in failed.stdout
    assert "format.md, Metric digest" in failed.stdout
    document = json.loads(run("--command", wrong, "--rule", "1", "--json").stdout)
    assert document["rules"][0]["counterexample"]["answer"] == {"digest": "\x1b[8m"}
    assert run("--command", own, "--rule", "99").exit_code == 2


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("", "ended with exit code 0 before"),
        ("import sys; sys.exit(7)", "ended with exit code 7 before"),
        (
            "import sys\nfor _ in sys.stdin: print('hello', flush=True)",
            "answered 'hello'. An answer is one JSON object",
        ),
        ("import sys\nfor _ in sys.stdin: print('[1]', flush=True)", "answered '[1]'"),
        (
            "import sys\nfor _ in sys.stdin: sys.stdout.buffer.write(b'\\xff\\n'); sys.stdout.flush()",
            "answered '\\\\xff'",
        ),
        ("import time\ntime.sleep(60)", "did not answer within 0.5 seconds"),
        ("import sys\nsys.stdin.close()\nimport time\ntime.sleep(60)", "did not answer within 0.5 seconds"),
    ],
)
def test_an_adapter_that_cannot_be_run_is_no_failed_rule(program: str, message: str, tmp_path: Path) -> None:
    done = run("--command", adapter(tmp_path, program), "--timeout", "0.5")
    assert (done.exit_code, message in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize("words", ["", " ", '"', "'a b"])
@pytest.mark.parametrize("command", ["conformance", "audit"])
def test_a_command_that_cannot_be_read_is_a_usage_error(command: str, words: str) -> None:
    done = CliRunner().invoke(main, [command, "--command", words])
    assert (done.exit_code, "Invalid value for '--command'" in done.stderr) == (2, True), done.stderr


def test_a_program_that_does_not_exist(tmp_path: Path) -> None:
    done = run("--command", str(tmp_path / "missing"))
    assert (done.exit_code, "cannot be started: No such file" in done.stderr) == (1, True)


def test_a_client_that_sends_nothing_passes_no_scenario_but_that_of_consent() -> None:
    of_days = [rule.title for rule in all_rules() if not isinstance(rule, EncodingRule)]
    silent = verdicts(lambda request: {"delivered": True}, *of_days)  # noqa: ARG005
    assert {title for title, verdict in silent.items() if verdict is not Verdict.FAILED} == {"nothing without consent"}
    unknown = verdicts(lambda request: {"unknown": True}, *of_days)  # noqa: ARG005
    assert set(unknown.values()) == {Verdict.NOT_CLAIMED}


def test_a_request_that_a_client_gives_up_is_no_batch_and_shows_that_it_was_sent() -> None:
    """Cut anywhere: also in the padding, where the JSON is whole."""
    whole = json.dumps({"batch_id": "b"}).encode().ljust(64)
    for length in (0, 5, 40, 64):
        with new_world(InProcess(dict)) as world:
            with socket.create_connection(("127.0.0.1", int(world.aggregator.url.rpartition(":")[2]))) as connection:
                connection.sendall(b"POST /v1/reports HTTP/1.1\r\nContent-Length: 64\r\n\r\n" + whole[:length])
                connection.shutdown(socket.SHUT_WR)
                answered = connection.recv(1) != b""
            assert answered == (length == 64)
            assert len(world.aggregator.requests) == 1
            assert len(world.attempts("b")) == int(length == 64)
