"""The documentation site: builds without warnings, is complete, and needs no network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import click
import pytest
from selenium.webdriver.support.wait import WebDriverWait

from hubbub.cli import main
from tests.contracts.test_api import PUBLIC_MODULES
from tests.contracts.test_docs_questions import SEARCHES
from tests.support.browsers import axe_violations, start_browser
from tests.support.chromium import chromium, requested, require
from tests.support.paths import DOCS
from tests.support.search_queries import QUERIES

pytestmark = pytest.mark.slow
PHONE_WIDTH, DESKTOP_WIDTH = 390, 1280
SEARCH_RESULTS = """
    const links = [...document.querySelectorAll("#search-results ul.search li")].map((row) => row.querySelector("a").getAttribute("href"));
    const text = document.querySelector("#search-results").innerText;
    return text.includes("Search finished") || text.includes("did not match") ? links : null;
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


def test_page_outside_the_navigation_and_broken_link_fail_the_build(tmp_path: Path) -> None:
    shutil.copy(DOCS / "conf.py", tmp_path)
    shutil.copytree(DOCS / "_sphinx", tmp_path / "_sphinx")
    (tmp_path / "index.md").write_text("# Index\n\n[here](#no-such-heading)\n")
    (tmp_path / "lost.md").write_text("# Lost\n")
    built = build(tmp_path, tmp_path / "out")
    assert built.returncode != 0
    assert "lost.md: WARNING: document isn't included in any toctree" in built.stderr
    assert "no-such-heading" in built.stderr


