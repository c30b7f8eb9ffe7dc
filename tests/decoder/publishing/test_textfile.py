"""`hubbub publish --prometheus-textfile`: figures of each run, and what they say after a failure."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from hubbub.cli import main
from hubbub_decoder.errors import OutputError
from hubbub_decoder.publishing.plan import PeriodResult, PeriodStatus
from hubbub_decoder.publishing.textfile import write_textfile
from tests.decoder.publishing.test_publish import DARK, DAYS, place, write_day  # noqa: F401  (a fixture)


def figures(path: Path) -> dict[str, float]:
    families = text_string_to_metric_families(path.read_text())
    return {
        sample.name.removeprefix("hubbub_publish_") + "".join(sample.labels.values()): sample.value
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
    arguments = ["publish", str(place / "summaries"), "--candidates", str(place / "candidates"), "--out-dir", str(place / "site")]  # fmt: skip
    done = CliRunner().invoke(main, [*arguments, "--withhold", f"page/{DAYS[0]}", "--prometheus-textfile", str(file)])
    assert done.exit_code == 3, done.output
    found = figures(file)
    assert found["end_timestamp_seconds"] == found["success_timestamp_seconds"] > seconds("2026-01-01")
    assert found["newest_period_timestamp_seconds"] == seconds(DAYS[1])
    assert {name: found[f"periods{name}"] for name in PeriodStatus} == {
        "published": 2, "waiting": 2, "withheld": 1, "failed": 0
    }  # fmt: skip
    before = file.read_bytes()
    done = CliRunner().invoke(main, [*arguments, "--check", "--prometheus-textfile", str(file)])
    assert done.exit_code == 2
    assert "--check writes nothing" in done.stderr
    assert file.read_bytes() == before


def test_the_last_success_stays_over_failures(tmp_path: Path) -> None:
    good, bad = (PeriodResult(f"dark@00000000/{DAYS[0]}", status) for status in (PeriodStatus.PUBLISHED, PeriodStatus.FAILED))  # fmt: skip
    file = tmp_path / "publish.prom"
    for results, ended, success in (([bad], 5.0, 0), ([good], 10.5, 10.5), ([good, bad], 20.0, 10.5), ([bad], 1e15, 10.5), ([], 40.0, 40.0)):  # fmt: skip
        write_textfile(file, results, ended=ended)
        assert (figures(file)["end_timestamp_seconds"], figures(file)["success_timestamp_seconds"]) == (ended, success)
    file.write_bytes(b"\xff")
    write_textfile(file, [bad], ended=50.0)
    assert figures(file)["success_timestamp_seconds"] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["publish.prom"]
    with pytest.raises(OutputError, match="cannot be written"):
        write_textfile(tmp_path / "none" / "x.prom", [], ended=1.0)
