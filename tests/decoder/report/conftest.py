"""Pages of a report, made once for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubbub_decoder import Decoding, Trends
from tests.support.report_pages import decode_load, decode_pages, write_report_pages


@pytest.fixture(scope="session")
def decodings() -> list[Decoding]:
    return decode_pages()


@pytest.fixture(scope="session")
def trends() -> Trends:
    return decode_load()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory, decodings: list[Decoding], trends: Trends) -> dict[str, Path]:
    return write_report_pages(tmp_path_factory.mktemp("report"), decodings, trends)
