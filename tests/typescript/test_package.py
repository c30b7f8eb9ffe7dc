"""The npm package as a user installs it: `import`, `require` and types, under each way of TypeScript to find modules."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.programs import installed
from tests.typescript.conftest import CLIENT, Built

NAME = "hubbub-telemetry"
USE = """
import { Client, IndexedDbStorage, type Inspection } from "hubbub-telemetry";
import { FileStorage } from "hubbub-telemetry/node";
const client: Client = new Client({ definitions: [], url: "https://a.example", storage: new FileStorage("state") });
export const found: Promise<Inspection> = client.inspect();
export const other: IndexedDbStorage = new IndexedDbStorage();
// @ts-expect-error: there is no such option
new Client({ definitions: [], url: "", storage: other, colour: 1 });
"""
RUN = """
const { mkdtempSync } = {load}("node:fs");
const state = new FileStorage(mkdtempSync("state-"));
const client = new Client({ definitions: [], url: "http://127.0.0.1:9", storage: state, pauseWhenAutomated: false });
client.setConsent("on").then(async (saved) => {
  console.log(saved, await client.record("page", 1));
  await client.close();
});
"""


@pytest.fixture(scope="module")
def project(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the package, packed as for the registry."""
    built("hubbub.js")
    npm, place = installed("npm"), tmp_path_factory.mktemp("project")
    compiler = CLIENT / "node_modules" / ".bin" / "tsc"
    copy = place / "source"
    shutil.copytree(CLIENT, copy, ignore=shutil.ignore_patterns("node_modules", "test"))
    (copy / "node_modules").symlink_to(CLIENT / "node_modules")
    subprocess.run([compiler, "--project", "tsconfig.declarations.json"], cwd=copy, check=True)
    shutil.copytree(copy / "dist" / "types", copy / "dist" / "cjs" / "types", dirs_exist_ok=True)
    command = [npm, "pack", "--ignore-scripts", "--json", "--pack-destination", str(place)]
    packed = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=True)
    with tarfile.open(place / json.loads(packed.stdout)[0]["filename"]) as archive:
        archive.extractall(place / "node_modules", filter="data")
    (place / "node_modules" / "package").rename(place / "node_modules" / NAME)
    return place


@pytest.mark.parametrize("kind", ["import", "require"])
def test_the_package_runs(kind: str, project: Path, node_adapter: Sequence[str]) -> None:
    if kind == "import":
        head = f'import {{ createRequire }} from "node:module"; import {{ Client, FileStorage }} from "{NAME}/node"; import "{NAME}";'
        load, name = "createRequire(import.meta.url)", "run.mjs"
    else:
        head, load, name = (
            f'const {{ Client, FileStorage }} = require("{NAME}/node"); require("{NAME}");',
            "require",
            "run.cjs",
        )
    (project / name).write_text(head + RUN.replace("{load}", load))
    command = [node_adapter[0], name]
    # without --experimental-require-module, as Jest loads modules
    found = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=60, check=False)
    assert (found.stdout, found.stderr) == ("true unknown-metric\n", "")


@pytest.mark.parametrize("file", ["use.mts", "use.cts"])
@pytest.mark.parametrize("module", ["node16", "nodenext", "bundler"])
def test_the_types_are_found(module: str, file: str, project: Path) -> None:
    (project / file).write_text(USE)
    ways = ["--module", "preserve" if module == "bundler" else module, "--moduleResolution", module]
    command = [
        str(CLIENT / "node_modules" / ".bin" / "tsc"),
        "--noEmit",
        "--strict",
        "--target",
        "es2022",
        "--types",
        "",
        *ways,
        file,
    ]
    found = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stdout


def test_the_types_of_older_ways_are_there(project: Path) -> None:
    """TypeScript before 6 with `moduleResolution: node10` reads no `exports`."""
    package = project / "node_modules" / NAME
    fields = json.loads((package / "package.json").read_text())
    entries = [fields["types"], fields["main"], fields["module"], *fields["typesVersions"]["*"]["node"]]
    entries += [
        path
        for entry in fields["exports"].values()
        if isinstance(entry, dict)
        for way in entry.values()
        for path in way.values()
    ]
    assert [entry for entry in entries if not (package / entry).is_file()] == []
    assert (package / "README.md").is_file()
    assert (package / "dist" / "LICENSE").is_file()
    assert (project / "node_modules" / NAME / "package.json").is_file()
