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
Reports of a metric may have a public label, `group = { name = "version", values = ["1.x", "other"] }` (`group.py`).
Every metric may have `purpose`, and `review`, the address of its review.
A file may contain several versions of a metric. The last one is current; an aggregator accepts reports of each until it expires.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

from hubbub.errors import DefinitionError, HubbubError
from hubbub.metrics.group import Group
from hubbub.metrics.kinds import KINDS, KindWord, kind_from_table
from hubbub.metrics.metric import Metric
from hubbub.text import format_count, format_names, with_article

REQUIRED_FIELDS = ("name", "kind", "description", "owner", "expires")
_REGISTRY = ("purpose", "review")
OPTIONAL_FIELDS = ("period", "hold", "lifetime_epsilon", "group", *_REGISTRY)


class Definitions(Mapping[str, Metric]):
    """Metrics by name, as a mapping. `definitions["homepage"]` is the current version.

    Parameters
    ----------
    metrics
        Versions of all metrics, in file order. The last version of a name is the current one.

    Raises
    ------
    DefinitionError
        Two versions of a name have the same digest.
    """

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
        """Return the version with this name and digest, or None.

        Parameters
        ----------
        name
            Name of the metric.
        digest
            Digest of the version.

        Returns
        -------
        Metric | None
            The version, or None if the file does not have it.
        """
        return self._versions.get(name, {}).get(digest)

    def versions(self) -> Iterator[Metric]:
        """Yield every version of every metric, in file order.

        Yields
        ------
        Metric
            One version.
        """
        for versions in self._versions.values():
            yield from versions.values()

    def collections(self) -> Iterator[Metric]:
        """Yield what is counted separately: every version, or the metric of each value of its group, in file order.

        Yields
        ------
        Metric
            A version, or the metric of one value of its group.
        """
        for metric in self.versions():
            yield from metric.collections


def load_definitions(path: str | Path) -> Definitions:
    """Return the definitions of a TOML file.

    Parameters
    ----------
    path
        TOML file with a `[[metric]]` table for each definition.

    Returns
    -------
    Definitions
        Metrics of the file, by name.

    Raises
    ------
    DefinitionError
        The file cannot be read, or a definition is invalid. The message contains the file, the metric, the value and
        the rule.
    """
    if not isinstance(path, str | Path) or "\0" in str(path):
        raise DefinitionError(f"definitions must be the path of a TOML file, or a Definitions object, got {path!r}")
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as problem:
        raise DefinitionError(f"{path}: cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        if problem.object.startswith(b"PAR1"):
            raise DefinitionError(f"{path}: is a Parquet file: pass the TOML file that its metric is from") from None
        raise DefinitionError(f"{path}: is not UTF-8 text: save it as a UTF-8 TOML file") from None
    try:
        return parse_definitions(text)
    except HubbubError as problem:
        raise DefinitionError(f"{path}: {problem}") from None


def parse_definitions(text: str) -> Definitions:
    """Return the definitions of TOML text.

    Parameters
    ----------
    text
        TOML text with a `[[metric]]` table for each definition.

    Returns
    -------
    Definitions
        Metrics of the text, by name.

    Raises
    ------
    DefinitionError
        The text is not TOML, or a definition is invalid.

    Examples
    --------
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
    fields = (field for word in kinds for field in KINDS[word].fields_of_table(table))
    allowed = sorted({*REQUIRED_FIELDS, *fields, *OPTIONAL_FIELDS})
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
    for field in REQUIRED_FIELDS:
        if field not in table:
            raise DefinitionError(f"{field} is missing: every metric needs {', '.join(REQUIRED_FIELDS)}")
    kind = kind_from_table(table)
    for field in ("description", "owner", *(field for field in _REGISTRY if field in table)):
        if not isinstance(table[field], str) or not table[field].strip():
            raise DefinitionError(f"{field} must be a non-empty text for the users, got {table[field]!r}")
    if not isinstance(table["expires"], date) or isinstance(table["expires"], datetime):
        raise DefinitionError(f"expires must be a date such as 2027-01-01, got {table['expires']!r}")
    shared = {field: table[field] for field in (*OPTIONAL_FIELDS, "description", "owner", "expires") if field in table}
    if "group" in table:
        shared["group"] = Group.from_dict(table["group"])
        if shared["group"].value is not None:
            raise DefinitionError("group must have name and values alone: a value belongs to reports")
    return Metric(table["name"], kind, **shared)
