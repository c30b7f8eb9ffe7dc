"""Ports of 127.0.0.1 for servers that need a fixed port."""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack


def free_ports(number: int, also: int = 0) -> list[int]:
    """Ports that are free now, each with the port that is `also` above it.

    They are below 32,768, so that no outgoing connection takes one before the server does, or while it restarts.
    """
    with ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < number:
            port = 12_000 + secrets.randbelow(10_000)
            try:
                for opened in sorted({port, port + also}):
                    stack.enter_context(socket.create_server(("127.0.0.1", opened)))
            except OSError:  # in use
                continue
            ports.append(port)
        return ports
