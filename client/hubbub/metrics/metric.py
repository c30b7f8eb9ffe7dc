"""A metric: one question asked of the population, with the parameters it is asked under."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeVar

from hubbub.errors import DefinitionError
from hubbub.metrics.params import MAX_BITS, Params
from hubbub.metrics.periods import PeriodKind
from hubbub.metrics.probability import DYADIC_DIGITS, numerator

MIN_STRING_BITS = 8
MAX_CLIENT_COHORTS = 256
_E = TypeVar("_E", bound=StrEnum)
_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,63}")


def is_metric_name(name: object) -> bool:
    """Say whether a metric may be called that."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


class Kind(StrEnum):
    """What a value is."""

    STRING = "string"
    CATEGORICAL = "categorical"
    BOOLEAN = "boolean"


@dataclass(frozen=True)
class Metric:
    """One question and how it is asked; immutable once collected under.

    name        : lower-case letters, digits, `_ . -`, at most 64, a letter first
    kind        : `string` (Bloom filter), `categorical` (one bit a category), `boolean` (one bit)
    params      : the mechanism; one-hot for categorical and boolean
    categories  : of a categorical metric, in the order of their bits
    other       : the category that stands in for an unknown one; None: unknown ones are invalid values
    period      : what one report stands for
    hold        : E: the value of an epoch's first period is reported for E periods, and the permanent noise is
                  drawn anew every E periods whether or not it changed; None: never drawn anew
    expires     : first day on which nothing is collected any more
    description, owner : for people; no bit depends on them

    `digest` covers every field that changes what a bit means.

    >>> Metric.boolean("from_jfk", prob_p=0, prob_q=1, prob_f=0.5).params.num_bits
    1
    """

    name: str
    kind: Kind
    params: Params
    categories: tuple[str, ...] = ()
    other: str | None = None
    period: PeriodKind = PeriodKind.DAY
    hold: int | None = None
    expires: date | None = None
    description: str = ""
    owner: str = ""

    def __post_init__(self) -> None:
        if not is_metric_name(self.name):
            raise DefinitionError(
                f"a metric's name is lower-case letters, digits, '_', '.', '-', at most 64, a letter first; "
                f"got {self.name!r}"
            )
        object.__setattr__(self, "kind", _member(Kind, "kind", self.kind, self.name))
        object.__setattr__(self, "period", _member(PeriodKind, "period", self.period, self.name))
        object.__setattr__(self, "categories", tuple(self.categories))
        if self.hold is not None and (isinstance(self.hold, bool) or not isinstance(self.hold, int) or self.hold < 1):
            raise DefinitionError(f"{self.name}: hold must be a whole number of periods, at least 1, got {self.hold!r}")
        match self.kind:
            case Kind.STRING:
                self._check_string()
            case Kind.CATEGORICAL:
                self._check_categorical()
            case Kind.BOOLEAN:
                self._check_one_hot(1)
        if self.kind is not Kind.CATEGORICAL and (self.categories or self.other is not None):
            raise DefinitionError(f"{self.name}: only a categorical metric has categories, got a {self.kind} one")

    @classmethod
    def string(cls, name: str, params: Params, **fields: Any) -> Metric:
        """Ask for a string: Bloom filter, cohorts, a dictionary of candidates at decoding."""
        return cls(name, Kind.STRING, params, **fields)

    @classmethod
    def categorical(
        cls, name: str, categories: tuple[str, ...], *, prob_p: float, prob_q: float, prob_f: float, **fields: Any
    ) -> Metric:
        """Ask for one of a known list (basic RAPPOR): one bit a category, decoded in closed form."""
        _check_number_of_categories(name, len(categories))
        params = Params.one_hot(len(categories), prob_p=prob_p, prob_q=prob_q, prob_f=prob_f)
        return cls(name, Kind.CATEGORICAL, params, tuple(categories), **fields)

    @classmethod
    def boolean(cls, name: str, *, prob_p: float, prob_q: float, prob_f: float, **fields: Any) -> Metric:
        """Ask yes or no; f = .5, p = 0, q = 1 is the classic two-coin survey."""
        return cls(name, Kind.BOOLEAN, Params.one_hot(1, prob_p=prob_p, prob_q=prob_q, prob_f=prob_f), **fields)

    def _check_string(self) -> None:
        if self.params.hash_scheme == "one-hot":
            raise DefinitionError(f"{self.name}: a string metric is hashed; take hash_scheme = 'murmur3-v1'")
        if self.params.num_bits < MIN_STRING_BITS:
            raise DefinitionError(
                f"{self.name}: num_bits of a string metric must be {MIN_STRING_BITS} to {MAX_BITS}, "
                f"got {self.params.num_bits}"
            )

    def _check_categorical(self) -> None:
        _check_number_of_categories(self.name, len(self.categories))
        self._check_one_hot(len(self.categories))
        for category in self.categories:
            if not isinstance(category, str) or not category:
                raise DefinitionError(f"{self.name}: a category is a non-empty string, got {category!r}")
            if any("\ud800" <= character <= "\udfff" for character in category):
                raise DefinitionError(
                    f"{self.name}: categories must be encodable as UTF-8, got {category!r}: remove lone surrogates"
                )
        if len(set(self.categories)) != len(self.categories):
            twice = sorted({c for c in self.categories if self.categories.count(c) > 1})
            raise DefinitionError(f"{self.name}: categories must differ, got {', '.join(twice)} more than once")
        if self.other is not None and self.other not in self.categories:
            raise DefinitionError(f"{self.name}: other must be one of the categories, got {self.other!r}")

    def _check_one_hot(self, num_bits: int) -> None:
        if self.params.hash_scheme != "one-hot" or self.params.num_bits != num_bits:
            raise DefinitionError(
                f"{self.name}: a {self.kind} metric takes one-hot parameters of {num_bits} bits, "
                f"got {self.params.hash_scheme} of {self.params.num_bits}"
            )

    def require_collectable(self) -> Metric:
        """Refuse what old reports may have but no new client may send: p > q, odd cohort counts."""
        if self.params.prob_p > self.params.prob_q:
            raise DefinitionError(
                f"{self.name}: prob_p must be below prob_q, got {self.params.prob_p:.6g} and "
                f"{self.params.prob_q:.6g}: exchange them"
            )
        m = self.params.num_cohorts
        if m > MAX_CLIENT_COHORTS or m & (m - 1):
            raise DefinitionError(
                f"{self.name}: num_cohorts must be a power of two up to {MAX_CLIENT_COHORTS}, got {m}: "
                "a client has one cohort number, cut to each metric's size"
            )
        return self

    def encoding_fields(self) -> Iterator[bytes]:
        """Yield what, beside the secret and the Bloom bits, the permanent noise depends on (format: fixed)."""
        params = self.params
        yield self.name.encode()
        yield self.kind.encode()
        yield params.hash_scheme.encode()
        for number in (
            params.num_bits,
            params.num_hashes,
            numerator(params.prob_f, DYADIC_DIGITS - 1),
            len(self.categories),
        ):
            yield number.to_bytes(8, "little")
        for category in self.categories:
            yield category.encode()

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of the canonical form of every field that changes what a bit means."""
        params = self.params
        canonical = {
            "categories": list(self.categories),
            "f": numerator(params.prob_f, DYADIC_DIGITS - 1),
            "hash_scheme": params.hash_scheme,
            "hold": self.hold,
            "kind": self.kind,
            "name": self.name,
            "num_bits": params.num_bits,
            "num_cohorts": params.num_cohorts,
            "num_hashes": params.num_hashes,
            "other": self.other,
            "p": numerator(params.prob_p, DYADIC_DIGITS),
            "period": self.period,
            "q": numerator(params.prob_q, DYADIC_DIGITS),
        }
        text = json.dumps(canonical, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(b"hubbub-metric-v1\n" + text.encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Return the definition as JSON can hold it; `from_dict` gives back an equal metric."""
        params = self.params
        return {
            "name": self.name,
            "kind": str(self.kind),
            "description": self.description,
            "owner": self.owner,
            "hash_scheme": params.hash_scheme,
            "num_bits": params.num_bits,
            "num_hashes": params.num_hashes,
            "num_cohorts": params.num_cohorts,
            "prob_p": params.prob_p,
            "prob_q": params.prob_q,
            "prob_f": params.prob_f,
            "categories": list(self.categories),
            "other": self.other,
            "period": str(self.period),
            "hold": self.hold,
            "expires": self.expires.isoformat() if self.expires else None,
            "digest": self.digest,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Metric:
        """Read what `to_dict` wrote, and check that it still has the digest it says."""
        try:
            metric = cls(
                name=fields["name"],
                kind=fields["kind"],
                params=Params(
                    num_bits=fields["num_bits"],
                    num_hashes=fields["num_hashes"],
                    num_cohorts=fields["num_cohorts"],
                    prob_p=fields["prob_p"],
                    prob_q=fields["prob_q"],
                    prob_f=fields["prob_f"],
                    hash_scheme=fields["hash_scheme"],
                ),
                categories=tuple(fields["categories"]),
                other=fields["other"],
                period=fields["period"],
                hold=fields["hold"],
                expires=date.fromisoformat(fields["expires"]) if fields["expires"] else None,
                description=fields["description"],
                owner=fields["owner"],
            )
            said = fields["digest"]
        except (KeyError, TypeError) as problem:
            raise DefinitionError(
                f"this is not a metric definition: {problem} is missing or of the wrong type"
            ) from None
        if metric.digest != said:
            raise DefinitionError(
                f"{metric.name}: the definition does not have the digest it says ({said!r}, really {metric.digest}): "
                "it was changed or damaged after it was written"
            )
        return metric


def has_expired(metric: Metric, day: date) -> bool:
    """Say whether a metric is not collected any more on that day."""
    return metric.expires is not None and day >= metric.expires


def _check_number_of_categories(name: str, number: int) -> None:
    if not 2 <= number <= MAX_BITS:
        raise DefinitionError(
            f"{name}: categories must be 2 to {MAX_BITS}, got {number}: "
            "one is no question (take a boolean), more need a string metric"
        )


def _member(kinds: type[_E], field: str, value: str, name: str) -> _E:
    try:
        return kinds(value)
    except ValueError:
        raise DefinitionError(f"{name}: {field} must be one of {', '.join(kinds)}, got {value!r}") from None
