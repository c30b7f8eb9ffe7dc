"""Strings, as the bits of a Bloom filter."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hubbub.errors import DefinitionError, InvalidValueError, ParameterError
from hubbub.hashing import murmur3_v1
from hubbub.mechanisms.mechanism import mechanism_of_fields
from hubbub.metrics.discovery import Discovery
from hubbub.metrics.hash_schemes import HashScheme
from hubbub.metrics.kinds.kind import (
    DIGEST_BYTES,
    BlockKind,
    BloomBits,
    Fact,
    KindWord,
    Value,
    require_str,
)
from hubbub.metrics.params import MAX_BITS, Params
from hubbub.metrics.rules import check_hash_scheme
from hubbub.text import format_count

MIN_STRING_BITS = 8
"""Smallest number of bits of a new string metric."""

_MD5_BYTES = 16


class BloomFilter(HashScheme):
    """One bit for each of h hashes of a string.

    min_bits : smallest number of bits of a metric
    """

    hashes_strings = True
    min_bits: ClassVar[int]


class Murmur3Filter(BloomFilter):
    """Bloom filter whose h hashes have h different positions."""

    name = "murmur3-v1"
    min_bits = MIN_STRING_BITS

    @classmethod
    def check_sizes(cls, num_bits: int, num_hashes: int, num_cohorts: int) -> None:
        if num_hashes >= num_bits:
            raise ParameterError(
                f"num_hashes must be below num_bits, got {num_hashes} of {num_bits}: "
                "a value that sets every bit cannot be distinguished; use fewer hashes or more bits"
            )


class Md5Filter(BloomFilter):
    """Bloom filter of google/rappor, whose hashes may coincide. Only imported reports have it, and the decoder has its hashes.

    It has every size that those clients accept: the limits of new definitions do not hold for reports that exist. One bit is that of a boolean.
    """

    name = "google-md5"
    min_bits = 2
    is_collectable = False
    has_varying_ones = True

    @classmethod
    def check_sizes(cls, num_bits: int, num_hashes: int, num_cohorts: int) -> None:
        size = cls.bytes_per_hash(num_bits)
        if num_hashes * size > _MD5_BYTES:
            raise ParameterError(
                f"{cls.name} with {num_bits} bits has at most {_MD5_BYTES // size} hashes, got {num_hashes}: each takes "
                f"{format_count(size, 'byte')} of the {_MD5_BYTES} of MD5; check h and k"
            )

    @staticmethod
    def bytes_per_hash(num_bits: int) -> int:
        """Return the bytes of MD5 that a hash takes, the lowest first: 1, and 2 above 256 bits.

        Source: google/rappor, client/cpp/encoder.cc, MakeBloomFilter.
        """
        return 1 if num_bits <= 1 << 8 else 2


_FEW_COHORTS = 4
"""With fewer cohorts, an unlisted string can have the bits of a candidate in every cohort."""


@dataclass(frozen=True)
class StringKind(BlockKind):
    """Any string, as a Bloom filter: bit i is one if one of the h hashes has position i.

    discover : groups of cohorts that report fragments, whose strings `hubbub discover` finds; None: each client reports the whole string
    """

    discover: Discovery | None = None

    word = KindWord.STRING
    required_fields = ("num_bits", "num_hashes", "num_cohorts")
    optional_fields = ("hash_scheme", "discover")
    json_fields = ("discover",)
    needs_candidates = True
    is_tested = True
    value_noun = "candidate"
    value_nouns = "candidates"

    def __post_init__(self) -> None:
        scheme = self.params.scheme
        if not issubclass(scheme, BloomFilter):
            raise DefinitionError("a string metric needs a Bloom filter; use hash_scheme = 'murmur3-v1'")
        if self.params.num_bits < scheme.min_bits:
            raise DefinitionError(
                f"num_bits of a string metric must be {scheme.min_bits} to {MAX_BITS}, got {self.params.num_bits}"
            )
        if not self.params.mechanism.has_independent_bits:
            raise DefinitionError("a string metric needs a mechanism whose bits are independent; use unary")
        if self.discover is not None:
            self.discover.check_cohorts(self.params.num_cohorts)

    @property
    def in_clear(self) -> str:
        return "" if self.discover is None else "which part of your answer a report is about"

    def check_part(self, name: str) -> None:
        if self.discover is not None:
            raise DefinitionError(f"part {name} must not have a discover table: its cohort is that of the joint metric")

    def warnings(self) -> Iterator[str]:
        if self.params.num_cohorts < _FEW_COHORTS:
            yield (
                f"num_cohorts = {self.params.num_cohorts}: a detected candidate may be a frequent unlisted string. Use 8 or more cohorts"
            )

    def check_group(self) -> None:
        if self.discover is not None:
            raise DefinitionError(
                "a metric with a discover table takes no group: its clients are divided among the lengths already. Discover strings without "
                "a group, and look for them in a second metric with one"
            )

    @property
    def whole_cohorts(self) -> range:
        if self.discover is None:
            return range(self.params.num_cohorts)
        return self.discover.cohorts(len(self.discover.lengths), self.params.num_cohorts)

    @property
    def has_own_cohort(self) -> bool:
        return self.discover is not None

    @property
    def num_strings(self) -> int:
        return 1

    @property
    def distinct_values(self) -> float:
        return math.inf

    def is_valid_at_sight(self, value: object) -> bool:
        return type(value) is str and value.isascii()

    def true_bits(self, value: Any, cohort: int, threshold: float | None = None) -> BloomBits:
        if value is None:
            return BloomBits(0)
        text = utf8(require_str(self, value))
        if text is None:
            raise InvalidValueError("the value cannot be encoded as UTF-8: remove lone surrogates")
        params, discover = self.params, self.discover
        check_hash_scheme(self.word, params)
        hashed = text if discover is None else discover.fragment(text, discover.group(cohort, params.num_cohorts))
        bits = _bits_at(murmur3_v1.bit_positions(hashed, cohort, params.num_bits, params.num_hashes))
        bits.value_digest = hashlib.sha256(text).digest()[:DIGEST_BYTES]
        return bits

    def parse_value(self, text: str) -> Value:
        return text

    def facts(self) -> Iterator[Fact]:
        yield Fact("value", "any text; only its hashed bits are reported")
        yield from self._bit_facts()
        if self.discover is None:
            return
        discover, m = self.discover, self.params.num_cohorts
        held_out = len(discover.cohorts(len(discover.lengths), m))
        symbols = "bytes" if discover.alphabet is None else f"characters of {len(discover.alphabet)}"
        lengths = ", ".join(map(str, discover.lengths))
        yield Fact(
            "discover",
            f"each client reports a prefix of {lengths} {symbols}, or the whole value ({held_out} of {m} cohorts)",
        )
        yield Fact(
            "cohort and group",
            f"of this metric alone: an identifier of {m.bit_length() - 1} bits, the same in all of a client's reports",
        )

    def canonical(self) -> dict[str, Any]:
        if self.discover is None:
            return super().canonical()
        return {**super().canonical(), "discover": self.discover.digest_fields(self.params.num_cohorts)}

    def to_dict(self) -> dict[str, Any]:
        discover = {} if self.discover is None else {"discover": self.discover.to_dict()}
        return {**super().to_dict(), **discover}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> BlockKind:
        return cls(Params.from_dict(fields), _discovery(fields))

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> StringKind:
        sizes = {name: table[name] for name in (*cls.required_fields, "hash_scheme") if name in table}
        return cls(Params(**sizes, mechanism=mechanism_of_fields(table, sizes["num_bits"])), _discovery(table))

    def to_table(self) -> dict[str, Any]:
        fields = {name: getattr(self.params, name) for name in self.required_fields}
        if self.params.scheme is not Murmur3Filter:
            fields["hash_scheme"] = self.params.hash_scheme
        if self.discover is not None:
            fields["discover"] = {name: value for name, value in self.discover.to_dict().items() if value is not None}
        return fields


def _discovery(fields: Mapping[str, Any]) -> Discovery | None:
    return Discovery.from_dict(fields["discover"]) if "discover" in fields else None


def utf8(value: str) -> bytes | None:
    """Return the bytes of a string; None for a lone surrogate. Not raised here: a UnicodeEncodeError contains the value."""
    try:
        return value.encode()
    except UnicodeEncodeError:
        return None


def _bits_at(positions: Iterable[int]) -> BloomBits:
    bits = 0
    for position in positions:
        bits |= 1 << position
    return BloomBits(bits)
