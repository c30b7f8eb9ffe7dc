"""Paths, and keys of the ASGI scope, that the protocol, the middlewares and the routes share."""

from __future__ import annotations

REPORTS_PATH = "/v1/reports"

BODY_COMPLETE = "hubbub.body_complete"
"""Key of the ASGI scope: set once the whole body of a request has arrived, so that receiving it does not wait."""
