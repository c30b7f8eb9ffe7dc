"""The npm package as a user installs it: `import`, `require` and types, under each way of TypeScript to find modules."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.support.paths import REPOSITORY
from tests.support.programs import installed
from tests.support.typescript import CLIENT
from tests.typescript.conftest import Built

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


def packed(place: Path) -> Path:
    """Build the package from its sources in an empty folder, and pack it as for the registry."""
    npm, copy = installed("npm"), place / "clients" / "typescript"
    shutil.copytree(CLIENT, copy, ignore=shutil.ignore_patterns("node_modules", "test", "dist"))
    shutil.copy(REPOSITORY / "LICENSE", place)
    (copy / "node_modules").symlink_to(CLIENT / "node_modules")
    for script in ("build", "declarations"):
        subprocess.run([npm, "run", "--silent", script], cwd=copy, check=True)
    command = [npm, "pack", "--ignore-scripts", "--json", "--pack-destination", str(place)]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=True)
    return place / str(json.loads(done.stdout)[0]["filename"])


@contextmanager
def registry(tarball: Path) -> Iterator[str]:
    """A registry that has this package alone; yields its URL."""
    with tarfile.open(tarball) as archive:
        about = json.load(archive.extractfile("package/package.json") or io.BytesIO())
    data, version = tarball.read_bytes(), about["version"]
    integrity = f"sha512-{base64.b64encode(hashlib.sha512(data).digest()).decode()}"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            dist = {"integrity": integrity, "tarball": f"{url}/{NAME}/-/{tarball.name}"}
            document = {"name": NAME, "dist-tags": {"latest": version}, "versions": {version: {**about, "dist": dist}}}
            found = {f"/{NAME}": json.dumps(document).encode(), f"/{NAME}/-/{tarball.name}": data}.get(self.path)
            self.send_response(404 if found is None else 200)
            self.end_headers()
            self.wfile.write(found or b"")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever).start()
        try:
            yield url
        finally:
            server.shutdown()


@pytest.fixture(scope="module")
def tarball(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    built("hubbub.js")
    return packed(tmp_path_factory.mktemp("packed"))


@pytest.fixture(scope="module")
def project(tarball: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which npm installed the package by its name."""
    place = tmp_path_factory.mktemp("project")
    (place / "package.json").write_text('{"name": "app", "private": true}')
    with registry(tarball) as url:
        options = ["--registry", url, "--cache", str(place / "cache"), "--no-audit", "--no-fund"]
        subprocess.run([installed("npm"), "install", *options, NAME], cwd=place, check=True)
    return place


@pytest.mark.slow
def test_package_and_bundle_are_the_same_bytes_in_another_folder(tarball: Path, tmp_path: Path) -> None:
    other = packed(tmp_path)
    assert other.name == tarball.name
    assert other.read_bytes() == tarball.read_bytes()


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
