"""Names in deploy/ and docs/how-to exist in the code: commands, options, variables, metrics, labels and ports."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import promql_parser
import pytest
import yaml
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from hubbub.cli import main
from hubbub.defaults import LOOPBACK, SECOND_SERVICE_PORT, SERVICE_PORT
from hubbub.wire.problems import ProblemType
from hubbub_aggregator.cli.fold import write_fold_textfile
from hubbub_aggregator.cli.serve import OTHER_VARIABLES, VARIABLE_PREFIX, configurable
from hubbub_aggregator.cli.serve import command as serve
from hubbub_aggregator.monitoring.jobs import JOBS
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_decoder.batch_decoding.run import Status
from hubbub_decoder.cli import decode_all, publish
from hubbub_decoder.data.prometheus_textfile import write_run_textfile
from hubbub_decoder.publishing.plan import PeriodStatus
from tests.support.paths import DEPLOY, DOCS, REPOSITORY

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch, StartAggregator

PAGES = sorted((DOCS / "how-to").glob("*.md"))
TEXTS = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
DEFINITIONS = REPOSITORY / "examples" / "metrics.toml"
SCRAPED = {"job", "instance"}
"""Labels that Prometheus adds to each sample. A label of the same name becomes exported_job."""

COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
RESOURCES: list[dict[str, Any]] = [
    resource
    for manifest in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for resource in yaml.safe_load_all(manifest.read_text())
]
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()


def unknown_part(arguments: list[str]) -> str | None:
    """Return the part of a `hubbub` command line that does not exist; None if all of it does.

    >>> unknown_part(["db", "upgrade", "--database", "x"])
    >>> unknown_part(["db", "upgrad"]), unknown_part(["serve", "metrics.toml", "--prot", "1"])
    ('upgrad', '--prot')
    """
    command: click.Command = main
    context = click.Context(main, **main.context_settings)  # click keeps the names of the help option
    while isinstance(command, click.Group):
        name, *arguments = arguments or [""]
        found = command.get_command(context, name)
        if found is None:
            return name
        command, context = found, click.Context(found, parent=context)
    options = {text for parameter in command.get_params(context) for text in parameter.opts} | {"--help"}
    given = (argument.partition("=")[0].rstrip(",") for argument in arguments)
    return next((option for option in given if re.match(r"--?[a-z]", option) and option not in options), None)


def written_commands(text: str) -> Iterator[list[str]]:
    """Yield the arguments of each `hubbub` command of a text, without redirections and what follows a pipe.

    >>> [*written_commands("$ sudo -u hubbub /opt/hubbub/bin/hubbub token create ci > file; hubbub db check && x")]
    [['token', 'create', 'ci'], ['db', 'check']]
    """
    joined = text.replace("\\\n", " ")
    names = "|".join(main.list_commands(click.Context(main)))
    for command in re.findall(rf"(?:^|[ /(=`])hubbub ((?:{names}) [^\n;&|>`#]*)", joined, re.MULTILINE):
        yield shlex.split(command)


def code_of(page: Path) -> str:
    """Return the fenced blocks of a page that have commands, and its indented commands."""
    text = page.read_text()
    fenced = re.findall(r"^ *```(.*?)\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
    shown = [block for language, block in fenced if language in {"", "sh", "console"}]
    return "\n".join([*shown, *re.findall(r"^ {4,}hubbub .*", text, re.MULTILINE)])


def commands() -> list[list[str]]:
    """Return the arguments of each `hubbub` command in deploy/ and in the pages."""
    found = [arguments for path in TEXTS for arguments in written_commands(path.read_text(errors="replace"))]
    found += [arguments for page in PAGES for arguments in written_commands(code_of(page))]
    found += [
        service["command"]
        for name, service in COMPOSE["services"].items()
        if service.get("image", "").startswith("hubbub") and "command" in service
    ]
    found += [container["args"] for container in containers() if "args" in container]
    return [*found, json.loads(re.findall(r"^CMD (.+)", CONTAINERFILE, re.MULTILINE)[-1])]


def containers() -> list[dict[str, Any]]:
    pods = [resource["spec"]["template"]["spec"] for resource in RESOURCES if "template" in resource.get("spec", {})]
    return [container for pod in pods for container in pod["containers"]]


def test_commands_and_their_options_exist() -> None:
    found = commands()
    assert {"serve", "db"} <= {arguments[0] for arguments in found}
    assert [(arguments, part) for arguments in found if (part := unknown_part(arguments))] == []


def test_files_of_the_pages_exist() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    named = set(re.findall(r"(?<![\w/])(?:deploy|examples)/[\w./@-]*\w", text))
    assert len(named) > 10
    assert [name for name in named if not (REPOSITORY / name).exists()] == []


def test_each_alert_has_a_section_that_its_runbook_names() -> None:
    page = (DOCS / "how-to" / "alerts.md").read_text()
    names = [rule["alert"] for rule in rules()]
    assert re.findall("^## (.+)", page, re.MULTILINE) == names
    assert [rule["annotations"]["runbook"] for rule in rules()] == [
        f"docs/how-to/alerts.md#{name.lower()}" for name in names
    ]
    assert f" has {len(names)} alerts for Prometheus" in page


def test_environment_variables_exist() -> None:
    options = configurable(click.Context(serve))
    known = {f"{VARIABLE_PREFIX}_{name.upper()}" for name in (*options, "config")}
    used = {
        name
        for text in (
            *(path.read_text(errors="replace") for path in TEXTS),
            *(code_of(page) for page in PAGES),
        )
        for name in re.findall(r"\bHUBBUB_[A-Z_]+\b", text)
    }
    assert "HUBBUB_TRUSTED_PROXY" in used
    assert [name for name in used if name not in known and not OTHER_VARIABLES.fullmatch(name)] == []


def environments() -> dict[str, dict[str, str]]:
    """Return the variables of the aggregator in each kind of deployment."""
    image = dict(re.findall(r"\b(HUBBUB_[A-Z_]+)=(\S+)", CONTAINERFILE))
    compose = COMPOSE["services"]["replica-1"]["environment"]
    kubernetes = {
        variable["name"]: variable["value"] for container in containers() for variable in container.get("env", [])
    }
    return {"image": image, "compose": image | compose, "kubernetes": image | kubernetes}


@pytest.mark.parametrize("where", ["image", "compose", "kubernetes"])
def test_values_of_variables_are_accepted(where: str) -> None:
    environment = {name: re.sub(r"\$\{[^}]*\}", "x", value) for name, value in environments()[where].items()}
    result = CliRunner().invoke(main, ["serve", str(DEFINITIONS), "--print-config"], env=environment)
    assert result.exit_code == 0, result.output
    assert "WARNING" not in result.output
    printed = set(re.findall(r"^(\w+) = .* # environment$", result.stdout, re.MULTILINE))
    assert printed == {name.removeprefix("HUBBUB_").lower() for name in environment}


def test_configuration_file_of_systemd_is_accepted() -> None:
    config = DEPLOY / "systemd" / "hubbub.toml"
    result = CliRunner().invoke(main, ["serve", str(DEFINITIONS), "--config", str(config), "--print-config"])
    assert result.exit_code == 0, result.output
    assert "  # file" in result.stdout


def test_ports_and_addresses_agree() -> None:
    port = SERVICE_PORT
    services = COMPOSE["services"]
    addresses = [services[name]["networks"]["inner"]["ipv4_address"] for name in ("replica-1", "replica-2")]
    servers = re.findall(r"server (\S+) max_fails", (DEPLOY / "compose" / "upstream.conf").read_text())
    assert servers == [f"{address}:{port}" for address in addresses]
    proxy = services["nginx"]["networks"]["inner"]["ipv4_address"]
    assert ip_network(services["replica-1"]["environment"]["HUBBUB_TRUSTED_PROXY"]) == ip_network(f"{proxy}/32")

    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"][0]
    assert scraped["static_configs"][0]["targets"] == [f"replica-1:{port}", f"replica-2:{port}"]
    assert re.findall(r"^EXPOSE (\d+)", CONTAINERFILE, re.MULTILINE) == [str(port)]
    assert f"http://127.0.0.1:{port}/livez" in services["replica-1"]["healthcheck"]["test"][-1]
    assert [container["ports"] for container in containers() if "ports" in container] == [
        [{"name": "http", "containerPort": port}]
    ]

    on_the_host = [f"{LOOPBACK}:{port}", f"{LOOPBACK}:{SECOND_SERVICE_PORT}"]
    assert re.findall(r"server (\S+) max_fails", (DEPLOY / "nginx" / "upstream.conf").read_text()) == on_the_host
    assert " ".join(on_the_host) in (DEPLOY / "caddy" / "Caddyfile").read_text()


def test_paths_of_probes_exist(start: StartAggregator, sqlite_store: SqlStore) -> None:
    aggregator = start(sqlite_store)
    probes = [
        container[kind]["httpGet"]["path"] for container in containers() for kind in container if kind.endswith("Probe")
    ]
    assert probes == ["/livez", "/livez", "/readyz"]
    assert [aggregator.get(path).status for path in probes] == [200, 200, 200]


def test_limits_of_nginx_agree_with_the_aggregators() -> None:
    """nginx refuses no request that the aggregator would accept, and bodies end by the same time limit."""
    text, settings = (DEPLOY / "nginx" / "hubbub.conf").read_text(), Settings()

    def value(pattern: str) -> float:
        found = re.search(pattern, text)
        assert found, pattern
        return float(found[1])

    assert value(r"client_max_body_size (\d+)m;") * 2**20 > settings.max_body
    assert value(r"client_body_buffer_size (\d+)m;") == value(r"client_max_body_size (\d+)m;")
    assert value(r"client_body_timeout (\d+)s;") == settings.max_body_seconds
    assert value(r"rate=(\d+)r/s;") == settings.client_rate
    assert value(r"burst=(\d+) ") <= settings.client_rate * settings.client_burst_seconds
    assert value(r"limit_conn hubbub_connections (\d+);") <= settings.max_network_connections


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())["panels"]
    return found


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def without_variables(query: str) -> str:
    """Return a query of the dashboard with an interval in place of Grafana's variable."""
    return query.replace("$__rate_interval", "1m")


