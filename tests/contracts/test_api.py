"""Public API, pinned in api.txt and docs/reference/api.md.

HUBBUB_TEST_PIN=1 pytest tests/contracts/test_api.py          rewrites both
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

import hubbub
import hubbub.privacy
import hubbub.summary
import hubbub.testing
import hubbub.typing
import hubbub_aggregator
import hubbub_aggregator.typing
import hubbub_decoder
import hubbub_decoder.plots
import hubbub_decoder.typing
from tests.client.conftest import Rig
from tests.support.paths import DOCS

PINNED = Path(__file__).with_name("api.txt")
EXAMPLE = Path(__file__).with_name("typing_example.py")


PUBLIC_MODULES = (
    hubbub,
    hubbub.testing,
    hubbub.privacy,
    hubbub.summary,
    hubbub.typing,
    hubbub_decoder,
    hubbub_decoder.plots,
    hubbub_decoder.typing,
    hubbub_aggregator,
    hubbub_aggregator.typing,
)


PUBLIC_MEMBERS: dict[str, set[str]] = {
    "hubbub.Kind": {"blocks", "labels", "named_values", "num_bits", "num_cohorts", "word"},
    "hubbub.PrivSet": {
        *("max_items", "num_ones", "num_values", "permanent_p", "permanent_q", "prob_hit", "prob_p", "prob_q")
    },
    "hubbub.SubsetSelection": {"num_ones", "num_values", "permanent_p", "permanent_q", "prob_p", "prob_q"},
    "hubbub.UnaryResponse": {"permanent_p", "permanent_q", "prob_p", "prob_q"},
    "hubbub.typing.Mechanism": {"fields", "has_permanent_noise", "p_star", "prob_f", "probabilities", "q_star"},
    "hubbub.typing.Transport": {"send"},
    "hubbub_aggregator.SqlStore": {"open", "close"},
}
"""Public members of classes whose other members belong to the packages themselves."""

INTERNAL_MEMBERS: dict[str, set[str]] = {
    "hubbub.Buckets": {"accumulates", "combine", "digest_fields", "fraction", "index_of", "number"},
    "hubbub.Discovery": {
        *("check_cohorts", "cohorts", "digest_fields", "fragment", "group", "lengths", "num_symbols"),
        "prefix_cohorts",
    },
    "hubbub.Metric": {"facts", "reports_per_unit", "require", "row_bytes"},
    "hubbub.Params": {"canonical", "possible_ones", "scheme"},
    "hubbub.Secret": {"stream"},
    "hubbub.privacy.PrivacyFigures": {"rows"},
}
"""Members of public classes that the packages use among themselves, and that a user's program does not need."""


def is_promised(where: str, member: str) -> bool:
    """Whether a member of a public class is public. Of most types in the modules `typing`, the name alone is."""
    every = set() if where.rpartition(".")[0].endswith(".typing") else {member}
    promised = PUBLIC_MEMBERS.get(where, every) - INTERNAL_MEMBERS.get(where, set())
    return member in promised and not member.startswith("_")


def described(modules: tuple[ModuleType, ...] = PUBLIC_MODULES) -> str:
    """Return each public name of the modules with its parameters, and the public members of each class."""
    lines = []
    for module in modules:
        for name in module.__all__:
            thing = getattr(module, name)
            lines.append(f"{module.__name__}.{name}{_signature(thing)}")
            # the members of ProblemType are the table of test_delivery.py
            if inspect.isclass(thing) and thing is not hubbub.ProblemType:
                for member in sorted(own_members(thing)):
                    if is_promised(f"{module.__name__}.{name}", member):
                        attribute = inspect.getattr_static(thing, member)
                        called = attribute.__func__ if isinstance(attribute, classmethod | staticmethod) else attribute
                        lines.append(f"  .{member}{_signature(called) if callable(called) else ''}")
    return "\n".join(lines) + "\n"


def own_members(thing: type) -> set[str]:
    """Return the names that a class defines, or inherits from a class of the package that is not public itself."""
    public = {getattr(module, name) for module in PUBLIC_MODULES for name in module.__all__ if name[0].isupper()}
    bases = (base for base in thing.__mro__[1:] if base.__module__.startswith("hubbub") and base not in public)
    return {*vars(thing), *(name for base in bases for name in vars(base))}


def _signature(thing: object) -> str:
    if not (inspect.isclass(thing) or inspect.isroutine(thing)) or (
        inspect.isclass(thing) and issubclass(thing, Exception | Enum)
    ):
        return ""
    try:
        parameters = inspect.signature(thing).parameters.values()
    except ValueError:
        return ""
    shown = []
    for parameter in parameters:
        unpacked = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
        names = list(inspect.unwrap(thing).__globals__[unpacked[1]].__annotations__) if unpacked else [parameter.name]
        has_default = unpacked or parameter.default is not parameter.empty
        shown += [f"{name}{'=' if has_default else ''}" for name in names]
    return f"({', '.join(shown)})"


