"""Problem types (RFC 9457) that an aggregator can answer with, and RefusedError.

An aggregator sends them as `application/problem+json`; `type` is the address of the page `/problems/<slug>`.
"""

from __future__ import annotations

from enum import Enum

from hubbub.errors import HubbubError

PROBLEM_CONTENT_TYPE = "application/problem+json"


class ProblemType(Enum):
    """Problem type of a response of the aggregator.

    docs/reference/problem-types.md lists its members.

    Attributes
    ----------
    slug
        Last part of the address of its page, `/problems/SLUG`.
    status
        HTTP status.
    meaning
        Its meaning, in one sentence.
    """

    MALFORMED = (
        "malformed",
        400,
        "The body is not a batch: it is not JSON, or a field is missing or has the wrong type.",
    )
    NOT_HTTP = ("not-http", 400, "The received bytes are not an HTTP/1.1 request.")
    UNAUTHORIZED = ("unauthorized", 401, "The request needs a valid token.")
    FORBIDDEN = ("forbidden", 403, "The scope of the token does not allow this request.")
    CROSS_SITE = ("cross-site", 403, "The form was sent by a page of another site.")
    NOT_FOUND = ("not-found", 404, "No resource has this address.")
    UNKNOWN_METRIC = ("unknown-metric", 404, "This aggregator collects no metric of this name.")
    METHOD_NOT_ALLOWED = ("method-not-allowed", 405, "This address does not support this HTTP method.")
    TOO_SLOW = ("too-slow", 408, "The body did not arrive within this aggregator's time limit.")
    DIGEST_MISMATCH = (
        "digest-mismatch",
        409,
        "The digest of the batch differs from every definition of the metric on this aggregator.",
    )
    PERIOD_CLOSED = ("period-closed", 410, "The period is closed and accepts no more reports.")
    METRIC_EXPIRED = ("metric-expired", 410, "The metric's expiry date has passed.")
    TOO_LARGE = ("too-large", 413, "The body exceeds this aggregator's size limit, compressed or decompressed.")
    UNSUPPORTED_MEDIA_TYPE = ("unsupported-media-type", 415, "A batch must be application/json, uncompressed or gzip.")
    COHORT_OUT_OF_RANGE = ("cohort-out-of-range", 422, "A cohort is not below num_cohorts of the metric.")
    WRONG_GROUP = ("wrong-group", 422, "The field group is not a value of the metric's group.")
    WRONG_SIZE = ("wrong-size", 422, "The field bits does not have ceil(k / 8) bytes for each report.")
    PADDING_SET = ("padding-set", 422, "A padding bit after the k bits of a report is set.")
    NO_REPORTS = ("no-reports", 422, "The batch contains no report.")
    TOO_MANY_REPORTS = ("too-many-reports", 422, "The batch contains more reports than one request may.")
    PERIOD_MISALIGNED = ("period-misaligned", 422, "The period is not the first day of a period of this metric.")
    PERIOD_NOT_STARTED = ("period-not-started", 422, "The period starts more than one day in the future.")
    INVALID_QUERY = ("invalid-query", 422, "A query parameter is unknown or has an invalid value.")
    IMPLAUSIBLE_REPORT = (
        "implausible-report",
        422,
        "The number of ones of a report occurs in fewer than one in a billion genuine reports.",
    )
    TOO_MANY = (
        "too-many",
        429,
        "This network exceeded its request limit. Send the same request again later.",
    )
    HEADERS_TOO_LARGE = ("headers-too-large", 431, "The request line and headers exceed this aggregator's limit.")
    INTERNAL_ERROR = ("internal-error", 500, "The aggregator failed. Nothing of the batch was stored.")
    UNAVAILABLE = (
        "unavailable",
        503,
        "The aggregator is temporarily unable to process the request. Send the same request again later.",
    )
    DISK_FULL = ("disk-full", 507, "The aggregator's disk is almost full. Send the same request again later.")

    def __init__(self, slug: str, status: int, meaning: str) -> None:
        self.slug = slug
        self.status = status
        self.meaning = meaning

    @property
    def path(self) -> str:
        """Address of its page: the `type` of a problem document."""
        return f"/problems/{self.slug}"


class RefusedError(HubbubError):
    """Refused batch or request, with its problem type; nothing of it is stored.

    Parameters
    ----------
    problem_type
        Problem type of the response.
    detail
        What is wrong, in one sentence.
    """

    def __init__(self, problem_type: ProblemType, detail: str) -> None:
        super().__init__(detail)
        self.problem_type = problem_type
        self.detail = detail
