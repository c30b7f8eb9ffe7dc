"""HTTP transport: request bytes, accepted responses, deadlines."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from hubbub import Client, Consent, ParameterError
from hubbub.client import collaborators
from hubbub.sdk.storage.events import JOURNAL, Reschedule
from hubbub.sdk.upload.retry_policy import NO_RESPONSE, NOT_SENT, UploadResponse
from hubbub.sdk.upload.transport import HttpTransport
from hubbub.testing import deliver
from hubbub.wire.urls import check_url
from tests.client.conftest import SURVEY, Rig, require_balanced
from tests.support.paths import DATA

CERTIFICATE = DATA / "localhost.pem"
STORED, JSON, PROBLEM = (
    b'{"batch_id": "x", "status": "stored"}',
    "Content-Type: application/json",
    "Content-Type: application/problem+json",
)
BODY = b'{"batch_id":"4d3c0e46-4b1c-4b7e-9f55-3a8f3c2d1e0f"}'


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Serve raw sockets on this machine, one connection after the other."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stopped = threading.Event()

        def run() -> None:
            while not stopped.is_set():
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, suppress(OSError):
                    serve(connection)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        stopped.set()
        listener.shutdown(socket.SHUT_RDWR)


def answering(text: bytes, heard: list[bytes]) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        data = b""
        while BODY[-20:] not in data and b"bits" not in data:
            part = connection.recv(65536)
            if not part:
                break
            data += part
        heard.append(data)
        connection.sendall(text)

    return serve


def http(status: str, body: bytes, *headers: str) -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers])
    return head.encode() + b"\r\n\r\n" + body


def test_failure_has_reason_and_address_without_class_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = f"127.0.0.1:{listener.getsockname()[1]}"
    refused = HttpTransport(f"http://{closed}").send(BODY).description
    monkeypatch.setenv("https_proxy", f"http://{closed}")
    proxy_refused = HttpTransport("https://telemetry.example.org").send(BODY).description
    with server(lambda _: None) as url:
        ended = HttpTransport(url).send(BODY).description
    for text, address in ((refused, closed), (proxy_refused, closed), (ended, url.partition("//")[2])):
        assert text.startswith("no response: ")
        assert text.endswith(f" ({address})")
        assert "Connection(" not in text
        assert "Cancellable" not in text
    assert "Connection refused" in refused
    assert "Connection refused" in proxy_refused


@pytest.mark.parametrize("user", ["canary:canary@", "canary@", "@"])
def test_rejects_url_with_user_name_without_repeating_it(user: str) -> None:
    with pytest.raises(
        ParameterError, match=r"no user name and password, got https://\*\*\*@example\.org:8443"
    ) as caught:
        check_url(f"https://{user}example.org:8443")
    assert "canary" not in str(caught.value)


def test_request_headers_do_not_identify_client() -> None:
    heard: list[bytes] = []
    answer = http("202 Accepted", STORED, JSON, "Set-Cookie: id=1", "Date: Sat, 21 Nov 2026 12:00:00 GMT")
    with server(answering(answer, heard)) as url:
        transport = HttpTransport(url)
        responses = [transport.send(BODY) for _ in range(2)]
    assert responses == [UploadResponse(202, batch_id="x", date="Sat, 21 Nov 2026 12:00:00 GMT")] * 2
    assert heard[0] == heard[1]
    head, _, body = heard[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v1/reports HTTP/1.1"
    assert body == BODY
    assert {line.partition(":")[0].lower() for line in lines[1:]} == {
        *("host", "accept-encoding", "content-length", "content-type", "user-agent", "accept", "connection")
    }
    assert "User-Agent: hubbub/1" in lines


def test_thread_that_has_connected_does_not_hold_up_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    class SlowToReturn(threading.Thread):
        def run(self) -> None:
            super().run()
            time.sleep(0.5)

    monkeypatch.setattr("hubbub.sdk.upload.cancellation.threading.Thread", SlowToReturn)
    with server(answering(http("202 Accepted", STORED, JSON), [])) as url:
        transport = HttpTransport(url)
        assert [transport.send(BODY).status for _ in range(2)] == [202, 202]


BUSY = b'{"type": "/problems/unavailable", "status": 503}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            http("200 OK", b"<html>welcome</html>", "Content-Type: text/html", "Retry-After: 9"),
            UploadResponse(200, retry_after="9"),
        ),
        (http("302 Found", b"", "Location: http://127.0.0.1:1/"), UploadResponse(302)),
        (http("503 Busy", BUSY, PROBLEM, "Retry-After: 7"), UploadResponse(503, "unavailable", retry_after="7")),
        (http("503 Busy", BUSY, f"{PROBLEM}; charset=utf-8"), UploadResponse(503, "unavailable")),
        (http("503 Busy", BUSY.ljust(1 << 16), PROBLEM), UploadResponse(503, "unavailable")),
        (http("503 Busy", BUSY.ljust((1 << 16) + 1), PROBLEM), UploadResponse(503)),
        (http("503 Busy", BUSY, PROBLEM, "Content-Type: text/html"), UploadResponse(503)),
        (http("503 Busy", BUSY), UploadResponse(503)),
        (http("503 Busy", BUSY, PROBLEM, "Content-Encoding: gzip"), NO_RESPONSE),
        (http("503 Busy", BUSY, PROBLEM, "Content-Length: 999"), NO_RESPONSE),
        (http("503 Busy", BUSY, PROBLEM)[:-5], NO_RESPONSE),
        (http("202 Accepted", STORED, JSON)[:-5], NO_RESPONSE),
        (http("202 Accepted", STORED, JSON), UploadResponse(202, batch_id="x")),
        (http("200 OK", STORED, JSON), UploadResponse(200)),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + http("202 Accepted", STORED, JSON), UploadResponse(202, batch_id="x")),
        (b"HTTP/1.1 204 No Content\r\n\r\n", UploadResponse(204)),
        (http("200 OK", b"[" * 30_000), UploadResponse(200)),
        (http("200 OK", b"x" * 200_000), UploadResponse(200)),
        (b"not http at all\r\n\r\n", NO_RESPONSE),
        (b"", NO_RESPONSE),
    ],
)
def test_parses_responses_and_ignores_invalid_ones(text: bytes, expected: UploadResponse) -> None:
    with server(answering(text, [])) as url:
        assert HttpTransport(url).send(BODY) == expected


def test_refused_connection_is_not_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert HttpTransport(f"http://127.0.0.1:{port}").send(BODY) == NOT_SENT


def test_untrusted_certificate_is_rejected() -> None:
    """The same server: with its certificate given it is answered; without, nothing is sent."""
    heard: list[bytes] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)

    def secure(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as wrapped:
            answering(http("202 Accepted", STORED, JSON), heard)(wrapped)

    with server(secure) as url:
        url = url.replace("http", "https")
        assert HttpTransport(url).send(BODY) == NOT_SENT
        assert heard == []
        assert HttpTransport(url, str(CERTIFICATE)).send(BODY) == UploadResponse(202, batch_id="x")
    assert heard[0].endswith(BODY)


def test_proxy_from_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[bytes] = []

    def refusing(connection: socket.socket) -> None:
        heard.append(connection.recv(65536))
        connection.sendall(http("403 Forbidden", b""))

    with server(refusing) as url:
        monkeypatch.setenv("https_proxy", url)
        assert HttpTransport("https://telemetry.example.org").send(BODY) == NOT_SENT
        for written, credentials in (
            (url.replace("://", "://ada:l%40ce@"), b"YWRhOmxAY2U="),
            (url.removeprefix("http://"), None),
        ):
            monkeypatch.setenv("https_proxy", written)
            assert HttpTransport("https://telemetry.example.org").send(BODY) == NOT_SENT
            sent = b"proxy-authorization: basic " + credentials.lower() if credentials else b""
            assert sent in heard[-1].lower()
            assert (b"authorization" in heard[-1].lower()) == bool(credentials)
    assert all(request.startswith(b"CONNECT telemetry.example.org:443 ") for request in heard)
    assert len(heard) == 3


@pytest.mark.parametrize(
    "url",
    [
        *("http://example.org", "http://10.0.0.1:8000", "ftp://example.org", "example.org", "", "https://x.org/?a=b"),
        *("http://[::1", "https://x:abc", "https://x:99999", "https://x:0", " https://x", "https://x ", "https://x\n"),
        *("https://x\0y", "https://a b", "https://", 5, None, b"https://x.org"),
    ],
)
def test_rejects_url_without_https(url: str) -> None:
    with pytest.raises(ParameterError, match="url must be"):
        check_url(url)


@pytest.mark.parametrize("url", ["https://example.org", "http://localhost:1", "http://127.0.0.1", "http://[::1]:8000"])
def test_accepts_https_and_loopback_url(url: str) -> None:
    assert check_url(url + "/") == url


def silent(connection: socket.socket) -> None:
    connection.settimeout(5)
    while connection.recv(65536):
        pass


def dripping(connection: socket.socket) -> None:
    connection.recv(65536)
    for byte in http("202 Accepted", b"{}"):
        connection.sendall(bytes([byte]))
        time.sleep(0.2)


def dripping_headers(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 202 Accepted\r\nX-Drip: ")
    while True:
        connection.sendall(b"x")
        time.sleep(0.05)


def always_about_to_answer(connection: socket.socket) -> None:
    connection.recv(65536)
    while True:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.05)


def huge_header(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 202 Accepted\r\n")
    for _ in range(1 << 10):
        connection.sendall(b"X-Huge: " + b"x" * 60_000 + b"\r\n")


def dripping_handshake(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"\x16\x03\x03\x40\x00")
    while True:
        connection.sendall(b"\x00")
        time.sleep(0.05)


@pytest.mark.parametrize(
    "serve", [silent, dripping, dripping_headers, always_about_to_answer, huge_header, dripping_handshake]
)
def test_request_ends_at_total_deadline(
    serve: Callable[[socket.socket], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deadline of half a second; each of these responses takes at least five seconds, most never end."""
    monkeypatch.setattr("hubbub.sdk.upload.transport.REQUEST_TIMEOUT_SECONDS", 0.5)
    with server(serve) as url:
        began = time.monotonic()
        scheme = "https" if serve is dripping_handshake else "http"
        expected = NOT_SENT if scheme == "https" else NO_RESPONSE  # a handshake carries nothing of the request
        assert HttpTransport(url.replace("http", scheme)).send(BODY) == expected
        assert time.monotonic() - began < 4