NEWLINE, PIPE = "\n", "\\|"


def docstring(module: ModuleType, name: str) -> str:
    """Return the docstring of a public name; that of an alias or a constant is the string below its assignment."""
    thing = getattr(module, name)
    if inspect.isclass(thing) or inspect.isroutine(thing):
        return inspect.getdoc(thing) or ""
    body = ast.parse(inspect.getsource(module)).body
    for node, after in pairwise(body):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == name:
            assert isinstance(after, ast.Expr), f"{module.__name__}.{name} has no docstring"
            assert isinstance(after.value, ast.Constant)
            return inspect.cleandoc(str(after.value.value))
    source = next(
        node.module for node in body if isinstance(node, ast.ImportFrom) if name in {alias.name for alias in node.names}
    )
    return docstring(import_module(str(source)), name)


def reference() -> str:
    """Return docs/reference/api.md: each public name with the first line of its docstring."""
    lines = [
        "# Public API",
        "",
        "These import paths are public; every other module is internal and may change without notice.",
        "On the site, each name links to a page with parameters, units and errors; `help(NAME)` prints the same.",
    ]
    for module in PUBLIC_MODULES:
        summary = (module.__doc__ or "").partition("\n")[0]
        lines += ["", f"## `{module.__name__}`", "", summary, "", "| name | description |", "|---|---|"]
        for name in module.__all__:
            summary = docstring(module, name).partition(NEWLINE)[0].replace("|", PIPE)
            lines.append(f"| `{name}` | {summary} |")
    return "\n".join(lines) + "\n"


def test_star_import_of_testing_has_public_names_only() -> None:
    found: dict[str, object] = {}
    exec("from hubbub.testing import *", found)  # noqa: S102
    assert {*found} - {"__builtins__"} == {*hubbub.testing.__all__}


def test_public_api_matches_api_txt() -> None:
    if os.environ.get("HUBBUB_TEST_PIN"):
        PINNED.write_text(described())
        (DOCS / "reference" / "api.md").write_text(reference())
    assert described() == PINNED.read_text()


def test_api_reference_lists_every_public_name() -> None:
    assert reference() == (DOCS / "reference" / "api.md").read_text()


def test_typing_example_uses_every_public_member() -> None:
    """Variables of tests/contracts/typing_example.py have the names of their classes; `make types` checks their types."""
    tree = ast.parse(EXAMPLE.read_text())
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    members = {
        (node.value.id.lower(), node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    assert set(hubbub.__all__) <= names
    promised, of = set(), ""
    for line in described((hubbub,)).splitlines():
        name = line.strip(" .").partition("(")[0]
        if not line.startswith(" "):
            of = name.removeprefix("hubbub.").lower()
        else:
            promised.add((of, name))
    assert promised <= members


def test_dunder_all_is_sorted_and_complete() -> None:
    assert hubbub.__all__ == sorted(hubbub.__all__)
    assert all(hasattr(hubbub, name) for name in hubbub.__all__)


def test_arecord_records_without_blocking_the_event_loop(rig: Rig) -> None:
    client = rig.agreed()

    async def app() -> None:
        await asyncio.gather(*(client.arecord("homepage", str(n)) for n in range(20)))
        await client.subject("ada").arecord("homepage", "x")

    asyncio.run(app())
    assert client.accounting().recorded == 21


def test_arecord_does_not_use_the_hosts_executor(rig: Rig) -> None:
    """A shut-down executor of the host must not make arecord fail."""
    client, free = rig.agreed(), threading.Event()

    async def app() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        busy = loop.run_in_executor(None, free.wait)
        try:
            await asyncio.wait_for(client.arecord("homepage", "behind a busy executor"), 10)
        finally:
            free.set()
        await busy
        await loop.shutdown_default_executor()
        await client.arecord("homepage", "after its end")
        await client.subject("ada").arecord("homepage", "x")
        client.close()
        await client.arecord("homepage", "after close")

    asyncio.run(app())
    with pytest.raises(StopIteration):
        client.arecord("homepage", "without a loop").send(None)
    assert client.accounting().recorded == 5


@pytest.mark.parametrize("name", ["requests", "urllib3", "asyncio", "email", "socket", "sqlite3"])
def test_recording_imports_no_network_modules(name: str) -> None:
    import subprocess
    import sys

    code = f"import sys, hubbub; sys.exit({name!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
