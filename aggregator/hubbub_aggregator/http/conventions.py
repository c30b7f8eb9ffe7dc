"""Keys of the ASGI scope, and paths, that the protocol and the routes agree on."""

from __future__ import annotations

PATH = "/v1/reports"

BODY_IS_HERE = "hubbub.body_is_here"
"""Key of the ASGI scope: set once the whole body of a request has arrived, so that receiving it does not wait."""
