"""`Loadable`: results that `load` reads again from the .json file that `save` wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Self, get_type_hints

from hubbub.errors import HubbubError
from hubbub.wire.json_values import from_json_value
from hubbub_decoder.errors import OutputError


class Loadable:
    """Dataclass whose `to_dict` has all its fields."""

    __slots__ = ()

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the result of a .json file that `save` wrote.

        Parameters
        ----------
        path
            Path of the file.

        Returns
        -------
        Self
            Result that is equal to the one that was saved.

        Raises
        ------
        OutputError
            The file cannot be read, or is no such file.
        """
        try:
            return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
        except OSError as problem:
            raise OutputError(f"{path} cannot be read: {problem.strerror}.") from None
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            reason = f" ({problem})" if isinstance(problem, HubbubError) else ""
            raise OutputError(
                f"{path} is no file of {cls.__name__}{reason}: pass a .json file that {cls.__name__}.save wrote."
            ) from None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the result of the JSON values that `to_dict` returned.

        Parameters
        ----------
        values
            Fields by name.

        Returns
        -------
        Self
            Result that is equal to the original one.
        """
        return cls._from_values(values, {})

    @classmethod
    def _from_values(cls, values: Mapping[str, Any], known: Mapping[str, Any]) -> Self:
        """Return the result with the `known` fields as they are, and the others from their JSON values.

        A field with a default may be missing, because an earlier version did not write it.
        """
        types = get_type_hints(cls)
        read = {
            field.name: from_json_value(types[field.name], values[field.name])
            for field in fields(cls)  # type: ignore[arg-type]  # subclasses are dataclasses
            if not field.name.startswith("_") and field.name not in known
            if field.name in values or field.default is MISSING
        }
        return cls(**read, **known)
