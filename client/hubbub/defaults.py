"""Default ports, paths, users and names of services: each once, for the commands, deploy/ and the documents.

A test finds each port, path, user and unit that a file of deploy/ or a document names, and fails if it is not one of these.
"""

from __future__ import annotations

from typing import Final

LOOPBACK: Final = "127.0.0.1"
"""Address on which `hubbub serve` and `hubbub explore` listen."""

SERVICE_PORT: Final = 8000
"""Port of `hubbub serve`, on a machine and in a container; instance `hubbub@8000`."""
SECOND_SERVICE_PORT: Final = 8001
"""Port of a second `hubbub serve` on one machine, to which a proxy forwards too; instance `hubbub@8001`."""
LOCAL_READS_PORT: Final = 8100
"""Port of `hubbub serve --local-reads-without-token` for this machine; no proxy forwards to it."""
EXPLORE_PORT: Final = 8200
"""Port of `hubbub explore`; a proxy forwards only the pages of readers who have signed in."""
EXAMPLE_APP_PORT: Final = 8080
"""Port of the static files of examples/web."""
PORTS_OF_OTHERS: Final = {"dns": 53, "https": 443, "grafana": 3000, "postgresql": 5432, "prometheus": 9090}
"""Ports of the servers that run beside ours in deploy/."""

DATABASE_FILE: Final = "hubbub.db"
"""Database of `hubbub serve`, in the working directory."""

SERVICE_DIRECTORIES: Final = {
    "/opt/hubbub": "the program, a virtual environment",
    "/etc/hubbub": "definitions and configuration",
    "/var/lib/hubbub": "the database of the aggregator",
    "/var/lib/hubbub-results": "summaries, approved candidates and published results",
    "/var/cache/hubbub-explore": "what `hubbub explore` has decoded",
}
"""Directories of a server, by path, with what they contain."""
SERVICE_USERS: Final = {
    "hubbub": "runs the aggregator; also the name of the PostgreSQL role and database",
    "hubbub-results": "pulls, decodes, publishes and explores",
    "65532": "runs the container; it has no name there",
}
"""Users of a server, by name."""
SERVICE_UNITS: Final = (
    "hubbub.service",
    "hubbub@.service",
    "hubbub-explore.service",
    "hubbub-results.service",
    "hubbub-results.timer",
)
"""Units of systemd."""
