"""Files of the project that one value enters: recorded, uploaded, ingested, decoded, and printed as a table.

    python -m benchmarks.studies.road [--functions]

Each step runs twice, and the second time is counted, so that imports, caches and connections are there. A file is counted if one of its
functions is entered in any thread. `--functions` prints the functions beside it. Two files that call each other are where the road goes back.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType

import numpy as np
import urllib3
import uvicorn

from benchmarks.runner import Benchmark
from benchmarks.service import DEFINITIONS, METRIC
from hubbub import Client, Metric, UnaryResponse, parse_definitions
from hubbub.testing import ManualClock, RecordingTransport, Seams, deliver
from hubbub_aggregator.app import create_app
from hubbub_aggregator.server.listener import bound_url, listen, uvicorn_config
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_decoder.documents.terminal import print_document
from hubbub_decoder.model.evidence import Collected
from hubbub_decoder.pipeline import decode
from hubbub_decoder.simulation import simulate
from tests.support.paths import REPOSITORY

Step = Callable[[], object]
PACKAGES = {"hubbub": "client", "hubbub_aggregator": "aggregator", "hubbub_decoder": "decoder"}
ROOTS = tuple(f"{REPOSITORY}/{folder}/" for folder in PACKAGES.values())
STAND_INS = "hubbub/testing.py"  # clock and transport of this program
PAGES = {f"page-{number}": 8_000 // number for number in range(1, 41)}
COLORS = {"blue": 8_000, "green": 4_000, "red": 2_000}
ACCENT = Metric.categorical("accent", tuple(COLORS), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5))


@dataclass(frozen=True)
class Road:
    """Files that a step enters.

    functions : that were entered, by file, in the order of the first entry
    calls     : pairs of files, of which the first calls the second, possibly through other packages
    """

    functions: dict[str, dict[str, None]] = field(default_factory=dict)
    calls: set[tuple[str, str]] = field(default_factory=set)

    def turns(self) -> list[tuple[str, str]]:
        """Return the pairs of files that call each other, once each."""
        return sorted(call for call in self.calls if call[0] < call[1] and call[::-1] in self.calls)

    def enter(self, frame: FrameType) -> None:
        """Add the function of a frame, if it is one of the project."""
        file = file_of(frame)
        if file is None:
            return
        self.functions.setdefault(file, {})[frame.f_code.co_qualname] = None
        caller = frame.f_back
        while caller is not None and file_of(caller) is None:
            caller = caller.f_back
        if caller is not None and (origin := file_of(caller)) not in (None, file):
            self.calls.add((origin, file))


def file_of(frame: FrameType) -> str | None:
    """Return the file of a function of the project, from its package on; None for other code, and for the body of a module."""
    code = frame.f_code
    if code.co_name == "<module>" or not code.co_filename.startswith(ROOTS):
        return None
    file = code.co_filename.removeprefix(f"{REPOSITORY}/").partition("/")[2]
    return None if file == STAND_INS else file


class Profiler:
    """Profile function of this thread and of all that start later, which counts while a step runs."""

    def __init__(self) -> None:
        self._road: Road | None = None
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def road_of(self, step: Step) -> Road:
        """Return the files that a step enters."""
        self._road = road = Road()
        step()
        self._road = None
        return road

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if self._road is not None and event == "call":
            self._road.enter(frame)


@contextlib.contextmanager
def client_steps(folder: Path, transport: RecordingTransport, clock: ManualClock) -> Iterator[dict[str, Step]]:
    """Steps of a client whose batches the transport keeps."""
    definitions = folder / "metrics.toml"
    definitions.write_text(DEFINITIONS, encoding="utf-8")
    seams = Seams(clock=clock, transport=transport)
    with Client(definitions, folder / "state", "http://127.0.0.1:1", seams=seams) as client:
        client.set_consent("on")
        yield {
            "recorded value": lambda: client.record("homepage", "page-1"),
            "uploaded batch": lambda: deliver(client),
        }


@contextlib.contextmanager
def aggregator_steps(folder: Path, bodies: Sequence[bytes]) -> Iterator[dict[str, Step]]:
    """Steps of an aggregator in this process, which receives the next of the batches."""
    settings = Settings()
    with contextlib.closing(SqlStore.open(folder / "reports.db")) as store, listen("127.0.0.1", 0) as listener:
        server = uvicorn.Server(
            uvicorn_config(create_app(parse_definitions(DEFINITIONS), store, settings), settings.connection_limits())
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        url, http, unsent = f"{bound_url(listener)}/v1/reports", urllib3.PoolManager(), iter(bodies)

        def ingest() -> None:
            response = http.request("POST", url, body=next(unsent), headers={"content-type": "application/json"})
            assert response.status == 202, response.data

        try:
            yield {"ingested batch": ingest}
        finally:
            server.should_exit = True
            thread.join()


def decoder_steps(summary: Collected, candidates: tuple[str, ...] | None) -> dict[str, Step]:
    """Steps of the decoding of a summary."""
    kind, decoding = summary.metric.kind, decode(summary, candidates)
    return {
        f"decoded {kind}": lambda: decode(summary, candidates),
        f"printed {kind}": lambda: print_document(decoding.document()),
    }


def roads_of(profiler: Profiler) -> dict[str, Road]:
    """Roads of all steps, in the order in which a value goes."""
    transport, clock = RecordingTransport(), ManualClock(datetime.now(UTC).date() - timedelta(days=2))
    rng, roads = np.random.default_rng(1), dict[str, Road]()
    with tempfile.TemporaryDirectory(prefix="hubbub-road-") as name, contextlib.redirect_stdout(io.StringIO()):
        with client_steps(Path(name), transport, clock) as steps:
            for _ in range(2):
                clock.move(days=1)
                roads |= {step: profiler.road_of(run) for step, run in steps.items()}
        with aggregator_steps(Path(name), transport.bodies) as steps:
            for _ in range(2):
                roads |= {step: profiler.road_of(run) for step, run in steps.items()}
        for summary, candidates in (
            (simulate(METRIC, PAGES, rng), tuple(PAGES)),
            (simulate(ACCENT, COLORS, rng), None),
        ):
            steps = decoder_steps(summary, candidates)
            roads |= {step: profiler.road_of(run) for step, run in steps.items()}
    return roads


def main() -> None:
    """Print the files of each step, and their number by package."""
    benchmark = Benchmark(__doc__)
    benchmark.add("--functions", action="store_true", help="print the functions that were entered in each file")
    options = benchmark.start()
    roads = roads_of(Profiler())
    for step, road in roads.items():
        print(f"{step}: {len(road.functions)} files")
        for file, functions in road.functions.items():
            print(f"    {file}", f"{', '.join(functions)}" if options.functions else "", sep="  ")
        print(*(f"    {one} and {other} call each other" for one, other in road.turns()), "", sep="\n")
    table = benchmark.table()
    for step, road in roads.items():
        of_package = Counter(file.partition("/")[0] for file in road.functions)
        table.add(
            {
                "step": step,
                "files": f"{len(road.functions)}",
                **{package: f"{of_package[package]}" for package in PACKAGES},
                "pairs that call each other": f"{len(road.turns())}",
            }
        )


if __name__ == "__main__":
    main()
