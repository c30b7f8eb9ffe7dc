"""The stylesheet that every page contains, and the Content-Security-Policy that permits only it."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

STYLE = files(__package__).joinpath("style.css").read_text(encoding="utf-8")

_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()

CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; img-src data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
"""No scripts and no further requests; the icon is a `data:` URL."""
