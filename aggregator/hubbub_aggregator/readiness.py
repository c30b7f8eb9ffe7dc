"""Whether a batch would be stored now."""

from __future__ import annotations

from hubbub.errors import RefusedError
from hubbub.refusals import Refusal
from hubbub_aggregator.store import StoreError
from hubbub_aggregator.taking import Service
from hubbub_aggregator.writer import GroupWriter


def require_ready(service: Service, writer: GroupWriter) -> None:
    """Try a durable write; raise what a batch would be answered with."""
    service.store.probe()
    if service.disk.full:
        raise RefusedError(Refusal.DISK_FULL, "less is free on the disk than must be: make room")
    if not writer.alive:
        raise StoreError("the writer has stopped: restart the service")


def trouble(service: Service, writer: GroupWriter) -> str | None:
    """Say what keeps batches from being stored; None: nothing does."""
    try:
        require_ready(service, writer)
    except RefusedError as refused:
        return refused.detail
    except StoreError as failed:
        return str(failed)
    return None
