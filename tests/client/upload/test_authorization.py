"""Report tokens of the app: when its function is called, what it may return, and what nobody ever sees."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from hubbub import Client, Definitions, ParameterError
from hubbub.client import collaborators
from hubbub.sdk.upload import authorization as module
from hubbub.sdk.upload import transport as transport_module
from hubbub.sdk.upload.authorization import MAX_TOKEN_CHARACTERS
from hubbub.sdk.upload.transport import HttpTransport
from hubbub.testing import UNLIMITED, ManualClock, Seams, deliver
from tests.client.conftest import SURVEY
from tests.client.upload.test_transport import BODY, JSON, STORED, answering, http, server

ACCEPTED = http("202 Accepted", STORED, JSON)
UNAUTHORIZED = http("401 Unauthorized", b'{"type": "/problems/unauthorized"}')
FORBIDDEN = http("403 Forbidden", b'{"type": "/problems/forbidden"}')
CANARY = "canary-7f3a9c"


def raising() -> str:
    raise RuntimeError(CANARY)


def exiting() -> str:
    raise SystemExit(CANARY)


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "raises": (raising, "authorization raised RuntimeError"),
    "exits": (exiting, "authorization raised SystemExit"),
    "None": (lambda: None, "authorization must return a str, got NoneType"),
    "bytes": (CANARY.encode, "authorization must return a str, got bytes"),
    "empty": (str, "got 0 characters"),
    "line break": (lambda: f"{CANARY}\r\nX-Evil: 1", "got 24 characters"),
    "not ASCII": (lambda: f"{CANARY}é", "got 14 characters"),
    "Bearer": (lambda: f"Bearer {CANARY}", "got 20 characters"),
    "a megabyte": (lambda: "c" * (1 << 20), "got 1048576 characters"),
}


def tokens_of(heard: list[bytes]) -> list[str]:
    """Tokens of the requests that a server heard."""
    heads = (request.partition(b"\r\n\r\n")[0].decode() for request in heard)
    lines = (line for head in heads for line in head.split("\r\n"))
    return [line.removeprefix("Authorization: Bearer ").rstrip() for line in lines if line.startswith("Authorization")]


@pytest.mark.parametrize("name", BAD)
def test_request_without_a_token_is_not_sent(name: str) -> None:
    """And the reason has nothing of what the function returned or raised."""
    function, reason = BAD[name]
    heard: list[bytes] = []
    with server(answering(ACCEPTED, heard)) as url:
        answer = HttpTransport(url, authorization=function).send(BODY)
    assert not heard
    assert (answer.status, answer.request_sent) == (None, False)
    assert reason in answer.description
    assert CANARY not in answer.description


def test_function_is_called_once_for_each_request() -> None:
    heard: list[bytes] = []
    tokens = iter(["a", "b", "c"])
    with server(answering(ACCEPTED, heard)) as url:
        transport = HttpTransport(url, authorization=lambda: next(tokens))
        assert [transport.send(BODY).status for _ in range(2)] == [202, 202]
    assert tokens_of(heard) == ["a", "b"]
    assert next(tokens) == "c"


@pytest.mark.parametrize(
    ("answer", "given", "sent"),
    [
        (UNAUTHORIZED, ["old", "new"], ["old", "new"]),
        (UNAUTHORIZED, ["same", "same"], ["same"]),
        (FORBIDDEN, ["old", "new"], ["old"]),
    ],
)
def test_token_is_refreshed_after_401_and_not_after_403(answer: bytes, given: list[str], sent: list[str]) -> None:
    heard: list[bytes] = []
    tokens = iter(given)
    with server(answering(answer, heard)) as url:
        assert HttpTransport(url, authorization=lambda: next(tokens)).send(BODY).status in (401, 403)
    assert tokens_of(heard) == sent


def test_next_request_does_not_wait_for_the_thread_of_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a thread can still be alive after its function has returned."""
    ended, call = threading.Event(), module.TokenSource._call

    def call_and_linger(source: module.TokenSource, answers: queue.SimpleQueue[object]) -> None:
        call(source, answers)
        ended.wait(60)

    monkeypatch.setattr(module.TokenSource, "_call", call_and_linger)
    tokens = iter(["a", "b"])
    source = module.TokenSource(lambda: next(tokens))
    assert [source.header(lambda: True, 60).split()[1] for _ in range(2)] == ["a", "b"]
    ended.set()


