"""What the OpenAPI document says about each route, beyond what its signature does."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from hubbub.summary.summary_file import CONTENT_TYPE as SUMMARY_TYPE
from hubbub.wire.batch import CONTENT_TYPE as BATCH_TYPE
from hubbub.wire.problems import ProblemType
from hubbub_aggregator.http.problems import described
from hubbub_aggregator.store.clock_state import ClockStatus

_Route = dict[str, Any]

BATCH: _Route = {
    "type": "object",
    "required": ["batch_id", "metric", "digest", "period", "cohorts", "bits"],
    "properties": {
        "batch_id": {
            "type": "string",
            "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$",
            "description": "A random UUID (version 4); kept through every retry.",
        },
        "metric": {"type": "string"},
        "digest": {"type": "string", "description": "Of the definition that the reports were made under."},
        "period": {"type": "string", "format": "date", "description": "UTC date of its first day."},
        "cohorts": {
            "type": "array",
            "minItems": 1,
            "items": {"type": "integer", "minimum": 0, "maximum": 255},
            "description": "One a report.",
        },
        "bits": {
            "type": "string",
            "contentEncoding": "base64",
            "description": "One row of ceil(k / 8) bytes a report; bit i is bit i % 8, least significant first, of byte i // 8.",
        },
    },
    "additionalProperties": True,
}

STORED: _Route = {
    "type": "object",
    "required": ["batch_id", "status"],
    "properties": {
        "batch_id": {"type": "string", "format": "uuid"},
        "status": {"type": "string", "enum": ["stored", "duplicate"]},
    },
}


def _or_inf(kind: str, description: str) -> _Route:
    return {"anyOf": [{"type": kind, "minimum": 0}, {"const": "inf"}], "description": description}


PRIVACY: _Route = {
    "period": {"type": "string", "enum": ["day", "week", "month"]},
    "hold": {
        "type": ["integer", "null"],
        "minimum": 1,
        "description": "Periods after which the client draws new permanent noise; null: never under one secret.",
    },
    "epsilon_report": _or_inf("number", "Of one report."),
    "epsilon_permanent": _or_inf("number", "Of one permanent response; inf where there is none (prob_f = 0)."),
    "unit": {
        "type": "string",
        "enum": ["epoch", "value", "period"],
        "description": "What a client's ledger charges: each epoch of a hold, each distinct value, or each period.",
    },
    "epsilon_unit": _or_inf("number", "Of one unit."),
    "units_enrollment": _or_inf("integer", "Units that the default policy allows under one secret of a client."),
    "epsilon_enrollment": _or_inf("number", "Of all reports under one secret of a client."),
    "units_lifetime": _or_inf("integer", "Units that the default policy allows under all secrets of a client."),
    "epsilon_lifetime": _or_inf("number", "Of all reports that one client ever sends; inf if the policy refuses it."),
    "objection": {"type": ["string", "null"], "description": "Why the default policy refuses the metric."},
}
"""The fields of `hubbub.privacy.PrivacyFigures`; "inf" is no bound."""

METRICS: _Route = {
    "type": "object",
    "required": ["metrics"],
    "properties": {
        "metrics": {
            "type": "array",
            "items": {
                "type": "object",
                "description": "A metric definition, and what its reports can reveal about one person.",
                "required": ["name", "kind", "digest", "privacy"],
                "properties": {
                    "name": {"type": "string"},
                    "kind": {"type": "string", "enum": ["string", "categorical", "boolean"]},
                    "digest": {"type": "string"},
                    "privacy": {
                        "type": "object",
                        "description": "Epsilons towards one person under the client's default policy.",
                        "required": list(PRIVACY),
                        "properties": PRIVACY,
                    },
                },
            },
        }
    },
}

_OF_READING = (ProblemType.UNAUTHORIZED, ProblemType.FORBIDDEN, ProblemType.INTERNAL_ERROR, ProblemType.UNAVAILABLE)


_CLOCK: _Route = {
    "enum": [str(status) for status in ClockStatus],
    "description": "Not `credible`: the clock jumped, and closing, purging and dropping are paused.",
}


def _json(description: str, schema: _Route) -> _Route:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _file(description: str) -> _Route:
    return {"description": description, "content": {SUMMARY_TYPE: {"schema": {"type": "string", "format": "binary"}}}}


def _status(word: str, **properties: _Route) -> _Route:
    return _json("Yes.", {"type": "object", "properties": {"status": {"const": word}, **properties}})


POST_REPORTS: _Route = {
    "openapi_extra": {"requestBody": {"required": True, "content": {BATCH_TYPE: {"schema": BATCH}}}},
    "responses": {
        202: _json("Stored, durably.", STORED),
        200: _json("Already stored: nothing is counted twice.", STORED),
        **described(
            ProblemType.MALFORMED,
            ProblemType.UNAUTHORIZED,
            ProblemType.FORBIDDEN,
            ProblemType.TOO_SLOW,
            ProblemType.UNKNOWN_METRIC,
            ProblemType.DIGEST_MISMATCH,
            ProblemType.METRIC_EXPIRED,
            ProblemType.PERIOD_CLOSED,
            ProblemType.TOO_LARGE,
            ProblemType.UNSUPPORTED_MEDIA_TYPE,
            ProblemType.NO_REPORTS,
            ProblemType.IMPLAUSIBLE_REPORT,
            ProblemType.TOO_MANY_REPORTS,
            ProblemType.WRONG_SIZE,
            ProblemType.COHORT_OUT_OF_RANGE,
            ProblemType.PADDING_SET,
            ProblemType.PERIOD_MISALIGNED,
            ProblemType.PERIOD_NOT_STARTED,
            ProblemType.TOO_MANY,
            ProblemType.INTERNAL_ERROR,
            ProblemType.UNAVAILABLE,
            ProblemType.DISK_FULL,
        ),
    },
}

GET_METRICS: _Route = {
    "responses": {200: _json("The metrics.", METRICS), **described(ProblemType.INTERNAL_ERROR)},
}

GET_SUMMARY: _Route = {
    "responses": {
        200: _file("The summary file: Parquet with the metric's definition in its metadata."),
        **described(ProblemType.UNKNOWN_METRIC, ProblemType.INVALID_QUERY, *_OF_READING),
    },
}

GET_REPORTS: _Route = {
    "responses": {
        200: _file("The report file: Parquet with the metric's definition in its metadata."),
        **described(
            ProblemType.NOT_FOUND,
            ProblemType.UNKNOWN_METRIC,
            ProblemType.INVALID_QUERY,
            ProblemType.DISK_FULL,
            *_OF_READING,
        ),
    },
}

GET_STATISTICS: _Route = {
    "responses": {
        200: {"description": "The Prometheus text format.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **described(*_OF_READING),
    },
}

_HTML: _Route = {"text/html": {"schema": {"type": "string"}}}

_TO_PAGE: _Route = {"description": "To `/`, to the page of a metric, or to the form at `/sign-in`."}


def _html_refused(*refusals: ProblemType) -> dict[int | str, _Route]:
    """Describe refusals that are a page for those who accept HTML."""
    described_ = described(*refusals)
    return {status: {**told, "content": {**told["content"], **_HTML}} for status, told in described_.items()}


GET_PAGE: _Route = {
    "responses": {
        200: {"description": "The page.", "content": _HTML},
        303: _TO_PAGE,
        **described(ProblemType.INVALID_QUERY, *_OF_READING),
    },
}

GET_METRIC_PAGE: _Route = {
    "responses": {
        200: {"description": "The page.", "content": _HTML},
        303: _TO_PAGE,
        **_html_refused(ProblemType.UNKNOWN_METRIC),
        **described(ProblemType.INVALID_QUERY, *_OF_READING),
    },
}

GET_SIGN_IN: _Route = {
    "responses": {
        200: {"description": "The form.", "content": _HTML},
        303: _TO_PAGE,
        **described(ProblemType.INTERNAL_ERROR),
    },
}

POST_SIGN_IN: _Route = {
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {
                "application/x-www-form-urlencoded": {
                    "schema": {
                        "type": "object",
                        "required": ["token"],
                        "properties": {"token": {"type": "string", "format": "password"}},
                    }
                }
            },
        }
    },
    "responses": {
        303: {"description": "Signed in, by a cookie: to `/`."},
        **_html_refused(
            ProblemType.UNAUTHORIZED,
            ProblemType.FORBIDDEN,
            ProblemType.CROSS_SITE,
            ProblemType.TOO_SLOW,
            ProblemType.TOO_LARGE,
            ProblemType.TOO_MANY,
        ),
        **described(ProblemType.INTERNAL_ERROR, ProblemType.UNAVAILABLE),
    },
    "status_code": 303,
    "response_class": Response,  # no body, so of no media type
}

POST_SIGN_OUT: _Route = {
    "responses": {
        303: {"description": "Signed out: to the form at `/sign-in`."},
        **described(ProblemType.CROSS_SITE, ProblemType.INTERNAL_ERROR, ProblemType.UNAVAILABLE),
    },
    "status_code": 303,
    "response_class": Response,  # no body, so of no media type
}

_CLIENT_NAMED = "False: it comes from this machine or a trusted proxy, without an address in X-Forwarded-For."
GET_LIVEZ: _Route = {
    "responses": {200: _status("alive", client_named={"type": "boolean", "description": _CLIENT_NAMED})}
}

GET_READYZ: _Route = {
    "responses": {
        200: _status("ready", clock=_CLOCK),
        **described(ProblemType.UNAVAILABLE, ProblemType.DISK_FULL, ProblemType.INTERNAL_ERROR),
    }
}

GET_PROBLEM: _Route = {
    "responses": {200: {"description": "The page."}, **described(ProblemType.NOT_FOUND, ProblemType.INVALID_QUERY)}
}
