"""Models of the HTTP API's bodies, and each route's responses: the OpenAPI document is generated from them.

The routes send bytes that are encoded once or elsewhere; tests/aggregator/api/test_openapi.py checks them against the document.
"""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from hubbub.metrics.kinds import KindWord
from hubbub.metrics.periods import PeriodKind
from hubbub.privacy import Observer, Unit
from hubbub.summary.summary_file import CONTENT_TYPE as SUMMARY_TYPE
from hubbub.wire.problems import ProblemType
from hubbub_aggregator.http.problems import NOT_OF_BATCHES, openapi_responses
from hubbub_aggregator.store.clock_state import ClockStatus

_Route = dict[str, Any]

_UUID4 = "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"


class BatchBody(BaseModel):
    """Reports of one metric and period, uploaded in one request."""

    model_config = ConfigDict(extra="allow")  # of later versions

    batch_id: str = Field(pattern=_UUID4, description="A random UUID (version 4), the same in every retry.")
    metric: str
    digest: str = Field(description="Digest of the metric definition that the client used.")
    period: date = Field(description="UTC date of its first day.")
    cohorts: list[Annotated[int, Field(ge=0, le=255)]] = Field(min_length=1, description="One per report.")
    bits: str = Field(
        description="One row of ceil(k / 8) bytes per report; bit i is bit i % 8, least significant first, of byte i // 8.",
        json_schema_extra={"contentEncoding": "base64"},
    )
    group: str = Field(default="", description="Value of the metric's group; only of metrics that have one.")


class StoredBatch(BaseModel):
    """Response to a batch that is stored."""

    batch_id: UUID
    status: Literal["stored", "duplicate"]


Epsilon = Annotated[float, Field(ge=0)] | Literal["inf"]
Units = Annotated[int, Field(ge=0)] | Literal["inf"]


class Guarantee(BaseModel):
    """Bound on what an observer learns from one unit of a client's reports (`hubbub.privacy.Guarantee`)."""

    observer: Observer = Field(description="Who observes.")
    unit: Unit = Field(description="What is observed of one client.")
    condition: str = Field(description="Histories of recordings between which the bound holds.")
    is_unconditional: bool = Field(description="Whether it bounds all reports, whatever is recorded.")
    epsilon: Epsilon = Field(description="Largest logarithm of the odds; inf if there is no bound.")
    delta: Annotated[float, Field(ge=0)] = Field(description="Probability that the bound fails.")
    num_units: Units = Field(description="Units of the ledger whose epsilons are added up.")
    num_clients: Annotated[int, Field(ge=1)] = Field(
        description="Genuine clients of one cohort that must report in every observed period, this one among them."
    )


class PrivacyFigures(BaseModel):
    """Epsilons towards one person under the client's default policy; "inf": no bound (`hubbub.privacy.PrivacyFigures`)."""

    period: PeriodKind
    hold: Annotated[int, Field(ge=1)] | None = Field(
        description="Periods after which the client draws new permanent noise; null: never under one secret."
    )
    epsilon_report: Epsilon = Field(description="Of one report.")
    epsilon_permanent: Epsilon = Field(description="Of one permanent response; inf if there is none (prob_f = 0).")
    unit: Literal["epoch", "value", "period"] = Field(
        description="Unit that a client's ledger charges: each epoch of a hold, each distinct value, or each period."
    )
    epsilon_unit: Epsilon = Field(description="Of one unit.")
    units_enrollment: Units = Field(description="Units that the default policy allows under one secret of a client.")
    epsilon_enrollment: Epsilon = Field(description="Of all reports under one secret of a client.")
    units_lifetime: Units = Field(description="Units that the default policy allows under all secrets of a client.")
    epsilon_lifetime: Epsilon = Field(
        description="Of all reports that one client ever sends; inf if the policy refuses it."
    )
    objection: str | None = Field(description="Reason for which the default policy refuses the metric.")
    guarantees: list[Guarantee] = Field(description="Observer, unit and condition of each epsilon.")


class MetricDefinition(BaseModel):
    """A metric definition, and the information about one person that its reports can reveal."""

    model_config = ConfigDict(extra="allow")  # the other fields of the definition

    name: str
    kind: KindWord
    digest: str
    privacy: PrivacyFigures


class Metrics(BaseModel):
    """Every version of every metric that is collected."""

    metrics: list[MetricDefinition]


class StoredPeriod(BaseModel):
    """A period of which a metric version has counts or reports, all values of its group together."""

    metric: str
    digest: str = Field(description="Digest of the version.")
    period: date = Field(description="UTC date of its first day.")
    num_reports: Annotated[int, Field(ge=0)] | None = Field(
        description="Number of its reports; null: not computed yet. 0: they have been deleted, or there was none."
    )
    closed: bool = Field(description="Whether no report of it is accepted any more.")


class StoredPeriods(BaseModel):
    """Every period of every version that is collected, in the order of metric, digest and period."""

    periods: list[StoredPeriod]


class Liveness(BaseModel):
    """The process answers."""

    status: Literal["alive"]
    client_named: bool = Field(
        description="Whether the client's address is known. False: the request comes from this machine or a trusted proxy, and "
        "X-Forwarded-For contains no address; set this header in the proxy."
    )


