"""Decode the JSON of a batch, and bound its size: the work for one request is small whatever its bytes are.

A body holds six fields (docs/format.md). Unknown fields are skipped without building Python objects for them, so that
nested lists of any depth cost as much as scanning their bytes. The parser holds the interpreter's lock, so a thread
would not help: the size is bounded instead, by the definitions (`largest_batch`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from hubbub.wire.batch import Batch
from hubbub.wire.problems import ProblemType, RefusedError

_MOST_FIELDS: Final = 64
_LONGEST_NAME: Final = 64  # characters of a field's name


class _Fields(msgspec.Struct):
    batch_id: str
    metric: str
    digest: str
    period: str
    cohorts: list[int]
    bits: str


class _Name(str):
    """The name of a field at the top level; a type of its own, so that `dec_hook` sees each of them."""

    __slots__ = ()


_fields = msgspec.json.Decoder(_Fields)


def decode_batch(body: bytes) -> Batch:
    """Decode a body; whatever is not a batch raises RefusedError with the reason.

    Each name may occur once at the top level. Six colons and all six required fields mean that no name is repeated and
    that there is no other field: only other bodies have their names looked at one by one.
    """
    try:
        fields = _fields.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
        raise RefusedError(ProblemType.MALFORMED, _explained(problem, len(body))) from None
    if body.count(b":") != len(_Fields.__struct_fields__):
        _require_names(body)
    return Batch.from_fields(fields.batch_id, fields.metric, fields.digest, fields.period, fields.cohorts, fields.bits)


def _explained(problem: Exception, size: int) -> str:
    """Say where a body differs from a batch, without repeating what it holds."""
    if isinstance(problem, msgspec.ValidationError):
        return f"the body is not a batch: {problem}"[:200]
    return f"the body is not JSON ({size} bytes)"


def _require_names(body: bytes) -> None:
    """Refuse repeated, over-long and too many names of fields: two readers of such a body may see two batches."""
    names: set[str] = set()

    def see(_type: type, name: str) -> _Name:
        if len(name) > _LONGEST_NAME:
            raise ValueError(f"a field's name has at most {_LONGEST_NAME} characters, got {len(name)}")
        if name in names:
            raise ValueError("a field is there twice")
        names.add(name)
        if len(names) > _MOST_FIELDS:
            raise ValueError(f"a batch has at most {_MOST_FIELDS} fields")
        return _Name(name)

    try:
        msgspec.json.decode(body, type=dict[_Name, msgspec.Raw], dec_hook=see)
    except (msgspec.ValidationError, RecursionError) as problem:
        raise RefusedError(ProblemType.MALFORMED, str(problem).partition(" - at")[0]) from None
