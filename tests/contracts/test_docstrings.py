"""Docstrings of public names: numpydoc sections that agree with the signatures, the returned types and the errors."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from functools import cache, partial
from typing import Any, NamedTuple

from numpydoc.docscrape import NumpyDocString
from numpydoc.validate import validate

from tests.contracts.test_api import PUBLIC_MODULES, is_promised
from tests.contracts.test_layers import MODULES

NOT_REQUIRED = {
    "ES01": "a summary is enough where nothing else is to say",
    "SA01": "names in backticks are links",
    "EX01": "not every accessor needs an example",
    "PR04": "types are annotations, which the site renders beside the parameters",
    "PR08": "a description may begin with a symbol of the literature, such as `k, in [1, 1024]`",
    "RT04": "the same",
}
"""Rules of numpydoc's validator that are not followed, with the reason."""


class Documented(NamedTuple):
    """A public class, function or method with its name, its class and its docstring."""

    where: str
    thing: Any
    owner: type | None
    text: str


def documented(where: str, thing: Any, owner: type | None = None) -> Documented:
    """Return a public name; a method without a docstring has that of the base class."""
    inherited = [vars(base).get(thing.__name__) for base in owner.__mro__] if owner else []
    return Documented(
        where,
        thing,
        owner,
        next((described.__doc__ for described in (thing, *inherited) if getattr(described, "__doc__", None)), ""),
    )


def public_names() -> Iterator[Documented]:
    """Yield each public class and function, and each public method."""
    for module in PUBLIC_MODULES:
        for name in module.__all__:
            thing, where = getattr(module, name), f"{module.__name__}.{name}"
            if inspect.isclass(thing):
                yield documented(where, thing)
                for member in filter(partial(is_promised, where), dir(thing)):
                    function = function_of(thing, member)
                    if function is not None:
                        yield documented(f"{where}.{member}", function, thing)
            elif inspect.isroutine(thing):
                yield documented(where, inspect.unwrap(thing))


def function_of(owner: type, name: str) -> Any:
    """Return the function of a method or property that hubbub defines, or None."""
    try:
        member = inspect.getattr_static(owner, name)
    except AttributeError:  # `name` and `value` of an Enum
        return None
    member = getattr(member, "fget", None) or getattr(member, "func", None) or getattr(member, "__func__", member)
    return member if inspect.isfunction(member) and member.__module__.startswith("hubbub") else None


def is_property(function: Documented) -> bool:
    member = function.owner and inspect.getattr_static(function.owner, function.thing.__name__)
    return hasattr(member, "fget") or hasattr(member, "func")


def parameters_of(*functions: Any) -> set[str]:
    """Return the names of the parameters of functions and methods."""
    return {name for function in functions for name in inspect.signature(function).parameters} - {"self"}


def parameters_of_methods(protocol: type) -> set[str]:
    """Return the parameters of the methods of a protocol, which its docstring may describe once for all of them."""
    if not getattr(protocol, "_is_protocol", False):
        return set()
    return parameters_of(*filter(None, (function_of(protocol, name) for name in vars(protocol))))


def is_described_by_its_protocol(method: Documented) -> bool:
    """Return whether a method needs only a sentence, because its protocol describes the parameters."""
    if method.owner is None or not getattr(method.owner, "_is_protocol", False):
        return False
    parameters = parameters_of(method.thing)
    return bool(parameters) and parameters <= set(entries(method.owner.__doc__ or "", "Parameters"))


@cache
def sections(text: str) -> dict[str, Any]:
    return dict(NumpyDocString(inspect.cleandoc(text)))


def entries(text: str, section: str) -> list[str]:
    """Return the names of a section, one by one: `low, high` is an entry of two."""
    return [name.lstrip("*") for entry in sections(text)[section] for name in entry.name.split(", ")]


def test_docstrings_are_valid() -> None:
    found = {}
    for public_name in public_names():
        if not public_name.thing.__doc__:  # the docstring of the base class, which is checked there
            assert public_name.text, f"{public_name.where} has no docstring"
            continue
        errors = {code: message for code, message in validate(public_name.where)["errors"] if code not in NOT_REQUIRED}
        if inspect.isclass(public_name.thing):
            if sections(public_name.text)["Attributes"] or getattr(public_name.thing, "_is_protocol", False):
                errors.pop("PR01", None)  # users do not construct a result or a type of functions
            if set(entries(public_name.text, "Parameters")) <= parameters_of_methods(
                public_name.thing
            ) or "__call__" in vars(public_name.thing):
                errors.pop("PR02", None)  # the parameters are those of the methods, or of the call
        elif is_described_by_its_protocol(public_name):
            errors.pop("PR01", None)
            errors.pop("RT01", None)
        if errors:
            found[public_name.where] = errors
    assert found == {}


