"""The images of deploy/Containerfile are built without a registry; they serve and publish with no capabilities on a read-only root file system."""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import yaml

from hubbub import Metric, Params
from hubbub.defaults import SERVICE_PORT
from hubbub.summary import summary_from_bytes, write_summary
from hubbub_decoder import simulate
from tests.support.container import Container, Image, built_images, running
from tests.support.near_expiry import with_near_expiry
from tests.support.paths import DEPLOY, DOCS, REPOSITORY

pytestmark = pytest.mark.slow

COMPOSE = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
REPLICA = COMPOSE["services"]["replica-1"]
PARAMS = Params(num_bits=64, num_hashes=1, num_cohorts=16, prob_p=0.25, prob_q=0.75, prob_f=0)
SEND = """
from hubbub import Client
from hubbub.testing import deliver
client = Client("/etc/hubbub/metrics.toml", "/tmp/state", "http://127.0.0.1:8000")
client.set_consent("on")
client.record("homepage", "https://example.org/")
deliver(client)
print(client.accounting().acknowledged)
"""
READ = """
import sys
from urllib.request import Request, urlopen
request = Request("http://127.0.0.1:8000/v1/metrics/homepage/summary", headers={"Authorization": f"Bearer {sys.argv[1]}"})
sys.stdout.buffer.write(urlopen(request).read())
"""
PRIVILEGES = """
import os
status = dict(line.split(":\\t") for line in open("/proc/1/status").read().splitlines() if ":\\t" in line)
print([int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")], status["NoNewPrivs"], status["Uid"].split()[0])
print(bool(os.statvfs("/").f_flag & os.ST_RDONLY))
"""


@pytest.fixture(scope="module")
def images() -> Iterator[dict[str, Image]]:
    with (
        tempfile.TemporaryDirectory(prefix="hubbub-image-") as place,
        built_images(Path(place), ("postgres", "decoder")) as built,
    ):
        yield built


@pytest.fixture
def image(images: dict[str, Image]) -> Image:
    return images["postgres"]


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A directory with definitions, and one for the database, which belongs to the image's user."""
    definitions, data = tmp_path / "definitions", tmp_path / "data"
    definitions.mkdir(mode=0o755)
    data.mkdir(mode=0o700)
    (definitions / "metrics.toml").write_text(with_near_expiry((REPOSITORY / "examples" / "metrics.toml").read_text()))
    return definitions, data


def output(container: Container, *command: str) -> bytes:
    done = container.execute(*command)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_every_instruction_of_the_containerfile_is_in_the_image(image: Image) -> None:
    """podman builds images in the OCI format by default, which has no HEALTHCHECK: it warns, and leaves the instruction out."""
    assert "level=warning" not in image.log
    assert "STEP" in image.log


def test_image_serves_without_privileges_until_sigterm(image: Image, places: tuple[Path, Path]) -> None:
    definitions, data = places
    user, group = map(int, image.user.split(":"))
    os.chown(data, user, group)
    variables = ("HUBBUB_DATABASE=/var/lib/hubbub/reports.db", "HUBBUB_CREATE=true")
    check = REPLICA["healthcheck"]["test"][1:]
    grace = float(REPLICA["stop_grace_period"].removesuffix("s"))
    with running(image, definitions, data, *variables) as container:
        container.wait_until("hubbub is listening on")
        assert output(container, "python", "-c", PRIVILEGES).decode().splitlines() == [
            f"[0, 0, 0, 0, 0] 1 {user}",
            "True",
        ]
        assert container.execute(*check).returncode == 0
        token = output(container, "hubbub", "token", "create", "a", "--scope", "read").decode().strip()
        assert output(container, "python", "-c", SEND) == b"1\n"
        assert summary_from_bytes(output(container, "python", "-c", READ, token)).num_reports == 1
        assert container.stop(signal.SIGTERM, grace) == 0
    with running(image, definitions, data, *variables) as container:
        container.wait_until("hubbub is listening on")
        assert summary_from_bytes(output(container, "python", "-c", READ, token)).num_reports == 1
        os.kill(container.pid, signal.SIGSTOP)
        assert container.execute(*check).returncode != 0
        os.kill(container.pid, signal.SIGCONT)
        assert container.execute(*check).returncode == 0
        assert container.stop(signal.SIGTERM, grace) == 0


START = f"""
python -m http.server {SERVICE_PORT} --bind 127.0.0.1 --directory /etc/hubbub &
until python -c "import socket; socket.create_connection(('127.0.0.1', {SERVICE_PORT}))" 2>/dev/null; do sleep 0.1; done
sh /etc/hubbub/publish.sh
code=$?
kill $!
exit $code
"""
"""Runs the script beside a server that answers GET /v1/periods alone."""


def test_image_of_the_cronjob_publishes(images: dict[str, Image], places: tuple[Path, Path]) -> None:
    """The script of docs/how-to/nightly.md, on a night on which everything that the aggregator lists is downloaded already."""
    definitions, data = places
    script = re.findall(r"```sh\n(#!.*?)```", (DOCS / "how-to" / "nightly.md").read_text(), re.DOTALL)[0]
    (definitions / "publish.sh").write_text(script.replace("/var/lib/hubbub-results", "/var/lib/hubbub"))
    (definitions / "start.sh").write_text(START)
    listed = []
    (data / "approved").mkdir()
    (data / "summaries").mkdir()
    for name in ("homepage", "command"):
        metric = Metric.string(name, PARAMS, description="Start page", owner="a@example.org")
        (data / "approved" / f"{name}.txt").write_text("a\nb\n")
        for days in range(31, 38):
            day = str(datetime.now(UTC).date() - timedelta(days=days))
            counts = simulate(metric, {"a": 3_000}, np.random.default_rng(days), periods=[day])
            write_summary(replace(counts, closed=True), data / "summaries" / f"{name}-{day}.parquet")
            listed.append(
                {"metric": name, "digest": metric.digest, "period": day, "num_reports": 3_000, "closed": True}
            )
    (definitions / "v1").mkdir()
    (definitions / "v1" / "periods").write_text(json.dumps({"periods": listed}))
    image = replace(images["decoder"], command=["sh", "/etc/hubbub/start.sh"])
    user, group = map(int, image.user.split(":"))
    for path in (data, *data.rglob("*")):
        os.chown(path, user, group)
    with running(image, definitions, data, f"HUBBUB_URL=http://127.0.0.1:{SERVICE_PORT}") as container:
        code, log = container.end()
        assert code == 0, log
    assert "homepage" in (data / "site" / "index.html").read_text()
