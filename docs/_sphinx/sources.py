"""Changes of the pages' source before Sphinx reads it, so that the same files read well in the repository and on the site."""

from __future__ import annotations

import re

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

_LINK_OUT_OF_DOCS = re.compile(r"\[([^\]]*)\]\((?:\.\./)+([^)#\s]+)[^)\s]*\)")


def prepare(_app: Sphinx, name: str, source: list[str]) -> None:
    """Handle `source-read`.

    A link to a file outside docs/ becomes its path: the site does not contain the file.
    A decision record is an orphan: it is linked from its index, and not in the navigation. Any other page outside all toctrees
    fails the build.
    """
    text = _LINK_OUT_OF_DOCS.sub(_named, source[0])
    source[0] = f"---\norphan: true\n---\n\n{text}" if name.startswith("decisions/0") else text


def _named(link: re.Match[str]) -> str:
    text, path = link[1], f"`{link[2]}`"
    return path if text.strip("`") == path.strip("`") else f"{text} ({path})"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", prepare)
    app.add_lexer("csv", TextLexer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
