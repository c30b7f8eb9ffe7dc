"""Decode the JSON of a batch in time proportional to its size.

A body holds six fields (docs/reference/format.md). Unknown fields are skipped without building Python objects, so that deeply nested
lists cost no more than a scan of their bytes. The parser holds the interpreter lock, so a thread would not help:
the definitions bound the size instead (`ActiveDefinitions.largest_batch`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from hubbub.wire.batch import Batch
from hubbub.wire.problems import ProblemType, RefusedError

_MAX_FIELDS: Final = 64
_MAX_NAME_LENGTH: Final = 64  # characters


class _Fields(msgspec.Struct):
    batch_id: str
    metric: str
    digest: str
    period: str
    cohorts: list[int]
    bits: str


class _Name(str):
    """Name of a field at the top level; a type of its own, so that `dec_hook` is called for each."""

    __slots__ = ()


_decoder = msgspec.json.Decoder(_Fields)


def decode_batch(body: bytes) -> Batch:
    """Decode a body; RefusedError with the reason if it is not a batch.

    Each name may occur once at the top level. A body with six colons and all six required fields has no repeated and no
    other field, so that only the names in other bodies are checked one by one.
    """
    try:
        fields = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
        raise RefusedError(ProblemType.MALFORMED, _describe(problem, len(body))) from None
    if body.count(b":") != len(_Fields.__struct_fields__):
        _check_field_names(body)
    return Batch.from_fields(fields.batch_id, fields.metric, fields.digest, fields.period, fields.cohorts, fields.bits)


def _describe(problem: Exception, size: int) -> str:
    """Return the difference between a body and a batch, without content of the body."""
    if isinstance(problem, msgspec.ValidationError):
        return f"the body is not a batch: {problem}"[:200]
    return f"the body is not JSON ({size} bytes)"


def _check_field_names(body: bytes) -> None:
    """Refuse repeated, long and too many field names: two parsers could read two different batches from such a body."""
    names: set[str] = set()

    def check(_type: type, name: str) -> _Name:
        if len(name) > _MAX_NAME_LENGTH:
            raise ValueError(f"a field's name has at most {_MAX_NAME_LENGTH} characters, got {len(name)}")
        if name in names:
            raise ValueError("a field occurs twice")
        names.add(name)
        if len(names) > _MAX_FIELDS:
            raise ValueError(f"a batch has at most {_MAX_FIELDS} fields")
        return _Name(name)

    try:
        msgspec.json.decode(body, type=dict[_Name, msgspec.Raw], dec_hook=check)
    except (msgspec.ValidationError, RecursionError) as problem:
        raise RefusedError(ProblemType.MALFORMED, str(problem).partition(" - at")[0]) from None
