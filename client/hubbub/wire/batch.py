"""Reports -> one request's body and back: JSON that carries reports of one metric and one period.

    {"batch_id": uuid4, "metric": name, "digest": hex, "period": "YYYY-MM-DD",
     "cohorts": [c, ...], "bits": base64 of n rows of ceil(k / 8) bytes}

Conventions: bit i of a report is bit i % 8, least significant first, of byte i // 8 of its row; padding bits
are zero; cohorts and rows are in the same order. Unknown fields are ignored, so that `/v1` can grow.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hubbub.metrics.metric import MAX_CLIENT_COHORTS, Metric
from hubbub.metrics.periods import Period
from hubbub.randomness import RandomBytes, system_random_bytes
from hubbub.wire.dates import parse_day
from hubbub.wire.problems import ProblemType, RefusedError
from hubbub.wire.report import Report

if TYPE_CHECKING:
    from uuid import UUID

CONTENT_TYPE = "application/json"

SINGLE_REPORT_BYTES = 512
"""Length of the body of one report, in bytes. Spaces after the JSON fill it up, so the length says nothing about the report."""

_UUID4 = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Batch:
    """What one request carries, under a random id it keeps through every retry.

    cohorts : (n,) one byte each      rows : n x ceil(k / 8) bytes
    """

    batch_id: UUID
    metric: str
    digest: str
    period: str
    cohorts: bytes
    rows: bytes

    def __len__(self) -> int:
        return len(self.cohorts)

    @classmethod
    def from_reports(
        cls, metric: Metric, period: Period, reports: Sequence[Report], random_bytes: RandomBytes = system_random_bytes
    ) -> Batch:
        """Form a batch, once: a retry sends the same bytes again."""
        return cls(
            batch_id=new_batch_id(random_bytes),
            metric=metric.name,
            digest=metric.digest,
            period=str(period),
            cohorts=bytes(report.cohort for report in reports),
            rows=b"".join(report.to_bytes() for report in reports),
        )

    def to_json(self) -> bytes:
        """Return the request's body: at least `SINGLE_REPORT_BYTES` long, the length of every single report."""
        body = json.dumps(
            {
                "batch_id": str(self.batch_id),
                "metric": self.metric,
                "digest": self.digest,
                "period": self.period,
                "cohorts": list(self.cohorts),
                "bits": binascii.b2a_base64(self.rows, newline=False).decode(),
            },
            separators=(",", ":"),
        ).encode()
        return body.ljust(SINGLE_REPORT_BYTES)

    @classmethod
    def from_json(cls, body: bytes) -> Batch:
        """Read a body; whatever is not a batch raises RefusedError with its reason, never anything else."""
        try:
            fields = json.loads(body.decode())
        except (ValueError, RecursionError):
            raise RefusedError(ProblemType.MALFORMED, f"the body is not JSON ({len(body)} bytes)") from None
        if not isinstance(fields, dict):
            raise RefusedError(ProblemType.MALFORMED, f"the body must be a JSON object, got {type(fields).__name__}")
        batch_id, metric, digest, period = (_text(fields, name) for name in ("batch_id", "metric", "digest", "period"))
        cohorts = fields.get("cohorts")
        if not isinstance(cohorts, list) or not all(type(cohort) is int for cohort in cohorts):
            raise RefusedError(ProblemType.MALFORMED, "cohorts must be a list of whole numbers, one a report")
        return cls.from_fields(batch_id, metric, digest, period, cohorts, _text(fields, "bits"))

    @classmethod
    def from_fields(cls, batch_id: str, metric: str, digest: str, period: str, cohorts: list[int], bits: str) -> Batch:
        """Make a batch of the decoded fields of a body; RefusedError if one of them cannot be."""
        parse_day(period)
        return cls(_batch_id(batch_id), metric, digest, period, _cohorts(cohorts), _rows(bits))

    def require_fit(self, metric: Metric, max_reports: int) -> None:
        """Refuse what is well-formed but impossible under the metric: sizes, cohorts, padding."""
        params, n = metric.params, len(self)
        if n == 0:
            raise RefusedError(ProblemType.NO_REPORTS, "cohorts is empty: a batch carries at least one report")
        if n > max_reports:
            raise RefusedError(
                ProblemType.TOO_MANY_REPORTS, f"at most {max_reports} reports a batch, got {n}: send smaller batches"
            )
        if len(self.rows) != n * params.row_bytes:
            raise RefusedError(
                ProblemType.WRONG_SIZE,
                f"a report of {params.num_bits} bits has {params.row_bytes} bytes: bits must hold {n} times as many, got {len(self.rows)}",
            )
        if max(self.cohorts) >= params.num_cohorts:
            raise RefusedError(
                ProblemType.COHORT_OUT_OF_RANGE,
                f"cohorts must be below {params.num_cohorts}, got {max(self.cohorts)}",
            )
        padding = -(1 << (params.num_bits - 1) % 8 + 1) & 0xFF
        if padding and any(byte & padding for byte in self.rows[params.row_bytes - 1 :: params.row_bytes]):
            raise RefusedError(
                ProblemType.PADDING_SET,
                f"a report has {params.num_bits} bits, and a bit past them is set: it must be zero",
            )


def new_batch_id(random_bytes: RandomBytes) -> UUID:
    """Draw what a batch is known by, through every retry."""
    from uuid import UUID  # as it is imported it looks at the platform: 2 ms of every program's start

    return UUID(bytes=random_bytes(16), version=4)


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
            ProblemType.MALFORMED, "batch_id must be a random UUID (version 4), lower-case with dashes: uuid.uuid4()"
        )
    return UUID(text)


def _cohorts(values: list[int]) -> bytes:
    try:
        return bytes(values)
    except (ValueError, OverflowError):
        raise RefusedError(
            ProblemType.COHORT_OUT_OF_RANGE, f"a cohort is in [0, {MAX_CLIENT_COHORTS}), and one is outside it"
        ) from None


def _rows(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        raise RefusedError(ProblemType.MALFORMED, "bits must be base64 with padding (RFC 4648 section 4)") from None
