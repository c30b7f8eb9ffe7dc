"""Checks of numbers in arguments. A number out of range is a ParameterError with the same words in every function."""

from __future__ import annotations

from numbers import Integral, Real

from hubbub.errors import ParameterError


def check_integer(name: str, value: object, low: int, high: int | None = None, *, hint: str) -> None:
    """Raise ParameterError unless a value is an integer in [low, high], or of at least `low` without `high`.

    hint : next step, such as an example

    >>> check_integer("beam", 0, 1, hint="pass beam = 1000")
    Traceback (most recent call last):
    hubbub.errors.ParameterError: beam must be an integer >= 1, got 0: pass beam = 1000
    """
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    if not (is_integer and low <= value and (high is None or value <= high)):  # type: ignore[operator]  # an Integral
        rule = f"an integer >= {low}" if high is None else f"an integer in [{low}, {high}]"
        raise ParameterError(f"{name} must be {rule}", f"{value!r}: {hint}")


def check_number(name: str, value: object, interval: str, *, hint: str) -> None:
    """Raise ParameterError unless a value is a real number in an interval.

    interval : such as "(0, 1)" or "[0, inf]", where a round bracket excludes the end
    hint     : next step, such as an example

    >>> check_number("fdr", 1, "(0, 1)", hint="pass fdr = 0.05")
    Traceback (most recent call last):
    hubbub.errors.ParameterError: fdr must be a number in (0, 1), got 1: pass fdr = 0.05
    """
    low, high = map(float, interval[1:-1].split(","))
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not (is_number and is_within(value, low, high, interval)):  # type: ignore[arg-type]  # a Real
        rule = "a number" if interval == "[-inf, inf]" else f"a number in {interval}"
        raise ParameterError(f"{name} must be {rule}", f"{value!r}: {hint}")


def is_within(value: float, low: float, high: float, interval: str) -> bool:
    """Whether a number, and not nan, is in an interval; its brackets tell whether the ends belong to it."""
    above = value >= low if interval.startswith("[") else value > low
    return above and (value <= high if interval.endswith("]") else value < high)
