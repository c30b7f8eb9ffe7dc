"""The Content-Security-Policy of the dashboard. Its pages contain the stylesheet of `hubbub.pages.html_page`."""

from __future__ import annotations

from hubbub.pages.html_page import CONTENT_SECURITY_POLICY as PAGE_POLICY
from hubbub.pages.html_page import STYLE

__all__ = ["CONTENT_SECURITY_POLICY", "STYLE"]

CONTENT_SECURITY_POLICY = f"{PAGE_POLICY}; frame-ancestors 'none'"
"""The page's policy, and no frames: a browser reads this directive in a header only."""
