"""Canonical form of a metric's mechanism: the fields of its digest, and its JSON fields."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hubbub.mechanisms.unary import PERMANENT_FIELDS
from hubbub.metrics.params import Params


def canonical_json(fields: dict[str, Any]) -> str:
    """Return JSON with sorted keys, without spaces, in ASCII: equal fields have equal bytes."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest_fields(params: Params, categories: Sequence[str], other: str | None) -> dict[str, Any]:
    """Return the fields of a mechanism that the digest covers: probabilities as numerators, so that equal bits have equal digests."""
    return {
        "categories": list(categories),
        **params.mechanism.digest_fields,
        "hash_scheme": params.hash_scheme,
        "num_bits": params.num_bits,
        "num_cohorts": params.num_cohorts,
        "num_hashes": params.num_hashes,
        "other": other,
    }


def mechanism_to_dict(params: Params, categories: Sequence[str], other: str | None) -> dict[str, Any]:
    """Return a mechanism as JSON values; `mechanism_from_dict` reads them."""
    return {
        "hash_scheme": params.hash_scheme,
        "num_bits": params.num_bits,
        "num_hashes": params.num_hashes,
        "num_cohorts": params.num_cohorts,
        **params.mechanism.fields,
        "categories": list(categories),
        "other": other,
    }


def mechanism_from_dict(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mechanism of JSON values as arguments of Metric: params, categories, other. Raises KeyError or TypeError."""
    params = Params(
        num_bits=fields["num_bits"],
        num_hashes=fields["num_hashes"],
        num_cohorts=fields["num_cohorts"],
        prob_p=fields["prob_p"],
        prob_q=fields["prob_q"],
        **{name: fields[name] for name in PERMANENT_FIELDS if name in fields},
        hash_scheme=fields["hash_scheme"],
    )
    return {"params": params, "categories": tuple(fields["categories"]), "other": fields["other"]}