def test_cancelled_request_is_cut_and_rest_discarded() -> None:
    """The other side stops reading after the first bytes; once it reads on, the end of the body never comes."""
    body, upload_wanted = BODY + b" " * (64 << 20), threading.Event()
    heard: list[int] = []
    read_on = threading.Event()
    upload_wanted.set()

    def stalling(connection: socket.socket) -> None:
        heard.append(len(connection.recv(1000)))
        upload_wanted.clear()
        read_on.wait(30)
        with suppress(ConnectionResetError):
            while part := connection.recv(1 << 20):
                heard.append(len(part))
        heard.append(-1)

    with server(stalling) as url:
        assert HttpTransport(url).send(body, upload_wanted.is_set) == NO_RESPONSE
        read_on.set()
        while heard[-1] != -1:
            time.sleep(0.01)
    assert 0 < sum(heard) < len(body) // 2


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """A resolver that waits for an event before it answers: (event of the lookup, event that releases the answer)."""
    lookup_started, answer, resolve = threading.Event(), threading.Event(), socket.getaddrinfo

    def slow(*question: Any, **more: Any) -> Any:
        lookup_started.set()
        answer.wait(60)
        return resolve(*question, **more)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    yield lookup_started, answer
    answer.set()


@pytest.mark.parametrize("why", ["deadline", "consent"])
def test_slow_dns_lookup_does_not_block_request(
    why: str, resolver: tuple[threading.Event, threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lookup continues in its thread: no second lookup starts, and nothing is sent after the answer."""
    lookup_started, answer = resolver
    heard: list[bytes] = []
    connected = threading.Event()

    def serve(connection: socket.socket) -> None:
        connected.set()
        heard.append(connection.recv(65536))

    monkeypatch.setattr("hubbub.sdk.upload.transport.REQUEST_TIMEOUT_SECONDS", 0.3 if why == "deadline" else 60.0)
    with server(serve) as url:
        transport = HttpTransport(url)
        assert transport.send(BODY, lambda: why == "deadline" or not lookup_started.is_set()) == NOT_SENT
        assert lookup_started.is_set()
        lookup_started.clear()
        assert transport.send(BODY) == NOT_SENT
        assert not lookup_started.is_set()
        answer.set()
        assert transport._connect_thread is not None
        transport._connect_thread.join(30)
        assert connected.wait(30)
        transport.send(BODY)  # served after that connection: it had ended
    assert heard[0] == b""
    assert heard[1].startswith(b"POST")


def test_flush_and_set_consent_do_not_wait_for_dns(resolver: tuple[threading.Event, threading.Event], rig: Rig) -> None:
    lookup_started, _ = resolver
    client = rig.agreed(SURVEY, transport=HttpTransport("http://127.0.0.1:9"))
    rig.clock.move(days=1)
    with collaborators(client).journal as state:
        collaborators(client).builder.build_due(state)
        collaborators(client).journal.write(Reschedule(dict.fromkeys(state.queue, 0.0), overdue=False))
    done: list[bool] = []
    flush = threading.Thread(target=lambda: done.append(client.flush(0.2)))
    flush.start()
    assert lookup_started.wait(30)
    flush.join(30)
    assert done == [False]
    client.set_consent("off")
    loop = collaborators(client).uploader.start()
    loop.stop(30)
    assert not loop.is_alive


def test_program_exits_during_dns_lookup(tmp_path: Path) -> None:
    metrics = DATA / "metrics.toml"
    slow = "import socket, time\nsocket.getaddrinfo = lambda *_, **__: time.sleep(3600)\n"
    command = [sys.executable, "-c", slow + EXITING, str(metrics), str(tmp_path / "state"), "http://127.0.0.1:9"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split()[0] == "False"


def test_unresponsive_address_leaves_time_for_next(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[bytes] = []
    batch_id = json.loads(BODY)["batch_id"]
    body = json.dumps({"batch_id": batch_id, "status": "stored"}).encode()
    taken = b"HTTP/1.1 202 Accepted\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    monkeypatch.setattr("hubbub.sdk.upload.transport.REQUEST_TIMEOUT_SECONDS", 3.0)
    with server(answering(taken, heard)) as url, socket.socket() as hole, ExitStack() as queue:
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        for _ in range(4):  # later connections get no response
            waiting = queue.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(hole.getsockname())
        port = int(url.rpartition(":")[2])
        addresses = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", address)
            for address in (hole.getsockname(), ("127.0.0.1", port))
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
        assert HttpTransport(url).send(BODY).status == 202


def test_unwanted_request_is_not_started() -> None:
    heard: list[bytes] = []
    with server(answering(b"", heard)) as url:
        assert HttpTransport(url).send(BODY, lambda: False) == NOT_SENT
        while not heard:
            time.sleep(0.01)
    assert heard == [b""]


@pytest.mark.parametrize("who", ["this client", "another on the directory"])
@pytest.mark.parametrize("consent", ["off", "local"])
def test_consent_withdrawal_cancels_upload(who: str, consent: str, rig: Rig) -> None:
    begun, ended = threading.Event(), threading.Event()

    def read_all(connection: socket.socket) -> None:
        connection.recv(65536)
        begun.set()
        with suppress(ConnectionResetError):
            while connection.recv(65536):
                pass
        ended.set()

    with server(read_all) as url:
        client = rig.agreed(SURVEY, transport=HttpTransport(url))
        rig.clock.move(days=1)
        with collaborators(client).journal as state:
            collaborators(client).builder.build_due(state)
            collaborators(client).journal.write(Reschedule(dict.fromkeys(state.queue, 0.0), overdue=False))
        client.flush(0)
        assert begun.wait(5)
        (client if who == "this client" else rig.client(SURVEY)).set_consent(Consent(consent))
        assert ended.wait(5)  # the transport's own patience is ten seconds
        counts = client.accounting()
    assert (counts.queued, counts.dropped["consent"]) == ((0, 1) if consent == "off" else (1, 0))
    require_balanced(counts)


def resetting(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


@pytest.mark.slow
@pytest.mark.parametrize("serve", [silent, dripping, dripping_headers, resetting])
def test_flush_keeps_timeout_with_slow_server(serve: Callable[[socket.socket], None], rig: Rig) -> None:
    """A second allowed, two hundred seconds of server: the bound is loose because machines are noisy."""
    with server(serve) as url:
        client = rig.agreed(SURVEY, transport=HttpTransport(url))
        rig.clock.move(days=1)
        with collaborators(client).journal as state:
            collaborators(client).builder.build_due(state)
            collaborators(client).journal.write(Reschedule(dict.fromkeys(state.queue, 0.0), overdue=False))
        began = time.monotonic()
        assert not client.flush(1)
        client.record("survey", True)
        collaborators(client).uploader.stop()
        assert time.monotonic() - began < 4
        assert client.accounting().queued == 1


EXITING = """
import sys
from hubbub import Client
from hubbub.client import collaborators
from hubbub.sdk.storage.events import Reschedule
from hubbub.testing import ManualClock, Seams
from datetime import date
clock = ManualClock(date(2026, 11, 21))
client = Client(sys.argv[1], sys.argv[2], sys.argv[3], seams=Seams(clock=clock))
client.set_consent("on")
client.record("homepage", "x")
clock.move(days=1)
with collaborators(client).journal as state:
    collaborators(client).builder.build_due(state)
    collaborators(client).journal.write(Reschedule(dict.fromkeys(state.queue, 0.0), overdue=False))
print(client.flush(0.3))
import time, atexit
began = time.monotonic()
atexit._run_exitfuncs()
print(time.monotonic() - began)
"""


def test_program_exits_during_upload(tmp_path: Path) -> None:
    metrics = DATA / "metrics.toml"
    with server(silent) as url:
        command = [sys.executable, "-c", EXITING, str(metrics), str(tmp_path / "state"), url]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    flushed, took = done.stdout.split()
    assert flushed == "False"
    assert float(took) < 1  # 50 ms and the noise of a busy machine; the server would take 5 s


def test_inspect_shows_sent_bytes(tmp_path: Path) -> None:
    heard: list[bytes] = []
    metrics = DATA / "metrics.toml"
    with server(answering(http("503 Busy", b""), heard)) as url, Client(metrics, tmp_path / "s", url) as client:
        client.set_consent("on")
        client.record("homepage", "https://example.org/")
        deliver(client)
        deliver(client)
    program = Path(sys.executable).with_name("hubbub")
    shown = subprocess.run([program, "inspect", tmp_path / "s", "--json"], capture_output=True, text=True, check=True)
    inspected = json.loads(shown.stdout)
    assert [heard[-1].endswith(body.encode()) for body in inspected["last_sent"]] == [True]
    assert inspected["last_sent"][0] in [queued["body"] for queued in inspected["queued"]]
    plain = subprocess.run(
        [program, "inspect", tmp_path / "s", "--last", "9"], capture_output=True, text=True, check=True
    )
    assert "queued: homepage" in plain.stdout
    bodies = [line.removeprefix("last sent: ") for line in plain.stdout.splitlines() if line.startswith("last sent")]
    assert len(bodies) == len(set(bodies)) == 3  # each batch was tried twice
    for body, request in zip(bodies, reversed(heard[-3:]), strict=True):
        assert request.rstrip().endswith(body.encode())
    missing = subprocess.run([program, "inspect", tmp_path / "no"], capture_output=True, text=True, check=False)
    assert missing.returncode == 1
    assert "holds no client's state" in missing.stderr


def test_inspect_reports_damage(tmp_path: Path) -> None:
    """Lost records may have held spent epsilon."""
    with Client(DATA / "metrics.toml", tmp_path / "s", "http://127.0.0.1:9") as client:
        client.set_consent("on")
        client.record("homepage", "https://example.org/")
    data = bytearray((tmp_path / "s" / JOURNAL).read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "s" / JOURNAL).write_bytes(data)
    program = Path(sys.executable).with_name("hubbub")
    for options in ((), ("--json",)):
        done = subprocess.run(
            [program, "inspect", tmp_path / "s", *options], capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert "damaged: the epsilon, reports and uploads in them are lost" in done.stderr
        assert "recorded 1" in done.stdout or '"recorded": 1' in done.stdout
        assert "1 damaged record" in done.stdout


def test_missing_file_of_the_environments_certificates_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/certificates.pem")
    response = HttpTransport("https://127.0.0.1:1").send(b"")
    assert "SSL_CERT_FILE='/no/such/certificates.pem' cannot be read: correct it or unset it" in response.failure
