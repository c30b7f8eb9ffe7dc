"""The files in deploy/ pass the linters of their formats."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import urllib3
import yaml

from tests.support.near_expiry import with_near_expiry
from tests.support.paths import DEPLOY, REPOSITORY
from tests.support.programs import installed

if TYPE_CHECKING:
    from tests.deploy.conftest import Certificate

HUBBUB = Path(sys.executable).with_name("hubbub")
UNITS = ("hubbub.service", "hubbub@.service", "hubbub-results.service", "hubbub-explore.service")
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
OLDEST_KUBERNETES, NEWEST_KUBERNETES = "1.30", "1.37"
MAX_EXPOSURE = 15
"""Of 100, by `systemd-analyze security`; a unit without any option of the sandbox has 96."""


def run(*command: str | Path, cwd: Path = REPOSITORY) -> str:
    """Run a linter, which must succeed; return its output."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_containerfile_passes_hadolint() -> None:
    assert run(Path(sys.executable).with_name("hadolint"), DEPLOY / "Containerfile") == ""


def test_containerfile_copies_only_files_that_the_build_context_has() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    copied = {name for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE) for name in line.split()}
    ignored = (DEPLOY / "Containerfile.dockerignore").read_text().splitlines()
    assert {f"!{name}" for name in copied} == {line for line in ignored if line.startswith("!")}
    assert ignored[0] == "*"
    assert [name for name in copied if not (REPOSITORY / name).exists()] == []


@pytest.mark.parametrize("version", [OLDEST_KUBERNETES, NEWEST_KUBERNETES])
@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.name)
def test_kubernetes_manifest_is_valid(manifest: Path, version: str) -> None:
    import kubernetes_validate

    for resource in yaml.safe_load_all(manifest.read_text()):
        kubernetes_validate.validate(resource, version, strict=True)


def test_kubernetes_pods_get_no_variables_of_services() -> None:
    """The service `hubbub` would set HUBBUB_PORT=tcp://10.0.0.1:8000 in every pod, which --port refuses."""
    resources = [resource for manifest in MANIFESTS for resource in yaml.safe_load_all(manifest.read_text())]
    assert "hubbub" in {resource["metadata"]["name"] for resource in resources if resource["kind"] == "Service"}
    specs = [resource.get("spec", {}) for resource in resources]
    pods = [
        spec.get("jobTemplate", {}).get("spec", spec)["template"]["spec"]
        for spec in specs
        if {"template", "jobTemplate"} & spec.keys()
    ]
    assert [pod["enableServiceLinks"] for pod in pods] == [False] * 3


@pytest.fixture
def units(tmp_path: Path) -> list[Path]:
    """The units, with the path of the program that is installed here."""
    for name in UNITS:
        text = (DEPLOY / "systemd" / name).read_text()
        (tmp_path / name.replace("@", "@8000")).write_text(text.replace("/opt/hubbub/bin/hubbub", str(HUBBUB)))
    return [tmp_path / name.replace("@", "@8000") for name in UNITS]


def test_systemd_units_are_valid(units: list[Path]) -> None:
    assert run(installed("systemd-analyze", "systemd"), "verify", "--man=no", *units) == ""


@pytest.mark.slow
def test_command_of_the_systemd_unit_serves(tmp_path: Path) -> None:
    place = {"/opt/hubbub/bin/hubbub": HUBBUB, "/etc/hubbub": tmp_path, "/var/lib/hubbub": tmp_path}
    text = (DEPLOY / "systemd" / "hubbub.service").read_text()
    for old, new in place.items():
        assert old in text
        text = text.replace(old, str(new))
    shutil.copy(DEPLOY / "systemd" / "hubbub.toml", tmp_path)
    definitions = (REPOSITORY / "examples" / "metrics.toml").read_text()
    (tmp_path / "metrics.toml").write_text(with_near_expiry(definitions))
    run(HUBBUB, "db", "create", "--database", tmp_path / "reports.db")
    command = re.findall(r"^ExecStart=(.+)$", text, re.MULTILINE)
    with subprocess.Popen([*shlex.split(command[0]), "--port", "0"], stderr=subprocess.PIPE, text=True) as service:
        assert service.stderr
        while not (found := re.search(r"listening on (\S+)", line := service.stderr.readline())):
            assert line.startswith("INFO"), line
        assert urllib3.request("GET", f"{found[1]}/readyz").status == 200
        service.send_signal(signal.SIGHUP)
        while "reloaded the definitions" not in (line := service.stderr.readline()):
            assert line.startswith("INFO"), line
        service.terminate()
        assert service.wait(60) == 0