def dashboard_queries() -> list[str]:
    return [without_variables(target["expr"]) for panel in panels() for target in panel["targets"]]


def queries() -> list[str]:
    """Return the queries of the dashboard and of the alerts."""
    return [*dashboard_queries(), *(rule["expr"] for rule in rules())]


Selector = tuple[str, dict[str, str]]


def selectors(expression: Any) -> Iterator[Selector]:
    """Yield the name and the label matchers of each metric in a query."""
    match expression:
        case promql_parser.VectorSelector():
            yield str(expression.name), {matcher.name: matcher.value for matcher in expression.matchers.matchers}
        case promql_parser.MatrixSelector():
            yield from selectors(expression.vector_selector)
        case promql_parser.BinaryExpr():
            yield from selectors(expression.lhs)
            yield from selectors(expression.rhs)
        case promql_parser.Call():
            for argument in expression.args:
                yield from selectors(argument)
        case (
            promql_parser.AggregateExpr()
            | promql_parser.ParenExpr()
            | promql_parser.UnaryExpr()
            | promql_parser.SubqueryExpr()
        ):
            yield from selectors(expression.expr)
        case promql_parser.NumberLiteral() | promql_parser.StringLiteral():
            pass
        case _:
            raise TypeError(type(expression))


@pytest.fixture
def exposed(
    start: StartAggregator,
    sqlite_store: SqlStore,
    make_batch: MakeBatch,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> dict[str, set[str]]:
    """Labels of each sample of an aggregator's /metrics and of `--prometheus-textfile` of other commands, by name."""
    aggregator = start(sqlite_store, free=lambda: 1 << 40)
    metric = aggregator.definitions["homepage"]
    monkeypatch.setattr(sqlite_store, "implausible_periods", lambda: {(metric.digest, "ones"): 1})
    aggregator.post(make_batch(metric))
    aggregator.get("/nothing")
    labels: dict[str, set[str]] = {"up": set()}
    write_fold_textfile(tmp_path / "fold.prom", [], ended=0, seconds=0)
    write_run_textfile(tmp_path / "publish.prom", publish.figures_of([], ended=0))
    write_run_textfile(tmp_path / "decode_all.prom", decode_all.figures_of([], [], ended=0))
    texts = [(tmp_path / name).read_text() for name in ("fold.prom", "publish.prom", "decode_all.prom")]
    text = "".join([aggregator.get("/metrics").body.decode(), *texts])
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(
                "exported_job" if name == "job" else name for name in sample.labels
            )
    return labels


def test_metrics_and_labels_of_queries_exist(exposed: dict[str, set[str]]) -> None:
    found = [selector for query in queries() for selector in selectors(promql_parser.parse(query))]
    assert len({name for name, _ in found}) > 15
    assert [name for name, _ in found if name not in exposed] == []
    assert [(name, label) for name, wanted in found for label in wanted if label not in exposed[name] | SCRAPED] == []
    for query in queries():
        names = {name for name, _ in selectors(promql_parser.parse(query))}
        available = set().union(*(exposed[name] for name in names)) | SCRAPED
        grouped = {label.strip() for labels in re.findall(r"\bby \(([^)]*)\)", query) for label in labels.split(",")}
        assert grouped <= available, query


def test_values_of_labels_exist() -> None:
    results = {"stored", "duplicate", *(problem.slug for problem in ProblemType)}
    values = {
        "result": results,
        "exported_job": set(JOBS),
        "job": {"hubbub", "node"},
        "status": {"folded", "failed", *PeriodStatus, *Status},
    }
    found = [selector for query in queries() for selector in selectors(promql_parser.parse(query))]
    found += [
        selector
        for case in yaml.safe_load((DEPLOY / "prometheus" / "alerts_test.yml").read_text())["tests"]
        for series in case["input_series"]
        for selector in selectors(promql_parser.parse(series["series"]))
    ]
    wrong = [
        (label, value)
        for _, matchers in found
        for label, text in matchers.items()
        for value in text.split("|")
        if label in values and value not in values[label]
    ]
    assert wrong == []


def test_legends_and_annotations_name_labels_of_their_query(exposed: dict[str, set[str]]) -> None:
    texts = [(target["expr"], target["legendFormat"]) for panel in panels() for target in panel["targets"]]
    texts += [(rule["expr"], text) for rule in rules() for text in rule["annotations"].values()]
    for expr, text in texts:
        names = {name for name, _ in selectors(promql_parser.parse(without_variables(expr)))}
        available = set().union(*(exposed[name] for name in names)) | SCRAPED
        assert set(re.findall(r"{{ ?(?:\$labels\.)?([a-z]\w*) ?}}", text)) <= available, text
