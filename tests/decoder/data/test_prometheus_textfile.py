"""`--prometheus-textfile` of `hubbub publish` and `hubbub decode-all`: figures of each run, and what they say after a failure."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from hubbub.cli import main
from hubbub_decoder.batch_decoding.run import Outcome, Status
from hubbub_decoder.cli import decode_all, publish
from hubbub_decoder.data.prometheus_textfile import RunFigures, write_run_textfile
from hubbub_decoder.errors import OutputError
from hubbub_decoder.publishing.plan import PeriodResult, PeriodStatus
from tests.decoder.publishing.test_publish import DARK, DAYS, place, write_day  # noqa: F401  (a fixture)
from tests.support.paths import DOCS


def figures(path: Path) -> dict[str, float]:
    families = text_string_to_metric_families(path.read_text())
    return {
        re.sub("hubbub_(publish|decode_all)_", "", sample.name) + "".join(sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def seconds(day: str) -> float:
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()


@pytest.mark.usefixtures("place")
def test_figures_of_a_run_are_written(place: Path) -> None:  # noqa: F811
    write_day(place, "2026-03-05", DARK, closed=False)
    write_day(place, "2026-03-06", DARK, people=600)
    file = place / "publish.prom"
    arguments = [
        "publish",
        str(place / "summaries"),
        "--candidates",
        str(place / "candidates"),
        "--out-dir",
        str(place / "site"),
    ]
    done = CliRunner().invoke(main, [*arguments, "--withhold", f"page/{DAYS[0]}", "--prometheus-textfile", str(file)])
    assert done.exit_code == 0, done.output
    found = figures(file)
    assert found["end_timestamp_seconds"] == found["success_timestamp_seconds"] > seconds("2026-01-01")
    assert (found["newest_period_timestamp_secondspage"], found["newest_period_timestamp_secondsdark"]) == tuple(
        map(seconds, DAYS[::-1])
    )
    assert {name: found[f"periods{name}"] for name in PeriodStatus} == {
        "published": 2,
        "waiting": 2,
        "skipped": 0,
        "withheld": 1,
        "withdrawn": 0,
        "failed": 0,
    }
    before = file.read_bytes()
    done = CliRunner().invoke(main, [*arguments, "--check", "--prometheus-textfile", str(file)])
    assert done.exit_code == 2
    assert "--check writes nothing" in done.stderr
    assert file.read_bytes() == before
    done = CliRunner().invoke(main, [*arguments, "--prometheus-textfile", str(place / "publish.txt")])
    assert done.exit_code == 2
    assert "must end in .prom" in done.stderr
    done = CliRunner().invoke(main, [*arguments, "--prometheus-textfile", str(place / "none" / "publish.prom")])
    assert done.exit_code == 1
    assert "3 published" in done.stdout
    assert "publish.prom cannot be written" in done.stderr


@pytest.mark.usefixtures("place")
def test_figures_of_decode_all_are_of_closed_periods(place: Path) -> None:  # noqa: F811
    """A day that is open has a result, which says nothing of whether closed summaries still come."""
    write_day(place, "2026-03-04", DARK, closed=False)
    (place / "summaries" / "odd@1.parquet").write_bytes(b"x")
    file = place / "decode_all.prom"
    arguments = [
        "decode-all",
        str(place / "summaries"),
        "--out-dir",
        str(place / "out"),
        "--prometheus-textfile",
        str(file),
    ]
    for candidates, numbers in (([], (2, 0, 2, 1)), (["--candidates", str(place / "candidates")], (2, 2, 0, 1))):
        done = CliRunner().invoke(main, [*arguments, *candidates])
        assert done.exit_code == 1, done.output
        found = figures(file)
        assert tuple(found[f"results{status}"] for status in ("decoded", "unchanged", "skipped", "failed")) == numbers
        assert found["success_timestamp_seconds"] == 0
        assert found["newest_period_timestamp_secondsdark"] == seconds(DAYS[0])
    assert found["newest_period_timestamp_secondspage"] == seconds(DAYS[1])
    (place / "summaries" / "odd@1.parquet").unlink()
    assert CliRunner().invoke(main, [*arguments, *candidates]).exit_code == 0
    assert figures(file)["success_timestamp_seconds"] == figures(file)["end_timestamp_seconds"]


def of_publish(statuses: Sequence[str], ended: float) -> RunFigures:
    results = [PeriodResult(f"dark@00000000/{DAYS[0]}", PeriodStatus(status)) for status in statuses]
    return publish.figures_of(results, ended=ended)


def of_decode_all(statuses: Sequence[str], ended: float) -> RunFigures:
    outcomes = [Outcome("dark", Status(status.replace("published", "decoded"))) for status in statuses]
    return decode_all.figures_of([], outcomes, ended=ended)


@pytest.mark.parametrize("figures_of", [of_publish, of_decode_all])
def test_the_last_success_stays_over_failures(
    tmp_path: Path, figures_of: Callable[[Sequence[str], float], RunFigures]
) -> None:
    file = tmp_path / "run.prom"
    for results, ended, success in (
        (["failed"], 5.0, 0.0),
        (["published"], 10.5, 10.5),
        (["published", "failed"], 20.0, 10.5),
        (["failed"], 1e11, 10.5),
        ([], 40.0, 40.0),
    ):
        write_run_textfile(file, figures_of(results, ended))
        assert (figures(file)["end_timestamp_seconds"], figures(file)["success_timestamp_seconds"]) == (ended, success)
    assert figures(file)["newest_period_timestamp_seconds"] == 0  # so the alert fires
    file.write_bytes(b"\xff")
    write_run_textfile(file, figures_of(["failed"], 50.0))
    assert figures(file)["success_timestamp_seconds"] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run.prom"]
    with pytest.raises(OutputError, match="cannot be written"):
        write_run_textfile(tmp_path / "none" / "x.prom", figures_of([], 1.0))


@pytest.mark.parametrize(
    ("failing", "code", "last"),
    [("", 0, "publish"), ("pull", 4, "pull"), ("publish", 4, "publish")],
)
def test_the_nightly_script_reports_what_fails(tmp_path: Path, failing: str, code: int, last: str) -> None:
    """A pull that fails ends the script before `publish`, which would write a success."""
    script = re.findall(r"```sh\n(#!.*?)```", (DOCS / "how-to" / "nightly.md").read_text(), re.DOTALL)[0]
    command = tmp_path / "hubbub"
    command.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/called\n[ "$1" != "{failing}" ] || exit 4\n')
    command.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HUBBUB_URL": "https://telemetry.example.org"}
    done = subprocess.run(
        ["/bin/sh", "-c", script.replace("/var/lib/hubbub-results", str(tmp_path))], env=environment, check=False
    )
    called = (tmp_path / "called").read_text().split()
    assert (done.returncode, called[-1]) == (code, last)
    assert (called.count("pull"), "publish" in called) == (1, failing != "pull")
