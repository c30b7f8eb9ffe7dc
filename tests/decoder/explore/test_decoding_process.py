"""The decoding process of `hubbub explore`: what it gives up, and what becomes of jobs that kill or stop it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from hubbub_decoder.explore.decoding_process import DecodingProcess, FailedError
from hubbub_decoder.explore.job import Job, Show
from tests.support.explored import job_of

PROBE = """
import os, socket, subprocess, sys
from hubbub_decoder.explore.decoding_process import limit_this_process
import numpy as np
limit_this_process()
place = sys.argv[1]
def refused(action):
    try:
        action()
    except (OSError, MemoryError) as problem:
        return type(problem).__name__
    return "allowed"
print([refused(each) for each in (
    lambda: open(place + "/a", "w"), lambda: open(place + "/kept", "r+"), lambda: os.open(place + "/b", os.O_CREAT), lambda: os.mkdir(place + "/c"),
    lambda: os.remove(place + "/kept"), lambda: os.rename(place + "/kept", place + "/d"), lambda: os.truncate(place + "/kept", 0), lambda: os.symlink("/", place + "/e"),
    lambda: os.chmod(place + "/kept", 0), lambda: socket.create_connection(("127.0.0.1", 1)), lambda: socket.socket(),
    lambda: subprocess.run(["true"]), lambda: os.system("true"), lambda: os.fork(), lambda: os.kill(os.getppid(), 0), lambda: np.ones(3 << 27),
)], refused(lambda: open(place + "/kept").read()), os.nice(0))
"""


def test_the_decoding_process_gives_up_what_it_does_not_need(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    ran = subprocess.run([sys.executable, "-c", PROBE, str(tmp_path)], capture_output=True, text=True, check=True)
    refusals = ["PermissionError"] * 15 + ["MemoryError" if sys.platform == "linux" else "allowed"]
    assert ran.stdout.replace("_ArrayMemoryError", "MemoryError").strip() == f"{refusals} allowed 19"
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


async def _answer(process: DecodingProcess, job: Job) -> bytes | str:
    try:
        return await process.answer(job.to_json())
    except FailedError as problem:
        return str(problem)


def test_the_decoding_process_answers_like_this_one_without_its_secrets(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUBBUB_TOKEN", "hubbub_secret")

    async def run() -> None:
        process, job = DecodingProcess(place), job_of(place)
        for suffix in (".json", ".html", ".png"):
            asked = replace(job, suffix=suffix, show=Show.HIGHLIGHTS if suffix == ".json" else Show.SUM)
            answer = await _answer(process, asked)
            assert answer == asked.answer() or suffix == ".png", answer
            assert isinstance(answer, bytes)
        running = process._process
        assert running is not None
        if sys.platform == "linux":
            environment = Path(f"/proc/{running.pid}/environ").read_bytes().split(b"\0")
            assert b"HUBBUB_TOKEN=hubbub_secret" not in environment
            assert f"MPLCONFIGDIR={place}".encode() in environment
        missing = replace(job, samples=(("/nowhere.parquet",),))
        assert "/nowhere.parquet" in str(await _answer(process, missing))
        assert process._process is running  # an error is an answer
        await process.end()

    asyncio.run(run())


AS_NOBODY = """
import asyncio, os, sys
from pathlib import Path
from hubbub_decoder.explore.decoding_process import DecodingProcess
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
async def run():
    process = DecodingProcess(Path(sys.argv[1]))
    print(len(await process.answer(sys.argv[2])))
    await process.end()
asyncio.run(run())
"""


def test_a_user_without_privileges_gets_figures(place: Path) -> None:
    """Matplotlib refuses a directory that its user cannot write. Directories of pytest are closed to others."""
    with TemporaryDirectory() as name:
        shared, writable = Path(name), Path(name, "writable")
        shutil.copytree(place, shared, dirs_exist_ok=True)
        writable.mkdir()
        job = replace(job_of(shared), show=Show.SUM, suffix=".png").to_json()
        for path in (shared, *shared.rglob("*")):
            path.chmod(0o777 if path == writable else 0o755)
        command = [sys.executable, "-c", AS_NOBODY, str(writable), job]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if "cannot be started" in ran.stderr:
            pytest.skip(f"another user cannot run {sys.executable}")
        assert ran.returncode == 0, ran.stderr
        assert int(ran.stdout) > 10_000
        assert not list(writable.iterdir())


@pytest.mark.parametrize(("harm", "said"), [(signal.SIGKILL, "died"), (signal.SIGSTOP, "took more than 2 seconds")])
def test_a_decoding_process_that_dies_or_hangs_costs_one_answer(place: Path, harm: signal.Signals, said: str) -> None:
    async def run() -> None:
        process, job = DecodingProcess(place), job_of(place)
        assert await _answer(process, job) == job.answer()
        running = process._process
        assert running is not None
        process._seconds = 2
        os.kill(running.pid, harm)
        assert said in str(await _answer(process, job))
        process._seconds = 60
        assert await _answer(process, job) == job.answer()
        await process.end()

    asyncio.run(run())
