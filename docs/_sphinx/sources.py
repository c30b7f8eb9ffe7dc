"""Changes of the pages' source before Sphinx reads it, so that the same files read well in the repository and on the site."""

from __future__ import annotations

import posixpath
import re

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

_LINK_UPWARD = re.compile(r"\[([^\]]*)\]\((\.\./[^)#\s]+)[^)\s]*\)")


def prepare(_app: Sphinx, name: str, source: list[str]) -> None:
    """Handle `source-read`.

    A link to a file outside docs/ becomes its path: the site does not contain the file.
    A decision record is an orphan: it is linked from its index, with its title, and not in the navigation. Any other page outside all
    toctrees fails the build. The search leaves out decisions: it lists pages with answers.
    """
    text = without_links_out_of_docs(name, source[0])
    if name == "decisions/README":
        # the title of the record takes the empty place
        text = re.sub(r"^- \[[^]]+\]", "- []", text, flags=re.MULTILINE)
    if name.startswith("decisions/"):
        orphan = "orphan: true\n" if name.startswith("decisions/0") else ""
        text = f"---\n{orphan}nosearch: true\n---\n\n{text}"
    source[0] = text


def without_links_out_of_docs(name: str, text: str) -> str:
    """Return the text of a page with the path in place of each link that leaves docs/.

    >>> without_links_out_of_docs("decisions/0001", "[A](../privacy.md), [B](../../SECURITY.md#scope), [`deploy`](../../deploy)")
    '[A](../privacy.md), B (`SECURITY.md`), `deploy`'
    """

    def replace(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name), link[2]))
        if not path.startswith("../"):
            return link[0]
        shown = f"`{path.removeprefix('../')}`"
        return shown if link[1].strip("`") == shown.strip("`") else f"{link[1]} ({shown})"

    return _LINK_UPWARD.sub(replace, text)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", prepare)
    app.add_lexer("csv", TextLexer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
