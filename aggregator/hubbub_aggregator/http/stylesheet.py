"""The one stylesheet, inside every page, and the policy that lets it in and nothing else."""

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
"""No script, no request but the page's own; its icon is a `data:` address."""
