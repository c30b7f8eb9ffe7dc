"""One public label of reports, such as the version of the app: a closed list of values, sent in clear beside the randomized bits.

A report has the value that held when its period began for the client, so it does not depend on what was recorded. The aggregator counts
the reports of each value separately, as if each were a metric of its own, and their sum is the metric without its label. The permanent
response of a client is the same under all values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hubbub.errors import DefinitionError
from hubbub.text import did_you_mean, format_names

MAX_VALUES = 16
OTHER = "other"
"""Value of every label that is not in the list."""
PERIOD = "period"
"""No name of a group: `hubbub decode --by period` means the periods."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_FAMILY = ".x"


@dataclass(frozen=True)
class Group:
    """Public label of a metric's reports. It is not private: everybody who sees a report sees it.

    Parameters
    ----------
    name
        What it says about the client, such as ``version``: lower-case letters, digits and ``_``, at most 32 characters.
    values
        2 to 16 values with ``other``, which stands for all that are not in the list. Letters, digits, ``.``, ``_``
        and ``-``, at most 32 characters each. A value that ends in ``.x`` stands for all that begin alike.
    value
        The value of the reports in question. None: reports of all values.

    Raises
    ------
    DefinitionError
        A name or value has other characters, a value occurs twice, or ``other`` is missing.

    Examples
    --------
    >>> version = Group("version", ("1.x", "2.x", "other"))
    >>> [version.value_of(label) for label in ("1.4.2", "2", "10.1", "2.x")]
    ['1.x', '2.x', 'other', '2.x']
    """

    name: str
    values: tuple[str, ...]
    value: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name) or self.name == PERIOD:
            raise DefinitionError(
                f"group: name must be lower-case letters, digits and '_', at most 32, not {PERIOD!r}, got {self.name!r}"
            )
        if not isinstance(self.values, list | tuple):
            raise DefinitionError(f"group: values must be a list of texts, got {self.values!r}")
        object.__setattr__(self, "values", tuple(self.values))
        wrong = next((v for v in self.values if not isinstance(v, str) or not _VALUE.fullmatch(v)), None)
        if wrong is not None:
            raise DefinitionError(
                f"group: a value must be letters, digits, '.', '_' and '-', at most 32, beginning with a letter or digit, got {wrong!r}"
            )
        if not 2 <= len(self.values) <= MAX_VALUES or len(set(self.values)) < len(self.values):
            raise DefinitionError(f"group: values must be 2 to {MAX_VALUES} different texts, got {list(self.values)}")
        if OTHER not in self.values:
            raise DefinitionError(
                f"group: values must have {OTHER!r}, which stands for every label that is not in the list, got {list(self.values)}"
            )
        if self.value is not None and self.value not in self.values:
            raise DefinitionError(
                f"{self.name} has no value {self.value!r}.{did_you_mean(str(self.value), self.values)} "
                f"Its values are {format_names(list(self.values))}"
            )

    def value_of(self, label: str) -> str:
        """Return the value that stands for a label.

        Parameters
        ----------
        label
            What the app says, such as its version.

        Returns
        -------
        str
            The label itself, the longest value ``PREFIX.x`` with whose prefix it begins, or ``other``.
        """
        if label in self.values:
            return label
        families = [family for family in self.values if family.endswith(_FAMILY)]
        found = [family for family in families if f"{label}.".startswith(family.removesuffix(_FAMILY) + ".")]
        return max(found, key=len, default=OTHER)

    def of(self, value: str | None) -> Group:
        """Return the group with another value.

        Parameters
        ----------
        value
            One of the values. None: all of them.

        Returns
        -------
        Group
            Group of the same name and list.

        Raises
        ------
        DefinitionError
            The list does not have this value.
        """
        return replace(self, value=value)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values.

        Returns
        -------
        dict[str, Any]
            Fields by name, as `from_dict` reads them.
        """
        fields: dict[str, Any] = {"name": self.name, "values": list(self.values)}
        return fields if self.value is None else {**fields, "value": self.value}

    @classmethod
    def from_dict(cls, fields: object) -> Group:
        """Return the group of the fields that `to_dict` returned, or of a table in a definitions file.

        Parameters
        ----------
        fields
            Fields by name.

        Returns
        -------
        Group
            Group with these fields.

        Raises
        ------
        DefinitionError
            A field is missing, unknown or invalid.
        """
        if not isinstance(fields, Mapping) or not {"name", "values"} <= fields.keys() <= {"name", "values", "value"}:
            raise DefinitionError(
                f'group must be a table such as {{ name = "version", values = ["1.x", "2.x", "other"] }}, got {fields!r}'
            )
        return cls(**fields)
