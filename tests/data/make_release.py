"""Pack files that this release writes, as test data of later ones: `tests/system/test_releases.py` reads, upgrades and continues them.

python -m tests.data.make_release tests/data/releases/0.1.0rc1.tar.xz

metrics.toml          definitions of six kinds
state, typescript     state directories of both clients, with drafts of today and batches that wait
reports.db            database with open and closed periods, segments, retained reports, tokens; reports.postgres.sql: a dump of the same
segments              object store with folded and unfolded segments, of segments.db
summaries             summary files of the closed periods; reports.parquet: a report file
results.sqlite        results of `hubbub decode-all`; results.postgres.sql: a dump of the same; site.files: of `hubbub publish`
api.txt               public Python names
facts.json            what the release reads in each of them
"""

from __future__ import annotations

import io
import json
import lzma
import shutil
import subprocess
import sys
import tarfile
import uuid
from contextlib import closing
from dataclasses import replace
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner

from hubbub import Batch, Client, Definitions, Encoder, Metric, Secret
from hubbub.cli import main
from hubbub.client import collaborators
from hubbub.sdk.assembly import AllSeams
from hubbub.sdk.upload.retry_policy import NO_RESPONSE
from hubbub.sdk.upload.uploader import UploadLoop
from hubbub.summary import Reports, write_reports, write_summary
from hubbub.testing import UNLIMITED, ManualClock, RecordingTransport, SeededBytes
from hubbub_aggregator.pipeline.folding import fold, read_summary
from hubbub_aggregator.segments.engines import ArrowEngine
from hubbub_aggregator.segments.folding import fold_folder, folders
from hubbub_aggregator.segments.object_store import ObjectStore
from hubbub_aggregator.segments.segment_store import open_segment_store
from hubbub_aggregator.store.clock_state import ClockState, StoredClock
from hubbub_aggregator.store.interface import Store
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_aggregator.store.tokens import Scope, Token
from tests.support.databases import new_postgres
from tests.support.paths import REPOSITORY
from tests.support.postgres import binary, postgres
from tests.support.release_artefacts import ARTEFACTS, NOBODY, Release

DEFINITIONS = """\
[[metric]]
name = "page"
kind = "string"
num_bits = 32
num_hashes = 2
num_cohorts = 16
prob_p = 0.25
prob_q = 0.75
prob_f = 0.5
hold = 7
{about}
[[metric]]
name = "theme"
kind = "categorical"
categories = ["light", "dark", "other"]
other = "other"
prob_p = 0.25
prob_q = 0.75
prob_f = 0
{about}
[[metric]]
name = "updated"
kind = "boolean"
prob_p = 0
prob_q = 1
prob_f = 0.5
group = {{ name = "version", values = ["1.x", "2.x", "other"] }}
{about}
[[metric]]
name = "minutes"
kind = "ordinal"
edges = [0, 240]
estimate = "mean"
default = 0
several = "sum"
prob_p = 0.25
prob_q = 0.75
prob_f = 0
{about}
[[metric]]
name = "packages"
kind = "set"
items = ["curl", "git", "vim", "zsh"]
mechanism = "privset"
max_items = 2
num_ones = 2
prob_hit = 0.75
{about}
[[metric]]
name = "tags"
kind = "set"
num_bits = 8
num_cohorts = 16
mechanism = "privset"
max_items = 2
num_ones = 2
prob_hit = 0.75
{about}""".format(about='description = "What is counted"\nowner = "owner@example.org"\nexpires = 2099-01-01\n')
ANSWERS: dict[str, tuple[Any, ...]] = {
    "page": ("/", "/help", "/buy"),
    "theme": ("light", "dark", "mauve"),
    "updated": (True, False),
    "minutes": (30, 100.5),
    "packages": (("git", "vim"), ("zsh",), ()),
    "tags": (("home", "work"), ("travel",)),
}
DAYS = tuple(f"2026-03-0{day}" for day in (1, 2, 3))
"""Of the reports: the first is closed, the second folded, the third is not folded."""
REPORTS = 60
"""Of each metric and day."""


def seams(clock: ManualClock, transport: RecordingTransport, seed: str) -> AllSeams:
    """Return what a scripted client uses; later versions continue it on the same machine."""
    return AllSeams(clock=clock, transport=transport, random_bytes=SeededBytes(seed), machine_id=lambda: b"one machine")


def make_state(definitions: Definitions, directory: Path) -> None:
    clock, transport = ManualClock(date(2026, 3, 1)), RecordingTransport()
    client = Client(
        definitions,
        directory,
        NOBODY,
        policy=UNLIMITED,
        groups={"version": "1.4"},
        environment={},
        seams=seams(clock, transport, "client"),
    )
    client.set_consent("on", "We count what is counted.")
    parts = collaborators(client)
    for day in range(4):
        for name, answers in ANSWERS.items():
            client.record(name, answers[day % len(answers)])
        client.subject("someone").record("page", "/")
        clock.move(days=1)
        parts.sender.begin()
        parts.sender.attempt()
        if day == 1:
            parts.send_all_now()
            assert parts.compactor.compact(always=True)
    transport.responses += [NO_RESPONSE] * 100
    parts.sender.attempt()
    client.record("page", "/today")
    client.close()


def make_typescript(release: Release) -> None:
    days = {
        f"2026-03-0{day}T12:00:00Z": [(name, answers[day % len(answers)]) for name, answers in ANSWERS.items()]
        for day in (1, 2, 3, 4)
    }
    release.run_typescript(NOBODY, days)


