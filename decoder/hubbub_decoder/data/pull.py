"""Download the list of periods, and the summary or the retained reports of a metric, from an aggregator."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

import urllib3

from hubbub.errors import SummaryError
from hubbub.metrics.metric import Metric
from hubbub.metrics.rules import is_metric_name
from hubbub.summary import ReportFile, Summary, summary_from_bytes
from hubbub.wire.urls import is_loopback, mask_url
from hubbub_decoder.data.output_files import atomic_write
from hubbub_decoder.errors import PullError

_TIMEOUT = urllib3.Timeout(connect=10, read=60)
_RETRIES = urllib3.Retry(
    total=2, status_forcelist=(502, 503, 504), raise_on_status=False, redirect=0, backoff_factor=0.5
)
_MAX_SUMMARY_BYTES = 1 << 30
_CHUNK_BYTES = 1 << 18


class NoResponseError(PullError):
    """The aggregator is unreachable."""


@dataclass(frozen=True, slots=True)
class CollectedPeriod:
    """A period of which an aggregator has reports, all values of a group together.

    num_reports : None: not known      closed : whether no report of it is accepted any more
    """

    metric: str
    digest: str
    period: str
    num_reports: int | None
    closed: bool


def pull_periods(url: str) -> list[CollectedPeriod]:
    """List of the periods of all metric versions. Raises PullError as `pull_summary` does. The request is GET {url}/v1/periods."""
    body = b"".join(_download(url, f"{_base_url(url)}/v1/periods", None, lambda _: None, _MAX_SUMMARY_BYTES))
    try:
        periods = [
            CollectedPeriod(**{field.name: row[field.name] for field in fields(CollectedPeriod)})
            for row in json.loads(body)["periods"]
        ]
        is_valid = all(map(_is_valid, periods))
    except (ValueError, KeyError, TypeError):
        is_valid = False
    if not is_valid:
        raise PullError(
            f"{url} sent a response that is not a list of periods. Check that the aggregator is of this release."
        )
    return periods


def _is_valid(found: CollectedPeriod) -> bool:
    """Whether the fields have their types and may be parts of the name of a file."""
    return (
        is_metric_name(found.metric)
        and re.fullmatch("[0-9a-f]{64}", found.digest) is not None
        and str(date.fromisoformat(found.period)) == found.period
        and (found.num_reports is None or (type(found.num_reports) is int and found.num_reports >= 0))
        and isinstance(found.closed, bool)
    )


def pull_summary(
    url: str,
    metric: str,
    *,
    periods: Sequence[str] = (),
    digest: str | None = None,
    group: str | None = None,
    kind: str | None = None,
    token: str | None = None,
    count_bytes: Callable[[int], None] = lambda _: None,
) -> Summary:
    """Download the summary of a metric.

    Parameters
    ----------
    url
        Address of the aggregator: https, or http to a loopback address.
    metric
        Name of the metric.
    periods
        First days of the periods to add up, YYYY-MM-DD. Empty: all periods.
    digest
        Digest of the definition, if several definitions are collected under the name.
    group
        Value of the metric's group. None: all values together.
    kind
        "bits" or "patterns". None: the aggregator's default for the metric.
    token
        Token with read permission. None: the environment variable HUBBUB_TOKEN.
    count_bytes
        Function that is called with the size in bytes of each received block.

    Returns
    -------
    Summary
        Bit counts or pattern counts.

    Raises
    ------
    PullError
        The aggregator is unreachable, answers with an error, or sends anything but this summary.

    Notes
    -----
    The request is GET {url}/v1/metrics/{metric}/summary.
    """
    address = _request_url(url, metric, "summary", periods, {"digest": digest, "group": group, "kind": kind})
    body = b"".join(_download(url, address, token, count_bytes, _MAX_SUMMARY_BYTES))
    try:
        summary = summary_from_bytes(body)
    except SummaryError as problem:
        raise PullError(f"{url} sent a response that is not a summary: {problem}") from None
    _check_received(url, summary.metric, metric, digest, group)
    return summary


def pull_reports(
    url: str,
    metric: str,
    path: str | Path,
    *,
    periods: Sequence[str] = (),
    digest: str | None = None,
    group: str | None = None,
    token: str | None = None,
    count_bytes: Callable[[int], None] = lambda _: None,
) -> ReportFile:
    """Download the retained reports of a metric into a file.

    The file is replaced only after the download is complete and checked.

    Parameters
    ----------
    url
        Address of the aggregator: https, or http to a loopback address.
    metric
        Name of the metric.
    path
        Path of the report file.
    periods
        First days of the periods, YYYY-MM-DD. Empty: all periods.
    digest
        Digest of the definition, if several definitions are collected under the name.
    group
        Value of the metric's group, which a metric with a group needs.
    token
        Token with read permission. None: the environment variable HUBBUB_TOKEN.
    count_bytes
        Function that is called with the size in bytes of each received block.

    Returns
    -------
    ReportFile
        The file, open for reading.

    Raises
    ------
    OutputError
        The file cannot be written.
    PullError
        The aggregator is unreachable, answers with an error, or sends anything but these reports.

    Notes
    -----
    The request is GET {url}/v1/metrics/{metric}/reports.
    """
    address = _request_url(url, metric, "reports", periods, {"digest": digest, "group": group})
    with atomic_write(path, private=True) as file:
        for piece in _download(url, address, token, count_bytes, math.inf):
            file.write(piece)
        file.flush()
        try:
            received = ReportFile(file.name).metric
        except SummaryError as problem:
            raise PullError(f"{url} sent a response that is not a report file: {problem}") from None
        _check_received(url, received, metric, digest, group)
    return ReportFile(path)


def _check_received(url: str, received: Metric, metric: str, digest: str | None, group: str | None) -> None:
    if received.name != metric:
        raise PullError(
            f"{url} sent metric {received.name!r} instead of {metric!r}. Check that the address is a hubbub aggregator."
        )
    if group != (None if received.group is None else received.group.value):
        raise PullError(
            f"{url} sent {received.title} instead of {metric}{f' of {group}' if group else ''}. Check that the aggregator is of this release."
        )
    if digest is not None and received.in_group(None).digest != digest:
        raise PullError(
            f"{url} sent {metric} with digest {received.digest} instead of {digest}. Request a digest that the aggregator collects."
        )


def _request_url(
    url: str, metric: str, resource: str, periods: Sequence[str], parameters: Mapping[str, str | None]
) -> str:
    base = _base_url(url)
    if not is_metric_name(metric):
        raise PullError(
            f"{metric!r} is not a metric name. Names have a lower-case letter first, then lower-case letters, digits, '_', '.' and '-'."
        )
    query = [("period", period) for period in periods]
    query += [(name, value) for name, value in parameters.items() if value is not None]
    address = f"{base}/v1/metrics/{quote(metric)}/{resource}"
    return f"{address}?{urlencode(query)}" if query else address


def _base_url(url: str) -> str:
    """Address of an aggregator without a slash at its end. Raises PullError for what is no address of one."""
    shown = mask_url(url)
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # unbalanced brackets, or an invalid port
        parts = urlsplit("")
    if "@" in url and parts.hostname:
        raise PullError(f"{shown} contains a password. Aggregators use tokens: remove it and set HUBBUB_TOKEN.")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise PullError(
            f"{shown} is not the address of an aggregator. Use https://host, or http://127.0.0.1:8100 on this machine."
        )
    if parts.query or parts.fragment:
        raise PullError(f"{shown} contains a query or fragment. Pass the aggregator's address without ? and #.")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise PullError(
            f"{url} is not encrypted, so counts could be changed in transit. Use https://; http:// is for this machine only."
        )
    return url.rstrip("/")


def authorization(token: str | None) -> dict[str, str]:
    token = (os.environ.get("HUBBUB_TOKEN", "") if token is None else token).strip()
    if not re.fullmatch(r"[\x20-\x7e]*", token):
        raise PullError(
            "HUBBUB_TOKEN contains a character that a header cannot carry (a line break, for example). "
            "Set it to the token that `hubbub token create` printed."
        )
    return {"Authorization": f"Bearer {token}"} if token else {}


def _download(
    url: str,
    address: str,
    token: str | None,
    count_bytes: Callable[[int], None],
    max_bytes: float,
) -> Iterator[bytes]:
    """Yield the response body in blocks; raises PullError for any status but 200."""
    http = urllib3.PoolManager(retries=_RETRIES, timeout=_TIMEOUT)
    try:
        response = http.request("GET", address, headers=authorization(token), redirect=False, preload_content=False)
        if response.status != 200:
            detail = _detail(response, b"".join(_stream(response, address, _MAX_SUMMARY_BYTES)))
            hint = " Set HUBBUB_TOKEN to a token with read permission." if response.status == 401 else ""
            raise PullError(f"{url} answered {response.status}: {detail.removesuffix('.')}.{hint}")
        for piece in _stream(response, address, max_bytes):
            count_bytes(len(piece))
            yield piece
    except urllib3.exceptions.HTTPError as problem:
        raise NoResponseError(
            f"no response from {url}: {_cause(problem)}. Check the address, and that the aggregator is running."
        ) from None


def _stream(response: urllib3.BaseHTTPResponse, address: str, max_bytes: float) -> Iterator[bytes]:
    size = 0
    for piece in response.stream(_CHUNK_BYTES):
        size += len(piece)
        if size > max_bytes:
            response.close()
            raise PullError(
                f"{address} sent more than {_MAX_SUMMARY_BYTES >> 20} MiB, which is too large for a summary. Check the address."
            )
        yield piece


def _detail(response: urllib3.BaseHTTPResponse, body: bytes) -> str:
    """Error description: `detail` or `title` of an RFC 9457 body, otherwise the HTTP reason."""
    if response.headers.get("Content-Type", "").partition(";")[0] == "application/problem+json":
        try:
            problem = json.loads(body)
            return str(problem.get("detail") or problem.get("title") or response.reason)
        except (ValueError, AttributeError):
            pass
    if 300 <= response.status < 400:
        return f"a redirect to {response.headers.get('Location', '')!r}. Pass the aggregator's own address."
    return f"{response.reason or 'no reason'}. Check that the address is a hubbub aggregator."


def _cause(problem: BaseException) -> str:
    """Reason of a failed request, without the name of the connection object in front."""
    reason = getattr(problem, "reason", None)
    cause = reason if isinstance(reason, BaseException) else problem
    return re.sub(r"^(<.*?>|\w+\(.*?\)): ", "", str(cause.args[0] if len(cause.args) > 1 else cause))