def test_systemd_units_restrict_the_service(units: list[Path]) -> None:
    tool = installed("systemd-analyze", "systemd")
    for unit in units:
        run(tool, "security", "--offline=true", f"--threshold={MAX_EXPOSURE}", unit)


@pytest.mark.parametrize("upstream", ["nginx/upstream.conf", "compose/upstream.conf"])
def test_nginx_accepts_the_configuration(upstream: str, certificate: Certificate, tmp_path: Path) -> None:
    tool = installed("nginx", "nginx-light")
    shutil.copy(DEPLOY / upstream, tmp_path / "default.conf")
    text = (DEPLOY / "nginx" / "hubbub.conf").read_text()
    (tmp_path / "hubbub.conf").write_text(
        text.replace("/etc/ssl/", f"{tmp_path}/").replace("/var/log/nginx/", f"{tmp_path}/")
    )
    config = tmp_path / "nginx.conf"
    config.write_text(
        f"pid {tmp_path}/pid; events {{}} http {{ include {tmp_path}/default.conf; include {tmp_path}/hubbub.conf; }}"
    )
    assert "test is successful" in run(tool, "-t", "-e", "stderr", "-p", str(tmp_path), "-c", str(config))


def test_prometheus_accepts_configuration_and_rules(tmp_path: Path) -> None:
    tool = installed("promtool", "prometheus")
    shutil.copytree(DEPLOY / "prometheus", tmp_path / "prometheus")
    config = tmp_path / "prometheus" / "prometheus.yml"
    (token := tmp_path / "metrics").write_text("hubbub_x")
    config.write_text(config.read_text().replace("/etc/hubbub/metrics", str(token)))
    run(tool, "check", "config", config)


@pytest.mark.slow
def test_each_alert_fires_for_its_cause() -> None:
    folder = DEPLOY / "prometheus"
    run(installed("promtool", "prometheus"), "test", "rules", "alerts_test.yml", cwd=folder)
    rules = yaml.safe_load((folder / "alerts.yml").read_text())["groups"][0]["rules"]
    tested = set(re.findall(r'alertname="(\w+)"', (folder / "alerts_test.yml").read_text()))
    assert tested == {rule["alert"] for rule in rules}
    assert all(set(rule["annotations"]) == {"summary", "action", "runbook"} for rule in rules)


@pytest.mark.parametrize(
    ("script", "dashboard"), [("make_dashboard.py", "dashboard.json"), ("make_results_dashboard.py", "results.json")]
)
def test_dashboard_is_the_output_of_its_script(script: str, dashboard: str) -> None:
    folder = DEPLOY / "grafana"
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    made = subprocess.run(
        [sys.executable, folder / script], env=environment, capture_output=True, text=True, check=True
    )
    assert made.stdout == (folder / dashboard).read_text(), (
        f"run `python deploy/grafana/{script} > deploy/grafana/{dashboard}`"
    )


def test_podman_compose_would_create_a_container_for_each_service() -> None:
    """It reads the file and prints its commands: an engine starts no container in most sandboxes of CI."""
    installed("podman")
    compose = DEPLOY / "compose" / "compose.yaml"
    command = [installed("podman-compose"), "--file", str(compose), "--dry-run", "--verbose", "up", "--detach"]
    secrets = {"POSTGRES_PASSWORD": "a", "GRAFANA_PASSWORD": "b"}
    done = subprocess.run(command, env=os.environ | secrets, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    created = dict(re.findall(r"podman create --name=hubbub_(\S+)_1 (.*)", done.stdout + done.stderr))
    services = yaml.safe_load(compose.read_text())["services"]
    assert created.keys() == {name for name, service in services.items() if "profiles" not in service}
    for name, options in created.items():
        service = services[name]
        assert ("--read-only" in options) == service.get("read_only", False)
        assert f" -m {service['mem_limit']} " in options
        assert service["image"] in options
    for missing in secrets:
        some = {name: value for name, value in secrets.items() if name != missing}
        done = subprocess.run(command, env=os.environ | some, capture_output=True, text=True, check=False)
        assert (done.returncode != 0, missing in done.stderr) == (True, True)
