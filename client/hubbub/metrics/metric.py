"""Metric definition: name, kind, parameters, period, expiry, digest."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import Any, Literal, TypedDict, TypeVar, Unpack

from hubbub.errors import DefinitionError, HubbubError, InvalidValueError
from hubbub.mechanisms.mechanism import Mechanism, checked_mechanism
from hubbub.metrics.buckets import Buckets
from hubbub.metrics.discovery import Discovery
from hubbub.metrics.group import Group
from hubbub.metrics.kinds import (
    BooleanKind,
    CategoricalKind,
    Fact,
    JointKind,
    Kind,
    SetKind,
    StringKind,
    kind_from_dict,
    ordinal_kind,
)
from hubbub.metrics.params import Params, one_hot_params
from hubbub.metrics.periods import PeriodKind
from hubbub.metrics.rules import check_metric_name, check_review
from hubbub.number_checks import check_integer, check_number
from hubbub.text import format_count, with_article

K = TypeVar("K", bound=Kind)

_ROUNDING_SLACK = 1e-9


class MetricFields(TypedDict, total=False):
    """Optional fields of `Metric`, which its class methods take as keywords: `Metric` describes them."""

    period: PeriodKind | Literal["day", "week", "month"]
    hold: int | None
    expires: date | None
    lifetime_epsilon: float | None
    group: Group | None
    description: str
    owner: str
    purpose: str
    review: str


@dataclass(frozen=True)
class Metric:
    """Definition of one metric.

    Do not change a definition after collection has started: add a new version instead. `digest` covers every field on
    which the bits of a report depend.

    Parameters
    ----------
    name
        Lower-case letters, digits, ``_``, ``.`` and ``-``, at most 64 characters, starting with a letter.
    kind
        Kind of its values, with the parameters of the mechanism: `StringKind`, `CategoricalKind`, `BooleanKind`,
        `OrdinalKind`, `MeanKind`, `JointKind` or `SetKind`. The class methods below make it.
    period
        Reporting period. A client sends one report for each.
    hold
        Epoch length in periods. All reports of an epoch repeat the value of its first report, and each epoch has new
        permanent noise. None: the permanent noise of a value never changes under one secret.
    expires
        First day without collection. None: the metric does not expire.
    lifetime_epsilon
        Largest epsilon of all reports that a client ever sends under the metric's name, in all versions and under all
        its secrets. A client keeps the lowest limit that it has seen. None: the client's policy alone limits it. Reports
        do not depend on it, so it is not in the digest.
    group
        Public label of the reports, such as the version of the app. None: reports have no label.
    description, owner, purpose
        Documentation for users. The reports do not depend on it.
    review
        Address (http or https) of the review that approved this version. Empty: there is none.

    Raises
    ------
    DefinitionError
        A field has the wrong type or value, the kind takes no `group`, or `lifetime_epsilon` is below the epsilon of one unit of the budget.
    ParameterError
        `hold` is not an integer above 0, or `lifetime_epsilon` is not a number above 0.

    Examples
    --------
    >>> from hubbub import UnaryResponse
    >>> Metric.boolean("from_jfk", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5)).num_bits
    1
    """

    name: str
    kind: Kind
    period: PeriodKind = PeriodKind.DAY
    hold: int | None = None
    expires: date | None = None
    lifetime_epsilon: float | None = None
    group: Group | None = None
    description: str = ""
    owner: str = ""
    purpose: str = ""
    review: str = ""

    def __post_init__(self) -> None:
        check_metric_name(self.name)
        if not isinstance(self.kind, Kind):
            raise DefinitionError(
                f"{self.name}: kind must be a Kind, got {self.kind!r}: use Metric.string(...), for example"
            )
        if self.period not in tuple(PeriodKind):
            raise DefinitionError(f"{self.name}: period must be one of {', '.join(PeriodKind)}, got {self.period!r}")
        object.__setattr__(self, "period", PeriodKind(self.period))
        if self.hold is not None:
            check_integer(f"{self.name}: hold", self.hold, 1, hint="leave it out for reports without epochs")
        check_review(self.name, self.review)
        if self.group is not None:
            if not isinstance(self.group, Group):
                raise DefinitionError(f"{self.name}: group must be a Group, got {self.group!r}")
            with name_errors(self.name):
                self.kind.check_group()
        if self.lifetime_epsilon is not None:
            self._check_lifetime(self.lifetime_epsilon)

    def _check_lifetime(self, limit: float) -> None:
        check_number(
            f"{self.name}: lifetime_epsilon", limit, "(0, inf)", hint="leave it out for the policy's limits alone"
        )
        unit = math.fsum(
            block.mechanism.epsilon(block.num_bits, block.possible_ones, self.reports_per_unit) for block in self.blocks
        )
        if unit > limit + _ROUNDING_SLACK:
            raise DefinitionError(
                f"{self.name}: lifetime_epsilon must be at least {unit:.3f}, the epsilon of the first value, epoch or report that a client "
                f"is charged, got {limit:g}: no client could report. Raise it, or define the metric with more noise"
            )

    @property
    def reports_per_unit(self) -> float:
        """Reports that one unit of a client's budget covers: those of an epoch, of a value (infinite), or one without permanent noise."""
        if self.hold is not None:
            return self.hold
        return math.inf if any(block.mechanism.has_permanent_noise for block in self.blocks) else 1

    @classmethod
    def string(
        cls, name: str, params: Params, *, discover: Discovery | None = None, **fields: Unpack[MetricFields]
    ) -> Metric:
        """Return a string metric: Bloom filter and cohorts, decoded with a list of candidates.

        Parameters
        ----------
        name
            Name of the metric.
        params
            Sizes, hash scheme and mechanism.
        discover
            Groups for strings that are found without a list. None: every report is of a whole string.
        **fields
            Further fields of `Metric`.

        Returns
        -------
        Metric
            Metric of the kind `StringKind`.

        Raises
        ------
        DefinitionError
            A field is invalid.
        """
        with name_errors(name):
            kind = StringKind(params, discover)
        return cls(name, kind, **_values(fields))

    @classmethod
    def categorical(
        cls,
        name: str,
        categories: tuple[str, ...],
        mechanism: Mechanism,
        *,
        other: str | None = None,
        **fields: Unpack[MetricFields],
    ) -> Metric:
        """Return a categorical metric (basic RAPPOR): one bit per category, decoded in closed form.

        Parameters
        ----------
        name
            Name of the metric.
        categories
            The categories, in the order of their bits.
        mechanism
            Randomization of the bits: `UnaryResponse`, or `SubsetSelection` with one value more than there are categories,
            because "no value" is one of its values.
        other
            Category that replaces unknown values. None: unknown values are invalid.
        **fields
            Further fields of `Metric`.

        Returns
        -------
        Metric
            Metric of the kind `CategoricalKind`.

        Raises
        ------
        DefinitionError, ParameterError
            A field is invalid.
        """
        with name_errors(name):
            kind = CategoricalKind.one_hot(categories, other, checked_mechanism(mechanism))
        return cls(name, kind, **_values(fields))

    @classmethod
    def boolean(
        cls,
        name: str,
        mechanism: Mechanism,
        **fields: Unpack[MetricFields],
    ) -> Metric:
        """Return a boolean metric. f = 0.5, p = 0, q = 1 is the classic two-coin survey.

        Parameters
        ----------
        name
            Name of the metric.
        mechanism
            Randomization of the bit: a symmetric `UnaryResponse`, so `prob_q` = 1 - `prob_p`.
        **fields
            Further fields of `Metric`.

        Returns
        -------
        Metric
            Metric of the kind `BooleanKind`.

        Raises
        ------
        DefinitionError, ParameterError
            A field is invalid.
        """
        kind = BooleanKind(one_hot_params(1, checked_mechanism(mechanism)))
        return cls(name, kind, **_values(fields))

    @classmethod
    def ordinal(
        cls,
        name: str,
        buckets: Buckets | Sequence[float],
        mechanism: Mechanism,
        **fields: Unpack[MetricFields],
    ) -> Metric:
        """Return an ordinal metric: numbers in declared buckets, or the mean of numbers.

        A report has one bit per bucket, or one bit for the mean.

        Parameters
        ----------
        name
            Name of the metric.
        buckets
            `Buckets`, or the edges alone.
        mechanism
            Randomization of the bits: `UnaryResponse`, or `SubsetSelection` with a value for each bucket, and without a
            default one more for "no value". The mean has one bit, which needs a symmetric `UnaryResponse`.
        **fields
            Further fields of `Metric`.

        Returns
        -------
        Metric
            Metric of the kind `OrdinalKind` or `MeanKind`.

        Raises
        ------
        DefinitionError, ParameterError
            A field is invalid.
        """
        if not isinstance(buckets, Buckets):
            buckets = Buckets(tuple(buckets))
        kind = ordinal_kind(buckets, checked_mechanism(mechanism))
        return cls(name, kind, **_values(fields))

    @classmethod
    def set(
        cls,
        name: str,
        items: Sequence[str] | None,
        mechanism: Mechanism,
        *,
        num_cohorts: int = 1,
        **fields: Unpack[MetricFields],
    ) -> Metric:
        """Return a metric of sets: which of these items are used.

        With `UnaryResponse` a client is asked about one item, its cohort, and reports whether its set has it. With
        `PrivSet` it reports its whole set in one row. The counts show how many clients use each item, and not which
        items are used together.

        Parameters
        ----------
        name
            Name of the metric.
        items
            2 to 256 names, without commas. With `PrivSet`, at most 1,024 with its `max_items`. None: any strings, which
            `PrivSet` reports as hashes; the decoder needs candidates.
        mechanism
            Randomization of the bit: a symmetric `UnaryResponse`, so `prob_q` = 1 - `prob_p`; or `PrivSet`, with
            `num_values` of the number of items, or of their hashes, and `max_items` together.
        num_cohorts
            Number of cohorts, each with other hashes, if there are no items: a power of two up to 256.
        **fields
            Further fields of `Metric`.

        Returns
        -------
        Metric
            Metric of a kind of the class `SetKind`.

        Raises
        ------
        DefinitionError, ParameterError
            A field is invalid.

        Examples
        --------
        >>> from hubbub import UnaryResponse
        >>> plugins = Metric.set("plugins", ["spelling", "preview", "vim"], UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
        >>> plugins.num_bits, plugins.num_cohorts
        (1, 3)
        """
        with name_errors(name):
            if items is None:
                kind = SetKind.of_hashes(checked_mechanism(mechanism), num_cohorts)
            elif num_cohorts != 1:
                raise DefinitionError(f"num_cohorts = {num_cohorts} is for a set without items: leave it out")
            else:
                kind = SetKind.of_items(tuple(items), checked_mechanism(mechanism))
        return cls(name, kind, **_values(fields))

    @classmethod
    def joint(cls, name: str, parts: Sequence[Metric], **fields: Unpack[MetricFields]) -> Metric:
        """Return a joint metric: a report has the bits of all parts.

        The decoder can so estimate how the values of the parts depend on each other.

        Parameters
        ----------
        name
            Name of the metric.
        parts
            Metrics of the parts, with names that are local to the joint metric.
        **fields
            Further fields of `Metric`.

        Returns
        -------
        Metric
            Metric of the kind `JointKind`.

        Raises
        ------
        DefinitionError
            A part is not a metric, or has a field that only the joint metric may have.

        Examples
        --------
        >>> from hubbub import UnaryResponse
        >>> response = UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5)
        >>> parts = (Metric.boolean("paid", response), Metric.categorical("os", ("linux", "macos"), response))
        >>> Metric.joint("purchase", parts).num_bits
        3
        """
        parts = tuple(parts)
        if not all(isinstance(part, Metric) for part in parts):
            raise DefinitionError(f"{name}: parts must be metrics, such as Metric.string(...), got {parts!r}")
        for part in parts:
            own = (part.hold, part.expires, part.lifetime_epsilon, part.group)
            if any(setting is not None for setting in own) or part.period is not PeriodKind.DAY:
                raise DefinitionError(
                    f"{name}: part {part.name} must not have period, hold, expires, lifetime_epsilon or group: set them for the joint metric"
                )
        with name_errors(name):
            kind = JointKind.of_pairs((part.name, part.kind) for part in parts)
        return cls(name, kind, **_values(fields))

    def require_collectable(self) -> Metric:
        """Return the metric if new clients may report it.

        Returns
        -------
        Metric
            The metric itself.

        Raises
        ------
        DefinitionError
            Only imported reports may have these parameters: p > q, a number of cohorts that is not a power of two, the
            hash scheme of google/rappor, or a permanent response with noise that has no finite epsilon.
        """
        self.kind.require_collectable(self.name)
        return self

    @cached_property
    def blocks(self) -> tuple[Params, ...]:
        """Parameters of each block of bits: of the parts of a joint metric, or the only ones."""
        return self.kind.blocks

    @property
    def params(self) -> Params:
        """Parameters of a metric with one block of bits.

        Raises
        ------
        DefinitionError
            The metric is joint. Use `blocks`, or `components`.
        """
        if len(self.blocks) > 1:
            raise DefinitionError(
                f"{self.name}: the parts of a joint metric have parameters of their own: use metric.blocks or metric.components"
            )
        return self.blocks[0]

    @cached_property
    def num_bits(self) -> int:
        """Bits of a report, k: those of all blocks."""
        return self.kind.num_bits

    @cached_property
    def num_cohorts(self) -> int:
        """Number of cohorts, m."""
        return self.kind.num_cohorts

    @property
    def row_bytes(self) -> int:
        """Bytes of one report's bits: ceil(k / 8)."""
        return (self.num_bits + 7) // 8

    def require(self, kind: type[K], purpose: str) -> K:
        """Return the kind if it is of this class.

        Raises DefinitionError.

        >>> from hubbub import UnaryResponse
        >>> Metric.boolean("paid", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5)).require(StringKind, "discover")
        Traceback (most recent call last):
        hubbub.errors.DefinitionError: paid: discover needs a string metric, got a boolean one
        """
        if not isinstance(self.kind, kind):
            raise DefinitionError(
                f"{self.name}: {purpose} needs {with_article(kind.word)} metric, got {with_article(self.kind.word)} one"
            )
        return self.kind

    @cached_property
    def components(self) -> tuple[Metric, ...]:
        """Parts of a joint metric, each as a metric whose name is local to it. Any other metric has itself."""
        if len(self.blocks) == 1:
            return (self,)
        return tuple(Metric(name, kind) for name, kind in self.kind.components.items())

    @cached_property
    def title(self) -> str:
        """Name, with the value of the group if the reports are of one alone.

        Examples
        --------
        >>> from hubbub import UnaryResponse
        >>> coins = UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5)
        >>> dark = Metric.boolean("dark", coins, group=Group("arm", ("a", "other")))
        >>> dark.title, dark.in_group("a").title
        ('dark', 'dark (arm a)')
        """
        if self.group is None or self.group.value is None:
            return self.name
        return f"{self.name} ({self.group.name} {self.group.value})"

    def in_group(self, value: str | None) -> Metric:
        """Return the metric of the reports with one value of the group.

        Parameters
        ----------
        value
            A value of the group. None: all reports.

        Returns
        -------
        Metric
            Metric with a digest of its own, or for None that of the definition.

        Raises
        ------
        DefinitionError
            The metric has no group, or not this value.
        """
        if self.group is None:
            if value is None:
                return self
            raise DefinitionError(f"{self.name} has no group, got the value {value!r}: leave it out")
        if self.group.value == value:
            return self
        with name_errors(self.name):
            return replace(self, group=self.group.of(value))

    @cached_property
    def collections(self) -> tuple[Metric, ...]:
        """What is counted separately: the metric of each value of its group, or the metric itself."""
        if self.group is None or self.group.value is not None:
            return (self,)
        return tuple(map(self.in_group, self.group.values))

    def group_value(self, labels: Mapping[str, str]) -> str:
        """Return the value of the group under an app's labels.

        Parameters
        ----------
        labels
            Labels by the names of groups, such as ``{"version": "1.4.2"}``.

        Returns
        -------
        str
            Value of the group: "other" without a label. "": the metric has no group.
        """
        return "" if self.group is None else self.group.value_of(labels.get(self.group.name, ""))

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of `canonical_bytes`. With a value of the group, that of its collection."""
        digest = hashlib.sha256(canonical_bytes(self)).hexdigest()
        return digest if self.group is None else collection_digest(digest, self.group.value or "")

    def facts(self) -> Iterator[Fact]:
        """Yield what the definition says about reports and values, for people."""
        yield Fact("reports", f"one per {self.period} and client, also without a value")
        if self.hold is not None:
            yield Fact("hold", f"{format_count(self.hold, str(self.period))}, then new permanent noise")
        if self.group is not None:
            shown = self.group.values if self.group.value is None else (self.group.value,)
            yield Fact("group", f"{self.group.name}, sent in clear with each report", shown)
        if self.lifetime_epsilon is not None:
            yield Fact(
                "limit", f"epsilon {self.lifetime_epsilon:g} for all reports of a client, in all versions of the metric"
            )
        yield from self.kind.facts()

    def to_dict(self) -> dict[str, Any]:
        """Return the definition as JSON values.

        Returns
        -------
        dict[str, Any]
            Fields by name, as `from_dict` reads them, with the digest.
        """
        return {
            "name": self.name,
            "kind": str(self.kind),
            "description": self.description,
            "owner": self.owner,
            **{field: value for field in ("purpose", "review") if (value := getattr(self, field))},
            **self.kind.to_dict(),
            "period": str(self.period),
            "hold": self.hold,
            "expires": self.expires.isoformat() if self.expires else None,
            **({} if self.lifetime_epsilon is None else {"lifetime_epsilon": self.lifetime_epsilon}),
            **({} if self.group is None else {"group": self.group.to_dict()}),
            "digest": self.digest,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Metric:
        """Return the metric of the fields that `to_dict` returned.

        Parameters
        ----------
        fields
            Fields by name.

        Returns
        -------
        Metric
            Metric that is equal to the original one.

        Raises
        ------
        DefinitionError
            A field is missing or invalid, or the stored digest differs from the computed one.
        """
        try:
            name = fields["name"]
            with name_errors(name):
                kind = kind_from_dict(fields)
            metric = cls(
                name,
                kind,
                period=fields["period"],
                hold=fields["hold"],
                expires=date.fromisoformat(fields["expires"]) if fields["expires"] else None,
                lifetime_epsilon=fields.get("lifetime_epsilon"),
                group=Group.from_dict(fields["group"]) if fields.get("group") is not None else None,
                description=fields["description"],
                owner=fields["owner"],
                purpose=fields.get("purpose", ""),
                review=fields.get("review", ""),
            )
            stored_digest = fields["digest"]
        except HubbubError:
            raise
        except (KeyError, TypeError, ValueError) as problem:
            raise DefinitionError(
                f"this is not a metric definition: {problem} is missing or has the wrong type"
            ) from None
        if metric.digest != stored_digest:
            raise DefinitionError(
                f"{metric.name}: the stored digest {stored_digest!r} differs from the computed digest {metric.digest}: "
                "the definition was changed or damaged after it was written"
            )
        return metric


def _values(fields: MetricFields) -> dict[str, Any]:
    """Return fields for the constructor, which accepts the word of a period as well."""
    return {**fields}


def canonical_bytes(metric: Metric) -> bytes:
    """Return canonical JSON of every field on which the bits of a report depend, and of the group: the digest is its SHA-256."""
    fields = {**metric.kind.canonical(), "name": metric.name, "hold": metric.hold, "period": metric.period}
    if metric.group is not None:
        fields["group"] = metric.group.of(None).to_dict()
    document = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return b"hubbub-metric-v1\n" + document.encode()


def collection_digest(digest: str, value: str) -> str:
    """Return the digest under which the reports of a definition and a value of its group are counted; without a value the definition's."""
    if not value:
        return digest
    return hashlib.sha256(f"hubbub-group-v1\n{digest}\n{value}".encode("utf-8", "surrogatepass")).hexdigest()


def has_expired(metric: Metric, day: date) -> bool:
    """Return whether a metric is no longer collected on a day."""
    return metric.expires is not None and day >= metric.expires


def folder_of(metric: Metric) -> str:
    """Return the folder of a metric version, or of one value of its group, in directories and addresses of results."""
    folder, group = f"{metric.name}@{metric.in_group(None).digest[:8]}", metric.group
    return folder if group is None or group.value is None else f"{folder}-{group.value}"


@contextmanager
def name_errors(name: str) -> Iterator[None]:
    """Put the name of a metric before the message of a DefinitionError or InvalidValueError."""
    try:
        yield
    except (DefinitionError, InvalidValueError) as problem:
        raise type(problem)(f"{name}: {problem}") from None