def batch_of(metric: Metric, day: str, random: SeededBytes) -> Batch:
    """Return a batch of clients that each recorded one of the answers."""
    answers = ANSWERS[metric.name]
    encoders = [Encoder(metric, Secret.generate(random), random) for _ in range(REPORTS)]
    found = [
        encoder.encode(answers[number % len(answers)], 0 if metric.hold else None)
        for number, encoder in enumerate(encoders)
    ]
    rows = b"".join(report.to_bytes() for report in found)
    cohorts = bytes(report.cohort for report in found)
    group = metric.group.value if metric.group else None
    digest = metric.in_group(None).digest
    return Batch(uuid.UUID(bytes=random(16), version=4), metric.name, digest, day, cohorts, rows, group=group or "")


def _all(_period: str) -> bool:
    return True


def _none(_period: str) -> bool:
    return False


def fill(store: Store, definitions: Definitions, random: SeededBytes) -> None:
    """Append reports, fold those of the first two days, and close the first."""
    for day in DAYS:
        for metric in definitions.collections():
            store.append([batch_of(metric, day, random)])
        if day != DAYS[-1]:
            for metric in definitions.collections():
                fold(store, metric, keeps_reports=_all if metric.name == "theme" else _none)
    for metric in definitions.versions():
        store.close_period(metric, DAYS[0])


def make_database(store: SqlStore, definitions: Definitions) -> None:
    fill(store, definitions, SeededBytes("database"))
    store.add_token(Token("analysts", frozenset([Scope.READ]), created=date(2026, 3, 1)), bytes(range(32)))
    store.add_refusals({("page", "padding-set"): 2})
    store.save_clock(StoredClock(ClockState(1, 1_772_600_000.0), None, 60.0), None)


def make_segments(folder: Path, definitions: Definitions) -> None:
    objects, random = ObjectStore.open(str(folder / "segments")), SeededBytes("segments")
    with closing(open_segment_store(folder / "segments.db", objects, lambda: uuid.UUID(bytes=random(16)))) as store:
        for day in DAYS:
            for metric in definitions.collections():
                store.append([batch_of(metric, day, random)])
            if day == DAYS[0]:
                for metric in definitions.versions():
                    store.close_period(metric, day)
                metrics = {metric.digest: metric for metric in definitions.collections()}
                for found in folders(objects):
                    fold_folder(objects, found, metrics[found.digest], ArrowEngine(), keep=False)


def make_summaries(store: Store, definitions: Definitions, folder: Path) -> None:
    (folder / "summaries").mkdir()
    for metric in {metric.digest: metric for metric in (*definitions.versions(), *definitions.collections())}.values():
        summary = replace(read_summary(store, metric, [DAYS[0]]), closed=True)
        write_summary(summary, folder / "summaries" / f"{metric.name}-{metric.digest[:8]}.parquet")
    theme = definitions["theme"]
    batch = batch_of(theme, DAYS[0], SeededBytes("reports"))
    write_reports(Reports.from_rows(theme, batch.cohorts, batch.rows, [DAYS[0]]), folder / "reports.parquet")


def run(*arguments: str | Path, code: int = 0) -> None:
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output


def dump(database: str) -> str:
    command = [binary("pg_dump"), "--inserts", "--no-owner", "--no-privileges", "--no-comments", database]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return "".join(f"{line}\n" for line in text.splitlines() if line and not line.startswith(("--", "\\")))


def make(folder: Path, server: str) -> Release:
    """Write all files of a release into an empty folder."""
    (folder / "metrics.toml").write_text(DEFINITIONS)
    release = Release(folder, server)
    definitions = release.definitions
    with patch.object(UploadLoop, "start", lambda _: None):  # its thread would write at any time
        make_state(definitions, folder / "state")
    make_typescript(release)
    in_postgres, results_in_postgres = new_postgres(server), new_postgres(server)
    for database in (str(folder / "reports.db"), in_postgres):
        with closing(SqlStore.open(database)) as store:
            make_database(store, definitions)
            if database != in_postgres:
                make_summaries(store, definitions, folder)
    make_segments(folder, definitions)
    (folder / "candidates").mkdir()
    for name in ("page", "tags"):
        (folder / "candidates" / f"{name}.txt").write_text("/\n/help\n/buy\n" if name == "page" else "home\nwork\n")
    inputs = (folder / "summaries", "--candidates", folder / "candidates")
    for database in (str(folder / "results.sqlite"), results_in_postgres):
        run("decode-all", *inputs, "--database", database)
    run("publish", *inputs, "--min-reports", "1", "--out-dir", folder / "site")
    for name, database in (("reports", in_postgres), ("results", results_in_postgres)):
        (folder / f"{name}.postgres.sql").write_text(dump(database))
    shutil.copy(REPOSITORY / "tests" / "contracts" / "api.txt", folder)
    return release


def without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    return member.replace(uid=0, gid=0, uname="", gname="", mtime=0)


def pack(folder: Path, archive: Path) -> None:
    """Pack a folder without the pages of the site, which are made again."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as packed:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if path.is_file() and (name.parts[0] not in ("site", "site.files") or "private" in name.parts):
                packed.add(path, str(name), filter=without_owner)
    archive.write_bytes(lzma.compress(sink.getvalue(), preset=9))


def main_program(archive: Path) -> None:
    with TemporaryDirectory() as written, TemporaryDirectory() as again, postgres() as server:
        release = make(Path(written), server)
        pack(release.folder, archive)
        copy = Release.unpack(archive, Path(again), server)  # reading may change files
        facts = {artefact.name: artefact.read(copy) for artefact in ARTEFACTS}
        (release.folder / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")
        pack(release.folder, archive)


if __name__ == "__main__":
    main_program(Path(sys.argv[1]))
