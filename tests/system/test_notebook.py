"""examples/analysis.ipynb runs from the first cell to the last, draws its plots, and is stored without outputs."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

from tests.support.paths import REPOSITORY

NOTEBOOK = REPOSITORY / "examples" / "analysis.ipynb"
NUM_PLOTS = 7


def test_notebook_is_stored_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert [cell for cell in code if cell["outputs"] or cell["execution_count"]] == []


@pytest.mark.slow
@pytest.mark.filterwarnings("default::DeprecationWarning")  # of jupyter_client and its event loop
def test_notebook_runs_and_its_conclusions_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    for variable in ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    kernel = tmp_path / "JUPYTER_DATA_DIR" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"}))
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=120, shutdown_kernel="immediate", resources=resources).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
    assert sum("image/png" in output.get("data", {}) for output in outputs) == NUM_PLOTS
    assert any("<svg" in output.get("data", {}).get("text/html", "") for output in outputs)
    printed = "".join(output.text for output in outputs if output.get("name") == "stdout")
    false = re.search(r"(\d+) of them falsely", printed)
    assert false
    assert int(false[1]) <= 2
    assert "Page 9 gained" in printed
    assert (tmp_path / "homepage.svg").exists()
