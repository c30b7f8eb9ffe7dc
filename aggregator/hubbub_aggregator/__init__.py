"""The aggregator service: collects randomized reports over HTTP, stores their counts and serves summaries.

The public names are imported on first use, so that the commands start without the web framework and the database library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hubbub_aggregator.app import create_app
    from hubbub_aggregator.settings import Settings
    from hubbub_aggregator.store.sql_store import SqlStore

__all__ = ["Settings", "SqlStore", "create_app"]

_MODULES = {"Settings": "settings", "SqlStore": "store.sql_store", "create_app": "app"}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
