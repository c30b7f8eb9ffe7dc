"""The guard itself never raises, also at the interpreter's end."""

from __future__ import annotations

import linecache

import pytest

from hubbub.sdk.runtime import error_guard


def test_guard_imports_and_reads_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """In a late `__del__` on Python 3.13, `traceback.extract_tb` imports a module, which raised ImportError into the host."""

    def fail(*_: object) -> None:
        raise ImportError("sys.meta_path is None, Python is likely shutting down")

    monkeypatch.setattr(linecache, "checkcache", fail)
    monkeypatch.setattr(error_guard, "suppress_internal_errors", True)
    assert error_guard.call_safely(lambda: 1 // 0, 7) == 7
    assert "ZeroDivisionError in <lambda>, line" in caplog.text
