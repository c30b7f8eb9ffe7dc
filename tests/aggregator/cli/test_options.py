"""Options of `hubbub serve`: precedence of their sources, and errors of invalid ones."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hubbub import ParameterError
from hubbub.cli import main
from hubbub_aggregator.cli.serve import command as serve
from hubbub_aggregator.settings import Settings
from tests.aggregator.conftest import DEFINITIONS


def test_options_precedence_flag_environment_file(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text('port = 1\nmax-body = 1\nmax_commit_bytes = 1\nkeep_counts = ["homepage=3"]\n')
    (definitions := tmp_path / "metrics.toml").write_text(DEFINITIONS)
    arguments = [str(definitions), "--config", str(file), "--port", "3", "--print-config"]
    result = CliRunner().invoke(serve, arguments, env={"HUBBUB_PORT": "2", "HUBBUB_MAX_BODY": "2"}).stdout.splitlines()
    assert {"port = 3  # commandline", 'max_body = "2"  # environment', 'max_commit_bytes = "1"  # file'} <= set(result)
    assert {'keep_counts = ["homepage=3"]  # file', 'host = "127.0.0.1"  # default'} <= set(result)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("port = ", "is not TOML: Invalid value"),
        ("prot = 1", "unknown option 'prot'"),
        ("print_config = true", "unknown option 'print_config'"),
        ('config = "other.toml"', "unknown option 'config'"),
        ("port = true", "port = true: must not be true or false"),
        ("port = 1.5", "port = 1.5: '1.5' is not a valid integer"),
        ("port = 70000", "port = 70000: 70000 is not in the range"),
        ('keep_counts = "homepage=3"', "write a list"),
        ('keep_counts = ["homepage"]', "got 'homepage': write NAME=N"),
        ("local_reads_without_token = 1", "write true or false"),
        ('max_body = "2 MB"', "'2 MB' is not a size: write a number of bytes, or 512KiB, 2MiB, 1GiB"),
    ],
)
def test_config_errors_name_file_and_value(tmp_path: Path, line: str, message: str) -> None:
    (file := tmp_path / "serve.toml").write_text(line + "\n")
    (definitions := tmp_path / "metrics.toml").write_text(DEFINITIONS)
    result = CliRunner().invoke(serve, [str(definitions), "--config", str(file), "--print-config"])
    assert result.exit_code == 2
    assert message in result.output
    assert str(file) in result.output or "keep" in line


def test_missing_config_file_is_a_usage_error(tmp_path: Path) -> None:
    (definitions := tmp_path / "metrics.toml").write_text(DEFINITIONS)
    result = CliRunner().invoke(serve, [str(definitions), "--config", str(tmp_path / "nowhere.toml")])
    assert result.exit_code == 2
    assert "nowhere.toml: cannot be read: No such file or directory" in result.output


def test_sizes_accept_units(tmp_path: Path) -> None:
    (definitions := tmp_path / "metrics.toml").write_text(DEFINITIONS)
    for given, shown in (("2097152", "2 MiB"), ("512KiB", "512 KiB"), ("1 GiB", "1 GiB"), ("1000", "1000")):
        result = CliRunner().invoke(serve, [str(definitions), "--max-queue-bytes", given, "--print-config"])
        assert f'max_queue_bytes = "{shown}"  # commandline' in result.stdout.splitlines()


@pytest.mark.parametrize(
    "options",
    [["--max-body", "0"], ["--cors-origin", "example.org"], ["--keep-counts", "x"]],
)
def test_print_config_rejects_invalid_options(tmp_path: Path, options: list[str]) -> None:
    (definitions := tmp_path / "metrics.toml").write_text(DEFINITIONS)
    assert CliRunner().invoke(serve, [str(definitions), "--print-config", *options]).exit_code == 2
    definitions.unlink()
    assert CliRunner().invoke(main, ["serve", str(definitions), "--print-config"]).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-body", "0"], "--max-body (HUBBUB_MAX_BODY) must be above 0, got 0"),
        (
            ["--max-body", "1GiB"],
            "--max-body-memory (HUBBUB_MAX_BODY_MEMORY) must be at least 8 times --max-body (HUBBUB_MAX_BODY), got ",
        ),
        (
            ["--keep-counts", "max_body=10001"],
            "--keep-counts (HUBBUB_KEEP_COUNTS) must be 0 to 10000 periods, got 10001 for max_body",
        ),
        (
            ["--trusted-proxy", "max_body"],
            "--trusted-proxy (HUBBUB_TRUSTED_PROXY) must be a network, such as 10.0.0.0/8, or an address, got 'max_body': ",
        ),
    ],
)
@pytest.mark.parametrize("command", ["serve", "doctor"])
def test_errors_of_settings_name_option_and_variable(
    tmp_path: Path, command: str, arguments: list[str], message: str
) -> None:
    (definitions := tmp_path / "metrics.toml").write_text(DEFINITIONS)
    done = CliRunner().invoke(main, [command, str(definitions), *arguments])
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"client_rate": "x"}, "client_rate must be a number, got 'x'"),
        ({"client_rate": True}, "client_rate must be a number, got True"),
        ({"max_body": 1.5}, "max_body must be an integer, got 1.5"),
        ({"max_body": "1 MB"}, "max_body must be an integer, got '1 MB'"),
        ({"max_body": True}, "max_body must be an integer, got True"),
        ({"require_report_token": 1}, "require_report_token must be True or False, got 1"),
        ({"cors_origin": "https://a.example"}, "cors_origin must be a tuple of texts, got 'https://a.example'"),
        ({"keep_counts": {"homepage": "3"}}, "keep_counts must be a mapping of metric names to integers, got "),
        ({"keep_reports": ["homepage=3"]}, "keep_reports must be a mapping of metric names to integers, got "),
        ({"client_rate": math.nan}, "client_rate must be above 0 and finite, got nan"),
    ],
)
def test_settings_refuse_values_of_other_types(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(message)):
        Settings(**settings)


def test_warns_of_unknown_variables(tmp_path: Path) -> None:
    (definitions := tmp_path / "metrics.toml").write_text(DEFINITIONS)
    of_clients = {
        "HUBBUB_CONSENT": "off",
        "HUBBUB_URL": "https://example.org",
        "HUBBUB_DEBUG": "1",
        "HUBBUB_TEST_SEED": "x",
    }
    environment = {"HUBBUB_MAX_WAITING": "1", "HUBBUB_HELP": "1", "HUBBUB_TOKEN": "x", "HUBBUB_PORT": "3"} | of_clients
    done = CliRunner().invoke(main, ["serve", str(definitions), "--print-config"], env=environment)
    assert done.exit_code == 0
    assert "port = 3  # environment" in done.stdout.splitlines()
    warned = [line.partition(" is set")[0].split()[-1] for line in done.stderr.splitlines()]
    assert warned == ["HUBBUB_HELP", "HUBBUB_MAX_WAITING"]
