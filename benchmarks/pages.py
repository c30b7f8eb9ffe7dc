"""Pages of figures that several benchmarks write, each its own section."""

from __future__ import annotations

from pathlib import Path


def put_section(path: Path, section: str) -> None:
    """Replace the section with the same heading in a page, or append it to the page."""
    page = path.read_text() if path.exists() else ""
    before, found, rest = page.partition(section.partition("\n")[0])
    after = rest[rest.index("\n## ") :] if found and "\n## " in rest else "\n"
    path.write_text(f"{before.rstrip()}\n\n{section.rstrip()}\n{after}".lstrip())
