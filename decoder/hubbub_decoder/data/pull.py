"""An aggregator's summary of one metric, or its retained reports, over HTTP."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

import urllib3

from hubbub.errors import SummaryError
from hubbub.metrics.metric import Metric
from hubbub.summary import ReportFile, Summary, summary_from_bytes
from hubbub.wire.urls import is_loopback
from hubbub_decoder.data.output_files import atomic_write
from hubbub_decoder.errors import PullError

_TIMEOUT = urllib3.Timeout(connect=10, read=60)
_RETRIES = urllib3.Retry(
    total=2, status_forcelist=(502, 503, 504), raise_on_status=False, redirect=0, backoff_factor=0.5
)
_LARGEST = 1 << 30
_CHUNK = 1 << 18


def pull_summary(
    url: str,
    metric: str,
    *,
    periods: Sequence[str] = (),
    digest: str | None = None,
    kind: str | None = None,
    token: str | None = None,
    http: urllib3.PoolManager | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Summary:
    """Fetch the counts of a metric's reports: GET {url}/v1/metrics/{metric}/summary.

    url      : of the aggregator; https, or http to this machine
    periods  : first days of the periods to sum, YYYY-MM-DD; none: all there are
    digest   : of the definition, where several are collected under one name
    kind     : "bits" or "patterns"; None: as the aggregator likes
    token    : that lets its holder read; None: the environment's HUBBUB_TOKEN, if there is one
    progress : called with the number of bytes of each piece that arrives

    Raises PullError that says what the aggregator answered, or that what came is not this summary.
    """
    address = _address(url, metric, "summary", periods, {"digest": digest, "counts": kind})
    body = b"".join(_pieces(url, address, token, http, progress, _LARGEST))
    try:
        summary = summary_from_bytes(body)
    except SummaryError as problem:
        raise PullError(f"{url} answered something else than a summary: {problem}") from None
    _require_asked(url, summary.metric, metric, digest)
    return summary


def pull_reports(
    url: str,
    metric: str,
    path: str | Path,
    *,
    periods: Sequence[str] = (),
    digest: str | None = None,
    token: str | None = None,
    http: urllib3.PoolManager | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> ReportFile:
    """Fetch the retained reports of a metric into a file: GET {url}/v1/metrics/{metric}/reports.

    The file is there when all of it has come, and is what was asked for; until then another has its name. Everything else is as
    for `pull_summary`.
    """
    address = _address(url, metric, "reports", periods, {"digest": digest})
    with atomic_write(path) as file:
        for piece in _pieces(url, address, token, http, progress, math.inf):
            file.write(piece)
        file.flush()
        try:
            told = ReportFile(file.name).metric
        except SummaryError as problem:
            raise PullError(f"{url} answered something else than reports: {problem}") from None
        _require_asked(url, told, metric, digest)
    return ReportFile(path)


def _require_asked(url: str, told: Metric, metric: str, digest: str | None) -> None:
    if told.name != metric:
        raise PullError(f"{url} answered with {told.name!r}, asked was {metric!r}: is this an aggregator of hubbub?")
    if digest is not None and told.digest != digest:
        raise PullError(f"{url} answered {metric} under digest {told.digest}, asked was {digest}: ask for one it has")


def _address(url: str, metric: str, what: str, periods: Sequence[str], fields: Mapping[str, str | None]) -> str:
    parts = urlsplit(url)
    if "@" in parts.netloc:
        host = parts.netloc.rpartition("@")[2]
        raise PullError(f"{parts.scheme}://***@{host}: an aggregator knows no passwords: set HUBBUB_TOKEN to a token")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise PullError(f"{url}: is not the address of an aggregator: write https://host")
    if parts.query or parts.fragment:
        raise PullError(f"{url}: must be the aggregator's address alone, without ? or #")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise PullError(
            f"{url}: http is for this machine only: write https://, or anyone on the way can change the counts"
        )
    if not re.fullmatch(r"[a-z][a-z0-9_.-]{0,63}", metric):
        raise PullError(f"{metric!r} is not a metric's name: lower-case letters, digits, '_', '.', '-', a letter first")
    query = [("period", period) for period in periods]
    query += [(name, value) for name, value in fields.items() if value is not None]
    address = f"{url.rstrip('/')}/v1/metrics/{quote(metric)}/{what}"
    return f"{address}?{urlencode(query)}" if query else address


def _authorization(token: str | None) -> dict[str, str]:
    token = os.environ.get("HUBBUB_TOKEN") if token is None else token
    return {"Authorization": f"Bearer {token}"} if token else {}


def _pieces(
    url: str,
    address: str,
    token: str | None,
    http: urllib3.PoolManager | None,
    progress: Callable[[int], None],
    largest: float,
) -> Iterator[bytes]:
    """Yield the answer's body; raise PullError for any answer but 200."""
    http = http or urllib3.PoolManager(retries=_RETRIES, timeout=_TIMEOUT)
    try:
        answer = http.request("GET", address, headers=_authorization(token), redirect=False, preload_content=False)
        if answer.status != 200:
            told = _detail(answer, b"".join(_stream(answer, address, _LARGEST)))
            hint = "; `hubbub pull` takes the token from HUBBUB_TOKEN" if answer.status == 401 else ""
            raise PullError(f"{url} answered {answer.status}: {told}{hint}")
        for piece in _stream(answer, address, largest):
            progress(len(piece))
            yield piece
    except urllib3.exceptions.HTTPError as problem:
        raise PullError(f"{url}: no answer ({_cause(problem)}): is the aggregator running there?") from None


def _stream(answer: urllib3.BaseHTTPResponse, address: str, largest: float) -> Iterator[bytes]:
    size = 0
    for piece in answer.stream(_CHUNK):
        size += len(piece)
        if size > largest:
            answer.close()
            raise PullError(f"{address}: more than {_LARGEST >> 20} MiB came: no summary is that large")
        yield piece


def _detail(answer: urllib3.BaseHTTPResponse, body: bytes) -> str:
    """Return what an RFC 9457 answer says in words, else what HTTP says."""
    if answer.headers.get("Content-Type", "").partition(";")[0] == "application/problem+json":
        try:
            told = json.loads(body)
            return str(told.get("detail") or told.get("title") or answer.reason)
        except (ValueError, AttributeError):
            pass
    if 300 <= answer.status < 400:
        return f"a redirect to {answer.headers.get('Location', 'nowhere')!r}; give the aggregator's own address"
    return f"{answer.reason or 'no reason'}: is this an aggregator of hubbub?"


def _cause(problem: BaseException) -> str:
    reason = getattr(problem, "reason", None)
    return str(reason if isinstance(reason, BaseException) else problem)
