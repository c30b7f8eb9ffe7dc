"""The two distributions: reproducible wheels and sdists, their contents and metadata, and the hashes of all dependencies."""

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

from hubbub.text import DISTRIBUTION, SERVER_DISTRIBUTION
from tests.support.paths import DOCS, REPOSITORY

FOLDERS = {DISTRIBUTION: "client/", SERVER_DISTRIBUTION: ""}
"""Folder of each distribution's pyproject.toml, below the root of the repository."""
PROJECTS = {
    name: tomllib.loads((REPOSITORY / folder / "pyproject.toml").read_text())["project"]
    for name, folder in FOLDERS.items()
}
PROJECT = PROJECTS[DISTRIBUTION]
VERSION = PROJECT["version"]
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
STEMS = {name: f"{name.replace('-', '_')}-{VERSION}" for name in FOLDERS}
WHEELS = {name: f"{stem}-py3-none-any.whl" for name, stem in STEMS.items()}
SDISTS = {name: f"{stem}.tar.gz" for name, stem in STEMS.items()}
each_distribution = pytest.mark.parametrize("name", FOLDERS)


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


def build(source: Path, out: Path, **environment: str) -> None:
    """Build wheel and sdist of a folder in a process with this environment."""
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(out)]
    variables = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000", **environment}
    done = subprocess.run(command, cwd=source, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def build_both(source: Path, out: Path, **environment: str) -> Path:
    for folder in FOLDERS.values():
        build(source / folder, out, **environment)
    return out


def files_of_wheel(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels and the sdists of the tracked files."""
    place = tmp_path_factory.mktemp("built")
    return build_both(copy_tracked_files(place / "source", newest_first=False), place / "dist")


@pytest.mark.slow
def test_build_depends_neither_on_folder_nor_environment(built: Path, tmp_path: Path) -> None:
    """Another folder, file order, umask, time zone, locale and hash seed give the same bytes."""
    source = copy_tracked_files(tmp_path / "a folder elsewhere" / "hubbub", newest_first=True)
    for path in source.rglob("*"):
        path.chmod(path.stat().st_mode & ~0o077)
        os.utime(path, (1, 1))
    variables = {"TZ": "Asia/Kathmandu", "LC_ALL": "C", "PYTHONHASHSEED": "7", "HOME": str(tmp_path)}
    other = build_both(source, tmp_path / "out", **variables)
    assert {file.name for file in other.iterdir()} == {*WHEELS.values(), *SDISTS.values()}
    for file in other.iterdir():
        assert file.read_bytes() == (built / file.name).read_bytes(), file.name


@each_distribution
def test_build_date_is_source_date_epoch(built: Path, name: str) -> None:
    with zipfile.ZipFile(built / WHEELS[name]) as wheel:
        assert {file.date_time for file in wheel.infolist()} == {(2023, 11, 14, 22, 13, 20)}
    with tarfile.open(built / SDISTS[name]) as sdist:
        assert {(file.mtime, file.uid, file.uname) for file in sdist} == {(1700000000, 0, "")}


@each_distribution
def test_wheel_contains_its_packages_alone(built: Path, name: str) -> None:
    packages = {
        DISTRIBUTION: ("client/hubbub/",),
        SERVER_DISTRIBUTION: ("aggregator/hubbub_aggregator/", "decoder/hubbub_decoder/"),
    }[name]
    ours = {file.partition("/")[2] for file in tracked_files() if file.startswith(packages)}
    licenses = {"LICENSE", *(file for file in tracked_files() if file.startswith(packages) and "LICENSE" in file)}
    names = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", *(f"licenses/{file}" for file in licenses)}
    assert set(files_of_wheel(built / WHEELS[name])) == ours | {f"{STEMS[name]}.dist-info/{file}" for file in names}


@each_distribution
def test_sdist_contains_the_tracked_files(built: Path, name: str) -> None:
    with tarfile.open(built / SDISTS[name]) as sdist:
        names = {file.name.removeprefix(f"{STEMS[name]}/") for file in sdist}
    tracked = {file.removeprefix(FOLDERS[name]) for file in tracked_files() if file.startswith(FOLDERS[name])}
    assert names == tracked | {"PKG-INFO", ".gitignore"}


@pytest.mark.slow
@each_distribution
def test_wheel_of_the_sdist_is_the_wheel_of_the_tree(built: Path, tmp_path: Path, name: str) -> None:
    with tarfile.open(built / SDISTS[name]) as sdist:
        sdist.extractall(tmp_path, filter="data")
    build(tmp_path / STEMS[name], tmp_path / "out")
    assert (tmp_path / "out" / WHEELS[name]).read_bytes() == (built / WHEELS[name]).read_bytes()


def test_client_has_the_license_of_the_repository() -> None:
    assert (REPOSITORY / "client" / "LICENSE").read_bytes() == (REPOSITORY / "LICENSE").read_bytes()


def test_each_distribution_requires_the_other_in_its_own_version() -> None:
    """The number of the version has one value, wherever it stands."""
    assert {project["version"] for project in PROJECTS.values()} == {VERSION}
    assert PROJECTS[SERVER_DISTRIBUTION]["dependencies"] == [f"{DISTRIBUTION}=={VERSION}"]
    extras = {name: [f"{SERVER_DISTRIBUTION}[{name}]=={VERSION}"] for name in PROJECT["optional-dependencies"]}
    assert PROJECT["optional-dependencies"] == extras
    assert PROJECTS[SERVER_DISTRIBUTION]["optional-dependencies"].keys() == extras.keys()


@pytest.fixture(scope="module")
def index(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index in a folder, with pip 23.2, both distributions, and all that the client and the aggregator require."""
    place = tmp_path_factory.mktemp("index")
    names = ("pip==23.2", f"{DISTRIBUTION}[aggregator]")
    links = ("--find-links", str(built), "--only-binary", ":all:")
    subprocess.run([*PIP, "download", *links, "--dest", place, *names], check=True)
    for wheel in place.glob("*.whl"):
        page = place / "simple" / canonicalize_name(wheel.name.partition("-")[0])
        page.mkdir(parents=True)
        (page / "index.html").write_text(f'<a href="{wheel.as_uri()}">{wheel.name}</a>')
    return place / "simple"


@pytest.mark.slow
def test_the_oldest_pip_installs_by_name_from_an_index(index: Path, tmp_path: Path) -> None:
    """pip knows no other index, so that nothing else has the names."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    hubbub = python.with_name("hubbub")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    environment["PIP_CONFIG_FILE"] = os.devnull

    def run(*command: str | Path) -> str:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def pip_install(name: str) -> None:
        run(python, "-m", "pip", "install", "--index-url", index.as_uri(), name)

    pip_install("pip==23.2")
    assert run(python, "-m", "pip", "--version").startswith("pip 23.2 ")
    pip_install(DISTRIBUTION)
    assert run(hubbub, "--version").split()[-1] == VERSION
    run(hubbub, "encode", REPOSITORY / "tests" / "data" / "metrics.toml", "homepage", "x")
    assert SERVER_DISTRIBUTION not in run(python, "-m", "pip", "list")
    pip_install(f"{DISTRIBUTION}[aggregator]")
    run(hubbub, "serve", REPOSITORY / "examples" / "metrics.toml", "--print-config")
    run(python, "-m", "pip", "check")


@each_distribution
def test_metadata_names_license_versions_and_extras(built: Path, name: str) -> None:
    text = files_of_wheel(built / WHEELS[name])[f"{STEMS[name]}.dist-info/METADATA"]
    metadata = Metadata.from_email(text)  # raises an error for a field that the specification does not allow
    assert (metadata.name, str(metadata.version)) == (name, VERSION)
    assert metadata.license_expression == "Apache-2.0"
    assert metadata.description_content_type == "text/markdown"
    assert metadata.description == (REPOSITORY / FOLDERS[name] / "README.md").read_text()
    extras = {"aggregator", "all", "decoder", "postgres", "segments", "spark"}  # none of development
    assert set(metadata.provides_extra or ()) == extras


def test_client_readme_has_the_app_of_the_readme() -> None:
    app = re.compile(r"```python\n.*?```", re.DOTALL)
    of_client = app.findall((REPOSITORY / "client" / "README.md").read_text())
    assert of_client == app.findall((REPOSITORY / "README.md").read_text())


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
    assert here == closure(DISTRIBUTION, frozenset({"all"})) - FOLDERS.keys()
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
    for project in PROJECTS.values():
        assert tested == {name.removeprefix(prefix) for name in project["classifiers"] if name.startswith(prefix)}
