"""The night: pull or fold, publish, watch and discover by the commands, from the service over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

import click
from click.testing import CliRunner

from hubbub import Definitions
from hubbub.summary import read_summary
from hubbub_aggregator.cli import fold
from hubbub_aggregator.segments.engines import ArrowEngine
from hubbub_aggregator.segments.folding import fold_folder, folders
from hubbub_aggregator.segments.object_store import ObjectStore
from hubbub_decoder.cli import discover, publish, pull, watch
from tests.system.year.definitions import CANDIDATES, DISCOVERED, WITHHELD
from tests.system.year.service import Service

ALARM = 3
"""Exit code of `watch` after an alarm."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def map_in_this_process(
    function: Callable[[_Item], _Result], items: Sequence[_Item], _processes: int
) -> Iterator[tuple[_Item, _Result]]:
    """What replaces the processes of `publish`, which would take a second to start in each night."""
    return ((item, function(item)) for item in items)


@dataclass
class Analyst:
    """Who decodes and publishes; `said` has what the commands printed to stderr, by command."""

    directory: Path
    service: Service
    url: str
    min_reports: int
    watched: Sequence[str] = ("dark",)
    alarms: int = 0
    said: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.summaries, self.site = self.directory / "summaries", self.directory / "site"
        self.discoveries = self.directory / "discoveries.json"
        approved = self.directory / "approved"
        approved.mkdir(parents=True)
        for name, candidates in CANDIDATES.items():
            (approved / f"{name}.txt").write_text("".join(f"{candidate}\n" for candidate in candidates))
        self.approved = approved

    def pull(self, directory: Path, *options: str) -> None:
        """Download what a directory does not have."""
        if self.service.storage.segments is None:
            self._run("pull", pull.command, [self.url, "--all", "--out-dir", str(directory), *options], (0,))
        else:
            self.fold("--out-dir", str(directory))

    def fold(self, *options: str) -> None:
        """Count the segments, if there are any, while another fold does so. The definitions are those of the service, which are in no file."""
        segments, definitions = self.service.storage.segments, self.service.definitions
        if segments is not None:
            with ThreadPoolExecutor(1) as thread:
                other = thread.submit(_fold_beside, segments, definitions)
                with patch("hubbub.metrics.definitions.load_definitions", lambda _: definitions):
                    self._run("fold", fold.command, ["metrics.toml", segments, *options], (0,))
                other.result()

    def work(self) -> None:
        """Do the work of a night."""
        self.pull(self.summaries)
        if not list(self.summaries.rglob("*.parquet")):
            return
        arguments = [str(self.summaries), "--candidates", str(self.approved), "--out-dir", str(self.site)]
        for name in WITHHELD:
            if list(self.summaries.glob(f"{name}@*.parquet")):
                arguments += ["--withhold", name]
        self._run("publish", publish.command, [*arguments, "--min-reports", str(self.min_reports), "--jobs", "1"], (0,))
        for name in self.watched:
            files = sorted(map(str, self.summaries.glob(f"{name}@*.parquet")))
            if files:
                database = str(self.directory / f"watch-{name}.sqlite")
                self.alarms += self._run("watch", watch.command, [*files, "--database", database], (0, ALARM)) == ALARM

        # a fold writes summaries of open periods, too
        paths = sorted(self.summaries.glob(f"{DISCOVERED.metric.name}@*.parquet"))
        closed = [str(path) for path in paths if read_summary(path).closed]
        if closed:
            self._run("discover", discover.command, [*closed, "--out", str(self.discoveries)], (0,))

    def _run(self, name: str, command: click.Command, arguments: list[str], expected: Sequence[int]) -> int:
        result = CliRunner().invoke(command, arguments)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code in expected, (name, result.output)
        self.said.setdefault(name, []).append(result.stderr)
        return result.exit_code


def _fold_beside(segments: str, definitions: Definitions) -> None:
    """Do what a second `hubbub fold` does: two processes share nothing but the objects, and so do two threads."""
    objects, metrics = ObjectStore.open(segments), {metric.digest: metric for metric in definitions.collections()}
    for folder in folders(objects):
        fold_folder(objects, folder, metrics[folder.digest], ArrowEngine(1))