class Readiness(BaseModel):
    """Batches are stored."""

    status: Literal["ready"]
    clock: ClockStatus = Field(
        description="Not `credible`: the clock jumped, and closing, purging and dropping are paused."
    )


_READ_PROBLEMS = (ProblemType.UNAUTHORIZED, ProblemType.FORBIDDEN, ProblemType.INTERNAL_ERROR, ProblemType.UNAVAILABLE)
_HTML: _Route = {"text/html": {"schema": {"type": "string"}}}
_PAGE: _Route = {"description": "The page.", "content": _HTML}
_REDIRECT: _Route = {"description": "To `/`, to a metric or its results, or to the form at `/sign-in`."}
_NO_BODY: _Route = {"status_code": 303, "response_class": Response}


def _json(description: str, model: type[BaseModel]) -> _Route:
    return {"description": description, "model": model}


def _file(description: str) -> _Route:
    return {"description": description, "content": {SUMMARY_TYPE: {"schema": {"type": "string", "format": "binary"}}}}


def _html_or_json(*problems: ProblemType) -> dict[int | str, _Route]:
    """Describe problem responses that are a page for clients that accept HTML."""
    return {
        status: response | {"content": response["content"] | _HTML}
        for status, response in openapi_responses(*problems).items()
    }


POST_REPORTS: _Route = {
    "responses": {
        202: _json("Stored durably.", StoredBatch),
        200: _json("Stored earlier; counted once.", StoredBatch),
        **openapi_responses(*(problem for problem in ProblemType if problem not in NOT_OF_BATCHES)),
    },
}

GET_METRICS: _Route = {
    "responses": {
        200: _json("The metrics.", Metrics),
        **openapi_responses(ProblemType.INVALID_QUERY, ProblemType.INTERNAL_ERROR),
    },
}

GET_PERIODS: _Route = {
    "responses": {
        200: _json("The periods.", StoredPeriods),
        **openapi_responses(ProblemType.INVALID_QUERY, *_READ_PROBLEMS),
    },
}

GET_SUMMARY: _Route = {
    "responses": {
        200: _file("The summary file: Parquet with the metric's definition in its metadata."),
        **openapi_responses(ProblemType.UNKNOWN_METRIC, ProblemType.INVALID_QUERY, *_READ_PROBLEMS),
    },
}

GET_REPORTS: _Route = {
    "responses": {
        200: _file("The report file: Parquet with the metric's definition in its metadata."),
        **openapi_responses(
            ProblemType.NOT_FOUND,
            ProblemType.UNKNOWN_METRIC,
            ProblemType.INVALID_QUERY,
            ProblemType.DISK_FULL,
            *_READ_PROBLEMS,
        ),
    },
}

GET_PROMETHEUS: _Route = {
    "responses": {
        200: {"description": "The Prometheus text format.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **openapi_responses(*_READ_PROBLEMS),
    },
}

GET_LIVEZ: _Route = {"responses": {200: _json("The process answers.", Liveness)}}

GET_READYZ: _Route = {
    "responses": {
        200: _json("Batches are stored.", Readiness),
        **openapi_responses(ProblemType.UNAVAILABLE, ProblemType.DISK_FULL, ProblemType.INTERNAL_ERROR),
    }
}

GET_PROBLEM: _Route = {
    "responses": {
        200: {"description": "The page."},
        **openapi_responses(ProblemType.NOT_FOUND, ProblemType.INVALID_QUERY),
    }
}

GET_PAGE: _Route = {
    "responses": {200: _PAGE, 303: _REDIRECT, **openapi_responses(ProblemType.INVALID_QUERY, *_READ_PROBLEMS)},
}

GET_METRIC_PAGE: _Route = {
    "responses": {**GET_PAGE["responses"], **_html_or_json(ProblemType.UNKNOWN_METRIC)},
}

GET_SESSION: _Route = {
    "responses": {204: {"description": "It may."}, **openapi_responses(*_READ_PROBLEMS)},
}

GET_SIGN_IN: _Route = {
    "responses": {
        200: {"description": "The form.", "content": _HTML},
        303: _REDIRECT,
        **openapi_responses(ProblemType.INTERNAL_ERROR),
    },
}

_SIGN_IN_FORM: _Route = {
    "type": "object",
    "required": ["token"],
    "properties": {"token": {"type": "string", "format": "password"}},
}

POST_SIGN_IN: _Route = _NO_BODY | {
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {"application/x-www-form-urlencoded": {"schema": _SIGN_IN_FORM}},
        }
    },
    "responses": {
        303: {"description": "Signed in by a cookie; to `/`, or to a metric or its results."},
        **_html_or_json(
            ProblemType.UNAUTHORIZED,
            ProblemType.FORBIDDEN,
            ProblemType.CROSS_SITE,
            ProblemType.TOO_SLOW,
            ProblemType.TOO_LARGE,
            ProblemType.TOO_MANY,
        ),
        **openapi_responses(ProblemType.INTERNAL_ERROR, ProblemType.UNAVAILABLE),
    },
}

POST_SIGN_OUT: _Route = _NO_BODY | {
    "responses": {
        303: {"description": "Signed out; to the form at `/sign-in`."},
        **openapi_responses(ProblemType.CROSS_SITE, ProblemType.INTERNAL_ERROR, ProblemType.UNAVAILABLE),
    },
}
