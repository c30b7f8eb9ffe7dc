"""Sphinx configuration of the documentation site; `make docs` builds it into make-out/docs without network access."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_sphinx"))

project = "hubbub"
release = metadata.version("hubbub-telemetry")
extensions = ["myst_parser", "accessibility", "mathjax", "reference", "sources"]
exclude_patterns = ["progress"]

myst_enable_extensions = ["dollarmath"]  # $formula$, which GitHub renders too
myst_dmath_allow_space = False  # as on GitHub: amounts of money are not formulas
myst_heading_anchors = 4  # links to headings, with the anchors that GitHub makes
myst_fence_as_directive = ["math"]  # ```math, which GitHub renders too

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_attr_annotations = False  # reference.py adds them, with links

default_role = "py:obj"  # single backticks in docstrings link to a public name; other code stays code
smartquotes = False  # `--option` stays as it is

html_theme = "furo"
html_title = "hubbub"
html_static_path = ["_sphinx/static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
templates_path = ["_sphinx/templates"]
html_search_scorer = str(Path(__file__).parent / "_sphinx" / "search.js")
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