def test_fields_are_documented_in_order() -> None:
    for where, thing, _, text in public_names():
        described = [*entries(text, "Parameters"), *entries(text, "Attributes")]
        if dataclasses.is_dataclass(thing):
            fields = [field.name for field in dataclasses.fields(thing) if not field.name.startswith("_")]
            assert set(fields) <= set(described), where
        if inspect.isclass(thing) and issubclass(thing, StrEnum):
            assert described == list(thing.__members__), where
        if inspect.isclass(thing):
            order = [name for name in vars(thing).get("__annotations__", {}) if name in entries(text, "Attributes")]
            assert [name for name in entries(text, "Attributes") if name in order] == order, where


def test_internal_docstrings_are_short() -> None:
    """Sections are for readers of the reference. A public class may have its text in a base class of the package."""
    public = {(public_name.thing.__module__, public_name.thing.__qualname__) for public_name in public_names()}
    for base in (
        base
        for public_name in public_names()
        if inspect.isclass(public_name.thing)
        for base in public_name.thing.__mro__[1:]
    ):
        public |= {(base.__module__, base.__qualname__)}
        public |= {(base.__module__, f"{base.__qualname__}.{name}") for name in vars(base)}
    found = [
        f"{module}.{name}"
        for module, file in MODULES.items()
        for name, text in docstrings_of(ast.parse(file.read_text()))
        if "\n---" in text and (module, name) not in public
    ]
    assert not found, "write one or two sentences, and `name : meaning` for parameters that need it"


def docstrings_of(node: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the qualified name and the docstring of each class, function and method."""
    for statement in node.body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{statement.name}", ast.get_docstring(statement) or ""
        if isinstance(statement, ast.ClassDef):
            yield from docstrings_of(statement, f"{prefix}{statement.name}.")


def test_returned_types_are_the_annotations() -> None:
    for public_name in public_names():
        if not inspect.isfunction(public_name.thing) or not public_name.thing.__doc__:
            continue
        annotation = str(inspect.signature(public_name.thing).return_annotation)
        yielded = annotation.startswith("Iterator[")
        expected = [annotation.removeprefix("Iterator[").removesuffix("]")] if yielded else [annotation]
        # the site shows the type beside the name of a property, and of a method with a sentence
        if is_property(public_name) or annotation == "None" or is_described_by_its_protocol(public_name):
            expected = []
        assert [entry.type for entry in sections(public_name.text)["Yields" if yielded else "Returns"]] == expected, (
            public_name.where
        )


def test_raised_errors_are_documented() -> None:
    public = {name for module in PUBLIC_MODULES for name in module.__all__ if is_exception(getattr(module, name))}
    builtin = {name for name, thing in vars(builtins).items() if is_exception(thing)}
    for public_name in public_names():
        named = {name for entry in sections(public_name.text)["Raises"] for name in entry.type.split(", ")}
        assert named <= public | builtin, public_name.where
        makers = ("__init__", "__post_init__")
        code = (
            [vars(public_name.thing).get(name) for name in makers]
            if inspect.isclass(public_name.thing)
            else [public_name.thing]
        )
        functions = [inspect.unwrap(function) for function in code if inspect.isfunction(function)]
        functions += [called for function in functions for called in called_by(function)]
        raised = {name for function in functions for name in raised_by(function)}
        missing = [name for name in raised & public if not named & bases_of(name)]
        assert not missing, public_name.where


def is_exception(thing: object) -> bool:
    return inspect.isclass(thing) and issubclass(thing, Exception)


def bases_of(name: str) -> set[str]:
    """Return the names of a public exception and of its bases: a documented base stands for all of them."""
    exception = next(getattr(module, name) for module in PUBLIC_MODULES if name in module.__all__)
    return {base.__name__ for base in exception.__mro__}


def raised_by(function: Any) -> Iterator[str]:
    """Yield the names of the exceptions that the code of a function raises itself."""
    for node in ast.walk(code_of(function)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            yield node.exc.func.id


def called_by(function: Any) -> Iterator[Any]:
    """Yield hubbub's functions that a function calls, such as checks of its arguments."""
    for node in ast.walk(code_of(function)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called = inspect.unwrap(function.__globals__.get(node.func.id, print))
            if inspect.isfunction(called) and called.__module__.startswith("hubbub"):
                yield called


@cache
def code_of(function: Any) -> ast.Module:
    with suppress(OSError):  # the code that `dataclass` makes has no file
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    return ast.Module([], [])
