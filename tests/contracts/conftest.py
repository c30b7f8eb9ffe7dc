"""Fixtures of the client's and the aggregator's tests, for contracts about both."""

from tests.aggregator.conftest import (
    aggregator,
    closed_last,
    database,
    definitions,
    make_batch,
    postgres_url,
    short_waits,
    sqlite_store,
    start,
    store,
)
from tests.client.conftest import internal_errors_fail_tests, rig

__all__ = [
    "aggregator",
    "closed_last",
    "database",
    "definitions",
    "internal_errors_fail_tests",
    "make_batch",
    "postgres_url",
    "rig",
    "short_waits",
    "sqlite_store",
    "start",
    "store",
]
