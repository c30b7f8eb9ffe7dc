"""Refusals as RFC 9457 answers, and the pages that say what each of them means."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

from starlette.responses import Response

from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.errors import RefusedWithHeaderError
from hubbub_aggregator.http.stylesheet import STYLE

CONTENT_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 5
RETRY = {408, 429, 503, 507}


def problem(refusal: ProblemType, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """Make the one answer that every refusal gets."""
    body = {
        "type": f"/problems/{refusal.slug}",
        "title": refusal.meaning,
        "status": refusal.status,
        "detail": detail,
    }
    always = {"Retry-After": str(RETRY_AFTER_SECONDS)} if refusal.status in RETRY else {}
    return Response(
        json.dumps(body), status_code=refusal.status, headers={**always, **(headers or {})}, media_type=CONTENT_TYPE
    )


def refused_with(refused: RefusedError) -> Response:
    """Answer with a refusal, and with the header that says what would be taken, if it has one."""
    return problem(refused.problem_type, refused.detail, headers_of(refused))


def headers_of(refused: RefusedError) -> dict[str, str]:
    """Return the headers of a refusal, whatever its body is."""
    always = {"Retry-After": str(RETRY_AFTER_SECONDS)} if refused.problem_type.status in RETRY else {}
    return always | (dict([refused.header]) if isinstance(refused, RefusedWithHeaderError) else {})


def described(*refusals: ProblemType) -> dict[int | str, dict[str, Any]]:
    """Describe refusals as an OpenAPI operation's responses, by status."""
    by_status: dict[int | str, list[ProblemType]] = {}
    for refusal in refusals:
        by_status.setdefault(refusal.status, []).append(refusal)
    return {
        status: {
            "description": " ".join(f"`{refusal.slug}`: {refusal.meaning}" for refusal in reasons),
            "content": {CONTENT_TYPE: {"schema": _schema(reasons)}},
        }
        for status, reasons in by_status.items()
    }


def _schema(reasons: list[ProblemType]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {
                "enum": [f"/problems/{refusal.slug}" for refusal in reasons],
                "description": "A page that explains the reason.",
            },
            "title": {"enum": [refusal.meaning for refusal in reasons]},
            "status": {"const": reasons[0].status},
            "detail": {"type": "string", "description": "The value, the rule and the next step."},
        },
        "additionalProperties": False,
    }


def page(refusal: ProblemType) -> str:
    """Write the page at a refusal's `type`."""
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{refusal.slug} · hubbub</title>
<style>{STYLE}</style>
<main class="narrow">
<h1>{refusal.slug}</h1>
<p>{escape(refusal.meaning)}</p>
<p><strong>What to do.</strong> {escape(_next_step(refusal))}</p>
<p>Answered with HTTP status {refusal.status}. Nothing of a refused batch is stored.</p>
</main>
</html>
"""


def _next_step(refusal: ProblemType) -> str:
    match refusal:
        case ProblemType.UNAUTHORIZED | ProblemType.FORBIDDEN:
            return "Ask whoever runs this aggregator for a token with the right scope."
        case ProblemType.CROSS_SITE:
            return "Open this aggregator's own page, and sign in there."
        case ProblemType.NOT_FOUND | ProblemType.METHOD_NOT_ALLOWED:
            return "Look the address and its methods up in /openapi.json."
        case ProblemType.UNKNOWN_METRIC | ProblemType.DIGEST_MISMATCH:
            return "Compare your definitions file with /v1/metrics; keep the batch until one of them is corrected."
        case ProblemType.PERIOD_CLOSED | ProblemType.METRIC_EXPIRED:
            return "Drop the batch: it will never be taken."
        case ProblemType.TOO_LARGE | ProblemType.TOO_MANY_REPORTS:
            return (
                "Send the reports in two batches with new ids, unless an earlier request with this one went unanswered."
            )
        case ProblemType.PERIOD_NOT_STARTED:
            return "Set the clock, then send the same batch again."
        case ProblemType.INVALID_QUERY:
            return "Correct the parameter that the detail names."
        case (
            ProblemType.INTERNAL_ERROR
            | ProblemType.UNAVAILABLE
            | ProblemType.TOO_SLOW
            | ProblemType.TOO_MANY
            | ProblemType.DISK_FULL
        ):
            return "Wait as long as Retry-After says, then send the same batch again under the same id: it is counted once."
        case _:
            return "Do not send this batch again: correct the program that formed it. /openapi.json has the format."
