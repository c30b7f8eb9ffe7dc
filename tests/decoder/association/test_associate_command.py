"""`hubbub simulate` and `hubbub associate` of a joint metric: files, table, heat map, JSON, and refusals."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from matplotlib.figure import Figure
from PIL import Image

from hubbub.cli import main
from hubbub.summary import read_collected
from hubbub_decoder import associate
from tests.client.metrics.test_joint import TOML

POPULATION = "carrier,origin,count\nUA,EWR,9000\nUA,JFK,1000\nAA,JFK,8000\n,LGA,2000\n"


def hubbub(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder with a definition, a population, candidates and simulated reports."""
    (tmp_path / "metrics.toml").write_text(TOML)
    (tmp_path / "population.csv").write_text(POPULATION)
    (tmp_path / "carriers.txt").write_text("UA\nAA\n")
    options = ("--content", "reports", "--reports", "30000", "--seed", "1", "--out", tmp_path / "flight.parquet")
    simulated = hubbub(
        "simulate", tmp_path / "metrics.toml", "flight", "--population", tmp_path / "population.csv", *options, "--json"
    )
    assert simulated.exit_code == 0, simulated.output
    assert json.loads(simulated.stdout)["num_reports"] == 30_000
    return tmp_path


def test_command_prints_table_and_writes_files(folder: Path) -> None:
    listed = f"carrier={folder / 'carriers.txt'}"
    outputs = folder / "pairs.csv", folder / "map.png"
    shown = hubbub(
        "associate", folder / "flight.parquet", "--part-candidates", listed, "--out", outputs[0], "--plot", outputs[1]
    )
    assert shown.exit_code == 0, shown.output
    assert "carrier and origin depend on each other: score test of independence" in " ".join(shown.stdout.split())
    assert "UA x EWR" in shown.stdout
    said = " ".join(shown.stdout.split())
    assert "guessed share of origin for each carrier" in said
    assert "drawn toward independence" in said
    with outputs[0].open() as lines:
        rows = list(csv.DictReader(lines))
    cell = next(row for row in rows if (row["first"], row["second"]) == ("UA", "EWR"))
    share, low, high = (f"{float(cell[name]):.1%}" for name in ("given_first", "given_first_low", "given_first_high"))
    assert f"EWR {share} ({low} to {high})" in said
    assert len(rows) == 4 * 4  # 2 candidates, unlisted, no value; 3 categories, no value
    with Image.open(outputs[1]) as image:
        assert image.width > 200


def test_colour_bar_has_its_whole_label(folder: Path) -> None:
    found = associate(read_collected(folder / "flight.parquet"), {"carrier": ["UA", "AA"]})  # type: ignore[arg-type]
    figure = Figure()
    found.plot(figure)
    figure.draw_without_rendering()
    label = figure.axes[1].yaxis.label
    box = label.get_window_extent()
    assert "guessed share of origin" in " ".join(label.get_text().split())
    assert 0 <= box.y0 < box.y1 <= figure.bbox.height
    assert box.x1 <= figure.bbox.width


def test_command_prints_json(folder: Path) -> None:
    shown = hubbub(
        "associate", folder / "flight.parquet", "--part-candidates", f"carrier={folder / 'carriers.txt'}", "--json"
    )
    found = json.loads(shown.stdout)
    assert found["parts"] == ["carrier", "origin"]
    assert found["independence"]["p_value"] < 1e-9
    assert sum(cell["guess"] for cell in found["cells"]) == pytest.approx(1)
    assert {cell["first"] for cell in found["cells"]} == {"UA", "AA", "(unlisted)", "(no value)"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "carrier: a string part needs candidates"),
        (("--part-candidates", "carriers.txt"), "--part-candidates must be PART=FILE"),
        (("--plot", "map.gif"), "must end in .svg, .png or .pdf"),
        (("--out", "pairs.xlsx"), "must end in .csv, .json or .parquet"),
        (("--parts", "carrier,dest"), "parts must be two of carrier, origin"),
    ],
)
def test_command_refuses_wrong_options(options: tuple[str, ...], message: str, folder: Path) -> None:
    refused = hubbub("associate", folder / "flight.parquet", *options)
    assert refused.exit_code != 0
    assert message in " ".join(refused.output.split())


def test_other_commands_refuse_joint_metrics_with_the_remedy(folder: Path) -> None:
    drawn = ("--reports", "10", "--distribution", "zipf1", "--out", folder / "x.parquet")
    for arguments, message in (
        (("decode", folder / "flight.parquet", "--candidates", folder / "carriers.txt"), "Use `hubbub associate`"),
        (("plan", folder / "metrics.toml"), "Plan each part on its own"),
        (("simulate", folder / "metrics.toml", "flight", *drawn), "Pass --population with a column for each part"),
    ):
        refused = hubbub(*arguments)
        assert refused.exit_code != 0
        assert message in " ".join(f"{refused.output} {refused.exception}".split())


def test_population_of_parts_needs_their_columns(folder: Path) -> None:
    (folder / "population.csv").write_text("carrier,count\nUA,3\n")
    options = ("--content", "reports", "--out", folder / "x.parquet")
    refused = hubbub("simulate", folder / "metrics.toml", "flight", "--population", folder / "population.csv", *options)
    assert refused.exit_code != 0
    assert "carrier, origin and count" in " ".join(f"{refused.output} {refused.exception}".split())
