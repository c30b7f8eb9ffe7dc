"""Parse and look up metric definitions in a TOML file, which the client and the aggregator share.

    [[metric]]
    name = "homepage"            kind = "string"             description = "..."      owner = "you@example.org"
    num_bits = 128               num_hashes = 2              num_cohorts = 64
    prob_p = 0.25                prob_q = 0.75               prob_f = 0.5
    period = "day"               expires = 2027-01-01

A string or categorical metric may have `permanent_p` and `permanent_q` instead of prob_f.
A categorical metric has `categories`, and optionally `other`, instead of num_bits, num_hashes and num_cohorts; a boolean metric has neither.
A string metric may have a table `[metric.discover]` (`hubbub.metrics.discovery`).
A joint metric has two or three [[metric.part]] tables after it, with `name`, `kind` and the fields of their mechanism.
An ordinal metric has `edges`, and optionally `several`, `unit`, `representatives` and `default` (`buckets.py`).
Every metric may have `purpose`, and `review`, the address of its review.
A file may contain several versions of a metric. The last one is current; an aggregator accepts reports of each until it expires.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

from hubbub.errors import DefinitionError, HubbubError
from hubbub.mechanisms.unary import PERMANENT_FIELDS
from hubbub.metrics.kinds import KINDS, KindWord, kind_word
from hubbub.metrics.metric import Metric, name_errors
from hubbub.text import format_count, format_names, with_article

_PROBABILITIES = ("prob_p", "prob_q")
_REQUIRED = ("name", "kind", "description", "owner", "expires")
_REGISTRY = ("purpose", "review")
_OPTIONAL = ("period", "hold", *_REGISTRY)


class Definitions(Mapping[str, Metric]):
    """Metrics by name. `definitions["homepage"]` is the current version, `version(name, digest)` returns any version."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._versions: dict[str, dict[str, Metric]] = {}
        for metric in metrics:
            versions = self._versions.setdefault(metric.name, {})
            if metric.digest in versions:
                raise DefinitionError(
                    f"{metric.name}: two definitions have the same digest {metric.digest[:12]}, so their reports are the same: delete one"
                )
            versions[metric.digest] = metric

    def __getitem__(self, name: str) -> Metric:
        return next(reversed(self._versions[name].values()))

    def __iter__(self) -> Iterator[str]:
        return iter(self._versions)

    def __len__(self) -> int:
        return len(self._versions)

    def __repr__(self) -> str:
        return f"<Definitions of {format_count(len(self), 'metric')}: {format_names(list(self))}>"

    def version(self, name: str, digest: str) -> Metric | None:
        """Return the version with this name and digest, or None."""
        return self._versions.get(name, {}).get(digest)

    def versions(self) -> Iterator[Metric]:
        """Yield every version of every metric, in file order."""
        for versions in self._versions.values():
            yield from versions.values()


