"""Counts that a test of publishing has in common with an earlier night or test are decoded once."""

from __future__ import annotations

from typing import Any

import pytest

from hubbub.summary import Summary, summary_to_bytes
from hubbub_decoder import decode
from hubbub_decoder.batch_decoding import run as batch_run

_decodings: dict[Any, Any] = {}


def decode_once(summary: Summary, candidates: Any, **options: Any) -> Any:
    """`decode`, which keeps its results."""
    names = None if candidates is None else tuple(candidates if isinstance(candidates, list) else candidates.groups)
    key = summary_to_bytes(summary), names, tuple(options.items())
    if key not in _decodings:
        _decodings[key] = decode(summary, candidates, **options)
    return _decodings[key]


@pytest.fixture(autouse=True)
def decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_run, "decode", decode_once)
