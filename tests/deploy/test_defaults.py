"""Each port, path, user and unit that deploy/, the documents and the examples name is one of `hubbub.defaults`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import click
import pytest
import yaml

from hubbub import defaults
from hubbub.cli import main
from tests.support.paths import DEPLOY, DOCS, REPOSITORY

PORTS = {name: value for name, value in vars(defaults).items() if name.endswith("_PORT")}
KNOWN_PORTS = {*PORTS.values(), *defaults.PORTS_OF_OTHERS.values()}
SUFFIXES = {".md", ".py", ".js", ".html", ".toml", ".service", ".timer", ".conf", ".yaml", ".yml", ".sh", ""}
TEXTS = [
    path
    for root in (
        DEPLOY,
        DOCS / "how-to",
        DOCS / "reference",
        DOCS / "tutorial.md",
        REPOSITORY / "README.md",
        REPOSITORY / "examples",
    )
    for path in ([root] if root.is_file() else sorted(root.rglob("*")))
    if path.is_file() and path.suffix in SUFFIXES and "__pycache__" not in path.parts
]

PORT = re.compile(
    r"(?:127\.0\.0\.1|localhost|\[::1\]|0\.0\.0\.0|replica-\d|prometheus|\d+\.\d+\.\d+\.\d+):(\d{2,5})\b"
    r"|hubbub@(\d+)|--(?:local-)?port[ =](\d+)|EXPOSE (\d+)|--bind 127\.0\.0\.1 (\d+)|listen (\d+)|ontainerPort: (\d+)|[{ ]port: (\d+)"
)
PATH = re.compile(r"(?<![\w.])/(?:opt|etc|srv|var/(?:lib|cache|log|www))/hubbub[\w-]*")
USER = re.compile(r"(?:^User=|^USER |sudo -u |nologin |createuser |createdb --owner )([\w-]+)", re.MULTILINE)
UNIT = re.compile(r"\bhubbub[\w-]*@?\d*\.(?:service|timer)\b")
STARTED = re.compile(r"(?:systemctl(?: --?[\w-]+)* (?:\w+)(?: --now)?|journalctl --unit) ((?:'?hubbub[\w@*.-]*'? ?)+)")
USERS_OF_OTHERS = {"postgres"}


def named(pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield the file and each name that a pattern finds in it."""
    for path in TEXTS:
        for match in pattern.finditer(path.read_text(errors="replace")):
            yield path.relative_to(REPOSITORY).as_posix(), next((group for group in match.groups() if group), match[0])


def unit_of(name: str) -> str:
    """Return the unit file of an instance or a short name.

    >>> unit_of("hubbub"), unit_of("hubbub@8001"), unit_of("'hubbub@*'"), unit_of("hubbub-results.timer")
    ('hubbub.service', 'hubbub@.service', 'hubbub@.service', 'hubbub-results.timer')
    """
    stem, dot, kind = re.sub(r"@.*?(?=\.|$)", "@", name.strip("'")).partition(".")
    return f"{stem}{dot or '.'}{kind or 'service'}"


def is_known_port(port: str) -> bool:
    return int(port) in KNOWN_PORTS


def is_known_user(user: str) -> bool:
    return user in {*defaults.SERVICE_USERS, *USERS_OF_OTHERS}


def is_known_unit(name: str) -> bool:
    return all(unit_of(unit) in defaults.SERVICE_UNITS for unit in name.split())


CASES: list[tuple[re.Pattern[str], Callable[[str], bool], int]] = [
    (PORT, is_known_port, 20),
    (PATH, defaults.SERVICE_DIRECTORIES.__contains__, 20),
    (USER, is_known_user, 8),
    (UNIT, is_known_unit, 3),
    (STARTED, is_known_unit, 4),
]


@pytest.mark.parametrize(("pattern", "is_known", "least"), CASES, ids=["port", "path", "user", "unit", "started unit"])
def test_names_are_those_of_the_defaults(pattern: re.Pattern[str], is_known: Callable[[str], bool], least: int) -> None:
    found = [*named(pattern)]
    assert len(found) >= least, "the pattern finds them"
    assert [(path, name) for path, name in found if not is_known(name)] == []


