"""Rules for the name, the texts and the collection of a metric."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from hubbub.errors import DefinitionError
from hubbub.metrics.params import Params

MAX_CLIENT_COHORTS = 256
_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,63}")

PLACEHOLDER = "TODO"
"""First word of a text that `hubbub plan` writes and that a person has to replace."""


def is_metric_name(name: object) -> bool:
    """Return whether a string is a valid metric name."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_metric_name(name: object) -> None:
    """Raise DefinitionError unless a string is a valid metric name."""
    if not is_metric_name(name):
        raise DefinitionError(
            f"a metric's name must have at most 64 lower-case letters, digits, '_', '.' and '-', starting with a letter; got {name!r}"
        )


def check_collectable(name: str, params: Params) -> None:
    """Raise DefinitionError for parameters that only imported reports may have.

    These are the hashes of google/rappor, a cohort number that is not a power of two, and the probabilities that
    `Mechanism.require_collectable` lists.
    """
    check_hash_scheme(name, params)
    params.mechanism.require_collectable(name)
    m = params.num_cohorts
    if m > MAX_CLIENT_COHORTS or m & (m - 1):
        raise DefinitionError(
            f"{name}: num_cohorts must be a power of two up to {MAX_CLIENT_COHORTS}, got {m}: "
            "a client has one cohort number in [0, 256), which is reduced modulo num_cohorts"
        )


def check_hash_scheme(name: str, params: Params) -> None:
    """Raise DefinitionError for a hash scheme that only imported reports have."""
    if not params.scheme.is_collectable:
        raise DefinitionError(
            f"{name}: hash_scheme = {params.hash_scheme!r} is that of google/rappor, and no client here reports it. Import the reports "
            "of those clients with `hubbub import` (docs/how-to/migrating.md), or leave out hash_scheme for reports of new clients"
        )


def is_placeholder(text: str) -> bool:
    """Return whether a text for users was not written yet: it begins with TODO, or has no letter and no digit.

    >>> is_placeholder("TODO: address of the owner"), is_placeholder("..."), is_placeholder("First page"), is_placeholder("")
    (True, True, False, False)
    """
    return text.strip().upper().startswith(PLACEHOLDER) or (bool(text) and not any(map(str.isalnum, text)))


def check_review(name: str, review: str) -> None:
    """Raise DefinitionError unless a review is empty or an http or https address: pages may show it as a link.

    >>> check_review("homepage", "https://example.org/reviews/12")
    """
    if review == "":
        return
    try:
        parts = urlsplit(review) if isinstance(review, str) and review.isprintable() and " " not in review else None
        is_valid = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:  # unbalanced brackets
        is_valid = False
    if not is_valid:
        raise DefinitionError(
            f"{name}: review must be an http or https address, got {review!r}: write it as 'https://example.org/reviews/12'"
        )
