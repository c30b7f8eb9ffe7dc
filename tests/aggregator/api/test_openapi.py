"""Requests that schemathesis generates from the OpenAPI document, for every route; responses must match the document.

    HUBBUB_TEST_CASES=1000 pytest tests/aggregator/api/test_openapi.py     # as `make soak` does

The document has a media type and schema for every status. For every problem response it has the form of RFC 9457 with the
problem types of that status. Schemathesis checks both.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hubbub import Definitions
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_aggregator.store.tokens import Scope, Token, hash_secret
from tests.aggregator.conftest import Aggregator, running

NUM_CASES = os.environ.get("HUBBUB_TEST_CASES", "10")  # per route, in addition to boundary cases of the document
BEYOND_THE_DOCUMENT = "positive_data_acceptance"  # the document cannot express whether a batch fits its metric
KNOWN = '[parameters]\n"path.name" = "homepage"\n"path.slug" = "malformed"\n'


@pytest.fixture(scope="module")
def guarded(definitions: Definitions, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aggregator]:
    """An aggregator that requires a token on every route where it is possible."""
    store = SqlStore.open(tmp_path_factory.mktemp("schema") / "reports.db")
    store.add_token(Token("everyone", frozenset(Scope)), hash_secret("everything"))
    with running(definitions, store, Settings(require_report_token=True)) as aggregator:
        yield aggregator
    store.close()


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("config", "headers"),
    [("", ()), (KNOWN, ("--header", "Authorization: Bearer everything"))],
    ids=["without a token, of what is not there", "with one, of what is"],
)
def test_responses_match_openapi_document_and_requests_are_not_logged(
    guarded: Aggregator,
    config: str,
    headers: tuple[str, ...],
    tmp_path: Path,
    unseen_seed: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "schemathesis.toml").write_text(config)
    tool = Path(sys.executable).parent / "schemathesis"
    options = ["--seed", str(unseen_seed), "--max-examples", NUM_CASES, "--generation-database", "none"]
    options += ["--phases", "coverage,fuzzing", "--exclude-checks", BEYOND_THE_DOCUMENT, "--no-color", *headers]
    with caplog.at_level(logging.DEBUG):
        caplog.clear()
        done = subprocess.run(
            [tool, "run", f"{guarded.url}/openapi.json", *options],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    generated = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert generated, done.stdout
    assert int(generated[1]) > 100
    routes = re.search(r"(\d+) selected / (\d+) total", done.stdout)
    assert routes, done.stdout
    assert routes[1] == routes[2] == re.findall(r"Tested: (\d+)$", done.stdout, re.MULTILINE)[0]
    assert not [record.getMessage() for record in caplog.records if record.name.startswith(("hubbub", "fastapi"))]