def commands_of(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield the full name of each command below a group, and the command."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for subcommand in command.list_commands(context):
        below = command.get_command(context, subcommand)
        assert below
        yield from commands_of(below, f"{name} {subcommand}")


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
        addresses = {
            address for found in re.findall(loaded, path.read_text(encoding="utf-8")) for address in found if address
        }
        assert not {address for address in addresses if address.startswith(("http:", "https:", "//"))}, path


def shown_results(browser: Any) -> list[str]:
    """Addresses of the results in their order, as soon as the search has ended."""
    wait = WebDriverWait(browser, 60, poll_frequency=0.01)
    found: list[str] = wait.until(lambda _: browser.execute_script(SEARCH_RESULTS))
    return found


def searched(browser: Any, query: str) -> list[str]:
    """Addresses of the results in their order, with the index that the page has loaded; its scores look at its address."""
    browser.execute_script(
        "document.getElementById('search-results').replaceChildren();"
        " history.replaceState(null, '', '?q=' + encodeURIComponent(arguments[0])); Search.performSearch(arguments[0])",
        query,
    )
    return shown_results(browser)


def test_search_lists_references_and_answers_and_no_decision(site: Path, tmp_path: Path) -> None:
    """The reference of a name is among the first three results. The page that answers, or that of questions, is among the first ten."""
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
        browser.get(f"{(site / 'search.html').as_uri()}?q=plan")  # as the form of a page does
        shown = shown_results(browser)
        assert any(address.startswith("reference/commands/plan.html") for address in shown[:3]), shown[:3]
        for query, page in pages.items():
            shown = searched(browser, query)
            assert any(address.startswith(f"reference/{page}") for address in shown[:3]), (query, shown[:3])
            assert not [address for address in shown if address.startswith("decisions/")], query
        for words, page in SEARCHES.items():
            found = [address.partition("#")[0].partition("?")[0] for address in searched(browser, words)]
            answers = {page.replace(".md", ".html"), "questions.html"}
            assert answers & set(found[:10]), (words, found[:10])
            assert not [address for address in found if address.startswith("decisions/")], words


def test_search_finds_the_words_of_users(site: Path, tmp_path: Path) -> None:
    """The page that answers is among the first three results."""
    require()
    missed = {}
    with chromium(tmp_path / "profile") as browser:
        browser.get(f"{(site / 'search.html').as_uri()}?q=plan")
        shown_results(browser)
        for query, page in QUERIES.items():
            first = [re.split(r"[#?]", address)[0] for address in searched(browser, query)[:3]]
            if f"{page}.html" not in first:
                missed[query] = first
    assert missed == {}


ACCESSIBLE = (
    "index.html",
    "tutorial.html",
    "questions.html",
    "how-to/client.html",
    "explanation/accuracy.html",
    "explanation/alternatives.html",
    "explanation/privacy.html",
    "reference/cli.html",
    "reference/api.html",
    "reference/glossary.html",
    "decisions/README.html",
    "search.html",
    "genindex.html",
)
"""A page of each kind: with code, tables, pictures, formulas, a reference, lists, the search."""


def test_pages_are_accessible(site: Path, tmp_path: Path) -> None:
    """No violation that axe-core finds; a page of a command and one of a class are among them."""
    references = [min((site / "reference" / folder).glob("*.html")) for folder in ("commands", "python")]
    with start_browser("chromium", tmp_path / "profile") as browser:
        for path in (*(site / name for name in ACCESSIBLE), *references):
            for width, scheme in ((PHONE_WIDTH, "dark"), (DESKTOP_WIDTH, "light")):
                browser.open(path.as_uri(), width, scheme)
                browser.run_async(
                    "const done = arguments[arguments.length - 1]; window.MathJax?.startup ? MathJax.startup.promise.then(done) : done()"
                )
                where = (path.name, width, scheme)
                assert (where, axe_violations(browser)) == (where, [])
                assert (where, browser.run("return document.documentElement.scrollWidth - innerWidth")) == (where, 0)


def formulas(page: str) -> int:
    """Return the number of formulas of a page of the site, of the text and displayed."""
    return len(re.findall(r'<(?:span|div) class="math ', page))


def test_no_formula_is_left_as_text(site: Path) -> None:
    """Outside formulas and code, a page has neither commands of TeX nor the dollar signs of a formula that was not read."""
    for path in site.rglob("*.html"):
        page = path.read_text(encoding="utf-8").partition("<article")[2].partition("</article>")[0]
        text = re.sub(r'<(pre|code)\b.*?</\1>|<(span|div) class="math .*?</\2>', "", page, flags=re.DOTALL)
        text = unescape(re.sub(r"<[^>]+>", "", text))
        assert re.findall(r"\$[^\s$][^$\n]*\$|\\[a-z]{2,}.{0,20}|[\^_]\{.{0,20}", text) == [], path


def test_formulas_render_and_fit(site: Path, tmp_path: Path) -> None:
    """MathJax shows a wrong formula as an error, and an unknown command in red. On a phone, wide formulas scroll by themselves."""
    require()
    pages = {path: formulas(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    pages = {path: number for path, number in pages.items() if number}
    assert sum(pages.values()) > 800
    with chromium(tmp_path / "profile") as browser:
        browser.set_script_timeout(60)
        for path, number in pages.items():
            for width in (PHONE_WIDTH, DESKTOP_WIDTH):  # the page is loaded on the phone, and widened
                metrics = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width == PHONE_WIDTH}
                browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
                if width == PHONE_WIDTH:
                    browser.get(path.as_uri())
                    browser.execute_async_script("MathJax.startup.promise.then(arguments[0])")
                rendered, errors, page, wide = browser.execute_script(
                    "return [document.querySelectorAll('mjx-container').length,"
                    " document.querySelectorAll('mjx-merror, mjx-container [style*=\"color: red\"]').length,"
                    " document.documentElement.scrollWidth,"
                    " [...document.querySelectorAll('div.math')].filter(each => each.scrollWidth > each.clientWidth).length]"
                )
                assert (rendered, errors) == (number, 0), path
                assert page <= width, path
                assert width == PHONE_WIDTH or wide == 0, path
        assert all(address.startswith(("file:", "data:")) for address in requested(browser))