def test_requests_have_one_length_whatever_the_token() -> None:
    heard: list[bytes] = []
    with server(answering(ACCEPTED, heard)) as url:
        for size in (1, 40, MAX_TOKEN_CHARACTERS):
            assert HttpTransport(url, authorization=("t" * size).strip).send(BODY).status == 202
    assert len({len(request) for request in heard}) == 1
    assert [len(token) for token in tokens_of(heard)] == [1, 40, MAX_TOKEN_CHARACTERS]


def test_blocking_function_costs_one_timeout_and_is_not_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "REQUEST_TIMEOUT_SECONDS", 0.2)
    ended, calls = threading.Event(), []

    def blocking() -> str:
        calls.append(1)
        ended.wait(60)
        return "token"

    heard: list[bytes] = []
    with server(answering(ACCEPTED, heard)) as url:
        transport = HttpTransport(url, authorization=blocking)
        assert "did not return within 0.2 seconds" in transport.send(BODY).description
        assert "has not returned since the last request" in transport.send(BODY).description
        assert not heard
        assert len(calls) == 1
        ended.set()
        (thread,) = (thread for thread in threading.enumerate() if thread.name == "hubbub-authorization")
        thread.join(10)
        assert transport.send(BODY).status == 202


def test_withdrawn_consent_ends_the_wait_for_a_token() -> None:
    ended, wanted, began = threading.Event(), threading.Event(), time.monotonic()
    wanted.set()
    threading.Timer(0.1, wanted.clear).start()
    transport = HttpTransport("http://127.0.0.1:9", authorization=lambda: str(ended.wait(60)))
    assert not transport.send(BODY, wanted.is_set).request_sent
    assert time.monotonic() - began < 5
    ended.set()


@pytest.mark.parametrize("name", BAD)
def test_app_notices_nothing_and_inspect_has_the_reason(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The report waits, and no file or line of the log has anything of the token; with a valid one it is sent."""
    caplog.set_level(logging.DEBUG)
    function, reason = BAD[name]
    answers = [function]
    heard: list[bytes] = []
    with server(answering(ACCEPTED, heard)) as url:
        client = Client(
            Definitions([SURVEY]),
            tmp_path / "state",
            url,
            policy=UNLIMITED,
            seams=Seams(clock=ManualClock(date(2026, 11, 21))),
            authorization=lambda: answers[0](),
            environment={},
        )
        client.set_consent("on")
        client.record("survey", True)
        deliver(client)
        assert client.accounting().queued == 1
        assert reason in client.inspect().last_error
        files = b"".join(path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file())
        assert CANARY.encode() not in files
        assert CANARY not in caplog.text + repr(client.inspect()) + repr(collaborators(client).sender)
        answers[0] = lambda: CANARY
        deliver(client)
        client.close()
    assert tokens_of(heard) == [CANARY]
    assert CANARY not in caplog.text
    files = b"".join(path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file())
    assert CANARY.encode() not in files


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"authorization": "token"}, "pass the function, not a token"),
        ({"authorization": str, "detached": True}, "cannot be combined with detached or a transport"),
        (
            {"authorization": str, "seams": Seams(transport=HttpTransport("http://127.0.0.1:9"))},
            "cannot be combined with detached",
        ),
    ],
)
def test_function_that_cannot_be_used_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Client(Definitions([SURVEY]), tmp_path, "http://127.0.0.1:9", environment={}, **options)


def test_module_says_nothing_of_a_token() -> None:
    assert CANARY not in repr(module.TokenSource(lambda: CANARY))
