"""Exceptions of the aggregator."""

from __future__ import annotations

from hubbub.errors import HubbubError
from hubbub.wire.problems import ProblemType, RefusedError

ASK = ("WWW-Authenticate", "Bearer")


class StoreError(HubbubError):
    """The store cannot do what was asked, and has done nothing of it."""


class SchemaError(StoreError):
    """The database's tables are of a version that this hubbub does not work with."""


class ListenError(HubbubError):
    """The address cannot be listened on."""


class JobError(HubbubError):
    """A job was done in part only; says of what it was not, and why."""


class RefusedWithHeaderError(RefusedError):
    """A refusal with the header that says what would be taken, or when (RFC 9110, 15.5.16 and 10.2.3)."""

    def __init__(self, refusal: ProblemType, detail: str, header: tuple[str, str]) -> None:
        super().__init__(refusal, detail)
        self.header = header


class StoppedError(StoreError):
    """The store was told to stop, and ends what takes long."""


class DatabaseMovedError(StoreError):
    """The database's path no longer leads to the file that is served; its own error has been logged.

    It is the only StoreError after which something may have changed: what was committed is in a file that a restart would not open.
    """
