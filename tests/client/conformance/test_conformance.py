"""`hubbub conformance`: the vectors, against a second implementation; faulty clients, each of which fails the rule of its fault; bad adapters."""

from __future__ import annotations

import base64
import json
import os
import shlex
import socket
import sys
import unicodedata
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner, Result

from examples import conformance_adapter
from hubbub.cli import main
from hubbub.conformance import scripted_aggregator
from hubbub.conformance.results import RuleResult, Verdict
from hubbub.conformance.rules import Case, EncodingRule, all_rules
from hubbub.conformance.scenarios import new_world
from hubbub.encoding import encoder as encoding
from hubbub.encoding.bloom import bloom_bits
from hubbub.encoding.responses import InstantaneousResponse, PermanentResponse
from hubbub.encoding.secret import Secret
from hubbub.metrics.kinds import strings
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import first_bits
from hubbub.metrics.periods import PeriodKind, period_number
from hubbub.sdk.upload import retry_policy, transport
from hubbub.sdk.upload.retry_policy import Action, UploadResponse
from hubbub.sdk.upload.transport import HttpTransport
from hubbub.wire import batch as wire
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

ADAPTER = REPOSITORY / "examples" / "conformance_adapter.py"
ENCODING = [rule for rule in all_rules() if isinstance(rule, EncodingRule)]
GENERATOR = Random()  # noqa: S311  (the fault of a client)
Ask = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def ask(
    request: Mapping[str, Any], session: conformance_adapter.Session = conformance_adapter.SESSION
) -> Mapping[str, Any]:
    """Answer of the adapter, as it comes from another process."""
    found = conformance_adapter.answer(json.loads(json.dumps(request)), session)
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


@dataclass
class InProcess:
    """The adapter in this process. A kill leaves its client as it is."""

    answer: Ask = ask

    def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.answer(request)

    def kill(self) -> None:
        conformance_adapter.SESSION.client = None

    @contextmanager
    def beside(self) -> Iterator[InProcess]:
        session = conformance_adapter.Session()
        yield InProcess(lambda request: ask(request, session) if self.answer is ask else self.answer(request))


def results(of: Ask = ask, *titles: str) -> dict[str, RuleResult]:
    """Results of the rules with these titles, or of all of the encoding."""
    rules = [rule for rule in all_rules() if rule.title in titles] if titles else ENCODING
    return {rule.title: rule.run(InProcess(of)) for rule in rules}


def verdicts(of: Ask = ask, *titles: str) -> dict[str, Verdict]:
    return {title: result.verdict for title, result in results(of, *titles).items()}


