"""Layers of the three packages: a folder imports only folders of lower layers, and no two files import each other."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from tests.support.paths import REPOSITORY

# From the lowest layer up. A folder may import folders of lower layers only, not another folder of its own layer.
# "." is the package's `__init__` and `__main__`.
LAYERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "hubbub": (
        ("defaults", "errors", "late_names"),
        ("number_checks", "consent", "randomness", "text", "files", "hashing", "worker_processes"),
        ("pages", "mechanisms"),
        ("metrics",),
        ("wire",),
        ("privacy",),
        ("encoding", "summary"),
        ("sdk.runtime",),
        ("sdk.storage",),
        ("sdk.recording",),
        ("sdk.configuration",),
        ("sdk.upload",),
        ("sdk.assembly",),
        ("sdk.transparency",),
        ("client",),
        ("conformance",),
        ("testing", "typing", "cli"),
        (".",),
    ),
    "hubbub_aggregator": (
        ("errors",),
        ("monitoring", "http", "database"),
        ("server",),
        ("settings",),
        ("store",),
        ("pipeline",),
        ("segments",),
        ("api",),
        ("app",),
        ("typing",),
        ("cli",),
        (".",),
    ),
    "hubbub_decoder": (
        ("errors", "array_types", "blas_threads", "options", "result"),
        ("random_state", "documents"),
        ("model",),
        ("data", "inference"),
        ("estimators",),
        ("results",),
        ("kinds",),
        ("pipeline", "simulation"),
        ("association", "comparison", "discovery", "surveys"),
        ("plots",),
        ("report",),
        ("results_store",),
        ("batch_decoding", "watch"),
        ("publishing", "explore"),
        ("planning",),
        ("audit", "demo"),
        ("typing", "cli"),
        (".",),
    ),
}
SOURCES = {
    "hubbub": REPOSITORY / "client" / "hubbub",
    "hubbub_aggregator": REPOSITORY / "aggregator" / "hubbub_aggregator",
    "hubbub_decoder": REPOSITORY / "decoder" / "hubbub_decoder",
}
MAY_IMPORT = {
    "hubbub": {"hubbub"},
    "hubbub_aggregator": {"hubbub", "hubbub_aggregator"},
    "hubbub_decoder": {"hubbub", "hubbub_decoder"},
}


def _name(package: str, file: Path) -> str:
    return ".".join((package, *file.relative_to(SOURCES[package]).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {_name(package, file): file for package, root in SOURCES.items() for file in sorted(root.rglob("*.py"))}


def layer_of(module: str) -> str:
    """Return the name under which `LAYERS` lists a module.

    >>> layer_of("hubbub.sdk.storage.journal"), layer_of("hubbub_aggregator.app"), layer_of("hubbub.__main__")
    ('sdk.storage', 'app', '.')
    """
    package, _, below = module.partition(".")
    names = {name for layer in LAYERS[package] for name in layer}
    parents = [".".join(below.split(".")[:depth]) for depth in range(below.count(".") + 1, 0, -1)]
    return next((name for name in parents if name in names), "." if below in ("", "__main__") else below)


def height_of(module: str) -> int:
    package = module.partition(".")[0]
    heights = [height for height, layer in enumerate(LAYERS[package]) if layer_of(module) in layer]
    assert heights, f"{module} is in no layer: add {layer_of(module)!r} to LAYERS, or move the file into a folder"
    return heights[0]


def imports_of(tree: ast.AST) -> set[str]:
    """Return the modules of the three packages that a syntax tree imports, those inside functions and under `if TYPE_CHECKING:` included.

    >>> sorted(imports_of(ast.parse("from hubbub.wire import batch\\nfrom hubbub.wire.batch import Batch, parse_batch")))
    ['hubbub.wire.batch']
    """
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & MODULES.keys()
            found |= {node.module} if names - MODULES.keys() else set()
        found |= imports_of(node)
    return {name for name in found if name.partition(".")[0] in SOURCES}


def upward(importer: str, imported: str) -> bool:
    """Whether an import inside one package leaves its folder for one that is not lower."""
    return layer_of(importer) != layer_of(imported) and height_of(importer) <= height_of(imported)


@cache
def arrows() -> dict[str, set[str]]:
    """Modules that each module imports."""
    parsed = {module: ast.parse(file.read_text(encoding="utf-8")) for module, file in MODULES.items()}
    return {module: imports_of(tree) - {module} for module, tree in parsed.items()}


def is_wrong(importer: str, imported: str) -> bool:
    """Whether a module may not import another one."""
    package, other = importer.partition(".")[0], imported.partition(".")[0]
    return (
        other not in MAY_IMPORT[package]
        or (other == package and upward(importer, imported))
        or (package != "hubbub" and imported.startswith(("hubbub.sdk", "hubbub.client", "hubbub.testing")))
    )


def test_modules_import_only_lower_layers() -> None:
    wrong = {(importer, name) for importer, names in arrows().items() for name in names if is_wrong(importer, name)}
    assert wrong == set()


def test_no_two_modules_import_each_other() -> None:
    assert sum(map(len, arrows().values())) > 500  # the walk sees imports at all
    tuple(TopologicalSorter(arrows()).static_order())  # raises CycleError, which names the circle
