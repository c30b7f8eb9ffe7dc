"""Which answers to an upload are an aggregator's own (docs/reference/format.md, "Answers to a batch").

A proxy, a captive portal or another service on the port answers, too. What it says about a batch means nothing.
"""

from __future__ import annotations

import json
from typing import Any, Never

from hubbub.wire.batch import CONTENT_TYPE
from hubbub.wire.problems import PROBLEM_CONTENT_TYPE, ProblemType

ACCEPTANCES = {202: "stored", 200: "duplicate"}
"""Field `status` of the answer to a batch that counts, by HTTP status."""

MAX_ANSWER_BYTES = 1 << 16


def read_answer(status: int, content_type: str | None, body: bytes) -> ProblemType | str | None:
    """Return the problem type of an aggregator's refusal, the id of the batch that it accepts, or None for any other answer.

    >>> read_answer(422, "application/problem+json; charset=utf-8", b'{"type": "/problems/wrong-size", "status": 422}')
    <ProblemType.WRONG_SIZE: ('wrong-size', 422, 'The field bits does not have ceil(k / 8) bytes for each report.')>
    >>> read_answer(202, "application/json", b'{"batch_id": "1", "status": "stored"}'), read_answer(422, "text/html", b"<p>no</p>")
    ('1', None)
    """
    fields = _read_object(body)
    match (content_type or "").partition(";")[0].strip().lower():
        case media_type if media_type == PROBLEM_CONTENT_TYPE:
            found = next((problem for problem in ProblemType if problem.path == fields.get("type")), None)
            return found if found is not None and found.status == status == fields.get("status") else None
        case media_type if media_type == CONTENT_TYPE:
            batch_id, accepted = fields.get("batch_id"), ACCEPTANCES.get(status)
            is_own = accepted is not None and fields.get("status") == accepted and isinstance(batch_id, str)
            return batch_id if is_own else None
        case _:
            return None


def _read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body of UTF-8; an empty one if there is none, or the body is longer than an aggregator's."""
    if len(body) > MAX_ANSWER_BYTES:
        return {}
    try:
        fields = json.loads(body.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"JSON has no {name}")
