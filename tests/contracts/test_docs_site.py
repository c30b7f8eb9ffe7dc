"""The documentation site: builds without warnings, is complete, and needs no network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import click
import pytest

from hubbub.cli import main
from tests.contracts.test_api import PUBLIC_MODULES
from tests.contracts.test_docs_equations import equations
from tests.support.chromium import chromium, requested, require
from tests.support.paths import DOCS

pytestmark = pytest.mark.slow
PHONE_WIDTH = 390
SEARCH_RESULTS = """
    const links = [...document.querySelectorAll("#search-results ul.search li")].map((row) => row.querySelector("a").getAttribute("href"));
    return document.querySelector("#search-results").innerText.includes("Search finished") ? links : null;
"""


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(source), str(target)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    built = build(DOCS, target)
    assert built.returncode == 0, built.stderr
    return target


def page_of(site: Path, name: str) -> Path:
    """Return the HTML file of a page, in whichever folder it is."""
    (path,) = site.rglob(f"{name}.html")
    return path


def test_page_outside_the_navigation_fails_the_build(tmp_path: Path) -> None:
    shutil.copy(DOCS / "conf.py", tmp_path)
    shutil.copytree(DOCS / "_sphinx", tmp_path / "_sphinx")
    (tmp_path / "index.md").write_text("# Index\n")
    assert build(tmp_path, tmp_path / "out").returncode == 0
    (tmp_path / "lost.md").write_text("# Lost\n")
    built = build(tmp_path, tmp_path / "out")
    assert built.returncode != 0
    assert "lost.md: WARNING: document isn't included in any toctree" in built.stderr


def test_broken_link_fails_the_build(tmp_path: Path) -> None:
    shutil.copy(DOCS / "conf.py", tmp_path)
    shutil.copytree(DOCS / "_sphinx", tmp_path / "_sphinx")
    (tmp_path / "index.md").write_text("# Index\n\n[here](#no-such-heading)\n")
    built = build(tmp_path, tmp_path / "out")
    assert built.returncode != 0
    assert "no-such-heading" in built.stderr


def commands_of(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield the full name of each command below a group, and the command."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for each in command.list_commands(context):
        below = command.get_command(context, each)
        assert below
        yield from commands_of(below, f"{name} {each}")


def test_every_command_and_option_is_in_the_reference(site: Path) -> None:
    for name, command in commands_of(main, "hubbub"):
        page = (site / "reference" / "commands" / f"{name.split()[1]}.html").read_text(encoding="utf-8")
        text = unescape(re.sub(r"<[^>]+>", "", page))
        usage = re.search(rf"^{name}( |$).*", text, flags=re.MULTILINE)
        assert usage, name
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                identifier = f'id="cmdoption-{name.replace(" ", "-")}-{parameter.opts[0].lstrip("-")}"'
                assert identifier in page, (name, parameter.opts[0])


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    """A class or function has a page, a type alias or constant is on the page of its module; the list links to them."""
    index = page_of(site, "api").read_text(encoding="utf-8")
    for module in PUBLIC_MODULES:
        for name in module.__all__:
            links = re.findall(rf'href="(python/{module.__name__}[\w.]*)\.html#{module.__name__}\.{name}"', index)
            assert links, (module.__name__, name)
            assert f'id="{module.__name__}.{name}"' in (site / "reference" / f"{links[0]}.html").read_text(
                encoding="utf-8"
            )


def test_pages_load_nothing_from_the_network(site: Path) -> None:
    loaded = r'<(?:script|img|iframe)[^>]+src="([^"]+)"|<link[^>]+href="([^"]+)"|url\(["\']?([^"\')]+)'
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        addresses = {each for found in re.findall(loaded, path.read_text(encoding="utf-8")) for each in found if each}
        assert not {each for each in addresses if each.startswith(("http:", "https:", "//"))}, path


def test_search_finds_commands_options_and_names_first(site: Path, tmp_path: Path) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    require()
    pages = {
        name.removeprefix("hubbub "): f"commands/{name.split()[1]}.html" for name, _ in commands_of(main, "hubbub")
    }
    pages |= {
        "--keep-reports": "commands/serve.html",
        "--longitudinal": "commands/plan.html",
        "Estimate": "python/hubbub_decoder.Estimate.html",
        "Client.record": "python/hubbub.Client.html",
        "Durability": "python/hubbub.typing.html",
    }
    with chromium(tmp_path / "profile") as browser:
        for query, page in pages.items():
            browser.get(f"{(site / 'search.html').as_uri()}?q={query}")
            shown = WebDriverWait(browser, 60).until(lambda _: browser.execute_script(SEARCH_RESULTS))
            decisions = [number for number, address in enumerate(shown) if address.startswith("decisions/")]
            assert any(address.startswith(f"reference/{page}") for address in shown[:3]), (query, shown[:3])
            assert decisions == [*range(len(shown) - len(decisions), len(shown))], query


@pytest.mark.parametrize("page", ["mathematics", "privacy"])
def test_equations_render_on_a_phone(site: Path, tmp_path: Path, page: str) -> None:
    """MathJax shows a wrong formula as an error, and an unknown command in red."""
    require()
    with chromium(tmp_path / "profile") as browser:
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": PHONE_WIDTH, "height": 844, "deviceScaleFactor": 1, "mobile": True},
        )
        browser.get(page_of(site, page).as_uri())
        browser.set_script_timeout(60)
        browser.execute_async_script("MathJax.startup.promise.then(arguments[0])")
        rendered, errors, width = browser.execute_script(
            "return [document.querySelectorAll('mjx-container').length,"
            " document.querySelectorAll('mjx-merror, mjx-container [style*=\"color: red\"]').length, document.documentElement.scrollWidth]"
        )
        assert (rendered, errors) == (len(equations(f"{page}.md")), 0)
        assert width == PHONE_WIDTH
        assert all(address.startswith(("file:", "data:")) for address in requested(browser))
