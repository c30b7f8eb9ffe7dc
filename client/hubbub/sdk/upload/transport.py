"""HTTP transport: one request, one response (urllib3), which ends at its total deadline or when consent is withdrawn."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from hubbub.sdk.configuration import Authorization
from hubbub.sdk.upload.authorization import AuthorizationError, TokenSource
from hubbub.sdk.upload.retry_policy import NO_RESPONSE, NOT_SENT, UploadResponse
from hubbub.wire.answers import MAX_ANSWER_BYTES, read_answer
from hubbub.wire.problems import ProblemType
from hubbub.wire.urls import check_url, is_loopback, mask_url, mask_urls

if TYPE_CHECKING:
    from hubbub.sdk.upload.cancellation import RequestCanceller

USER_AGENT = "hubbub/1"
REQUEST_TIMEOUT_SECONDS = 10.0
MAX_ADDRESSES = 3
"""Addresses of a name that are tried within `REQUEST_TIMEOUT_SECONDS` if none answers."""

MAX_REASON_CHARACTERS = 4096

_CONNECTION = re.compile(r"\w+\(host='?(?P<host>[^',]+)'?, port=(?P<port>\d+)\): ")
"""Prefix of urllib3's messages: the class, host and port of a connection or pool."""


def always() -> bool:
    """Never cancel a request."""
    return True


class Transport(Protocol):
    """Connection to the aggregator."""

    def send(self, body: bytes, is_wanted: Callable[[], bool] = always) -> UploadResponse:
        """Send the bytes of a batch. The method never raises.

        Parameters
        ----------
        body
            Bytes of the batch.
        is_wanted
            Function that is called while the request runs. Once it returns False, the request is cancelled.

        Returns
        -------
        UploadResponse
            Response, or the reason why there is none.
        """


class HttpTransport:
    """POST to an aggregator with urllib3: a new connection each time, no cookies, no redirects, one constant User-Agent.

    url           : URL of the aggregator: https, or http to a loopback address
    ca_certs      : file of certificates to trust instead of the system's
    authorization : function of the app that returns a report token; None: no token

    Proxies are taken from the environment, as urllib.request does.
    """

    def __init__(self, url: str, ca_certs: str | None = None, authorization: Authorization | None = None) -> None:
        self._url = check_url(url) + "/v1/reports"
        self._tokens = None if authorization is None else TokenSource(authorization)
        self._ca_certs = ca_certs
        self._connect_thread: threading.Thread | None = None

    def send(self, body: bytes, is_wanted: Callable[[], bool] = always) -> UploadResponse:
        """Send a body and return the response, within `REQUEST_TIMEOUT_SECONDS`; cancel once `is_wanted` returns False.

        The app is asked for a token before each request. A token that is refused (401) is asked for again, once.
        """
        try:
            token = self._token(is_wanted)
            response = self._post(body, is_wanted, token)
            if response.status == 401 and token is not None and (other := self._token(is_wanted)) != token:
                return self._post(body, is_wanted, other)
        except (AuthorizationError, RuntimeError) as problem:  # RuntimeError: no more threads
            return replace(NOT_SENT, failure=f"{problem}; nothing was sent")
        return response

    def _token(self, is_wanted: Callable[[], bool]) -> str | None:
        return None if self._tokens is None else self._tokens.header(is_wanted, REQUEST_TIMEOUT_SECONDS)

    def _post(self, body: bytes, is_wanted: Callable[[], bool], token: str | None) -> UploadResponse:
        import urllib3
        from urllib3.exceptions import HTTPError

        from hubbub.sdk.upload.cancellation import RequestCanceller  # imported late: it needs sockets

        headers = {
            "Content-Type": "application/json",
            "User-Agent": USER_AGENT,
            "Accept": "application/json, application/problem+json",
            "Connection": "close",
        }
        if token is not None:
            headers["Authorization"] = token
        if self._connect_thread is not None and self._connect_thread.is_alive():
            return NOT_SENT  # the DNS lookup of the last request still runs: no second one is started
        canceller = RequestCanceller(is_wanted, REQUEST_TIMEOUT_SECONDS)
        try:
            with canceller, self._pool(canceller) as pool:
                response = pool.request(
                    "POST",
                    self._url,
                    body=body,
                    headers=headers,
                    retries=False,
                    redirect=False,
                    preload_content=False,
                    timeout=urllib3.Timeout(
                        connect=REQUEST_TIMEOUT_SECONDS / MAX_ADDRESSES, read=REQUEST_TIMEOUT_SECONDS
                    ),
                )
                try:
                    text = _read(response)
                    return (
                        parse_response(response.status, response.headers, text)
                        if canceller.may_continue()
                        else NO_RESPONSE
                    )
                finally:
                    response.close()
        # RuntimeError: no more threads, the interpreter shuts down
        except (HTTPError, OSError, ValueError, RuntimeError) as problem:
            return replace(
                NO_RESPONSE if canceller.request_sent else NOT_SENT, failure=_describe_error(problem, self._url)
            )
        finally:
            self._connect_thread = canceller.connect_thread

    def _pool(self, canceller: RequestCanceller) -> Any:
        import urllib3
        from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

        from hubbub.sdk.upload.cancellation import cancellable_connection

        options: dict[str, Any] = {"maxsize": 1, "ca_certs": self._ca_certs or _certificates_of_environment()}
        proxy = _proxy(self._url)
        manager = _through(proxy, options) if proxy else urllib3.PoolManager(**options)
        manager.pool_classes_by_scheme = {
            scheme: type(
                "CancellablePool",
                (pool,),
                {"ConnectionCls": cancellable_connection(pool.ConnectionCls, canceller, REQUEST_TIMEOUT_SECONDS)},
            )
            for scheme, pool in (("http", HTTPConnectionPool), ("https", HTTPSConnectionPool))
        }
        return manager


