"""The distribution: reproducible wheel and sdist, their contents and metadata, and the hashes of all dependencies."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hubbub.text import DISTRIBUTION
from tests.support.paths import DOCS, REPOSITORY

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
STEM = f"{DISTRIBUTION.replace('-', '_')}-{PROJECT['version']}"


def tracked_files() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return sorted(listed.stdout.splitlines())


def copy_tracked_files(place: Path, *, newest_first: bool) -> Path:
    """Copy the tracked files in the stated order, which is the order that most file systems list them in."""
    for name in sorted(tracked_files(), reverse=newest_first):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / name, place / name)
        (place / name).chmod((REPOSITORY / name).stat().st_mode)
    return place


def build(source: Path, out: Path, **environment: str) -> dict[str, bytes]:
    """Build wheel and sdist in a process with this environment, and return their contents by file name."""
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(out)]
    variables = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000", **environment}
    done = subprocess.run(command, cwd=source, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {file.name: file.read_bytes() for file in out.iterdir()}


def files_of_wheel(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist of the tracked files."""
    place = tmp_path_factory.mktemp("built")
    build(copy_tracked_files(place / "source", newest_first=False), place / "dist")
    return place / "dist"


@pytest.mark.slow
def test_build_depends_neither_on_folder_nor_environment(built: Path, tmp_path: Path) -> None:
    """Another folder, file order, umask, time zone, locale and hash seed give the same bytes."""
    source = copy_tracked_files(tmp_path / "a folder elsewhere" / "hubbub", newest_first=True)
    for path in source.rglob("*"):
        path.chmod(path.stat().st_mode & ~0o077)
        os.utime(path, (1, 1))
    other = build(source, tmp_path / "out", TZ="Asia/Kathmandu", LC_ALL="C", PYTHONHASHSEED="7", HOME=str(tmp_path))
    assert sorted(other) == [f"{STEM}-py3-none-any.whl", f"{STEM}.tar.gz"]
    for name, contents in other.items():
        assert contents == (built / name).read_bytes(), name


def test_build_date_is_source_date_epoch(built: Path) -> None:
    with zipfile.ZipFile(built / f"{STEM}-py3-none-any.whl") as wheel:
        assert {file.date_time for file in wheel.infolist()} == {(2023, 11, 14, 22, 13, 20)}
    with tarfile.open(built / f"{STEM}.tar.gz") as sdist:
        assert {(file.mtime, file.uid, file.uname) for file in sdist} == {(1700000000, 0, "")}


def test_wheel_contains_the_three_packages_alone(built: Path) -> None:
    packages = ("client/hubbub/", "aggregator/hubbub_aggregator/", "decoder/hubbub_decoder/")
    ours = {name.partition("/")[2] for name in tracked_files() if name.startswith(packages)}
    licenses = {"LICENSE", *(name for name in tracked_files() if name.endswith(".LICENSE"))}
    names = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", *(f"licenses/{name}" for name in licenses)}
    expected = ours | {f"{STEM}.dist-info/{name}" for name in names}
    assert set(files_of_wheel(built / f"{STEM}-py3-none-any.whl")) == expected


def test_sdist_contains_the_tracked_files(built: Path) -> None:
    with tarfile.open(built / f"{STEM}.tar.gz") as sdist:
        names = {file.name.removeprefix(f"{STEM}/") for file in sdist}
    assert names == {*tracked_files(), "PKG-INFO"}


@pytest.mark.slow
def test_wheel_of_the_sdist_is_the_wheel_of_the_tree(built: Path, tmp_path: Path) -> None:
    with tarfile.open(built / f"{STEM}.tar.gz") as sdist:
        sdist.extractall(tmp_path, filter="data")
    name = f"{STEM}-py3-none-any.whl"
    assert build(tmp_path / STEM, tmp_path / "out")[name] == (built / name).read_bytes()


@pytest.mark.slow
def test_the_oldest_pip_installs_by_name_from_an_index(built: Path, tmp_path: Path) -> None:
    """The index is a folder; pip knows no other one, so that nothing else has the name."""
    subprocess.run(
        [*PIP, "download", "--only-binary", ":all:", "--dest", tmp_path, "pip==23.2", *built.glob("*.whl")], check=True
    )
    for wheel in tmp_path.glob("*.whl"):
        page = tmp_path / "simple" / canonicalize_name(wheel.name.partition("-")[0])
        page.mkdir(parents=True)
        (page / "index.html").write_text(f'<a href="{wheel.as_uri()}">{wheel.name}</a>')
    venv.create(tmp_path / "venv", with_pip=True)
    python, index = tmp_path / "venv" / "bin" / "python", ("--index-url", (tmp_path / "simple").as_uri())
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    environment["PIP_CONFIG_FILE"] = os.devnull

    def run(*command: str | Path) -> str:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(python, "-m", "pip", "install", *index, "pip==23.2")
    assert run(python, "-m", "pip", "--version").startswith("pip 23.2 ")
    run(python, "-m", "pip", "install", *index, DISTRIBUTION)
    assert run(python.with_name("hubbub"), "--version").split()[-1] == PROJECT["version"]
    run(python.with_name("hubbub"), "encode", REPOSITORY / "tests" / "data" / "metrics.toml", "homepage", "x")


