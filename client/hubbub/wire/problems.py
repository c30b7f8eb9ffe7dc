"""Every reason for which an aggregator refuses a request: one list, read by both ends.

Each is served as RFC 9457 `application/problem+json`, its `type` the page `/problems/<slug>`.
"""

from __future__ import annotations

from enum import Enum

from hubbub.errors import HubbubError


class ProblemType(Enum):
    """slug, HTTP status, and what it means in one sentence."""

    MALFORMED = ("malformed", 400, "The body is not a batch: not JSON, a field missing, or of the wrong type.")
    NOT_HTTP = ("not-http", 400, "What was sent is not an HTTP/1.1 request.")
    UNAUTHORIZED = ("unauthorized", 401, "This needs a token that is missing or not accepted.")
    FORBIDDEN = ("forbidden", 403, "The token does not allow this.")
    CROSS_SITE = ("cross-site", 403, "A page of another site sent this form.")
    NOT_FOUND = ("not-found", 404, "There is nothing at this address.")
    UNKNOWN_METRIC = ("unknown-metric", 404, "No metric of this name is collected here.")
    METHOD_NOT_ALLOWED = ("method-not-allowed", 405, "This address does not take this method.")
    TOO_SLOW = ("too-slow", 408, "The body took longer to arrive than this aggregator waits.")
    DIGEST_MISMATCH = ("digest-mismatch", 409, "The metric is collected under other parameters than the batch says.")
    PERIOD_CLOSED = ("period-closed", 410, "The period takes no more reports.")
    METRIC_EXPIRED = ("metric-expired", 410, "The metric's expiry date has passed.")
    TOO_LARGE = ("too-large", 413, "The body is larger than this aggregator takes, before or after inflating.")
    UNSUPPORTED_MEDIA_TYPE = ("unsupported-media-type", 415, "A batch is application/json, plain or gzip.")
    COHORT_OUT_OF_RANGE = ("cohort-out-of-range", 422, "A cohort is not below the metric's num_cohorts.")
    WRONG_SIZE = ("wrong-size", 422, "The bits are not one row of ceil(k / 8) bytes for each cohort.")
    PADDING_SET = ("padding-set", 422, "A padding bit past the last of the k bits is set.")
    NO_REPORTS = ("no-reports", 422, "The batch carries no report.")
    TOO_MANY_REPORTS = ("too-many-reports", 422, "The batch carries more reports than one request may.")
    PERIOD_MISALIGNED = ("period-misaligned", 422, "The period is not the first day of a period of this metric.")
    PERIOD_NOT_STARTED = ("period-not-started", 422, "The period starts more than a day from now.")
    INVALID_QUERY = ("invalid-query", 422, "A query parameter has a value it cannot have.")
    IMPLAUSIBLE_REPORT = (
        "implausible-report",
        422,
        "A report has more or fewer ones than the noise leaves an honest one, but for one in a billion.",
    )
    TOO_MANY = (
        "too-many",
        429,
        "More requests came from this network than it may send; send the same again later.",
    )
    HEADERS_TOO_LARGE = ("headers-too-large", 431, "What comes around the body is larger than this aggregator takes.")
    INTERNAL_ERROR = ("internal-error", 500, "The aggregator failed; nothing of the batch is stored.")
    UNAVAILABLE = ("unavailable", 503, "The aggregator cannot do this just now; send the same again later.")
    DISK_FULL = ("disk-full", 507, "The aggregator's disk is nearly full; send the same batch again.")

    def __init__(self, slug: str, status: int, meaning: str) -> None:
        self.slug = slug
        self.status = status
        self.meaning = meaning


class RefusedError(HubbubError):
    """A batch that breaks a rule of the wire; nothing of it is stored."""

    def __init__(self, problem_type: ProblemType, detail: str) -> None:
        super().__init__(detail)
        self.problem_type = problem_type
        self.detail = detail
