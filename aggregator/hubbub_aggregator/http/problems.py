"""Problem responses (RFC 9457), their description in the OpenAPI document, and the page of each problem type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

from starlette.responses import Response

from hubbub.pages.html_page import STYLE
from hubbub.wire.problems import PROBLEM_CONTENT_TYPE, ProblemType, RefusedError
from hubbub_aggregator.errors import RefusedWithHeaderError

RETRY_AFTER_SECONDS = 5
RETRY_STATUSES = {408, 429, 503, 507}
NOT_OF_BATCHES = {
    ProblemType.NOT_HTTP,
    ProblemType.HEADERS_TOO_LARGE,
    ProblemType.CROSS_SITE,
    ProblemType.NOT_FOUND,
    ProblemType.METHOD_NOT_ALLOWED,
    ProblemType.INVALID_QUERY,
}
"""Problems of the connection and of other routes than POST /v1/reports."""


def problem_response(problem: ProblemType, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response of a problem type, with Retry-After if the client should send the same request again."""
    body = {
        "type": problem.path,
        "title": problem.meaning,
        "status": problem.status,
        "detail": detail,
    }
    return Response(
        json.dumps(body),
        status_code=problem.status,
        headers={**_retry_header(problem), **(headers or {})},
        media_type=PROBLEM_CONTENT_TYPE,
    )


def refusal_response(refused: RefusedError) -> Response:
    """Return the response to a refused request, with the header of the refusal if it has one."""
    return problem_response(refused.problem_type, refused.detail, refusal_headers(refused))


def refusal_headers(refused: RefusedError) -> dict[str, str]:
    """Return the headers of a refusal for a response with another body."""
    own = dict([refused.header]) if isinstance(refused, RefusedWithHeaderError) else {}
    return _retry_header(refused.problem_type) | own


def _retry_header(problem: ProblemType) -> dict[str, str]:
    return {"Retry-After": str(RETRY_AFTER_SECONDS)} if problem.status in RETRY_STATUSES else {}


def openapi_responses(*problems: ProblemType) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI responses of problem types, by status."""
    by_status: dict[int | str, list[ProblemType]] = {}
    for problem in problems:
        by_status.setdefault(problem.status, []).append(problem)
    return {
        status: {
            "description": " ".join(f"`{problem.slug}`: {problem.meaning}" for problem in same_status),
            "content": {PROBLEM_CONTENT_TYPE: {"schema": _schema(same_status)}},
        }
        for status, same_status in by_status.items()
    }


def _schema(problems: list[ProblemType]) -> dict[str, Any]:
    """Return the schema of problem types that share a status."""
    return {
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {
                "enum": [problem.path for problem in problems],
                "description": "Path of a page that explains the problem.",
            },
            "title": {"enum": [problem.meaning for problem in problems]},
            "status": {"const": problems[0].status},
            "detail": {"type": "string", "description": "The value, the rule and the next step."},
        },
        "additionalProperties": False,
    }


def problem_page(problem: ProblemType) -> str:
    """Return the HTML page at the `type` of a problem."""
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{problem.slug} · hubbub</title>
<style>{STYLE}</style>
<main class="narrow">
<h1>{problem.slug}</h1>
<p>{escape(problem.meaning)}</p>
<p><strong>Next step.</strong> {escape(_next_step(problem))}</p>
<p>HTTP status {problem.status}.{"" if problem in NOT_OF_BATCHES else " No part of a refused batch is stored."}</p>
<p><a href="/">All metrics</a></p>
</main>
</html>
"""


def _next_step(problem: ProblemType) -> str:
    match problem:
        case ProblemType.UNAUTHORIZED | ProblemType.FORBIDDEN:
            return "Ask the operator of this aggregator for a token with the required scope."
        case ProblemType.CROSS_SITE:
            return "Open this aggregator's own page and sign in there."
        case ProblemType.NOT_FOUND | ProblemType.METHOD_NOT_ALLOWED:
            return "Look up the paths and their methods in /openapi.json."
        case ProblemType.UNKNOWN_METRIC | ProblemType.DIGEST_MISMATCH:
            return "Compare your definitions file with /v1/metrics. Keep the batch until one of them is corrected."
        case ProblemType.PERIOD_CLOSED | ProblemType.METRIC_EXPIRED:
            return "Drop the batch: it will never be accepted."
        case ProblemType.TOO_LARGE | ProblemType.TOO_MANY_REPORTS:
            return (
                "Send the reports in two batches with new ids, unless an earlier request with this id got no response."
            )
        case ProblemType.PERIOD_NOT_STARTED:
            return "Correct the clock of the client, then send the same batch again."
        case ProblemType.INVALID_QUERY:
            return "Correct the parameter that the detail names."
        case (
            ProblemType.INTERNAL_ERROR
            | ProblemType.UNAVAILABLE
            | ProblemType.TOO_SLOW
            | ProblemType.TOO_MANY
            | ProblemType.DISK_FULL
        ):
            return "Wait for the seconds in Retry-After, then send the same batch with the same id again: it is counted once."
        case _:
            return "Do not send this batch again: correct the program that created it. /openapi.json has the format."
