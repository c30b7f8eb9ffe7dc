"""Exceptions of the aggregator."""

from __future__ import annotations

from hubbub.errors import HubbubError
from hubbub.wire.problems import ProblemType, RefusedError

ASK_FOR_TOKEN = ("WWW-Authenticate", "Bearer")


class StoreError(HubbubError):
    """An operation of the store failed and changed nothing."""


class SchemaError(StoreError):
    """The database has a schema version that this version of hubbub does not support."""


class JobError(HubbubError):
    """A background job finished in part only; the message names the parts that failed, and the cause."""


def loggable_cause(problem: Exception) -> str:
    """Return the type of an unexpected exception, of an OSError with the system's reason. Other messages may contain data of reports.

    >>> loggable_cause(OSError(28, "No space left on device", "reports.db")), loggable_cause(ValueError("a value"))
    ('OSError (No space left on device)', 'ValueError')
    """
    name = type(problem).__name__
    return f"{name} ({problem.strerror})" if isinstance(problem, OSError) and problem.strerror else name


class RefusedWithHeaderError(RefusedError):
    """A refusal with a header for the client: Accept, Accept-Encoding, WWW-Authenticate or Retry-After (RFC 9110)."""

    def __init__(self, problem_type: ProblemType, detail: str, header: tuple[str, str]) -> None:
        super().__init__(problem_type, detail)
        self.header = header


class StoppedError(StoreError):
    """The store was stopped, and ends long scans and deletions."""


class FilesInDoubtError(StoreError):
    """A file of the database was moved or damaged while it is served. The error has been logged already.

    It is the only StoreError after which something may have changed: a restart may not find the last commit.
    """
