"""Limits of containers: memory, processors, processes and temporary files in compose; network and start in Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.support.paths import DEPLOY

SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())["services"]
RESOURCES: list[dict[str, Any]] = [
    resource
    for manifest in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for resource in yaml.safe_load_all(manifest.read_text())
]
UNITS = {"m": 2**20, "g": 2**30}


def size(text: str) -> int:
    """Return the number of bytes of a size of compose.

    >>> size("64m"), size("1g")
    (67108864, 1073741824)
    """
    return int(text[:-1]) * UNITS[text[-1]]


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_of_compose_has_limits(name: str) -> None:
    service = SERVICES[name]
    assert 0 < service["cpus"] <= 1, "an engine refuses more processors than the machine has"
    assert 0 < service["pids_limit"] <= 256
    temporary = [mount.partition(":size=") for mount in service.get("tmpfs", [])]
    shared = size(service["shm_size"]) if "shm_size" in service else 0
    assert sum(size(text) for _, _, text in temporary) + shared <= size(service["mem_limit"]) / 2, "a tmpfs is memory"


def test_read_only_aggregators_have_room_for_exports() -> None:
    replicas = [service for service in SERVICES.values() if service.get("image") == "hubbub"]
    assert len(replicas) == 3
    assert {service["read_only"] for service in replicas} == {True}
    assert {mount.partition(":")[0] for service in replicas for mount in service["tmpfs"]} == {"/tmp"}  # noqa: S108  (in a container)


def test_liveness_of_a_pod_is_probed_after_its_start() -> None:
    pods = [resource["spec"]["template"]["spec"] for resource in RESOURCES if resource["kind"] == "Deployment"]
    (container,) = (container for pod in pods for container in pod["containers"])
    startup, liveness = container["startupProbe"], container["livenessProbe"]
    assert startup["httpGet"] == liveness["httpGet"]
    assert 30 <= startup["periodSeconds"] * startup["failureThreshold"] <= 300


def test_pods_reach_nothing_but_dns_and_the_database() -> None:
    (policy,) = (resource["spec"] for resource in RESOURCES if resource["kind"] == "NetworkPolicy")
    assert policy["podSelector"] == {}, "the job of the schema has other labels than the deployment"
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    ports = [{port["port"] for port in rule["ports"]} for rule in policy["egress"]]
    assert ports == [{53}, {5432}]
    assert all(rule["to"] for rule in policy["egress"]), "a rule without `to` allows every address"
    assert all(rule["from"] and rule["ports"] for rule in policy["ingress"])
