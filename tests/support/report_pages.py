"""Read the pages of a report without a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any


def chart_data(page: Path) -> dict[str, Any]:
    """Return the data of the charts of a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data