def test_no_two_services_share_a_port() -> None:
    ports = [*PORTS.values(), *defaults.PORTS_OF_OTHERS.values()]
    assert len(ports) == len(set(ports)) > 8


RESULTS = re.compile(r"^(\s+)(?:location|handle_path) /results/.*?^\1\}", re.MULTILINE | re.DOTALL)
"""Block of a proxy's configuration for the pages of `hubbub explore`."""


def test_uploads_are_forwarded_to_ports_of_aggregators_only() -> None:
    """A proxy, a Service or a scrape that reaches another server of ours hands it the clients' batches, except below /results/."""
    proxies = [
        DEPLOY / "nginx",
        DEPLOY / "caddy",
        DEPLOY / "compose" / "upstream.conf",
        DEPLOY / "kubernetes",
        DEPLOY / "prometheus",
    ]
    files = [path for proxy in proxies for path in ([proxy] if proxy.is_file() else proxy.iterdir())]
    reached = {
        int(next(filter(None, match.groups())))
        for file in files
        for match in re.finditer(
            r"(?:[\d.]{7,}|replica-\d):(\d+)|containerPort: (\d+)", RESULTS.sub("", file.read_text())
        )
    }
    assert reached == {defaults.SERVICE_PORT, defaults.SECOND_SERVICE_PORT}
    used_by_files = {int(port) for path, port in named(PORT) if path.startswith("deploy/")}
    assert defaults.LOCAL_READS_PORT not in used_by_files


@pytest.mark.parametrize("path", ["nginx/hubbub.conf", "caddy/Caddyfile"])
def test_results_are_forwarded_after_the_aggregator_was_asked(path: str) -> None:
    [block] = [match[0] for match in RESULTS.finditer((DEPLOY / path).read_text())]
    assert "/session" in block.partition(f"127.0.0.1:{defaults.EXPLORE_PORT}")[0]


def test_commands_use_the_defaults() -> None:
    """Every option with a port has a default of its own, so that all commands can run on one machine at once."""
    context, ports = click.Context(main), dict[tuple[str, str], object]()
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        for parameter in command.params:
            if parameter.name is not None and parameter.name.endswith("port"):
                ports[name, parameter.name] = parameter.default
    assert ports == {
        ("serve", "port"): defaults.SERVICE_PORT,
        ("serve", "local_port"): defaults.LOCAL_READS_PORT,
        ("explore", "port"): defaults.EXPLORE_PORT,
    }


def test_table_of_ports_has_each_of_ours() -> None:
    table = re.findall(r"^\| (\d{4}) \| (.+?) \|", (DOCS / "reference" / "configuration.md").read_text(), re.MULTILINE)
    assert sorted(int(port) for port, _ in table) == sorted(set(PORTS.values()) - {defaults.EXAMPLE_APP_PORT})


def test_units_and_directories_are_those_of_the_files() -> None:
    units = sorted(path.name for path in (DEPLOY / "systemd").iterdir() if path.suffix in {".service", ".timer"})
    assert units == sorted(defaults.SERVICE_UNITS)
    assert {path for _, path in named(PATH)} == set(defaults.SERVICE_DIRECTORIES)
    assert {user for _, user in named(USER)} - USERS_OF_OTHERS == set(defaults.SERVICE_USERS)


def test_ports_of_kubernetes_and_compose_are_known() -> None:
    """Numbers that the patterns above do not see, because YAML writes them in more than one way."""

    def ports(value: object, key: str = "") -> Iterator[int]:
        if isinstance(value, dict):
            for name, entry in value.items():
                yield from ports(entry, name)
        elif isinstance(value, list):
            for entry in value:
                yield from ports(entry, key)
        elif key in {"port", "targetPort", "containerPort", "hostPort", "ports"} and re.search(r"\d", str(value)):
            yield from map(int, re.findall(r"(?<![\d.])\d{2,5}(?![\d.])", str(value)))

    files = [*(DEPLOY / "kubernetes").glob("*.yaml"), DEPLOY / "compose" / "compose.yaml"]
    found = {port for file in files for document in yaml.safe_load_all(file.read_text()) for port in ports(document)}
    assert found <= KNOWN_PORTS
    assert len(found) > 3