def _certificates_of_environment() -> str | None:
    path = os.environ.get("SSL_CERT_FILE")
    if path and not os.access(path, os.R_OK):
        raise ValueError(f"SSL_CERT_FILE={path!r} cannot be read: correct it or unset it")
    return path or None


def _proxy(url: str) -> str | None:
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    if is_loopback(parts.hostname or "") or proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)


def _through(proxy: str, options: dict[str, Any]) -> Any:
    """Return a pool of connections through a proxy; `host:port` means http, a user name and password are sent as Basic auth."""
    import urllib3

    try:
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        _ = parts.port
    except ValueError:  # its text has a part of the URL
        raise ValueError(f"the proxy {mask_url(proxy)} is not a URL: correct HTTPS_PROXY") from None
    credentials = None
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    headers = urllib3.make_headers(proxy_basic_auth=credentials)
    return urllib3.ProxyManager(parts.geturl(), proxy_headers=headers, **options)


def _describe_error(problem: BaseException, url: str) -> str:
    """Return the reason and address of an error, on one short line of ASCII, because its text may come from the server."""
    text = _reason(problem)[:MAX_REASON_CHARACTERS]  # of any length, if a proxy answered
    reason = " ".join(mask_urls(text).split())  # it may repeat the URL of a proxy
    found = _CONNECTION.search(reason)
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host, port_name = (found["host"], found["port"]) if found else (parts.hostname, port)
    text = _CONNECTION.sub("", reason)[:200] or type(problem).__name__
    return f"{text} ({host}:{port_name})".encode("ascii", "backslashreplace").decode()


def _reason(problem: BaseException) -> str:
    """Return the text of an error and of the errors that caused it. urllib3 passes them as arguments."""
    if isinstance(problem, OSError) or not problem.args:
        return str(problem)
    parts = (part for part in problem.args if isinstance(part, str | BaseException))
    texts = [_reason(part) if isinstance(part, BaseException) else part for part in parts]
    return ": ".join(text.rstrip(".") for text in texts if text)


def _read(response: Any) -> bytes:
    """Return a response body, or its start if it is longer than any answer of an aggregator."""
    text = b""
    while len(text) <= MAX_ANSWER_BYTES:
        part = response.read1(MAX_ANSWER_BYTES)
        if not part:
            break
        text += part
    return text


def parse_response(status: int, headers: Mapping[str, str], text: bytes) -> UploadResponse:
    """Return the response of a status, headers and a body; only an aggregator's own has a problem or the id of a batch."""
    response = UploadResponse(status, retry_after=headers.get("Retry-After"), date=headers.get("Date"))
    match read_answer(status, headers.get("Content-Type"), text):
        case ProblemType() as problem:
            return replace(response, problem=problem.slug)
        case batch_id:
            return replace(response, batch_id=batch_id)
