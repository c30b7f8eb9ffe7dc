"""Metric definition: name, kind, parameters, period, expiry, digest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeVar

from hubbub.errors import DefinitionError, ParameterError
from hubbub.metrics.buckets import Buckets
from hubbub.metrics.canonical import (
    canonical_json,
    digest_fields,
    mechanism_from_dict,
    mechanism_to_dict,
)
from hubbub.metrics.discovery import Discovery
from hubbub.metrics.joint import JointParams, check_part_names
from hubbub.metrics.params import MEAN_COHORTS, Params
from hubbub.metrics.periods import PeriodKind
from hubbub.metrics.rules import (
    check_bloom_filter,
    check_categories,
    check_collectable,
    check_number_of_categories,
    check_review,
    check_scheme,
)
from hubbub.text import with_article

_E = TypeVar("_E", bound=StrEnum)
_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,63}")


def is_metric_name(name: object) -> bool:
    """Return whether a string is a valid metric name."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


class Kind(StrEnum):
    """Type of a metric's values."""

    STRING = "string"
    CATEGORICAL = "categorical"
    BOOLEAN = "boolean"
    ORDINAL = "ordinal"
    JOINT = "joint"


@dataclass(frozen=True)
class Metric:
    """Definition of one metric. Do not change a definition after collection has started: add a new version instead.

    name        : lower-case letters, digits, `_ . -`, at most 64 characters, starting with a letter
    kind        : `string` (Bloom filter), `categorical` (one bit per category), `boolean` (one bit), `ordinal` (one bit per bucket),
                  `joint` (two or three parts)
    params      : parameters of the mechanism; one-hot for categorical, boolean and ordinal metrics, threshold-v1 for ordinal metrics
                  that estimate a mean, JointParams for joint metrics
    categories  : categories of a categorical metric, in the order of their bits
    other       : category that replaces unknown values; None: unknown values are invalid
    period      : reporting period: a client sends one report for each
    hold        : epoch length in periods. All reports of an epoch repeat the value of its first report, and each epoch
                  has new permanent noise. None: the permanent noise of a value never changes under one secret
    discover    : prefix groups of a string metric whose strings `hubbub discover` finds; None: each client reports the whole string
    expires     : first day without collection
    description, owner, purpose : documentation for users; the reports do not depend on them
    review      : http or https address of the review that approved this version; "": none
    parts       : metrics whose values a joint metric reports together; their names are local to it. Period, hold and expiry
                  are those of the joint metric
    buckets     : buckets of an ordinal metric, and what it reports of several recordings

    `digest` covers every field on which the bits of a report depend.

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
    discover: Discovery | None = None
    parts: tuple[Metric, ...] = ()
    buckets: Buckets | None = None
    purpose: str = ""
    review: str = ""

    def __post_init__(self) -> None:
        if not is_metric_name(self.name):
            raise DefinitionError(
                f"a metric's name must have at most 64 lower-case letters, digits, '_', '.' and '-', starting with a letter; "
                f"got {self.name!r}"
            )
        object.__setattr__(self, "kind", _member(Kind, "kind", self.kind, self.name))
        object.__setattr__(self, "period", _member(PeriodKind, "period", self.period, self.name))
        object.__setattr__(self, "categories", tuple(self.categories))
        object.__setattr__(self, "parts", tuple(self.parts))
        if self.hold is not None and (isinstance(self.hold, bool) or not isinstance(self.hold, int) or self.hold < 1):
            raise DefinitionError(f"{self.name}: hold must be an integer >= 1, got {self.hold!r}")
        check_review(self.name, self.review)
        match self.kind:
            case Kind.STRING:
                check_bloom_filter(self.name, self.params)
            case Kind.CATEGORICAL:
                self._check_categorical()
            case Kind.BOOLEAN:
                check_scheme(self.name, self.kind, self.params, 1)
            case Kind.ORDINAL:
                self._check_ordinal()
            case Kind.JOINT:
                self._check_joint()
        if self.kind is not Kind.ORDINAL and self.buckets is not None:
            raise DefinitionError(f"{self.name}: only an ordinal metric has buckets, got {with_article(self.kind)} one")
        if self.kind is not Kind.JOINT and self.parts:
            raise DefinitionError(f"{self.name}: only a joint metric has parts, got {with_article(self.kind)} one")
        if self.kind is not Kind.CATEGORICAL and (self.categories or self.other is not None):
            raise DefinitionError(
                f"{self.name}: only a categorical metric has categories, got {with_article(self.kind)} one"
            )
        if self.discover is not None:
            self._check_discover(self.discover)

    @classmethod
    def string(cls, name: str, params: Params, **fields: Any) -> Metric:
        """Return a string metric: Bloom filter, cohorts, decoded with a list of candidates."""
        return cls(name, Kind.STRING, params, **fields)

    @classmethod
    def categorical(
        cls,
        name: str,
        categories: tuple[str, ...],
        *,
        prob_p: float,
        prob_q: float,
        prob_f: float | None = None,
        permanent_p: float | None = None,
        permanent_q: float | None = None,
        **fields: Any,
    ) -> Metric:
        """Return a categorical metric (basic RAPPOR): one bit per category, decoded in closed form."""
        check_number_of_categories(name, len(categories))
        params = Params.one_hot(
            len(categories),
            prob_p=prob_p,
            prob_q=prob_q,
            prob_f=prob_f,
            permanent_p=permanent_p,
            permanent_q=permanent_q,
        )
        return cls(name, Kind.CATEGORICAL, params, tuple(categories), **fields)

    @classmethod
    def boolean(
        cls,
        name: str,
        *,
        prob_p: float,
        prob_q: float,
        prob_f: float | None = None,
        permanent_p: float | None = None,
        permanent_q: float | None = None,
        **fields: Any,
    ) -> Metric:
        """Return a boolean metric; f = 0.5, p = 0, q = 1 is the classic two-coin survey. Its one bit needs a symmetric response."""
        params = Params.one_hot(
            1, prob_p=prob_p, prob_q=prob_q, prob_f=prob_f, permanent_p=permanent_p, permanent_q=permanent_q
        )
        return cls(name, Kind.BOOLEAN, params, **fields)

    @classmethod
    def ordinal(
        cls,
        name: str,
        buckets: Buckets | Sequence[float],
        *,
        prob_p: float,
        prob_q: float,
        prob_f: float | None = None,
        permanent_p: float | None = None,
        permanent_q: float | None = None,
        **fields: Any,
    ) -> Metric:
        """Return an ordinal metric: numbers in declared buckets, one bit per bucket, or the mean of numbers, one bit.

        buckets : `Buckets`, or the edges alone
        """
        if not isinstance(buckets, Buckets):
            buckets = Buckets(tuple(buckets))
        params = Params(
            num_bits=len(buckets),
            num_hashes=1,
            num_cohorts=MEAN_COHORTS if buckets.is_mean else 1,
            hash_scheme=buckets.hash_scheme,
            prob_p=prob_p,
            prob_q=prob_q,
            prob_f=prob_f,
            permanent_p=permanent_p,
            permanent_q=permanent_q,
        )
        return cls(name, Kind.ORDINAL, params, buckets=buckets, **fields)

    @classmethod
    def joint(cls, name: str, parts: Sequence[Metric], **fields: Any) -> Metric:
        """Return a joint metric: a report has the bits of all parts, so that the decoder can estimate how their values depend.

        >>> chains = {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.5}
        >>> parts = (Metric.boolean("paid", **chains), Metric.categorical("os", ("linux", "macos"), **chains))
        >>> Metric.joint("purchase", parts).params.num_bits
        3
        """
        parts = tuple(parts)
        if not all(isinstance(part, Metric) for part in parts):
            raise DefinitionError(f"{name}: parts must be metrics, such as Metric.string(...), got {parts!r}")
        try:
            params = _joint_params(parts)
        except ParameterError as problem:
            raise DefinitionError(f"{name}: {problem}") from None
        return cls(name, Kind.JOINT, params, parts=parts, **fields)

    def _check_joint(self) -> None:
        params = tuple(part.params for part in self.parts)
        if not isinstance(self.params, JointParams) or self.params.parts != params:
            raise DefinitionError(
                f"{self.name}: the parameters of a joint metric must be those of its parts; use Metric.joint(...)"
            )
        check_part_names(self.name, [part.name for part in self.parts])
        for part in self.parts:
            if part.hold is not None or part.expires is not None or part.period is not PeriodKind.DAY:
                raise DefinitionError(
                    f"{self.name}: part {part.name} must not have period, hold or expires: set them for the joint metric"
                )
            if part.kind is Kind.ORDINAL:
                raise DefinitionError(
                    f"{self.name}: part {part.name} must be a string, categorical or boolean metric, got an ordinal one: "
                    "declare its buckets as categories"
                )
            if part.discover is not None:
                raise DefinitionError(
                    f"{self.name}: part {part.name} must not have a discover table: its cohort is that of the joint metric"
                )

    def _check_discover(self, discover: Discovery) -> None:
        if self.kind is not Kind.STRING or self.params.hash_scheme != "murmur3-v1":
            raise DefinitionError(
                f"{self.name}: only a string metric with hash_scheme = 'murmur3-v1' has a discover table, "
                f"got a {self.kind} metric with {self.params.hash_scheme}"
            )
        try:
            discover.check_cohorts(self.params.num_cohorts)
        except DefinitionError as problem:
            raise DefinitionError(f"{self.name}: {problem}") from None

    def _check_categorical(self) -> None:
        check_number_of_categories(self.name, len(self.categories))
        check_scheme(self.name, self.kind, self.params, len(self.categories))
        check_categories(self.name, self.categories, self.other)

    def _check_ordinal(self) -> None:
        if not isinstance(self.buckets, Buckets):
            raise DefinitionError(
                f"{self.name}: an ordinal metric needs buckets, got {self.buckets!r}: pass Buckets((0, 10, 20))"
            )
        check_scheme(self.name, self.kind, self.params, len(self.buckets), self.buckets.hash_scheme)

    def require_collectable(self) -> Metric:
        """Return the metric if new clients may report it.

        Raises DefinitionError for parameters that only imported reports may have: p > q, a cohort number that is not a power of two,
        or a permanent response with noise that has no finite epsilon.
        """
        if self.parts:
            for part in self.parts:
                try:
                    part.require_collectable()
                except DefinitionError as problem:
                    raise DefinitionError(f"{self.name}: part {problem}") from None
            return self
        check_collectable(self.name, self.params)
        return self

    @property
    def one_hot_names(self) -> tuple[str, ...]:
        """Name of each bit of a metric without hashing: its categories, the labels of its buckets, or "true"; () of a string metric."""
        if self.kind is Kind.BOOLEAN:
            return ("true",)
        return self.categories if self.buckets is None else self.buckets.labels

    @property
    def components(self) -> tuple[Metric, ...]:
        """Parts of a joint metric; of every other metric, the metric alone."""
        return self.parts or (self,)

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of every field on which the bits of a report depend, in canonical JSON."""
        canonical = {**self._digest_fields, "hold": self.hold, "period": self.period}
        if self.discover is not None:
            canonical["discover"] = self.discover.digest_fields(self.params.num_cohorts)
        if self.buckets is not None:
            canonical["buckets"] = self.buckets.digest_fields()
        return hashlib.sha256(b"hubbub-metric-v1\n" + canonical_json(canonical).encode()).hexdigest()

    @property
    def _digest_fields(self) -> dict[str, Any]:
        mechanism = (
            {"parts": [part._digest_fields for part in self.parts]}
            if self.parts
            else digest_fields(self.params, self.categories, self.other)
        )
        return {**mechanism, "kind": self.kind, "name": self.name}

    def to_dict(self) -> dict[str, Any]:
        """Return the definition as JSON values; `from_dict` returns an equal metric."""
        return {
            "name": self.name,
            "kind": str(self.kind),
            "description": self.description,
            "owner": self.owner,
            **{field: value for field in ("purpose", "review") if (value := getattr(self, field))},
            **self._mechanism_dict,
            "period": str(self.period),
            "hold": self.hold,
            "expires": self.expires.isoformat() if self.expires else None,
            **({} if self.buckets is None else {"buckets": self.buckets.to_dict()}),
            "digest": self.digest,
            **({} if self.discover is None else {"discover": self.discover.to_dict()}),
        }

    @property
    def _mechanism_dict(self) -> dict[str, Any]:
        if self.parts:
            parts = ({"name": part.name, "kind": str(part.kind), **part._mechanism_dict} for part in self.parts)
            return {"parts": list(parts)}
        return mechanism_to_dict(self.params, self.categories, self.other)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Metric:
        """Return the metric of the fields that `to_dict` returned.

        Raises DefinitionError if a field is missing or invalid, or if the stored digest differs from the computed one.
        """
        try:
            name, kind = fields["name"], fields["kind"]
            parts = tuple(
                cls(part["name"], part["kind"], **mechanism_from_dict(part)) for part in fields.get("parts", ())
            )
            mechanism = {"params": _joint_params(parts), "parts": parts} if parts else mechanism_from_dict(fields)
            metric = cls(
                name,
                kind,
                **mechanism,
                period=fields["period"],
                hold=fields["hold"],
                expires=date.fromisoformat(fields["expires"]) if fields["expires"] else None,
                description=fields["description"],
                owner=fields["owner"],
                purpose=fields.get("purpose", ""),
                review=fields.get("review", ""),
                discover=Discovery.from_dict(fields["discover"]) if "discover" in fields else None,
                buckets=Buckets.from_dict(fields["buckets"]) if "buckets" in fields else None,
            )
            stored_digest = fields["digest"]
        except (KeyError, TypeError) as problem:
            raise DefinitionError(
                f"this is not a metric definition: {problem} is missing or has the wrong type"
            ) from None
        if metric.digest != stored_digest:
            raise DefinitionError(
                f"{metric.name}: the stored digest {stored_digest!r} differs from the computed digest {metric.digest}: "
                "the definition was changed or damaged after it was written"
            )
        return metric


def has_expired(metric: Metric, day: date) -> bool:
    """Return whether a metric is no longer collected on a day."""
    return metric.expires is not None and day >= metric.expires


def _joint_params(parts: Sequence[Metric]) -> JointParams:
    return JointParams(tuple(part.params for part in parts))


def _member(kinds: type[_E], field: str, value: str, name: str) -> _E:
    try:
        return kinds(value)
    except ValueError:
        raise DefinitionError(f"{name}: {field} must be one of {', '.join(kinds)}, got {value!r}") from None
