"""Files that earlier releases wrote: this version reads and continues them, and refuses those of a newer version with the next step."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hubbub import Client
from hubbub.cli import main
from hubbub.conformance.scripted_aggregator import ScriptedAggregator
from hubbub.errors import HubbubError
from hubbub.testing import UNLIMITED, ManualClock, RecordingTransport, deliver, raise_internal_errors
from hubbub_aggregator.store.interface import AppendResult
from hubbub_aggregator.store.sql_store import SqlStore
from tests.client.conftest import logged, require_balanced
from tests.contracts.test_api import PINNED
from tests.data.make_release import seams
from tests.support.paths import REPOSITORY
from tests.support.postgres import postgres
from tests.support.release_artefacts import ARTEFACTS, NOBODY, RELEASES, Artefact, Release, rows

by_name = pytest.mark.parametrize("artefact", ARTEFACTS, ids=lambda artefact: artefact.name.replace(" ", "-"))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture(params=sorted(RELEASES.glob("*.tar.xz")), ids=lambda path: path.name.removesuffix(".tar.xz"))
def release(request: pytest.FixtureRequest, server: str, tmp_path: Path) -> Release:
    return Release.unpack(request.param, tmp_path, server)


def files(release: Release) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in release.folder.rglob("*") if path.is_file()}


def fields_of(found: Any, like: Any) -> Any:
    """Return what was found without the fields that a later version added to those of `like`."""
    if isinstance(found, dict) and isinstance(like, dict):
        return {key: fields_of(found.get(key), like[key]) for key in like}
    if isinstance(found, list) and isinstance(like, list) and len(found) == len(like):
        return [fields_of(*pair) for pair in zip(found, like, strict=True)]
    return found


@by_name
def test_this_version_reads_what_the_release_read(artefact: Artefact, release: Release) -> None:
    expected = release.facts[artefact.name]
    assert expected
    found = json.loads(json.dumps(artefact.read(release)))
    assert fields_of(found, expected) == expected


@by_name
def test_files_of_a_newer_version_are_refused_and_not_changed(artefact: Artefact, release: Release) -> None:
    artefact.advance(release)
    before = files(release)
    with pytest.raises(HubbubError) as refused:
        artefact.read(release)
    assert re.search(artefact.refusal, str(refused.value)), str(refused.value)
    after = files(release)
    assert {path: after.get(path) for path in before} == before


def client_of(release: Release, transport: RecordingTransport, clock: ManualClock) -> Client:
    """Start a client on the release's state directory, on the machine that wrote it."""
    return Client(
        release.definitions,
        release.folder / "state",
        NOBODY,
        policy=UNLIMITED,
        groups={"version": "2.0"},
        environment={},
        seams=seams(clock, transport, "later"),
    )


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_queue_of_the_release_is_counted_once_by_its_upgraded_database(engine: str, release: Release) -> None:
    """Each batch that waited is sent with its own id, and nothing is charged for it again."""
    database = str(release.folder / "reports.db") if engine == "sqlite" else release.postgres
    assert CliRunner().invoke(main, ["db", "upgrade", "--database", database]).exit_code == 0
    transport, known = RecordingTransport(), release.facts["client"]["inspect"]
    waiting = known["queued"]
    with raise_internal_errors(), closing(client_of(release, transport, ManualClock(date(2026, 3, 6)))) as client:
        # the client's thread makes reports of the days since then, and may have sent some
        assert client.accounting().formed >= known["accounting"]["formed"]
        client.record("page", "/later")
        deliver(client)
        after = client.accounting()
        require_balanced(after)
    assert waiting
    assert {batch["batch_id"] for batch in waiting} <= {str(batch.batch_id) for batch in transport.batches}
    assert after.acknowledged == known["accounting"]["acknowledged"] + sum(
        len(batch.cohorts) for batch in transport.batches
    )
    with closing(SqlStore.open(database, create=False)) as store:
        assert set(store.append(transport.batches)) == {AppendResult.STORED}
        assert set(store.append(transport.batches)) == {AppendResult.DUPLICATE}


def test_typescript_client_sends_the_queue_of_the_release(release: Release) -> None:
    waiting = {json.loads(body)["batch_id"] for body in release.facts["typescript"]["queued"]}
    with ScriptedAggregator(datetime(2026, 3, 8, 12, tzinfo=UTC)) as aggregator:
        found = release.run_typescript(aggregator.url, {f"2026-03-0{day}T12:00:00Z": () for day in (6, 7, 8)})
        assert waiting <= {request.batch_id for request in aggregator.requests}
    assert found["counts"]["acknowledged"] == len({request.batch_id for request in aggregator.requests})


def test_client_leaves_the_state_of_a_newer_version_alone(release: Release) -> None:
    next(artefact for artefact in ARTEFACTS if artefact.name == "client").advance(release)
    before, transport = files(release), RecordingTransport()
    with logged("install the newer hubbub"):
        client = client_of(release, transport, ManualClock(date(2026, 3, 6)))
        client.record("page", "/later")
        deliver(client)
        client.close()
    assert transport.bodies == []
    assert {path: content for path, content in files(release).items() if path in before} == before


def test_results_of_the_release_stay_when_they_are_computed_again(release: Release) -> None:
    """Nothing that was published is released a second time."""
    published = str(release.folder / "site.files" / "private" / "results.sqlite")
    releases = rows(published, "SELECT * FROM releases")
    inputs = [str(release.folder / "summaries"), "--candidates", str(release.folder / "candidates")]
    outputs = ["--min-reports", "1", "--out-dir", str(release.folder / "site")]
    for command in (
        ["publish", *inputs, *outputs],
        ["decode-all", *inputs, "--database", str(release.folder / "results.sqlite")],
    ):
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 0, done.output
    assert rows(published, "SELECT * FROM releases") == releases != []
    assert (release.folder / "site" / "index.html").exists()


def test_the_changelog_names_each_public_name_that_was_removed(release: Release) -> None:
    """By the name itself, in any entry."""
    changelog = (REPOSITORY / "CHANGELOG.md").read_text()
    removed = names(release.folder / "api.txt") - names(PINNED)
    assert [name for name in sorted(removed) if name.rpartition(".")[2] not in changelog] == []


def names(listing: Path) -> set[str]:
    """Return the names of a listing; a line that is indented has a member of the line above that is not."""
    found, above = set(), ""
    for line in listing.read_text().splitlines():
        name = re.split(r"[(: ]", line.strip())[0]
        above = above if line.startswith(" ") else name
        found.add(above + name if line.startswith(" ") else name)
    return found
