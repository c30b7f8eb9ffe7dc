"""Give the captions of the navigation a heading level, which the theme leaves out. The rest is in static/site.js."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

_CAPTION = '<p class="caption" role="heading"'


def set_level_of_captions(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _doctree: object) -> None:
    """Handle `html-page-context`, after the theme."""
    for name in ("furo_navigation_tree", "body"):
        if name in context:
            context[name] = context[name].replace(_CAPTION, f'{_CAPTION} aria-level="2"')


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", set_level_of_captions, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
