"""Build a release of HEAD into make-out/release, install it by its hashes without an index, and run the tutorial with it.

make release-check

make-out/release/dist gets the files of the release:

- the wheels, the sdists and the npm package
- a requirements file with a hash of each wheel and of each dependency of the extra `all`
- an SBOM in CycloneDX JSON: version, licence and hash of what was installed here, and what depends on what
- SHA256SUMS of these files
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from hubbub.text import DISTRIBUTION
from tests.support.pages import PageRun
from tests.support.paths import DOCS, REPOSITORY

MADE_BY_MAKE = REPOSITORY / "make-out" / ".made-by-make"
RELEASE = MADE_BY_MAKE.with_name("release")
SOURCE, DIST, WHEELS, VENV, TUTORIAL = (RELEASE / name for name in ("source", "dist", "wheels", "venv", "tutorial"))
PYTHON = VENV / "bin" / "python"


def run(*command: str | Path, cwd: Path = RELEASE, **environment: str) -> str:
    """Run a command and return its output; an error ends the check with the command's message."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.strip()


def pip(*arguments: str | Path) -> str:
    """Run this environment's pip on the new one, which has no pip, so that the SBOM lists no pip."""
    return run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build(commit_time: str) -> None:
    """Build wheels and sdists from the files of HEAD, dated by the commit."""
    archive = RELEASE / "source.tar"
    run("git", "archive", "--output", archive, "HEAD", cwd=REPOSITORY)
    shutil.unpack_archive(archive, SOURCE, filter="data")
    archive.unlink()
    command = (sys.executable, "-m", "hatchling", "build", "--directory", DIST)
    for folder in (SOURCE / "client", SOURCE):
        run(*command, cwd=folder, SOURCE_DATE_EPOCH=commit_time)


def pack_npm_package() -> None:
    """Build and pack the npm package with the tools of its lock file."""
    client = SOURCE / "clients" / "typescript"
    run("npm", "ci", "--silent", "--no-audit", "--no-fund", cwd=client)
    run("npm", "pack", "--silent", "--pack-destination", DIST, cwd=client)


def write_requirements() -> Path:
    """Write the requirements file of the release: the hashes of the wheels above those of the dependencies."""
    own = ""
    for wheel in sorted(DIST.glob("*.whl")):
        name, version, _, _ = parse_wheel_filename(wheel.name)
        own += f"{name}[all]=={version} \\\n    --hash=sha256:{sha256(wheel)}\n"
    written = DIST / f"{DISTRIBUTION}-{version}-requirements.txt"
    written.write_text(own + (SOURCE / "requirements.txt").read_text())
    return written


def install(requirements: Path) -> None:
    """Download the dependencies, then install them and the wheels from local files alone."""
    locked = SOURCE / "requirements.txt"
    pip(
        "download", "--require-hashes", "--no-deps", "--only-binary", ":all:", "--dest", WHEELS, "--requirement", locked
    )
    for wheel in DIST.glob("*.whl"):
        shutil.copy(wheel, WHEELS)
    run(sys.executable, "-m", "venv", "--without-pip", VENV)
    local = ("--no-index", "--find-links", WHEELS)
    pip("--python", PYTHON, "install", *local, "--require-hashes", "--requirement", requirements)
    pip("--python", PYTHON, "check")


def write_sbom(commit_time: str) -> None:
    """Write the SBOM of the new environment, with the hash of each wheel that was installed."""
    command = (sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible")
    text = run(*command, "--pyproject", SOURCE / "client" / "pyproject.toml", PYTHON, SOURCE_DATE_EPOCH=commit_time)
    sbom = json.loads(text)
    hashes = {parse_wheel_filename(wheel.name)[:2]: sha256(wheel) for wheel in WHEELS.iterdir()}
    root = sbom["metadata"]["component"]
    for component in [root, *sbom["components"]]:
        digest = hashes.pop((canonicalize_name(component["name"]), Version(component["version"])))
        component["hashes"] = [{"alg": "SHA-256", "content": digest}]
    assert not hashes, f"the SBOM lacks {hashes}"
    (DIST / f"{root['name']}-{root['version']}.cdx.json").write_text(json.dumps(sbom, indent=2) + "\n")


def write_sums() -> None:
    lines = [f"{sha256(file)}  {file.name}\n" for file in sorted(DIST.iterdir())]
    (DIST / "SHA256SUMS").write_text("".join(lines))


def run_tutorial() -> None:
    TUTORIAL.mkdir()
    with PageRun((DOCS / "tutorial.md").read_text(), TUTORIAL, python=PYTHON) as tutorial:
        tutorial.run()


def main() -> None:
    """Run all steps and print when each has ended; the first error ends the check."""
    start = time.monotonic()

    def done(what: str) -> None:
        print(f"{time.monotonic() - start:5.0f} s  {what}", flush=True)  # noqa: T201  (the output of this program)

    if not MADE_BY_MAKE.exists():
        sys.exit(
            f"{MADE_BY_MAKE.parent} is not the folder of make, so nothing in it is replaced: run make release-check"
        )
    shutil.rmtree(RELEASE, ignore_errors=True)
    RELEASE.mkdir(parents=True)
    commit_time = run("git", "log", "-1", "--format=%ct", cwd=REPOSITORY)
    build(commit_time)
    pack_npm_package()
    done("built wheels, sdists and npm package")
    install(write_requirements())
    done(f"installed {run(VENV / 'bin' / 'hubbub', '--version')} by its hashes, without an index")
    write_sbom(commit_time)
    write_sums()
    done(f"wrote {DIST.relative_to(REPOSITORY)}")
    run_tutorial()
    done("ran the commands of docs/tutorial.md")


if __name__ == "__main__":
    main()
