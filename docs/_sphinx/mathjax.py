"""Copy the parts of MathJax that the site uses from the package sphinx-mathjax-offline: 2 of its 24 MB."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

SCRIPT, FONTS = "tex-chtml.js", "output/chtml/fonts/woff-v2"


def mathjax_folder() -> Path:
    """Return the folder of MathJax in the installed package. Its name has hyphens, so it cannot be imported by a statement."""
    spec = find_spec("sphinx-mathjax-offline")
    if spec is None or spec.origin is None:
        raise ExtensionError("MathJax is missing: pip install --group docs")
    return Path(spec.origin).parent / "static" / "mathjax"


def copy_mathjax(app: Sphinx, problem: Exception | None) -> None:
    """Handle `build-finished`: copy the script and the fonts."""
    if problem is None and app.builder.format == "html":
        source, target = mathjax_folder(), Path(app.outdir) / "_static" / "mathjax"
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / SCRIPT, target)
        shutil.copytree(source / FONTS, target / FONTS, dirs_exist_ok=True)


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("sphinx.ext.mathjax")
    app.config.mathjax_path = f"mathjax/{SCRIPT}"
    app.connect("build-finished", copy_mathjax)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
