"""Reference pages: problem types and metrics of the service are generated from the code, configuration is compared with it.

HUBBUB_TEST_PIN=1 pytest tests/contracts/test_docs_reference.py          rewrites docs/reference/problem-types.md, service-metrics.md and certificate.md
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from hubbub import Client, Limits, Policy, ProblemType
from hubbub.cli import main
from hubbub_aggregator.store.sql_store import SqlStore
from tests.support.paths import DOCS, REPOSITORY

if TYPE_CHECKING:
    from tests.aggregator.conftest import StartAggregator

PROBLEM_TYPES = DOCS / "reference" / "problem-types.md"
CERTIFICATE = DOCS / "reference" / "certificate.md"
SERVICE_METRICS = DOCS / "reference" / "service-metrics.md"
CONFIGURATION = (DOCS / "reference" / "configuration.md").read_text(encoding="utf-8")


def problem_types() -> str:
    """Return docs/reference/problem-types.md."""
    rows = [f"| `{problem.slug}` | {problem.status} | {problem.meaning} |" for problem in ProblemType]
    return "\n".join(
        [
            "# Problem types",
            "",
            "This page is generated from `client/hubbub/wire/problems.py`.",
            "Every error of the aggregator is `application/problem+json` (RFC 9457).",
            "Its `type` is `/problems/` and the slug below; the aggregator serves a page at this address.",
            "By type and status, clients [recognize](format.md#answers-to-a-batch) an answer of the aggregator.",
            "[Retry policy](../how-to/client.md#retry-policy) has the client's action for each.",
            "[Error responses](../how-to/no-reports.md#error-responses) has their causes.",
            "",
            "| slug | status | meaning |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def service_metrics(exposition: str) -> str:
    """Return docs/reference/service-metrics.md for the text of /metrics. Metrics of the Python process are left out."""
    rows = []
    for family in text_string_to_metric_families(exposition):
        if family.name.startswith("hubbub_") and not family.name.endswith("_created"):
            labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
            name = f"{family.name}_total" if family.type == "counter" else family.name
            shown = ", ".join(f"`{label}`" for label in labels)
            rows.append(f"| `{name}` | {family.type} | {shown} | {family.documentation.replace('|', chr(92) + '|')} |")
    return "\n".join(
        [
            "# Metrics of the service",
            "",
            "This page is generated from `GET /metrics` of a new aggregator, in the format of Prometheus.",
            "[Alerts](../how-to/alerts.md) has a section for each alert, and [Monitoring](../how-to/monitoring.md#metrics) explains the labels.",
            "Labels are missing where a metric has no sample yet.",
            "",
            "| name | type | labels | meaning |",
            "|---|---|---|---|",
            *sorted(rows),
            "",
        ]
    )


def test_problem_types_page_is_current() -> None:
    if os.environ.get("HUBBUB_TEST_PIN"):
        PROBLEM_TYPES.write_text(problem_types())
    assert PROBLEM_TYPES.read_text(encoding="utf-8") == problem_types()


def test_service_metrics_page_is_current(start: StartAggregator, sqlite_store: SqlStore) -> None:
    page = service_metrics(start(sqlite_store).get("/metrics").body.decode())
    if os.environ.get("HUBBUB_TEST_PIN"):
        SERVICE_METRICS.write_text(page)
    assert SERVICE_METRICS.read_text(encoding="utf-8") == page


def test_certificate_page_shows_its_checker() -> None:
    page = CERTIFICATE.read_text(encoding="utf-8")
    checker = CERTIFICATE.with_name("certificate_checker.py").read_text(encoding="utf-8")
    shown = f"{page.partition('```python')[0]}```python\n{checker}```\n"
    if os.environ.get("HUBBUB_TEST_PIN"):
        CERTIFICATE.write_text(shown)
    assert CERTIFICATE.read_text(encoding="utf-8") == shown


def test_certificate_page_shows_what_its_commands_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = CERTIFICATE.read_text(encoding="utf-8")
    transcripts = dict(re.findall(r"^\$ (\S+) .*\n([^`]+)```", page, flags=re.MULTILINE))
    monkeypatch.chdir(tmp_path)
    command = [
        "metrics",
        "certificate",
        str(REPOSITORY / "examples" / "metrics.toml"),
        "homepage",
        "--out",
        "homepage.json",
    ]
    assert CliRunner().invoke(main, command).stderr == transcripts["hubbub"]
    checker = CERTIFICATE.with_name("certificate_checker.py")
    printed = subprocess.run([sys.executable, checker, "homepage.json"], capture_output=True, text=True, check=True)
    assert printed.stdout == transcripts["python"]


def test_configuration_page_has_every_policy_and_limit_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `((?:Policy|Limits)\.\w+)` \| ([\d,]+) \|", CONFIGURATION, flags=re.MULTILINE))
    defaults = {
        f"{settings.__name__}.{field.name}": f"{field.default:,.0f}"
        for settings in (Policy, Limits)
        for field in dataclasses.fields(settings)
    }
    assert rows == defaults


def test_configuration_page_names_every_variable_that_the_code_reads() -> None:
    sources = [
        path.read_text(encoding="utf-8")
        for package in ("client/hubbub", "aggregator/hubbub_aggregator", "decoder/hubbub_decoder")
        for path in (REPOSITORY / package).rglob("*.py")
    ]
    read = r'environ(?:ment)?(?:\.get\(|\.setdefault\(|\[)\s*"([A-Z_]+)"|envvar="([A-Z_]+)"'
    names = {name for source in sources for found in re.findall(read, source) for name in found if name}
    assert {"DO_NOT_TRACK", "HUBBUB_DATABASE", "SSL_CERT_FILE"} <= names
    assert {name for name in names if f"`{name}`" not in CONFIGURATION} == set()


def test_client_page_lists_every_argument_of_the_constructor() -> None:
    """Required arguments are in the page's first example."""
    table = (
        (DOCS / "how-to" / "client.md")
        .read_text(encoding="utf-8")
        .partition("## Constructor options")[2]
        .partition("## Consent")[0]
    )
    listed = re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)
    parameters = [
        name
        for name, parameter in inspect.signature(Client).parameters.items()
        if parameter.default is not parameter.empty
    ]
    assert sorted(listed) == sorted(parameters)


def test_help_of_every_command_has_an_example_and_whole_summaries() -> None:
    names = sorted(entry.name for entry in entry_points(group="hubbub.commands"))
    for path in ([], *([name] for name in names)):
        shown = CliRunner().invoke(main, [*path, "--help"]).stdout
        assert re.search(rf"Examples?:\n    {' '.join(['hubbub', *path])} ", shown), path
        assert "..." not in shown.partition("Commands:")[2], path
