"""`HashScheme`: a mapping from a value to true bits, as far as the sizes and the privacy of a block depend on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from hubbub.errors import ParameterError

HASH_SCHEMES: dict[str, type[HashScheme]] = {}
"""Scheme of each name, which the modules of `metrics/kinds` fill."""


class HashScheme(ABC):
    """Mapping from a value to bits. The module of the kind that uses it has its class.

    name             : its name in definitions
    is_collectable   : whether clients report its bits; otherwise only imported reports have them
    has_like_cohorts : whether a value has equally many true bits in every cohort, if hashes do not coincide
    has_varying_ones : whether values have different numbers of true bits, up to h
    hashes_strings   : whether the parameters alone say which values there are: any string
    """

    name: ClassVar[str]
    is_collectable: ClassVar[bool] = True
    has_like_cohorts: ClassVar[bool] = True
    has_varying_ones: ClassVar[bool] = False
    hashes_strings: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        if "name" in cls.__dict__:
            HASH_SCHEMES[cls.name] = cls

    @classmethod
    @abstractmethod
    def check_sizes(cls, num_bits: int, num_hashes: int, num_cohorts: int) -> None:
        """Check k, h and m, each of which is within its own range; raises ParameterError."""

    @classmethod
    def possible_ones(cls, most: int) -> range | tuple[int, ...]:
        """Return the numbers of true bits that a value may have, at most so many and "no value" included."""
        return range(most + 1) if cls.has_varying_ones else (0, most)


class OneQuestion(HashScheme):
    """One bit, whose meaning is that of the cohort."""

    has_like_cohorts = False

    @classmethod
    def check_sizes(cls, num_bits: int, num_hashes: int, num_cohorts: int) -> None:  # noqa: ARG003  (any number of cohorts)
        if num_hashes != 1 or num_bits != 1:
            raise ParameterError(
                f"{cls.name} needs num_bits = 1 and num_hashes = 1, got {num_bits} and {num_hashes}: "
                "a client answers one question, which its cohort decides"
            )
