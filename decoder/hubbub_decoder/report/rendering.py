"""Templates of the pages of a report, with their style, scripts and Content-Security-Policy."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hubbub.pages.html_page import STYLE, typeset
from hubbub.text import short_labels, visible_text, visible_value
from hubbub_decoder.documents.document import format_change, format_q_value, format_share

SCRIPTS = ("d3.min.js", "plot.umd.min.js", "report.js")
"""Scripts of a page, in the order in which they run: D3 and Observable Plot, unchanged, and the report's own."""

SHARED_SCRIPT = "report.js"
"""File with all scripts, which the pages of one directory share."""


@dataclass(frozen=True, slots=True)
class Scripts:
    """Script elements of a page, and what its Content-Security-Policy allows.

    sources : of scripts      forms : addresses to which forms may be sent
    needs   : end of the sentence "The chart needs ..."
    """

    elements: Markup
    sources: str
    needs: str
    forms: str = "'none'"


NO_SCRIPTS = Scripts(Markup(), "'none'", "", "'self'")
"""Of a served page without charts."""


@cache
def inline_scripts() -> Scripts:
    """Scripts inside the page, each allowed by its SHA-256."""
    texts = [_static(name) for name in SCRIPTS]
    return Scripts(
        Markup("\n").join(Markup("<script>{}</script>").format(Markup(text)) for text in texts),  # noqa: S704  (our files)
        " ".join(f"'{_integrity(text)}'" for text in texts),
        "JavaScript",
    )


def _integrity(text: str) -> str:
    """Digest of a script, as an attribute and a Content-Security-Policy name it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def served_scripts(folder: str) -> Scripts:
    """One script that a server has, allowed by its SHA-256; folder : its relative address, ending in "/"."""
    digest = _integrity(shared_script())
    element = Markup('<script integrity="{}" src="{}"></script>').format(digest, folder + SHARED_SCRIPT)
    return Scripts(element, f"'{digest}'", "JavaScript", "'self'")


def shared_scripts(folder: str) -> Scripts:
    """One script in another file; folder : its relative address, ending in "/".

    The policy allows it by a nonce, which is its digest, because 'self' matches no file that was opened from the disk.
    """
    nonce = hashlib.sha256(shared_script().encode()).hexdigest()[:32]
    element = Markup('<script nonce="{}" src="{}"></script>').format(nonce, folder + SHARED_SCRIPT)
    needs = f"JavaScript and the file {folder}{SHARED_SCRIPT}, so it is missing from a page that is sent alone"
    return Scripts(element, f"'nonce-{nonce}'", needs)


@cache
def shared_script() -> str:
    """Text of the shared file."""
    return "\n;\n".join(_static(name) for name in SCRIPTS)


def render(template: str, scripts: Scripts, data: Any, variables: Mapping[str, object]) -> str:
    """Page from a template; data : JSON values for the charts; variables : by their names in the template."""
    page = (
        _environment()
        .get_template(template)
        .render(
            {"view": None, **variables},
            scripts=scripts,
            style=Markup(STYLE + _static("report.css")),  # noqa: S704  (our files)
            data=_visible_data(data),
        )
    )
    return typeset(page)


def _visible_data(data: Any) -> Any:
    """Return JSON values with visible text, since the charts draw strings as they are."""
    if isinstance(data, str):
        return visible_text(data)
    if isinstance(data, Mapping):
        return {name: _visible_data(value) for name, value in data.items()}
    return [_visible_data(value) for value in data] if isinstance(data, list | tuple) else data


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("hubbub_decoder.report", "templates"),
        autoescape=True,
        finalize=visible_value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.filters |= {
        "percent": format_share,
        "short_labels": short_labels,
        "interval": interval,
        "q_value": format_q_value,
        "change": format_change,
        "change_interval": lambda ends: interval(ends, format_change),
        "sortable": lambda number: number if math.isfinite(number) else "",
    }
    return environment


@cache
def _static(name: str) -> str:
    return (files("hubbub_decoder.report") / "static" / name).read_text(encoding="utf-8")


def interval(ends: tuple[float, float], show: Callable[[float], str] = format_share) -> Markup | str:
    """Interval of a share or of a change, as in the terminal's table; a line may break only before the upper end.

    >>> print(interval((0.01, 0.025)))
    <span>1.00% ..</span> <span>2.50%</span>
    """
    low, high = ends
    return "-" if math.isnan(low) else Markup("<span>{} ..</span> <span>{}</span>").format(show(low), show(high))


def json_numbers(numbers: Sequence[float], digits: int = 8) -> list[float | None]:
    """Rounded numbers for the data of a chart; nan and infinity become None."""
    return [round(number, digits) if math.isfinite(number) else None for number in numbers]
