"""Signatures of the public functions and classes: their types are public, one thing has one name."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from tests.contracts.test_api import PUBLIC_MODULES, is_promised
from tests.support.paths import REPOSITORY

NAMES_OF_NUMBERS = {"reports": "num_reports", "candidates": "num_candidates"}
SYNONYMS = {
    "error": "std_error",
    "standard_error": "std_error",
    "independent_clients": "same_clients",
    "shrunken_share": "posterior_mean",
}


class Annotated(NamedTuple):
    """One annotation of a public parameter, field or returned value."""

    where: str
    name: str
    text: str
    module: ModuleType

    def __str__(self) -> str:
        return f"{self.where}: {self.name}: {self.text}"


def public_things() -> Iterator[tuple[str, object]]:
    for module in PUBLIC_MODULES:
        for name in module.__all__:
            if not module.__name__.endswith(".typing"):  # its types may be named; what they consist of is no promise
                yield f"{module.__name__}.{name}", getattr(module, name)


def public_annotations() -> Iterator[Annotated]:
    """Yield the annotations of public functions, of public methods, and of public fields of classes."""
    for where, thing in public_things():
        if inspect.isfunction(thing):
            yield from of_function(where, thing)
        elif inspect.isclass(thing) and not issubclass(thing, Exception):
            for base in thing.__mro__:
                if base.__module__.startswith("hubbub"):
                    yield from of_class(where, base)


def of_class(where: str, base: type) -> Iterator[Annotated]:
    for name, annotation in vars(base).get("__annotations__", {}).items():
        if is_promised(where, name):
            yield Annotated(where, name, text_of(annotation), sys.modules[base.__module__])
    for name, member in vars(base).items():
        function: Any = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        is_method = inspect.isfunction(function) and function.__module__.startswith("hubbub")
        if is_method and (name == "__init__" or is_promised(where, name)):
            yield from of_function(f"{where}.{name}", function)


def of_function(where: str, function: Callable[..., object]) -> Iterator[Annotated]:
    function = inspect.unwrap(function)
    module = sys.modules[function.__module__]
    for name, annotation in function.__annotations__.items():
        yield Annotated(where, name, text_of(annotation), module)
        if keywords := keywords_of(function, name):
            for keyword, one in keywords.__annotations__.items():
                yield Annotated(where, keyword, text_of(one), sys.modules[keywords.__module__])


def keywords_of(function: Callable[..., object], name: str) -> type | None:
    """Return the TypedDict of the keywords that a function takes as `**name: Unpack[TypedDict]`, or None."""
    unpacked = re.fullmatch(r"Unpack\[(\w+)\]", text_of(function.__annotations__[name]))
    found = unpacked and resolve(unpacked[1], sys.modules[function.__module__])
    return found if isinstance(found, type) else None


def text_of(annotation: object) -> str:
    """Return an annotation as text; those that dataclass and NamedTuple make are objects."""
    return str(annotation) if annotation is None else str(getattr(annotation, "__forward_arg__", annotation))


@cache
def imported_names(module: ModuleType) -> dict[str, tuple[str, str | None]]:
    """Return what a module imports, under `if TYPE_CHECKING:` too: the module and the name of each."""
    found: dict[str, tuple[str, str | None]] = {}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.asname or alias.name: (alias.name, None) for alias in node.names}
    return found


def resolve(name: str, module: ModuleType) -> object:
    if hasattr(module, name):
        return getattr(module, name)
    if hasattr(builtins, name):
        return getattr(builtins, name)
    source, attribute = imported_names(module)[name]
    return import_module(source) if attribute is None else getattr(import_module(source), attribute)


def is_of_another_package(name: str, module: ModuleType) -> bool:
    source, _ = imported_names(module).get(name, (module.__name__, None))
    return not source.startswith("hubbub")


def is_public(name: str, thing: object) -> bool:
    """Whether users can import a type: a public name of hubbub, a type of another package, or an alias of arrays alone."""
    if any(name in module.__all__ and getattr(module, name) is thing for module in PUBLIC_MODULES):
        return True
    if inspect.isclass(thing):
        return not thing.__module__.startswith("hubbub")
    is_special_form = getattr(thing, "__module__", "") == "typing" and not hasattr(thing, "__args__")
    is_array = "numpy" in repr(thing) and "hubbub" not in repr(thing)
    return isinstance(thing, ModuleType | TypeVar) or is_special_form or is_array


def test_types_of_public_signatures_are_public() -> None:
    hidden = {
        f"{node.id} in {annotation}"
        for annotation in public_annotations()
        for node in ast.walk(ast.parse(annotation.text, mode="eval"))
        if isinstance(node, ast.Name)
        and not is_of_another_package(node.id, annotation.module)
        and not is_public(node.id, resolve(node.id, annotation.module))
    }
    assert not hidden, "export them in the module `typing` of their package"


def test_no_function_takes_untyped_keywords() -> None:
    """A TypedDict with `Unpack`, or an object, lets type checkers refuse a misspelt keyword, and editors complete it."""
    untyped = [keywords for file in product_files() for keywords in untyped_keywords(file.read_text(encoding="utf-8"))]
    assert untyped == []


def untyped_keywords(code: str) -> Iterator[str]:
    """Yield the functions, also inner ones, that take keywords of any type or without a type.

    >>> list(untyped_keywords("def f(**x: Any): return lambda **y: y"))
    ['f(**x: Any)', 'lambda(**y: )']
    """
    tree = ast.parse(code)
    owners: dict[ast.AST, str] = {
        child: f"{node.name}." for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for child in node.body
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and (keywords := node.args.kwarg):
            annotation = "" if keywords.annotation is None else ast.unparse(keywords.annotation)
            if annotation in ("", "Any", "object", "typing.Any"):
                name = "lambda" if isinstance(node, ast.Lambda) else node.name
                yield f"{owners.get(node, '')}{name}(**{keywords.arg}: {annotation})"


def product_files() -> Iterator[Path]:
    for package in ("client/hubbub", "aggregator/hubbub_aggregator", "decoder/hubbub_decoder"):
        yield from (REPOSITORY / package).rglob("*.py")


def test_any_stands_for_json_values_alone() -> None:
    """A document that json reads or writes is a dictionary of values; everything else in a public signature has a type."""
    documents = {"to_dict": "dict[str, Any]", "from_dict": "Mapping[str, Any]"}
    wrong = [
        str(annotation)
        for annotation in public_annotations()
        if re.search(r"\bAny\b", annotation.text)
        and documents.get(annotation.where.rpartition(".")[2]) != annotation.text
    ]
    assert not wrong


def test_public_numbers_have_names_of_numbers() -> None:
    numbers = {"int", "float", "int | None", "float | None"}
    wrong = [
        str(annotation)
        for annotation in public_annotations()
        if annotation.name in NAMES_OF_NUMBERS and annotation.text in numbers
    ]
    assert not wrong, f"rename by {NAMES_OF_NUMBERS}"


def test_public_parameters_have_one_name_for_one_thing() -> None:
    wrong = [str(annotation) for annotation in public_annotations() if annotation.name in SYNONYMS]
    assert not wrong, f"rename by {SYNONYMS}"


def test_progress_has_one_signature() -> None:
    wrong = [
        str(annotation)
        for annotation in public_annotations()
        if annotation.name == "progress" and annotation.text != "Progress"
    ]
    assert not wrong


def test_same_clients_has_one_type_and_default() -> None:
    functions = {name: inspect.signature(thing) for name, thing in public_things() if inspect.isfunction(thing)}
    found = {
        name: (signature.parameters["same_clients"].annotation, signature.parameters["same_clients"].default)
        for name, signature in functions.items()
        if "same_clients" in signature.parameters
    }
    assert set(found.values()) == {("bool", True)}, found


def test_annotations_of_every_package_are_found() -> None:
    """A test of the tests above: they see a function, a field, a method and a name imported for types alone."""
    found = {(annotation.where, annotation.name) for annotation in public_annotations()}
    assert ("hubbub_decoder.decode", "confidence") in found
    assert ("hubbub_decoder.Estimate", "std_error") in found
    assert ("hubbub.Client.record", "metric") in found
    assert ("hubbub_decoder.Decoding.plot", "ax") in found
