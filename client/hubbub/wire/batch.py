"""A report, and a batch of reports of one metric and period with its JSON encoding: the body of one request.

    {"batch_id": uuid4, "metric": name, "digest": hex, "period": "YYYY-MM-DD",
     "cohorts": [c, ...], "bits": base64 of n rows of ceil(k / 8) bytes}

and "group": value, if the metric has a group.

Conventions: bit i of a report is bit i % 8 (least significant first) of byte i // 8 of its row. Padding bits are zero. Cohorts
and rows have the same order. Unknown fields are ignored, so fields can be added to `/v1`.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bitarray import frozenbitarray

from hubbub.metrics.metric import Metric, collection_digest
from hubbub.metrics.periods import Period
from hubbub.metrics.rules import MAX_CLIENT_COHORTS
from hubbub.randomness import RandomBytes, system_random_bytes
from hubbub.text import format_count
from hubbub.wire.dates import parse_day
from hubbub.wire.problems import ProblemType, RefusedError

if TYPE_CHECKING:
    from uuid import UUID


@dataclass(frozen=True, slots=True)
class Report:
    """Report of one client for one metric and period.

    Parameters
    ----------
    cohort
        Cohort of the client, in [0, m).
    bits
        The k bits. Bit i of the report is at index i.
    """

    cohort: int
    bits: frozenbitarray

    @classmethod
    def from_int(cls, cohort: int, bits: int, num_bits: int) -> Report:
        r"""Return the report with bit i = `(bits >> i) & 1`.

        Parameters
        ----------
        cohort
            Cohort of the client, in [0, m).
        bits
            The bits as a number, in [0, 2**k).
        num_bits
            Number of bits, k.

        Returns
        -------
        Report
            Report with these k bits.

        Examples
        --------
        >>> Report.from_int(cohort=3, bits=0b101, num_bits=10).to_bytes()
        b'\x05\x00'
        """
        row = frozenbitarray(bits.to_bytes((num_bits + 7) // 8, "little"), "little")
        return cls(cohort, row if num_bits % 8 == 0 else row[:num_bits])

    def to_bytes(self) -> bytes:
        """Return the bits as they are sent.

        Returns
        -------
        bytes
            ceil(k / 8) bytes. Bit i of the report is bit i % 8 of byte i // 8, and padding bits are zero.
        """
        return self.bits.tobytes()


CONTENT_TYPE = "application/json"

SINGLE_REPORT_BYTES = 512
"""Least length of a body, in bytes. Shorter bodies are padded with spaces, so their length reveals nothing about the report."""

_UUID4 = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


BatchFields = tuple[str, str, str, str, list[int], bytes, str]
"""The fields batch_id, metric, digest, period, cohorts, decoded bits and group ("" without one) of a body."""

_MAX_FIELDS = 64
_MAX_NAME_LENGTH = 64  # characters


class FieldNames:
    """Names at the top level of a body: two parsers could read two different batches from a body that repeats a name."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def add(self, name: str) -> None:
        """Raise RefusedError for a repeated or long name, and for too many names."""
        if len(name) > _MAX_NAME_LENGTH:
            reason = f"a field's name has at most {_MAX_NAME_LENGTH} characters, got {len(name)}"
            raise RefusedError(ProblemType.MALFORMED, reason)
        if name in self._names:
            raise RefusedError(ProblemType.MALFORMED, "a field occurs twice")
        self._names.add(name)
        if len(self._names) > _MAX_FIELDS:
            raise RefusedError(ProblemType.MALFORMED, f"a batch has at most {_MAX_FIELDS} fields")


