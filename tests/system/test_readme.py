"""The README: its code, commands, options and files, run against a real aggregator."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hubbub.metrics.definitions import load_definitions
from hubbub.summary import read_summary
from tests.support.near_expiry import with_near_expiry
from tests.support.paths import REPOSITORY

README = (REPOSITORY / "README.md").read_text()
BIN = Path(sys.executable).parent

DELIVER = """
from hubbub.testing import deliver
print(deliver(client), "tried,", client.accounting()["acknowledged"], "acknowledged")
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def definitions() -> str:
    return with_near_expiry(blocks("toml")[0])


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_code_equals_the_type_checked_examples() -> None:
    embed, decode = blocks("python")
    for shown, name in ((embed, "embed.py"), (decode, "decode.py")):
        assert (REPOSITORY / "examples" / name).read_text().endswith(shown), name
    (metrics,) = blocks("toml")
    assert metrics == "# metrics.toml\n" + (REPOSITORY / "examples" / "metrics.toml").read_text()


def test_definition_passes_the_lints(tmp_path: Path) -> None:
    """The file checks without a warning while its expiry is near."""
    (tmp_path / "metrics.toml").write_text(definitions())
    checked = json.loads(run(BIN / "hubbub", "metrics", "check", "metrics.toml", "--json", cwd=tmp_path))
    assert checked["warnings"] == checked["problems"] == []


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """Run serve, embed (three clients), pull, simulate and decode; return the folder and the outputs of embed and decode."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "metrics.toml").write_text(definitions())
    log = folder / "serve.log"
    with log.open("wb") as errors:
        command = [
            str(BIN / "hubbub"),
            "serve",
            "metrics.toml",
            "--port",
            "0",
            "--local-port",
            "0",
            "--local-reads-without-token",
        ]
        with subprocess.Popen(command, stderr=errors, cwd=folder) as serving:
            try:
                listening = r"listening on (\S+)\n.*without a token on (\S+)"
                while not (found := re.search(listening, log.read_text())):
                    assert serving.poll() is None, log.read_text()
                embed, decode = (code.replace("http://127.0.0.1:8000", found.group(1)) for code in blocks("python"))
                for client in ("ada", "bob", "eve"):
                    (folder / client).mkdir()
                    (folder / client / "metrics.toml").write_text(definitions())
                    embedded = run(sys.executable, "-c", embed + DELIVER, cwd=folder / client)
                run(BIN / "hubbub", "pull", found.group(2), "homepage", "--out", "pulled.parquet", cwd=folder)
            finally:
                serving.terminate()
                assert serving.wait(30) == 0, log.read_text()
    simulate = re.search(r"^hubbub (simulate .+)$", README, flags=re.MULTILINE)
    assert simulate
    run(BIN / "hubbub", *simulate[1].split(), cwd=folder)
    return folder, embedded, run(sys.executable, "-c", decode, cwd=folder)


@pytest.mark.slow
def test_client_example_sends_a_report(outputs: tuple[Path, str, str]) -> None:
    folder, embedded, _ = outputs
    assert embedded == "1 tried, 1 acknowledged\n"
    assert (folder / "eve" / "state" / "secret").stat().st_size == 32
    ledger = run(BIN / "hubbub", "ledger", "state", cwd=folder / "eve")
    assert "homepage" in ledger
    assert "4.000" in ledger
    sent = run(BIN / "hubbub", "inspect", "state", "--json", cwd=folder / "eve")
    assert json.loads(json.loads(sent)["last_sent"][0])["metric"] == "homepage"


def test_decoder_example_prints_and_saves_estimates(outputs: tuple[Path, str, str]) -> None:
    folder, _, decoded = outputs
    assert "homepage: 1,000,000 reports" in decoded
    assert re.search(r"^v1: \d+\.\d%, between \d+\.\d% and \d+\.\d%$", decoded, flags=re.MULTILINE)
    assert (folder / "homepage.csv").read_text().startswith("candidate,share")


def test_shell_commands_run_and_print_the_stated_epsilons(outputs: tuple[Path, str, str]) -> None:
    folder = outputs[0]
    shown = run(BIN / "hubbub", "metrics", "show", "metrics.toml", cwd=folder)
    figures = dict(re.findall(r"^    (per \w+|lifetime epsilon) +([\d.]+)  ", shown, flags=re.MULTILINE))
    assert len(figures) == 4
    for name, figure in figures.items():
        assert (f"{figure} {name}" in README) or (f"{name} {figure}" in README)
    (folder / "names.txt").write_text("https://example.org/\nhttps://example.com/\n")
    output = run(BIN / "hubbub", "decode", "pulled.parquet", "--candidates", "names.txt", "--json", cwd=folder)
    assert json.loads(output)["num_reports"] == read_summary(folder / "pulled.parquet").num_reports == 3


def test_planned_parameters_are_those_of_the_definition(tmp_path: Path) -> None:
    (tmp_path / "metrics.toml").write_text(definitions())
    wishes = re.search(r"^hubbub (plan --epsilon .+)$", README, flags=re.MULTILINE)
    assert wishes
    (tmp_path / "planned.toml").write_text(run(BIN / "hubbub", *wishes[1].split(), cwd=tmp_path))
    planned, shown = (load_definitions(tmp_path / name)["homepage"].params for name in ("planned.toml", "metrics.toml"))
    sizes = (shown.num_bits, shown.num_hashes, shown.num_cohorts)
    assert (planned.num_bits, planned.num_hashes, planned.num_cohorts) == sizes
    assert planned.probabilities == pytest.approx(shown.probabilities, rel=1e-3)


def test_named_commands_files_and_make_targets_exist() -> None:
    listed = run(BIN / "hubbub", "--help", cwd=REPOSITORY)
    for name in set(re.findall(r"(?:^|`)hubbub ([a-z]+)", README, flags=re.MULTILINE)):
        assert f"\n  {name} " in listed, name
    for link in re.findall(r"\]\(([^)#]+)\)", README) + re.findall(r"^\| `([^`]+)`", README, flags=re.MULTILINE):
        assert (REPOSITORY / link).exists(), link
    makefile = (REPOSITORY / "Makefile").read_text()
    for target in set(re.findall(r"`?make ([a-z]+)", README)) - {"and"}:
        assert f"\n{target}:" in makefile, target
