"""The programs of docs/how-to/embedding.md under their real servers, workers and packagers: no recording is lost, no process hangs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import urllib3

from hubbub.sdk.storage.state_reader import read_state
from tests.support.http_server import served
from tests.support.paths import DOCS, REPOSITORY

EXAMPLES = REPOSITORY / "examples"
PAGE = (DOCS / "how-to" / "embedding.md").read_text(encoding="utf-8")
PATIENCE_SECONDS = 120.0


def environment(**variables: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key != "DO_NOT_TRACK"}
    return kept | variables


@contextmanager
def running(command: list[str], log: Path, **variables: str) -> Iterator[Callable[[str], str]]:
    """Run a program of the examples; yield a function that waits for a pattern in its log. SIGTERM ends it with exit code 0."""

    def wait_for(pattern: str) -> str:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (found := re.search(pattern, log.read_text())):
            assert program.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        return found.group(1)

    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, "-m", *command], cwd=EXAMPLES, env=environment(**variables), stdout=output, stderr=output
        ) as program,
    ):
        try:
            yield wait_for
            program.terminate()
            assert program.wait(60) == 0, log.read_text()
        finally:
            program.kill()
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize("options", [("--preload", "flask_app:create_app()"), ("django_app:application",)])
def test_users_of_a_wsgi_app_report_from_all_workers(options: tuple[str, ...], tmp_path: Path) -> None:
    for package in ("gunicorn", options[-1].partition("_")[0]):
        pytest.importorskip(
            package, reason=f"{package} is not installed: pip install --group dev in a checkout of hubbub"
        )
    state = tmp_path / "state"
    command = ["gunicorn", "--workers", "2", "--bind", "127.0.0.1:0", *options]
    with running(command, tmp_path / "log", STATE=str(state)) as wait_for:
        url = wait_for(r"Listening at: (http://\S+)")
        with urllib3.PoolManager(retries=urllib3.Retry(total=20, backoff_factor=0.05)) as http:
            for n in range(30):
                response = http.request("POST", f"{url}/users/user{n % 5}/open", headers={"Connection": "close"})
                assert response.json() == {"opened": "document"}
    found = read_state(state)
    assert (found.accounting().recorded, len(found.subjects), found.damaged) == (30, 5, 0)


@pytest.mark.slow
def test_celery_tasks_record_in_forked_worker_processes(tmp_path: Path) -> None:
    celery = pytest.importorskip(
        "celery", reason="celery is not installed: pip install --group dev in a checkout of hubbub"
    )
    state, folder = tmp_path / "state", tmp_path / "broker"
    folder.mkdir()
    options = tmp_path / "celeryconfig.py"
    transport = {
        "data_folder_in": str(folder),
        "data_folder_out": str(folder),
        "control_folder": str(folder / "control"),
    }
    options.write_text(f"broker_transport_options = {transport!r}\n")
    sender = celery.Celery(broker="filesystem://")
    sender.conf.broker_transport_options = transport
    command = ["celery", "--app", "celery_tasks", "--config", "celeryconfig", "worker", "--concurrency", "2"]
    command += ["--loglevel", "INFO", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    variables = {"STATE": str(state), "BROKER": "filesystem://", "PYTHONPATH": str(tmp_path)}
    with running(command, tmp_path / "log", **variables) as wait_for:
        wait_for(r"(ready)\.")
        deadline, sent, workers = time.monotonic() + PATIENCE_SECONDS, 0, set[str]()
        while len(workers) < 2 or read_state(state).accounting().recorded < sent:
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            if len(workers) < 2:
                for n in range(20):
                    sender.send_task("save_document", [f"user{n % 5}"])
                sent += 20
            time.sleep(0.2)
            workers = set(re.findall(r"(ForkPoolWorker-\d+).*save_document", (tmp_path / "log").read_text()))
    assert read_state(state).accounting().recorded == sent
    assert len(read_state(state).subjects) == 5


@pytest.mark.slow
def test_frozen_program_records_and_sends(tmp_path: Path) -> None:
    pytest.importorskip(
        "PyInstaller", reason="pyinstaller is not installed: pip install --group dev in a checkout of hubbub"
    )
    if shutil.which("objdump") is None:
        pytest.skip("there is no objdump, which PyInstaller needs: apt-get install binutils")
    (shown,) = re.findall(r"^    pyinstaller (.+)$", PAGE, flags=re.MULTILINE)
    command = [sys.executable, "-m", "PyInstaller", *shown.split(), "--paths", str(REPOSITORY / "client")]
    for name in ("cli.py", "app_metrics.toml"):
        shutil.copy(EXAMPLES / name, tmp_path)
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=280)
    program, state = str(tmp_path / "dist" / "cli" / "cli"), tmp_path / "state"
    with served(tmp_path) as url:
        for _ in range(3):
            done = subprocess.run(
                [program, str(state), "greet", "ada"], capture_output=True, text=True, check=True, env=environment()
            )
            assert (done.stdout, done.stderr) == ("hello ada\n", "")
        assert read_state(state).accounting().recorded == 3
        debugged = environment(HUBBUB_DEBUG="1", HUBBUB_URL=url)
        done = subprocess.run(
            [program, str(tmp_path / "other"), "greet", "ada"], capture_output=True, text=True, check=True, env=debugged
        )
        assert f"command, {time.strftime('%Y-', time.gmtime())}" in done.stderr
        assert f"sent to {url}" in done.stderr
    assert not (tmp_path / "other").exists()


def test_page_shows_the_tested_programs() -> None:
    shown = re.findall(r"```python\n# examples/(\w+\.py)\n(.*?)```", PAGE, flags=re.DOTALL)
    assert [name for name, _ in shown] == ["server.py", "flask_app.py", "django_app.py", "celery_tasks.py", "cli.py"]
    for name, code in shown:
        text = (EXAMPLES / name).read_text()
        for part in code.split("\n...\n"):
            assert part.strip("\n") in text, f"{name}: {part}"
