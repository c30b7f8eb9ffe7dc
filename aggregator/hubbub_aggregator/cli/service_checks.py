"""Checks of a running service over HTTP for `hubbub doctor`: readiness, and the headers that its reverse proxy sets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hubbub.cli.findings import Finding, error, ok, warning
from hubbub.defaults import LOOPBACK

_TIMEOUT_SECONDS = 15.0
"""Longer than the service waits for SQLite's lock."""


class Reply(NamedTuple):
    """Status and JSON of a response. json : None if the body is not JSON"""

    status: int
    json: Any


Fetch = Callable[[str], Reply | None]
"""GET of a URL; None if there is no response."""


def fetch_over_http(url: str) -> Reply | None:
    """Send a GET without a token, and do not follow redirects."""
    import urllib3

    try:
        with urllib3.PoolManager(retries=False) as http:
            response = http.request("GET", url, timeout=_TIMEOUT_SECONDS, redirect=False)
    except urllib3.exceptions.HTTPError:
        return None
    try:
        return Reply(response.status, json.loads(response.data))
    except ValueError:
        return Reply(response.status, None)


def local_url(host: str, port: int) -> str:
    """Return the URL at which this machine reaches a service that listens on an address.

    >>> local_url("0.0.0.0", 8000), local_url("::", 8000), local_url("192.0.2.1", 80)
    ('http://127.0.0.1:8000', 'http://[::1]:8000', 'http://192.0.2.1:80')
    """
    host = {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)  # noqa: S104  (not bound to)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def check_service(url: str, fetch: Fetch) -> Iterator[Finding]:
    """Check that the running service stores batches."""
    reply = fetch(f"{url}/readyz")
    if reply is None:
        yield warning(
            "service",
            f"no response from {url}",
            "the service is not running, or has another --host or --port",
            "start the service, or pass its --host and --port",
        )
    elif reply.status == 200:
        yield ok("service", f"running at {url} and storing batches, in the database that it was started with")
    elif _field(reply, "detail") is None:
        yield warning(
            "service",
            f"{url}/readyz returned {reply.status}",
            "another program may use this port",
            "pass the --host and --port of the aggregator",
        )
    else:
        yield error(
            "service",
            f"{url}/readyz returned {reply.status}: {_field(reply, 'detail')}",
            "no batch is stored; clients keep theirs",
            "read the cause and the next step in the aggregator's log",
        )


def check_proxy(url: str, fetch: Fetch) -> Iterator[Finding]:
    """Check that a reverse proxy names clients, and does not forward the listener that serves reads without a token."""
    reply = fetch(f"{url}/livez")
    client_named = None if reply is None else _field(reply, "client_named")
    if client_named is None:
        yield error(
            "proxy",
            f"no aggregator responds at {url}",
            "clients with this URL cannot upload",
            "start the proxy and the aggregator, or correct --url",
        )
        return
    if client_named:
        yield ok("proxy", f"requests to {url} arrive with X-Forwarded-For")
    else:
        yield warning(
            "proxy",
            f"{url}: requests arrive without X-Forwarded-For",
            "all clients together have the rate limit of one network",
            "set X-Forwarded-For to the client's address in the proxy (docs/how-to/proxy.md)",
        )
    for path in ("/", "/metrics"):
        reply = fetch(url + path)
        if reply is not None and reply.status == 200:
            yield error(
                "proxy",
                f"{url}{path} returns data without a token",
                "everyone who reaches this URL can read",
                "forward --port in the proxy, never --local-port",
            )


def _field(reply: Reply, name: str) -> Any:
    return reply.json.get(name) if isinstance(reply.json, dict) else None
