"""Option type for sizes in bytes: 512KiB, 2MiB."""

from __future__ import annotations

import re

import click

from hubbub.text import _UNITS


class Size(click.ParamType):  # type: ignore[type-arg]
    """A size in bytes: a number, or a number of KiB, MiB or GiB."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of bytes."""
        match = re.fullmatch(r"([0-9]{1,18}) ?([KMG]iB)?", str(value))
        if match is None:
            self.fail(f"{value!r} is not a size: write a number of bytes, or 512KiB, 2MiB, 1GiB", param, ctx)
        return int(match[1]) * _UNITS[match[2] or ""]
