"""Public names whose modules are imported at their first use, because a client starts without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module


def late_names(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package that imports public names late (PEP 562).

    modules : names of each module, separated by spaces

    >>> late_names("hubbub.privacy", {"loss": "epsilon epsilon_permanent"})("epsilon").__module__
    'hubbub.privacy.loss'
    """
    module_of = {name: f"{package}.{module}" for module, names in modules.items() for name in names.split()}

    def of_name(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(module_of[name]), name)

    return of_name
