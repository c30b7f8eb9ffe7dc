"""Checks of a running service over HTTP (`hubbub doctor`): that it stores batches, and what its proxy passes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hubbub.cli.findings import Finding, error, ok, warning

_TIMEOUT_SECONDS = 15.0
"""Longer than the service waits for SQLite's lock."""


class Reply(NamedTuple):
    """An answer's status and JSON; None: the body is no JSON."""

    status: int
    json: Any


Ask = Callable[[str], Reply | None]
"""GET of a URL; None: there is no answer."""


def ask_over_http(url: str) -> Reply | None:
    """Send a GET without a token, and follow no redirect."""
    import urllib3

    try:
        with urllib3.PoolManager(retries=False) as http:
            answer = http.request("GET", url, timeout=_TIMEOUT_SECONDS, redirect=False)
    except urllib3.exceptions.HTTPError:
        return None
    try:
        return Reply(answer.status, json.loads(answer.data))
    except ValueError:
        return Reply(answer.status, None)


def direct_url(host: str, port: int) -> str:
    """Return the URL at which this machine reaches a service that listens on an address.

    >>> direct_url("0.0.0.0", 8000), direct_url("::", 8000), direct_url("192.0.2.1", 80)
    ('http://127.0.0.1:8000', 'http://[::1]:8000', 'http://192.0.2.1:80')
    """
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  (not bound to)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def of_service(url: str, ask: Ask) -> Iterator[Finding]:
    """Look at whether the running service stores batches."""
    reply = ask(f"{url}/readyz")
    if reply is None:
        yield ok("service", f"nothing answers on {url}: it is not running, or has another --host or --port")
    elif reply.status == 200:
        yield ok("service", f"it runs on {url} and stores batches")
    elif _field(reply, "detail") is None:
        yield warning(
            "service",
            f"{url}/readyz answered {reply.status}",
            "another program may have this port",
            "give the --host and --port of the aggregator",
        )
    else:
        yield error(
            "service",
            f"{url}/readyz answered {reply.status}: {_field(reply, 'detail')}",
            "no batch is stored, and clients keep theirs",
            "its log has the cause and the next step",
        )


def of_proxy(url: str, ask: Ask) -> Iterator[Finding]:
    """Look at what a reverse proxy passes on: that it names clients, and forwards no listener that reads without a token."""
    reply = ask(f"{url}/livez")
    named = None if reply is None else _field(reply, "client_named")
    if named is None:
        yield error(
            "proxy",
            f"no aggregator answers on {url}",
            "clients that send there reach none",
            "start the proxy and the aggregator, or correct --url",
        )
        return
    if named:
        yield ok("proxy", f"{url} names its clients in X-Forwarded-For")
    else:
        yield warning(
            "proxy",
            f"{url} names no client",
            "the requests of all clients are limited as one network",
            "let the proxy set X-Forwarded-For to the client's address (docs/operating.md)",
        )
    for path in ("/", "/metrics"):
        reply = ask(url + path)
        if reply is not None and reply.status == 200:
            yield error(
                "proxy",
                f"{url}{path} is answered without a token",
                "everyone who reaches it can read",
                "forward --port, and never --local-port",
            )


def _field(reply: Reply, name: str) -> Any:
    return reply.json.get(name) if isinstance(reply.json, dict) else None
