"""Traffic and disk of one user, and memory of a server's users: bytes of an upload on the wire, of the state directory, and a subject.

    python -m benchmarks.footprint [--days 1 30 365 1825] [--subjects 10000 100000]

The client reports the metrics of examples/app_metrics.toml, one batch for each metric and day, and records each 20 times a day.
Uploads go through a relay that counts bytes in both directions, to a real aggregator, with TLS that ends at a proxy in this process.
TCP and IP headers are not counted.

The memory of a subject is what Python has allocated for a client over the number of its subjects, each with an account of both metrics and a
recording of one.
"""

from __future__ import annotations

import gc
import socket
import ssl
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.runner import Benchmark
from benchmarks.service import started
from hubbub import Client
from hubbub.testing import ManualClock, RecordingTransport, Seams, deliver

REPOSITORY = Path(__file__).parent.parent
METRICS = REPOSITORY / "examples" / "app_metrics.toml"
CERTIFICATE = REPOSITORY / "tests" / "data" / "localhost.pem"
RECORDINGS = 20


def record_day(client: Client) -> None:
    for number in range(RECORDINGS):
        client.record("command", ("open", "save", "greet")[number % 3])
        client.record("dark_mode", bool(number % 2))


@contextmanager
def forward(
    port: int, count: Callable[[int], None] = lambda _: None, tls: ssl.SSLContext | None = None
) -> Iterator[int]:
    """Forward connections of a new port to `port`, and count the bytes of both directions; with `tls`, TLS ends here."""

    def copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                count(len(data))
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def serve(accepted: socket.socket) -> None:
        with suppress(OSError), accepted, socket.create_connection(("127.0.0.1", port)) as behind:
            front = tls.wrap_socket(accepted, server_side=True) if tls else accepted
            back = threading.Thread(target=copy, args=(behind, front), daemon=True)
            back.start()
            copy(front, behind)
            back.join()
            front.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]


def traffic(behind: int, folder: Path, *, encrypted: bool) -> float:
    """Return the bytes of one upload in both directions."""
    counted: list[int] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    with forward(behind, tls=context) as secure, forward(secure if encrypted else behind, counted.append) as port:
        url = f"https://localhost:{port}" if encrypted else f"http://127.0.0.1:{port}"
        with Client(METRICS, folder / f"traffic-{encrypted}", url, ca_certs=str(CERTIFICATE)) as client:
            client.set_consent("on")
            record_day(client)
            uploads = deliver(client)
            assert client.accounting().acknowledged == uploads > 0
            time.sleep(1)  # the last bytes of a connection
            return sum(counted) / uploads


def size_of(folder: Path) -> int:
    """Return the bytes of a folder's files, of which another thread may remove some."""
    size = 0
    for file in folder.iterdir():
        with suppress(FileNotFoundError):
            size += file.stat().st_size
    return size


def disk(folder: Path, days: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return the size of the state directory after each number of days: at the end of the day, and the largest until then."""
    clock, sizes, largest = ManualClock(datetime.now(UTC).date()), {}, 0
    with Client(
        METRICS, folder / "disk", "http://127.0.0.1:1", seams=Seams(clock=clock, transport=RecordingTransport())
    ) as client:
        client.set_consent("on")
        for day in range(1, max(days) + 1):
            record_day(client)
            deliver(client)
            clock.move(days=1)
            size = size_of(folder / "disk")
            largest = max(largest, size)
            if day in days:
                sizes[day] = size, largest
    return sizes


def memory(folder: Path, subjects: Sequence[int]) -> Iterator[tuple[int, float]]:
    """Yield numbers of subjects, and the bytes that a client has allocated over that number."""

    def size_after(numbers: range) -> int:
        for number in numbers:
            client.subject(str(number)).record("command", "open")
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    seams = Seams(clock=ManualClock(datetime.now(UTC).date()))
    tracemalloc.start()
    try:
        with Client(METRICS, folder / "memory", "http://127.0.0.1:1", per_subject=True, seams=seams) as client:
            client.set_consent("local")
            empty, done = size_after(range(0)), 0
            for number in sorted(subjects):
                yield number, (size_after(range(done, number)) - empty) / number
                done = number
    finally:
        tracemalloc.stop()


def main() -> None:
    benchmark = Benchmark(__doc__)
    benchmark.add(
        "--days", type=int, nargs="+", default=[1, 30, 365, 1825], help="days of use after which the state is measured"
    )
    benchmark.add(
        "--subjects", type=int, nargs="+", default=[10_000, 100_000], help="subjects whose memory is measured"
    )
    options = benchmark.start()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        command = [
            "-m",
            "hubbub",
            "serve",
            str(METRICS),
            "--port",
            "0",
            "--database",
            f"{place}/reports.db",
            "--create",
        ]
        with started(command) as (_, port, _):
            for encrypted, name in ((False, "HTTP"), (True, "HTTPS, one certificate, no resumption")):
                size = traffic(port, folder, encrypted=encrypted)
                print(f"one upload of one report, {name}: {size:,.0f} bytes in both directions")
        for days, (size, largest) in disk(folder, options.days).items():
            print(f"state directory after {days} days: {size:,} bytes, at most {largest:,} until then")
        for number, size in memory(folder, options.subjects):
            print(f"{number:,} subjects: {size:.0f} bytes each")


if __name__ == "__main__":
    main()
