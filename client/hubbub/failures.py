"""What becomes of our own bugs: never the host's problem, never silent in our tests."""

from __future__ import annotations

import logging
import traceback

logger = logging.getLogger("hubbub")

swallowed = True
"""False in tests: `hubbub.testing.nothing_swallowed`."""


def report_failure(failure: Exception) -> None:
    """Log what failed and where, without the message: it could repeat a value. In tests, raise it."""
    if not swallowed:
        raise failure
    where = traceback.extract_tb(failure.__traceback__)[-1]
    logger.error("%s in %s, line %s of %s", type(failure).__name__, where.name, where.lineno, where.filename)
