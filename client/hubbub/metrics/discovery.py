"""Groups of a string metric whose clients report prefixes, so that unlisted strings can be found by extension.

Each cohort belongs to one group. The clients of a prefix group report the first L symbols of their value. Those of the held-out
group report the whole value. Groups are disjoint sets of clients, so a client reports one fragment, at the full epsilon of the metric.

Source: Wang, Li & Jha 2019, "Locally differentially private heavy hitter identification" (PEM), sec. 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

from hubbub.errors import DefinitionError
from hubbub.number_checks import check_integer, check_number

END = b"\xff"
"""End marker of a fragment that holds a whole value. UTF-8 has no such byte."""

MIN_GROUP_COHORTS = 8
MAX_LONGEST = 256
MAX_STEP = 8
NUM_BYTES = 243
"""Number of bytes that UTF-8 uses."""

MAX_EXTENSIONS = 4_000_000
"""Largest number of strings of `first`, or of `step`, symbols: the search compares all of them."""


@dataclass(frozen=True)
class Discovery:
    """Prefix lengths and groups of a string metric with `discover`.

    A symbol is a character of the alphabet, or a byte.

    Parameters
    ----------
    longest
        Length of the longest string that can be found, in symbols.
    step
        Symbols by which a prefix group is longer than the group before.
    first
        Length of the shortest prefix, in symbols. None: as `step`.
    alphabet
        Characters of the strings to find. Other strings are reported but not found. None: symbols are the bytes of
        UTF-8.
    held_out
        Share of the cohorts that report whole values, for the test of the strings that the prefix groups find, in
        (0, 1).

    Raises
    ------
    DefinitionError
        A field has the wrong type, or the fields contradict each other.
    ParameterError
        A number is out of range.

    Examples
    --------
    >>> Discovery(longest=8, step=2, first=3, alphabet="abcdefgh").lengths
    (3, 5, 7, 9)
    """

    longest: int
    step: int = 2
    first: int | None = None
    alphabet: str | None = None
    held_out: float = 0.1

    def __post_init__(self) -> None:
        check_integer("discover: longest", self.longest, 1, MAX_LONGEST, hint="pass 24, for example")
        check_integer("discover: step", self.step, 1, MAX_STEP, hint="pass 2, for example")
        if self.first is not None:
            check_integer(
                "discover: first",
                self.first,
                1,
                min(MAX_STEP, self.longest + 1),
                hint="leave it out for the usual length",
            )
        check_number("discover: held_out", self.held_out, "(0, 1)", hint="pass 0.1, for example")
        if self.alphabet is not None:
            _check_alphabet(self.alphabet)
        symbols = self.num_symbols
        for name, length in (("first", self.shortest), ("step", self.step)):
            if symbols**length > MAX_EXTENSIONS:
                raise DefinitionError(
                    f"discover: {name} = {length} with {symbols} symbols has {symbols**length:,} prefixes to compare, above the limit of "
                    f"{MAX_EXTENSIONS:,}: lower {name}, or declare a smaller alphabet"
                )

    @property
    def num_symbols(self) -> int:
        """Number of different symbols."""
        return NUM_BYTES if self.alphabet is None else len(self.alphabet)

    @property
    def shortest(self) -> int:
        """Length of the shortest prefix, in symbols."""
        return min(self.step, self.longest + 1) if self.first is None else self.first

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Prefix length of each prefix group, in symbols.

        The last is `longest` + 1, because a value that is shorter ends with the marker.
        """
        return (*range(self.shortest, self.longest + 1, self.step), self.longest + 1)

    def prefix_cohorts(self, num_cohorts: int) -> int:
        """Return P, the number of cohorts of all prefix groups."""
        return num_cohorts - max(1, round(self.held_out * num_cohorts))

    def group(self, cohort: int, num_cohorts: int) -> int:
        """Return the group of a cohort, floor(c G / P) of the G prefix groups.

        cohort : cohort c, in [0, m)

        >>> [Discovery(longest=3, step=2).group(cohort, 32) for cohort in (0, 14, 15, 28, 29)]
        [0, 0, 1, 1, 2]
        """
        prefixes = self.prefix_cohorts(num_cohorts)
        return cohort * len(self.lengths) // prefixes if cohort < prefixes else len(self.lengths)

    def cohorts(self, group: int, num_cohorts: int) -> range:
        """Return the cohorts of a group.

        group : number of the group, in [0, G]
        """
        prefixes, groups = self.prefix_cohorts(num_cohorts), len(self.lengths)
        if group == groups:
            return range(prefixes, num_cohorts)
        return range(-(-group * prefixes // groups), -(-(group + 1) * prefixes // groups))

    def fragment(self, value: bytes, group: int) -> bytes:
        r"""Return the bytes that the clients of a group report in place of a value in UTF-8.

        A prefix group of length L reports the first L symbols, after the end marker was appended to a value of fewer
        symbols. The held-out group reports the value.

        group : number of the group, in [0, G]

        >>> [Discovery(longest=3, step=2).fragment(b"abc", group) for group in (0, 1, 2)]
        [b'ab', b'abc\xff', b'abc']
        """
        if group == len(self.lengths):
            return value
        length = self.lengths[group]
        if self.alphabet is None:
            return (value + END)[:length]
        text = value.decode()
        return value + END if len(text) < length else text[:length].encode()

    def check_cohorts(self, num_cohorts: int) -> None:
        """Check that each group has at least 8 cohorts; raises DefinitionError."""
        smallest = min(len(self.cohorts(group, num_cohorts)) for group in range(len(self.lengths) + 1))
        if smallest < MIN_GROUP_COHORTS:
            raise DefinitionError(
                f"discover: each of the {len(self.lengths)} prefix groups and the held-out group needs {MIN_GROUP_COHORTS} cohorts, "
                f"and of num_cohorts = {num_cohorts} the smallest group has {smallest}: raise num_cohorts (up to 256), step or held_out"
            )

    def digest_fields(self, num_cohorts: int) -> dict[str, Any]:
        """Return the fields of the metric digest."""
        held_out = num_cohorts - self.prefix_cohorts(num_cohorts)
        return {**self.to_dict(), "first": self.shortest, "held_out": held_out}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values.

        Returns
        -------
        dict[str, Any]
            Fields by name, as `from_dict` reads them.
        """
        return asdict(self)

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Discovery:
        """Return the object of a `[metric.discover]` table.

        Parameters
        ----------
        table
            Table of a definitions file, or the result of `to_dict`.

        Returns
        -------
        Discovery
            Object that is equal to the original one.

        Raises
        ------
        DefinitionError
            The table has an unknown key, lacks `longest`, or has an invalid field.
        """
        if not isinstance(table, Mapping):
            raise DefinitionError(f"discover must be a table with longest and step, got {table!r}")
        allowed = [field.name for field in fields(cls)]
        unknown = next((name for name in table if name not in allowed), None)
        if unknown is not None:
            raise DefinitionError(f"discover: unknown key {unknown!r}: the table has {', '.join(allowed)}")
        if "longest" not in table:
            raise DefinitionError("discover: longest is missing: set the length of the longest string to find")
        return cls(**table)


def _check_alphabet(alphabet: object) -> None:
    if not isinstance(alphabet, str) or len(alphabet) < 2 or len(set(alphabet)) != len(alphabet):
        raise DefinitionError(f"discover: alphabet must be a string of 2 or more distinct characters, got {alphabet!r}")
    if any("\ud800" <= character <= "\udfff" for character in alphabet):
        raise DefinitionError("discover: alphabet must be encodable as UTF-8: remove lone surrogates")