def load_definitions(path: str | Path) -> Definitions:
    """Return the definitions of a TOML file.

    Raises DefinitionError; its message contains the file, the metric, the value and the rule.
    """
    if not isinstance(path, str | Path) or "\0" in str(path):
        raise DefinitionError(f"definitions must be the path of a TOML file, or a Definitions object, got {path!r}")
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as problem:
        raise DefinitionError(f"{path}: cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise DefinitionError(f"{path}: is not UTF-8 text: save it as a UTF-8 TOML file") from None
    try:
        return parse_definitions(text)
    except HubbubError as problem:
        raise DefinitionError(f"{path}: {problem}") from None


def parse_definitions(text: str) -> Definitions:
    """Return the definitions of TOML text.

    >>> parse_definitions("")
    Traceback (most recent call last):
    hubbub.errors.DefinitionError: there is no [[metric]] table: write one for each metric
    """
    import tomllib  # not needed by apps that define their metrics in Python

    if not isinstance(text, str):
        raise DefinitionError(f"definitions must be TOML text, got {type(text).__name__}: pass a str")
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as problem:  # also of an integer with 5,000 digits, and of 1,000 nested lists
        raise DefinitionError(f"is not TOML: {problem}") from None
    tables = document.pop("metric", None)
    if document:
        raise DefinitionError(f"unknown top-level key {next(iter(document))!r}: metrics are [[metric]] tables")
    if not tables or not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise DefinitionError("there is no [[metric]] table: write one for each metric")
    return Definitions([_metric(table) for table in tables])


def _metric(table: dict[str, Any]) -> Metric:
    name = table.get("name")
    label = name if isinstance(name, str) else "a metric without a name"
    try:
        return _parse_metric(table).require_collectable()
    except HubbubError as problem:
        message = str(problem)
        raise DefinitionError(message if message.startswith(f"{label}:") else f"{label}: {message}") from None


def _check_keys(table: dict[str, Any]) -> None:
    """Raise DefinitionError for a key that no metric of this kind has."""
    kind = table.get("kind")
    kinds = [KindWord(kind)] if kind in tuple(KindWord) else list(KindWord)
    fields = (field for each in kinds for field in (*KINDS[each].required_fields, *KINDS[each].optional_fields))
    chances = () if kinds == [KindWord.JOINT] else (*_PROBABILITIES, *PERMANENT_FIELDS)
    allowed = sorted({*_REQUIRED, *chances, *fields, *_OPTIONAL})
    unknown = next((field for field in table if field not in allowed), None)
    if unknown is None:
        return
    from difflib import get_close_matches

    listed = f"{with_article(kinds[0])} metric" if len(kinds) == 1 else "a metric"
    near = get_close_matches(unknown, [field for field in allowed if field not in table], 1)
    hint = f"did you mean {near[0]}? A{listed[1:]}" if near else listed
    raise DefinitionError(f"unknown key {unknown!r}: {hint} has {', '.join(allowed)}")


def _parse_metric(table: dict[str, Any]) -> Metric:
    _check_keys(table)
    is_joint = table.get("kind") == KindWord.JOINT
    _check_required(table, _REQUIRED if is_joint else (*_REQUIRED, *_PROBABILITIES))
    kind = _kind(table)
    for field in ("description", "owner", *(field for field in _REGISTRY if field in table)):
        if not isinstance(table[field], str) or not table[field].strip():
            raise DefinitionError(f"{field} must be a non-empty text for the users, got {table[field]!r}")
    if not isinstance(table["expires"], date) or isinstance(table["expires"], datetime):
        raise DefinitionError(f"expires must be a date such as 2027-01-01, got {table['expires']!r}")
    shared = {field: table[field] for field in (*_OPTIONAL, "description", "owner", "expires") if field in table}
    if is_joint:
        return Metric.joint(table["name"], _parse_parts(table["part"]), **shared)
    return _parse_mechanism(table, kind, shared)


def _parse_parts(tables: Any) -> list[Metric]:
    """Return the parts of a joint metric."""
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise DefinitionError(f"part must be [[metric.part]] tables, got {tables!r}")
    parts = []
    for table in tables:
        try:
            _check_required(table, ("name", "kind", *_PROBABILITIES))
            kind = _kind(table)
            fields = (*KINDS[kind].required_fields, *KINDS[kind].optional_fields)
            groups = ("name", "kind", *_PROBABILITIES, *PERMANENT_FIELDS, *fields)
            unknown = next((field for field in table if field not in groups), None)
            if unknown is not None:
                raise DefinitionError(f"unknown key {unknown!r}: a {kind} part has {', '.join(sorted(groups))}")
            parts.append(_parse_mechanism(table, kind, {}))
        except HubbubError as problem:
            message = str(problem)
            name = str(table.get("name", "without a name"))
            raise DefinitionError(
                f"part {message if message.startswith(f'{name}:') else f'{name}: {message}'}"
            ) from None
    return parts


def _check_required(table: dict[str, Any], required: tuple[str, ...]) -> None:
    """Raise DefinitionError if a required field of every metric, or its permanent response, is missing."""
    for field in required:
        if field not in table:
            raise DefinitionError(f"{field} is missing: every metric needs {', '.join(required)}")
    if "prob_p" in required and not any(field in table for field in PERMANENT_FIELDS):
        raise DefinitionError(
            f"prob_f is missing: every metric needs {', '.join(required)}, and prob_f or the pair permanent_p, permanent_q"
        )


def _kind(table: dict[str, Any]) -> KindWord:
    """Return the kind of a table that has the fields which its kind requires."""
    kind = kind_word(table["kind"])
    required = KINDS[kind].required_fields
    for field in required:
        if field not in table:
            raise DefinitionError(f"{field} is missing: {with_article(kind)} metric needs {', '.join(required)}")
    return kind


def _parse_mechanism(table: dict[str, Any], kind: KindWord, shared: dict[str, Any]) -> Metric:
    """Return the metric of a table's mechanism: kind, sizes and probabilities."""
    probabilities = {field: table[field] for field in (*_PROBABILITIES, *PERMANENT_FIELDS) if field in table}
    with name_errors(table["name"]):
        of_table = KINDS[kind].from_table(table, probabilities)
    return Metric(table["name"], of_table, **shared)