def test_metadata_names_license_versions_and_extras(built: Path) -> None:
    text = files_of_wheel(built / f"{STEM}-py3-none-any.whl")[f"{STEM}.dist-info/METADATA"]
    metadata = Metadata.from_email(text)  # raises an error for a field that the specification does not allow
    assert (metadata.name, str(metadata.version)) == (DISTRIBUTION, PROJECT["version"])
    assert metadata.license_expression == "Apache-2.0"
    assert metadata.description_content_type == "text/markdown"
    assert metadata.description == (REPOSITORY / "README.md").read_text()
    assert set(metadata.provides_extra or ()) == set(PROJECT["optional-dependencies"])
    own = {str(requirement) for requirement in metadata.requires_dist or () if requirement.name.startswith("hubbub")}
    assert all(name.startswith(f"{DISTRIBUTION}[") for name in own), own


def test_citation_has_the_version_and_license_of_the_package() -> None:
    """It names no address while the project has no public one."""
    citation = (REPOSITORY / "CITATION.cff").read_text()
    for field in ("version", "license"):
        assert f"\n{field}: {PROJECT[field]}\n" in citation
    assert "http" not in citation


LOCKS = ("requirements.txt", "requirements-build.txt")


def lock(file: str = LOCKS[0]) -> dict[Requirement, int]:
    """The pinned dependencies of a file, with the number of their hashes."""
    entries = re.split(r"\n(?=\w)", re.sub(r"#.*\n", "", (REPOSITORY / file).read_text()).strip())
    hashed = [re.fullmatch(r"([^\\]+?)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)", entry) for entry in entries]
    assert None not in hashed, [entry for entry, match in zip(entries, hashed, strict=True) if match is None]
    return {Requirement(match[1]): match[2].count("--hash") for match in hashed if match}


def closure(name: str, extras: frozenset[str]) -> set[str]:
    """The names of all installed distributions that this distribution requires with these extras, and its own."""
    found: set[tuple[str, frozenset[str]]] = set()
    open_ones = [(canonicalize_name(name), extras)]
    while open_ones:
        here = open_ones.pop()
        if here in found:
            continue
        found.add(here)
        for text in distribution(here[0]).requires or ():
            needed = Requirement(text)
            if any(needed.marker is None or needed.marker.evaluate({"extra": extra}) for extra in {"", *here[1]}):
                open_ones.append((canonicalize_name(needed.name), frozenset(needed.extras)))
    return {name for name, _ in found}


def test_requirements_lock_every_dependency_of_all() -> None:
    here = {canonicalize_name(entry.name) for entry in lock() if entry.marker is None or entry.marker.evaluate()}
    assert here == closure(DISTRIBUTION, frozenset({"all"})) - {DISTRIBUTION}
    assert {canonicalize_name(entry.name) for entry in lock("requirements-build.txt")} == closure(
        "hatchling", frozenset()
    )


def versions_in(file: str) -> dict[str, str]:
    lines = (REPOSITORY / file).read_text().splitlines()
    return {canonicalize_name(name): f"=={version}" for name, version in (line.split("==") for line in lines)}


def test_only_pandas_has_another_version_beside_spark() -> None:
    tested, beside_spark = versions_in("constraints.txt"), versions_in("constraints-spark.txt")
    assert not tested.keys() & {"pyspark", "py4j"}
    assert {name for name in tested.keys() & beside_spark.keys() if tested[name] != beside_spark[name]} == {"pandas"}


def test_requirements_have_the_versions_in() -> None:
    tested = versions_in("constraints.txt")
    for file in LOCKS:
        assert {entry.name: str(entry.specifier) for entry in lock(file)}.items() <= tested.items()


def test_requirements_name_no_index() -> None:
    """A hash decides what is installed, so the place of the files is the installing machine's choice."""
    for file in LOCKS:
        assert not re.search(r"://|index|find-links|trusted-host", (REPOSITORY / file).read_text())


def test_installations_of_the_service_check_hashes() -> None:
    """No command that a service is installed by takes a file from an index without a hash."""
    page = (DOCS / "how-to" / "deploying.md").read_text()
    texts = (page.partition("**8.")[0], (REPOSITORY / "deploy" / "Containerfile").read_text())
    found = [line for text in texts for line in re.findall(r"pip (?:install|download|wheel) .*", text)]
    assert len(found) >= 7
    assert [
        line for line in found if not re.search("--require-hashes|--no-index|--no-deps --no-build-isolation", line)
    ] == []


def test_classifiers_are_the_tested_pythons() -> None:
    page = (DOCS / "project" / "compatibility.md").read_text()
    rows = re.findall(r"^\| (3\.[\d, .]+) \| (.*) \|$", page, flags=re.MULTILINE)
    tested = {version for versions, how in rows if not how.startswith("not tested") for version in versions.split(", ")}
    prefix = "Programming Language :: Python :: "
    assert tested
    assert tested == {name.removeprefix(prefix) for name in PROJECT["classifiers"] if name.startswith(prefix)}
