"""Rules for the parameters and categories of a metric: of its definition, and of its collection from clients."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from hubbub.errors import DefinitionError
from hubbub.metrics.params import MAX_BITS, Params
from hubbub.text import with_article

MIN_STRING_BITS = 8
MAX_CLIENT_COHORTS = 256

PLACEHOLDER = "TODO"
"""First word of a text that `hubbub plan` writes and that a person has to replace."""


def check_bloom_filter(name: str, params: Params) -> None:
    """Raise DefinitionError unless the parameters suit a string metric."""
    if params.hash_scheme in ("one-hot", "threshold-v1"):
        raise DefinitionError(f"{name}: a string metric needs a Bloom filter; use hash_scheme = 'murmur3-v1'")
    if params.num_bits < MIN_STRING_BITS:
        raise DefinitionError(
            f"{name}: num_bits of a string metric must be {MIN_STRING_BITS} to {MAX_BITS}, got {params.num_bits}"
        )


def check_scheme(name: str, kind: str, params: Params, num_bits: int, scheme: str = "one-hot") -> None:
    """Raise DefinitionError unless the parameters have one bit for each of `num_bits` values."""
    if params.hash_scheme != scheme or params.num_bits != num_bits:
        raise DefinitionError(
            f"{name}: {with_article(kind)} metric needs {scheme} parameters of {num_bits} bits, "
            f"got {params.hash_scheme} of {params.num_bits}"
        )


def check_number_of_categories(name: str, number: int) -> None:
    """Raise DefinitionError unless a categorical metric can have so many categories."""
    if not 2 <= number <= MAX_BITS:
        raise DefinitionError(
            f"{name}: a categorical metric needs 2 to {MAX_BITS} categories, got {number}: "
            f"use a boolean metric for one category, a string metric for more than {MAX_BITS}"
        )


def check_categories(name: str, categories: Sequence[str], other: str | None) -> None:
    """Raise DefinitionError unless the categories are distinct strings of UTF-8, with `other` among them."""
    for category in categories:
        if not isinstance(category, str) or not category:
            raise DefinitionError(f"{name}: a category must be a non-empty string, got {category!r}")
        if any("\ud800" <= character <= "\udfff" for character in category):
            raise DefinitionError(
                f"{name}: categories must be encodable as UTF-8, got {category!r}: remove lone surrogates"
            )
    if len(set(categories)) != len(categories):
        repeated = sorted({c for c in categories if categories.count(c) > 1})
        raise DefinitionError(f"{name}: categories must be distinct, got {', '.join(repeated)} more than once")
    if other is not None and other not in categories:
        raise DefinitionError(f"{name}: other must be one of the categories, got {other!r}")


def check_collectable(name: str, params: Params) -> None:
    """Raise DefinitionError for parameters that only imported reports may have.

    These are a cohort number that is not a power of two, and the probabilities that `UnaryResponse.require_collectable` lists.
    """
    params.mechanism.require_collectable(name)
    m = params.num_cohorts
    if m > MAX_CLIENT_COHORTS or m & (m - 1):
        raise DefinitionError(
            f"{name}: num_cohorts must be a power of two up to {MAX_CLIENT_COHORTS}, got {m}: "
            "a client has one cohort number in [0, 256), which is reduced modulo num_cohorts"
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