@dataclass(frozen=True, slots=True, repr=False)
class Batch:
    """Reports of one metric and period, with a random id that stays the same in every retry.

    Parameters
    ----------
    batch_id
        Random id of the batch.
    metric
        Name of the metric.
    digest
        Digest of its definition.
    period
        First day of the period, YYYY-MM-DD.
    cohorts
        n bytes, the cohort of each report.
    rows
        n * ceil(k / 8) bytes, the bits of the reports.
    group
        Value of the metric's group. Empty: the metric has none.
    """

    batch_id: UUID
    metric: str
    digest: str
    period: str
    cohorts: bytes
    rows: bytes
    group: str = ""

    def __len__(self) -> int:
        return len(self.cohorts)

    @property
    def collection_digest(self) -> str:
        """Digest under which the reports are counted: that of the definition and the value of its group."""
        return collection_digest(self.digest, self.group)

    def __repr__(self) -> str:
        return f"<Batch {self.batch_id} of {self.metric}, {self.period}: {format_count(len(self), 'report')}>"

    @classmethod
    def from_reports(
        cls, metric: Metric, period: Period, reports: Sequence[Report], random_bytes: RandomBytes = system_random_bytes
    ) -> Batch:
        """Return a batch with a new id. Create each batch only once: a retry must send the same bytes.

        Parameters
        ----------
        metric
            Metric of the reports.
        period
            Period of the reports.
        reports
            Reports of one period.
        random_bytes
            Source of the id.

        Returns
        -------
        Batch
            Batch with a new random id.
        """
        return cls(
            batch_id=new_batch_id(random_bytes),
            metric=metric.name,
            digest=metric.in_group(None).digest,
            period=str(period),
            cohorts=bytes(report.cohort for report in reports),
            rows=b"".join(report.to_bytes() for report in reports),
            group="" if metric.group is None else metric.group.value or "",
        )

    def to_json(self) -> bytes:
        """Return the body of the request, padded to at least `SINGLE_REPORT_BYTES`.

        Returns
        -------
        bytes
            JSON text in ASCII.
        """
        body = json.dumps(
            {
                "batch_id": str(self.batch_id),
                "metric": self.metric,
                "digest": self.digest,
                **({"group": self.group} if self.group else {}),
                "period": self.period,
                "cohorts": list(self.cohorts),
                "bits": binascii.b2a_base64(self.rows, newline=False).decode(),
            },
            separators=(",", ":"),
        ).encode()
        return body.ljust(SINGLE_REPORT_BYTES)

    @classmethod
    def from_json(cls, body: bytes) -> Batch:
        """Return the batch of a request's body.

        Parameters
        ----------
        body
            JSON object. Each name occurs once at the top level.

        Returns
        -------
        Batch
            Batch whose fields have the right types. `require_fit` compares it with a metric.

        Raises
        ------
        RefusedError
            The body is not a batch. No other exception is raised.
        """
        return batch_of_fields(_read_fields(body))

    def require_fit(self, metric: Metric, max_reports: int) -> None:
        """Check that the group, the numbers of reports and bytes, the cohorts and the padding bits fit the metric.

        Parameters
        ----------
        metric
            Definition with the digest of the batch.
        max_reports
            Largest number of reports of a batch.

        Raises
        ------
        RefusedError
            The batch does not fit. The problem type names the field.
        """
        _check_group(metric, self.group)
        n, row_bytes = len(self), metric.row_bytes
        if n == 0:
            raise RefusedError(ProblemType.NO_REPORTS, "cohorts is empty: a batch needs at least one report")
        if n > max_reports:
            raise RefusedError(
                ProblemType.TOO_MANY_REPORTS,
                f"a batch may have at most {max_reports} reports, got {n}: send smaller batches",
            )
        if len(self.rows) != n * row_bytes:
            raise RefusedError(
                ProblemType.WRONG_SIZE,
                f"bits must have {n} x {row_bytes} bytes ({n} reports of {metric.num_bits} bits), got {len(self.rows)}",
            )
        if not _all_below(metric.num_cohorts, self.cohorts):
            raise RefusedError(
                ProblemType.COHORT_OUT_OF_RANGE,
                f"cohorts must be below {metric.num_cohorts}, got {max(self.cohorts)}",
            )
        if not _all_below(1 << (metric.num_bits - 1) % 8 + 1, self.rows[row_bytes - 1 :: row_bytes]):
            raise RefusedError(
                ProblemType.PADDING_SET,
                f"a padding bit is set: bits after the first {metric.num_bits} of each report must be zero",
            )


_BYTES = bytes(range(256))


def _all_below(limit: int, values: bytes) -> bool:
    return not values.translate(None, _BYTES[:limit])  # 20 times as fast as a loop


def _check_group(metric: Metric, value: str) -> None:
    values = () if metric.group is None else metric.group.values
    if value in (values or ("",)):
        return
    rule = f"group must be one of {', '.join(values)}" if values else f"{metric.name} has no group: leave it out"
    raise RefusedError(ProblemType.WRONG_GROUP, f"{rule}, got {value[:64]!r}")


def batch_of_fields(fields: BatchFields) -> Batch:
    """Return the batch of decoded fields; raises RefusedError if one of them is invalid."""
    batch_id, metric, digest, period, cohorts, rows, group = fields
    parse_day(period)
    return Batch(_batch_id(batch_id), metric, digest, period, _cohorts(cohorts), rows, group)


def new_batch_id(random_bytes: RandomBytes) -> UUID:
    """Return a random batch id (UUID version 4)."""
    from uuid import UUID  # imported late: its import takes 2 ms

    return UUID(bytes=random_bytes(16), version=4)


def _read_fields(body: bytes) -> BatchFields:
    try:
        pairs = json.loads(body.decode(), object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        raise RefusedError(ProblemType.MALFORMED, f"the body is not JSON ({len(body)} bytes)") from None
    if not isinstance(pairs, tuple):
        raise RefusedError(ProblemType.MALFORMED, f"the body must be a JSON object, got {type(pairs).__name__}")
    names = FieldNames()
    for name, _ in pairs:
        names.add(name)
    fields = dict(pairs)
    cohorts = fields.get("cohorts")
    if not isinstance(cohorts, list) or not all(type(cohort) is int for cohort in cohorts):
        raise RefusedError(ProblemType.MALFORMED, "cohorts must be a list of integers, one per report")
    batch_id, metric, digest, period, bits = (
        _text(fields, name) for name in ("batch_id", "metric", "digest", "period", "bits")
    )
    group = _text(fields, "group") if "group" in fields else ""
    return batch_id, metric, digest, period, cohorts, _rows(bits), group


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        got = f"got {type(value).__name__}" if name in fields else "it is missing"
        raise RefusedError(ProblemType.MALFORMED, f"{name} must be a string: {got}")
    return value


def _batch_id(text: str) -> UUID:
    from uuid import UUID

    if not _UUID4.fullmatch(text):
        raise RefusedError(
            ProblemType.MALFORMED,
            "batch_id must be a random UUID (version 4) in lower case with dashes, such as str(uuid.uuid4())",
        )
    return UUID(text)


def _cohorts(values: list[int]) -> bytes:
    try:
        return bytes(values)
    except (ValueError, OverflowError):
        raise RefusedError(
            ProblemType.COHORT_OUT_OF_RANGE, f"cohorts must be in [0, {MAX_CLIENT_COHORTS}), got one outside"
        ) from None


def _rows(text: str) -> bytes:
    try:
        rows = binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        rows = None
    if rows is None or len(text) != -(-len(rows) // 3) * 4:  # strict mode accepts too much padding
        raise RefusedError(ProblemType.MALFORMED, "bits must be base64 with padding (RFC 4648 section 4)")
    return rows
