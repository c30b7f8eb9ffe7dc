"""nginx with the configuration of deploy/nginx, and a certificate for it."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.free_ports import free_ports
from tests.support.paths import DEPLOY

NAME = "telemetry.example.org"
Certificate = tuple[Path, Path]


def make_certificate(openssl: str, place: Path) -> Certificate:
    """Create a certificate and its key in a directory."""
    pem, key = place / "telemetry.pem", place / "telemetry.key"
    request = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    subprocess.run(
        [
            openssl,
            *request,
            "-subj",
            f"/CN={NAME}",
            "-addext",
            f"subjectAltName=DNS:{NAME}",
            "-keyout",
            key,
            "-out",
            pem,
        ],
        check=True,
        capture_output=True,
    )
    return pem, key


def replaced(text: str, *pairs: tuple[str, str]) -> str:
    """Replace the parts that depend on the machine; each must occur."""
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


def write_configuration(place: Path, certificate: Certificate, port: int, more: str = "") -> Path:
    """Write the configuration of deploy/nginx, with the upstream servers of the file, into a directory; return its path.

    more : directives before those of the file
    """
    pem, key = certificate
    example = replaced(
        "".join((DEPLOY / "nginx" / name).read_text() for name in ("hubbub.conf", "upstream.conf")),
        ("listen 443", f"listen 127.0.0.1:{port}"),
        ("/etc/ssl/telemetry.pem", str(pem)),
        ("/etc/ssl/telemetry.key", str(key)),
        ("/var/log/nginx/hubbub.log", str(place / "hubbub.log")),
    )
    paths = "".join(f"{of}_temp_path {place / of};" for of in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    config = place / "nginx.conf"
    config.write_text(
        f"daemon off; master_process off; pid {place / 'pid'}; error_log stderr emerg; events {{}} "
        f"http {{ {more} {paths} {example} }}"
    )
    return config


def nginx_command(nginx: str, config: Path) -> list[str]:
    """Command line that runs nginx with a configuration."""
    return [nginx, "-p", str(config.parent), "-c", str(config), "-e", "stderr"]


@contextmanager
def nginx_before(ports: Sequence[int], place: Path) -> Iterator[tuple[int, ssl.SSLContext]]:
    """Run nginx before aggregators on these ports; yields its port and what a client needs to trust it.

    The rate limit is lifted, because all clients of a test have one address.
    """
    programs = shutil.which("nginx"), shutil.which("openssl")
    assert programs[0] is not None, "apt-get install nginx-light"
    assert programs[1] is not None, "apt-get install openssl"
    certificate = make_certificate(programs[1], place)
    (port,) = free_ports(1)
    config = write_configuration(place, certificate, port)
    servers = "".join(f"server 127.0.0.1:{port} max_fails=0;" for port in ports)
    pairs = (("server 127.0.0.1:8000 max_fails=0;", servers), ("server 127.0.0.1:8001 max_fails=0;", ""))
    config.write_text(replaced(config.read_text(), *pairs, ("rate=50r/s", "rate=100000r/s")))
    with subprocess.Popen(nginx_command(programs[0], config)) as nginx:
        try:
            while socket.socket().connect_ex(("127.0.0.1", port)):
                assert nginx.poll() is None, "nginx has ended"
                time.sleep(0.02)
            yield port, ssl.create_default_context(cafile=certificate[0])
        finally:
            nginx.terminate()
