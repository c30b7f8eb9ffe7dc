"""Decode the JSON of a batch in time proportional to its size.

A body holds six fields (docs/reference/format.md). Unknown fields are skipped without building Python objects, so that deeply nested
lists cost no more than a scan of their bytes. The decoder holds the interpreter lock, so a thread would not help:
the definitions bound the size instead (`ActiveDefinitions.largest_batch`).
"""

from __future__ import annotations

import msgspec

from hubbub.wire.batch import Batch, FieldNames, Fields
from hubbub.wire.problems import ProblemType, RefusedError


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
    """Decode a body; RefusedError with the reason if it is not a batch."""
    return Batch.from_json(body, _read_fields)


def _read_fields(body: bytes) -> Fields:
    """Return the fields of a body.

    A body with six colons and all six required fields has no repeated and no other field, so that only the names in other
    bodies are checked one by one.
    """
    try:
        fields = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
        raise RefusedError(ProblemType.MALFORMED, _describe(problem, len(body))) from None
    if body.count(b":") != len(_Fields.__struct_fields__):
        _check_field_names(body)
    return fields.batch_id, fields.metric, fields.digest, fields.period, fields.cohorts, fields.bits


def _describe(problem: Exception, size: int) -> str:
    """Return the difference between a body and a batch, without content of the body."""
    if isinstance(problem, msgspec.ValidationError):
        return f"the body is not a batch: {problem}"[:200]
    return f"the body is not JSON ({size} bytes)"


def _check_field_names(body: bytes) -> None:
    names = FieldNames()

    def check(_type: type, name: str) -> _Name:
        names.add(name)
        return _Name(name)

    try:
        msgspec.json.decode(body, type=dict[_Name, msgspec.Raw], dec_hook=check)
    except (msgspec.ValidationError, RecursionError) as problem:
        raise RefusedError(ProblemType.MALFORMED, str(problem)) from None
