"""A Python as on Windows, for a process of its own: `hide_posix()` takes away what typeshed says that Python does not have there.

Modules that this project imports from the standard library are loaded before, because they would load their own Windows parts.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import os
import pathlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.paths import REPOSITORY


def typeshed() -> Path:
    """Return the folder of the stubs of the standard library, which mypy brings."""
    spec = importlib.util.find_spec("mypy")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "typeshed" / "stdlib"


def _is_of_windows(test: ast.expr) -> bool | None:
    """Whether a condition of a stub holds on Windows; None if it asks something else."""
    match ast.unparse(test):
        case "sys.platform != 'win32'" | "sys.platform == 'linux'" | "sys.platform == 'darwin'":
            return False
        case "sys.platform == 'win32'" | "sys.platform != 'linux'" | "sys.platform != 'darwin'":
            return True
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return False if False in map(_is_of_windows, test.values) else None
    return None


def _defined(statements: list[ast.stmt], *, on_windows: bool) -> Iterator[str]:
    """Yield the names that a stub defines, on Windows or on any system."""
    for statement in statements:
        match statement:
            case ast.If():
                holds = _is_of_windows(statement.test)
                if holds is not False or not on_windows:
                    yield from _defined(statement.body, on_windows=on_windows)
                if holds is not True or not on_windows:
                    yield from _defined(statement.orelse, on_windows=on_windows)
            case ast.FunctionDef() | ast.ClassDef():
                yield statement.name
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield name


def names_of(stub: Path, *, on_windows: bool) -> set[str]:
    """Return the public names that a stub defines, on Windows or on any system."""
    return {
        name for name in _defined(ast.parse(stub.read_text()).body, on_windows=on_windows) if not name.startswith("_")
    }


def posix_modules() -> set[str]:
    """Return the modules of the standard library that have no name on Windows."""
    stubs = {stub.stem: stub for stub in typeshed().glob("*.pyi") if stub.stem in sys.stdlib_module_names}
    stubs = {name: stub for name, stub in stubs.items() if "if sys.platform" in stub.read_text()}
    return {
        name for name, stub in stubs.items() if names_of(stub, on_windows=False) and not names_of(stub, on_windows=True)
    }


def _imported(source: Path) -> Iterator[tuple[str, str]]:
    """Yield the modules that a file imports, and the names that it takes of each."""
    for node in ast.walk(ast.parse(source.read_text())):
        match node:
            case ast.Import():
                yield from ((alias.name, "") for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                yield from ((module, alias.name) for alias in node.names)


def hide_posix(package: str = "client") -> None:
    """Change this process. The modules of a package must not be imported yet."""
    missing = posix_modules()
    for source in (REPOSITORY / package).rglob("*.py"):
        for module, name in _imported(source):
            if module.partition(".")[0] in sys.stdlib_module_names and module not in missing:
                getattr(importlib.import_module(module), name, None)
    for name in ("click", "click.testing"):
        importlib.import_module(name)
    load = builtins.__import__

    def load_as_on_windows(name: str, *arguments: Any, **named: Any) -> Any:
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return load(name, *arguments, **named)

    builtins.__import__ = load_as_on_windows
    for name in missing & set(sys.modules):
        del sys.modules[name]
    stub = typeshed() / "os" / "__init__.pyi"
    for name in names_of(stub, on_windows=False) - names_of(stub, on_windows=True):
        if hasattr(os, name):
            delattr(os, name)
    paths: Any = sys.modules[pathlib.Path.__module__]
    paths.WindowsPath = paths.PosixPath  # Path() makes one where os.name says nt
    os.name, sys.platform = "nt", "win32"