def test_script_reproduces_the_vectors() -> None:
    path = REPOSITORY / "client" / "hubbub" / "conformance" / "vectors.json"
    assert json.loads(path.read_text()) == json.loads(json.dumps(make_conformance_vectors.vectors()))


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may take four seconds, and not ten."""
    monkeypatch.setattr(transport, "REQUEST_TIMEOUT_SECONDS", 4.0)
    monkeypatch.setattr(scripted_aggregator, "SILENT_SECONDS", 1.6)
    monkeypatch.setattr(scripted_aggregator, "LONGEST_REQUEST_SECONDS", 6.0)


@pytest.mark.usefixtures("hurried")
def test_this_project_passes_and_every_rule_has_both_sides() -> None:
    assert set(verdicts(ask, *(rule.title for rule in all_rules())).values()) == {Verdict.PASSED}
    assert [rule.number for rule in all_rules()] == [*range(1, 18), *range(101, 149)]
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
        bloom = item_bits_of(fields["items"], value) if is_whole_set else bloom_of(fields, value, cohort)
        assert bloom is not None
        whole_sets += is_whole_set
        prr = prr_of(fields, key, epoch, value, bloom)
        bits = report_of(fields, prr, bytes.fromhex(request["random"])).hex()
        assert case.expected == {"cohort": cohort, "bits": bits}, request
    assert checked > 250
    assert whole_sets > 40


def normalized(value: Any) -> Any:
    return unicodedata.normalize("NFC", value) if isinstance(value, str) else value


def changed_request(change: Callable[[dict[str, Any]], object]) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    def faulty(request: Mapping[str, Any]) -> Mapping[str, Any]:
        copied = json.loads(json.dumps(request))
        change(copied)
        return ask(copied)

    return faulty


def faults(patch: pytest.MonkeyPatch) -> dict[str, tuple[Callable[[], object], str]]:
    """How to break the client, and the title of the rule that must find it."""
    stream, response = Secret.stream, PermanentResponse.__call__

    def without_digest(self: Secret, domain: str, *fields: bytes) -> Any:
        return stream(self, domain, *(b"" if len(field) == 32 else field for field in fields))

    def without_epoch(self: Any, bits: Any, epoch: Any) -> Any:
        return response(self, bits, None if epoch is None else 0)

    def drawn_each_time(self: Any, bits: Any, epoch: Any) -> Any:
        return type(self)(self_metrics[id(self)], Secret.generate())._original(bits, epoch)

    self_metrics: dict[int, Metric] = {}
    init = PermanentResponse.__init__

    def remembered(self: Any, metric: Metric, secret: Secret) -> None:
        init(self, metric, secret)
        self_metrics[id(self)] = metric

    def fresh() -> None:
        patch.setattr(PermanentResponse, "__init__", remembered)
        patch.setattr(PermanentResponse, "_original", response, raising=False)
        patch.setattr(PermanentResponse, "__call__", drawn_each_time)

    bits_of = bloom_bits

    def of_value(metric: Metric, value: Any, cohort: int, threshold: Any = None) -> Any:
        return bits_of(metric, value, (cohort + len(str(value))) % metric.num_cohorts, threshold)

    def lenient(text: str) -> bytes:
        return text.encode("utf-8", "surrogatepass")

    def swapped(self: Any, permanent: int) -> int:
        return int(instantaneous(self, permanent ^ independent_bits[id(self)]))

    instantaneous = InstantaneousResponse.__call__
    independent_bits: dict[int, int] = {}
    made = InstantaneousResponse.__init__

    def with_bits(self: Any, blocks: Any, random_bytes: Any) -> None:
        made(self, blocks, random_bytes)
        independent_bits[id(self)] = sum(
            (1 << block.num_bits) - 1 << first_bit
            for block, first_bit in zip(blocks, first_bits(blocks), strict=True)
            if block.mechanism.has_independent_bits
        )

    def exchange() -> None:
        patch.setattr(InstantaneousResponse, "__init__", with_bits)
        patch.setattr(InstantaneousResponse, "__call__", swapped)

    return {
        "permanent response without the metric's digest": (
            lambda: patch.setattr(Secret, "stream", without_digest),
            "symmetric permanent response",
        ),
        "permanent response drawn each time": (fresh, "symmetric permanent response"),
        "one permanent response in all epochs": (
            lambda: patch.setattr(PermanentResponse, "__call__", without_epoch),
            "epochs",
        ),
        "bits of a cohort that depends on the value": (
            lambda: patch.setattr(encoding, "bloom_bits", of_value),
            "strings, hashed by murmur3-v1 in the cohort of the secret",
        ),
        "lone surrogates hashed": (lambda: patch.setattr(strings, "_utf8", lenient), "invalid values are refused"),
        "p and q exchanged": (exchange, "instantaneous response"),
        "length that depends on the report": (
            lambda: patch.setattr(wire, "SINGLE_REPORT_BYTES", 0),
            "body of a request",
        ),
    }


FAULTS = list(faults(pytest.MonkeyPatch()))


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_client_fails_the_rule_of_its_fault(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_it, title = faults(monkeypatch)[name]
    break_it()
    assert verdicts()[title] is Verdict.FAILED


@pytest.mark.parametrize(
    ("change", "title"),
    [
        (
            lambda r: r.update(value=normalized(r.get("value"))),
            "strings, hashed by murmur3-v1 in the cohort of the secret",
        ),
        (
            lambda r: r.update(value=r["value"].strip()) if isinstance(r.get("value"), str) else None,
            "categories and booleans",
        ),
        (
            lambda r: r.update(value="") if r.get("value", 0) is None else None,
            "strings, hashed by murmur3-v1 in the cohort of the secret",
        ),
        (lambda r: r["definition"].update(hold=None) if r["call"] == "digest" else None, "digest of a definition"),
        (lambda r: r.update(group=""), "body of a request"),
        (lambda r: r.update(random=r.get("random", "")[2:]), "instantaneous response"),
        (lambda r: r.update(random=GENERATOR.randbytes(len(r.get("random", ""))).hex()), "instantaneous response"),
    ],
    ids=[
        "normalized text",
        "trimmed text",
        "no value as an empty string",
        "digest without hold",
        "no group",
        "a lost random byte",
        "noise of another generator than the given one",
    ],
)
def test_other_misreadings_of_the_page_fail(change: Callable[[dict[str, Any]], object], title: str) -> None:
    assert verdicts(changed_request(lambda r: change(r) if title in rule_titles(r) else None))[title] is Verdict.FAILED


def rule_titles(request: Mapping[str, Any]) -> set[str]:
    """Titles of the rules with cases of a call."""
    return {rule.title for rule in ENCODING if any(case.request["call"] == request["call"] for case in rule.cases)}


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


@pytest.mark.slow
def test_command_checks_every_rule() -> None:
    passed = run("--command", shlex.join([sys.executable, str(ADAPTER)]))
    assert (passed.exit_code, passed.stdout.count(" passed ")) == (0, len(all_rules()))


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


def again(self: HttpTransport, body: bytes, *_: Any) -> UploadResponse:
    """Send a body twice, as two batches."""
    fields = json.loads(body)
    other = json.dumps(fields | {"batch_id": str(uuid.uuid4())}, separators=(",", ":")).encode().ljust(512)
    SEND(self, other)
    return SEND(self, body)


def redrawn(self: HttpTransport, body: bytes, *_: Any) -> UploadResponse:
    """Send other bits at each attempt."""
    bits = base64.b64encode(os.urandom(4)).decode()
    return SEND(self, json.dumps(json.loads(body) | {"bits": bits}, separators=(",", ":")).encode().ljust(512))


def redirected(self: HttpTransport, body: bytes, *_: Any) -> UploadResponse:
    """Follow a redirect."""
    answer = SEND(self, body)
    if answer.status == 307:
        return HttpTransport(self._url.removesuffix("/v1/reports") + "/elsewhere").send(body)
    return answer


SEND = HttpTransport.send


DECIDE = retry_policy.decide


def deciding(status: int | None, action: Action) -> Callable[..., Action]:
    """Retry policy with another action for one status, whoever answers, also for a batch in doubt."""

    def decide(found: UploadResponse, batch: wire.Batch, *, possibly_delivered: bool) -> Action:
        return action if found.status == status else DECIDE(found, batch, possibly_delivered=possibly_delivered)

    return decide


def answered_instead(failure: str, status: int) -> Callable[..., UploadResponse]:
    """Transport that takes a failure for an answer with a status."""

    def send(self: HttpTransport, body: bytes, *_: Any) -> UploadResponse:
        answer = SEND(self, body)
        if answer.status is not None or failure not in answer.failure:
            return answer
        return UploadResponse(status, batch_id=json.loads(body)["batch_id"])

    return send


def without_deadline(*_: object) -> bool:
    return True


def unhurried(*_: object) -> float:
    return 0.0


def leaks() -> Ask:
    """A log has each value."""
    directory = Path()

    def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
        nonlocal directory
        if request["call"] == "start":
            directory = Path(request["directory"])
        if request["call"] == "record":
            (directory / "log").write_text(f"recorded {request['value']}")
        return ask(request)

    return answer


def forgets() -> Ask:
    """Each start is a new client, which has consent."""

    def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
        if request["call"] != "start":
            return ask(request)
        ask({**request, "directory": f"{request['directory']}/{uuid.uuid4()}"})
        return ask({"call": "consent", "level": "on"})

    return answer


def never_withdraws() -> Ask:
    """Consent is never withdrawn."""
    return lambda request: ask({**request, "level": "on"} if request["call"] == "consent" else request)


@pytest.mark.parametrize(
    ("fault", "title"),
    [
        (again, "one report for each metric and period"),
        (redrawn, "the same bytes until an answer comes"),
        (redirected, "follows no redirect"),
    ],
    ids=["two reports a period", "noise drawn again on a retry", "redirects followed"],
)
def test_a_faulty_upload_fails_its_scenario(fault: Any, title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpTransport, "send", fault)
    found = results(ask, title)[title]
    assert found.verdict is Verdict.FAILED
    assert found.counterexample["happened"]


REPEATS, GIVES_UP, SETS_ASIDE = (
    "the same bytes until an answer comes",
    "gives up an answer after ten seconds",
    "sets a report aside that is too large",
)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("place", "name", "fault", "title", "happened"),
    [
        (
            retry_policy,
            "decide",
            deciding(408, Action.QUARANTINE),
            REPEATS,
            "sent 3 times, after 503, a lost answer, 408",
        ),
        (HttpTransport, "send", answered_instead("reset", 202), REPEATS, "sent 4 times"),
        (transport.RequestCanceller, "may_continue", without_deadline, GIVES_UP, "still ran after"),
        (HttpTransport, "send", answered_instead("", 202), GIVES_UP, "sent 1 times, after an answer without an end"),
        (retry_policy, "decide", deciding(413, Action.RETRY), SETS_ASIDE, "sent again after 413"),
    ],
    ids=["408 is final", "a reset is final", "no deadline", "a status without a body", "413 again and again"],
)
def test_a_client_with_another_retry_policy_fails(
    place: Any, name: str, fault: Any, title: str, happened: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, fault)
    found = results(ask, title)[title]
    assert found.verdict is Verdict.FAILED
    assert happened in found.counterexample["happened"]


@pytest.mark.parametrize(
    ("fault", "title", "happened"),
    [
        (never_withdraws, "nothing without consent", "after consent was withdrawn"),
        (forgets, "one secret over restarts and kills", "the permanent response or the cohort of one value changed"),
        (forgets, "the ledger outlives restarts and kills", "permanent responses were sent"),
        (forgets, "a clock that is set back", "after the clock was set back"),
        (leaks, "no value in clear", "log has the recorded value in clear"),
    ],
    ids=["consent ignored", "secret lost", "budget reset by a restart", "clock set back accepted", "value in a log"],
)
def test_a_faulty_client_fails_its_scenario(fault: Callable[[], Ask], title: str, happened: str) -> None:
    found = results(fault(), title)[title]
    assert found.verdict is Verdict.FAILED
    assert happened in found.counterexample["happened"]


def test_lengths_and_answers_that_a_client_ignores_fail_their_scenarios(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(wire, "SINGLE_REPORT_BYTES", 0)
        assert verdicts(ask, "requests of one length")["requests of one length"] is Verdict.FAILED
    with monkeypatch.context() as patch:
        patch.setattr(retry_policy, "backoff_seconds", unhurried)
        title = "waits as long as the aggregator asks"
        assert verdicts(ask, title)[title] is Verdict.FAILED
    with monkeypatch.context() as patch:
        patch.setitem(retry_policy.__dict__, "decide", lambda *_, **__: retry_policy.Action.RETRY)
        title = "drops batches of closed periods"
        assert verdicts(ask, title)[title] is Verdict.FAILED


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
        with new_world(InProcess()) as world:
            with socket.create_connection(("127.0.0.1", int(world.aggregator.url.rpartition(":")[2]))) as connection:
                connection.sendall(b"POST /v1/reports HTTP/1.1\r\nContent-Length: 64\r\n\r\n" + whole[:length])
                connection.shutdown(socket.SHUT_WR)
                answered = connection.recv(1) != b""
            assert answered == (length == 64)
            assert len(world.aggregator.requests) == 1
            assert len(world.attempts("b")) == int(length == 64)
