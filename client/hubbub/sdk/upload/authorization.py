"""Report tokens of the app: `Client(authorization=...)`, for an aggregator that accepts only reports with one.

The app's function runs in a thread of its own, since it may ask a server. It is given the time of a request, and a second call begins only
after the first has returned. A token is neither stored nor logged, and every header has the same length.
"""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Callable

from hubbub.sdk.configuration import Authorization

MAX_TOKEN_CHARACTERS = 2048
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750, section 2.1
_POLL_SECONDS = 0.02


class AuthorizationError(Exception):
    """There is no token; the message has the reason, and nothing of what the app's function returned or raised."""


class TokenSource:
    """Tokens from the app's function."""

    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization
        self._thread: threading.Thread | None = None

    def header(self, is_wanted: Callable[[], bool], seconds: float) -> str:
        """Return the value of the header Authorization; raises AuthorizationError.

        is_wanted : function that returns False if the request is given up      seconds : longest time to wait
        """
        if self._thread is not None and self._thread.is_alive():
            raise AuthorizationError("authorization has not returned since the last request")
        answers = queue.SimpleQueue[object]()
        self._thread = threading.Thread(target=self._call, args=(answers,), name="hubbub-authorization", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + seconds
        while is_wanted():
            try:
                answer = answers.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                if time.monotonic() >= deadline:
                    raise AuthorizationError(f"authorization did not return within {seconds:g} seconds") from None
            else:
                self._thread = None  # the function has returned; its thread may need a moment to end
                return _header(answer)
        raise AuthorizationError("the request was given up")

    def _call(self, answers: queue.SimpleQueue[object]) -> None:
        try:
            answers.put(self._authorization())
        except BaseException as problem:  # noqa: BLE001  (of the app; its message may have the token)
            answers.put(AuthorizationError(f"authorization raised {type(problem).__name__}"))


def _header(token: object) -> str:
    """Return "Bearer TOKEN", padded with spaces, which are no part of a header's value."""
    if isinstance(token, AuthorizationError):
        raise token
    if not isinstance(token, str):
        raise AuthorizationError(f"authorization must return a str, got {type(token).__name__}")
    if len(token) > MAX_TOKEN_CHARACTERS or not _TOKEN.fullmatch(token):
        raise AuthorizationError(
            f'authorization must return a token of 1 to {MAX_TOKEN_CHARACTERS} letters, digits and -._~+/, without "Bearer"; '
            f"got {len(token)} characters"
        )
    return f"Bearer {token}".ljust(len("Bearer ") + MAX_TOKEN_CHARACTERS)
