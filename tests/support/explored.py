"""`hubbub explore` over a directory, without a socket and with decodings in this process."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import numpy as np

from hubbub import Metric, Params
from hubbub.errors import HubbubError
from hubbub.metrics.kinds import JointKind
from hubbub.summary import Reports, write_summary
from hubbub_decoder import simulate
from hubbub_decoder.data.output_files import write_report_file
from hubbub_decoder.explore.answers import Answers
from hubbub_decoder.explore.app import explore_app
from hubbub_decoder.explore.cache import Cache
from hubbub_decoder.explore.decoding_process import DecodingProcess, FailedError
from hubbub_decoder.explore.explorer import Explorer
from hubbub_decoder.explore.job import Job
from hubbub_decoder.explore.summary_directory import SummaryDirectory
from hubbub_decoder.options import Options
from hubbub_decoder.simulation import JointPopulation
from tests.support.asgi import AppResponse, Caller, started

PARAMS = Params(num_bits=32, num_hashes=2, num_cohorts=8, prob_p=0.25, prob_q=0.75, prob_f=0.0)
PAGE = Metric.string("page", PARAMS, description="First <page>", owner="web")
TEXT = Metric.string("text", Params(num_bits=32, num_hashes=2, num_cohorts=8, prob_p=0.25, prob_q=0.75, prob_f=0.25))
DAYS = "2026-03-02", "2026-03-09", "2026-03-16"
NOW = datetime(2026, 4, 12, tzinfo=UTC)
"""The first two days are closed, the third is open."""
FORM = (b"content-type", b"application/x-www-form-urlencoded")
SAME_ORIGIN = (b"origin", b"http://localhost")


class InProcess(DecodingProcess):
    """Answers in this process, and counts the jobs; the same job about the same files in another folder is not computed again."""

    known: ClassVar[dict[str, bytes]] = {}

    def __init__(self) -> None:
        super().__init__(Path())
        self.jobs: list[Job] = []
        self.problem: str | None = None

    async def answer(self, job: str) -> bytes:
        self.jobs.append(Job.from_json(job.encode()))
        if self.problem is not None:
            raise FailedError(self.problem)
        key = job.replace(str(Path(self.jobs[-1].samples[0][0]).parents[1]), "")
        try:
            if key not in self.known:
                self.known[key] = self.jobs[-1].answer()
            return self.known[key]
        except HubbubError as problem:
            raise FailedError(str(problem)) from None


class Explored:
    """An application over a directory, and its parts."""

    def __init__(
        self,
        place: Path,
        process: DecodingProcess | None = None,
        most_bytes: int = 10**8,
        events: Sequence[Path] = (),
    ) -> None:
        self.place = place
        self.process = process or InProcess()
        self.cache = Cache(place / "cache", most_bytes)
        summaries = SummaryDirectory(place / "summaries", place / "candidates", Options())
        self.explorer = Explorer(summaries, self.cache, Answers(self.cache, [self.process]), events)
        self._app = explore_app(self.explorer, lambda: NOW)

    def __enter__(self) -> Explored:
        self._context = started(self._app)
        self.caller: Caller = self._context.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._context.__exit__(None, None, None)

    def get(self, path: str, **headers: str) -> AppResponse:
        return self.caller.call("GET", path, [(name.encode(), value.encode()) for name, value in headers.items()])

    def post(self, path: str, body: bytes, *headers: tuple[bytes, bytes]) -> AppResponse:
        return self.caller.call("POST", path, headers or (FORM, SAME_ORIGIN), [body])


def folder(metric: Metric) -> str:
    return f"/{metric.name}@{metric.digest[:8]}"


def text_of(response: AppResponse) -> str:
    page = re.sub(r"<(style|script)\b.*?</\1>", "", response.body.decode(), flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page))


def write(place: Path, metric: Metric, day: str, population: JointPopulation, seed: int = 1) -> None:
    path, rng = place / "summaries" / f"{metric.name}-{metric.digest[:8]}-{day}.parquet", np.random.default_rng(seed)
    if isinstance(metric.kind, JointKind):
        reports = simulate(metric, population, rng, form=Reports, periods=[day])
        write_report_file(metric, [(reports.cohorts, reports.rows)], path, [day])
    else:
        write_summary(replace(simulate(metric, population, rng, periods=[day]), closed=True), path)


def job_of(place: Path) -> Job:
    explorer = Explored(place).explorer
    versions, _ = explorer.read()
    return next(explorer.unknown_highlights(versions, NOW))
