"""Accounts and drafts of all subjects in memory, packed: a server may have a million subjects, and reports for each in every period.

A subject that changes is unpacked. Beyond `MAX_UNPACKED_SUBJECTS` the one that was unpacked first is packed again, as one row of bytes.

    row      = marshal of ((template number, own field, ...), ...), one tuple for each account and draft of the subject
    template = the digest, and an account or draft without the fields that differ between subjects

Templates are kept: one or a few for each metric and period. A row exists in the memory of one process only.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterator, MutableMapping
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

from hubbub.privacy.ledger import Account, Key
from hubbub.sdk.storage.events import Draft

MAX_UNPACKED_SUBJECTS = 1000
"""More than a slice of accounts, so that building the batches of a slice unpacks each subject once."""

T = TypeVar("T", Account, Draft)


class SubjectItems(NamedTuple):
    """The accounts and drafts of one subject by digest."""

    accounts: dict[str, Account]
    drafts: dict[str, Draft]


_NOTHING = SubjectItems({}, {})


class SubjectTable:
    """Accounts and drafts by (subject, digest).

    accounts, drafts : the same as dictionaries. They may change while they are iterated over.
    """

    def __init__(self) -> None:
        self._rows: dict[str, SubjectItems | bytes] = {}
        self._unpacked: dict[str, None] = {}
        """Subjects whose row is unpacked, the first one first."""
        self._last_read: tuple[bytes, SubjectItems] = b"", _NOTHING
        self._templates: list[tuple[str, Account | Draft]] = []
        self._numbers: dict[tuple[object, ...], int] = {}
        self.accounts = PackedItems[Account](self, attrgetter("accounts"))
        self.drafts = PackedItems[Draft](self, attrgetter("drafts"))

    def __iter__(self) -> Iterator[str]:
        """Iterate over the subjects that ever had an account or a draft. They may become more meanwhile."""
        return iter(list(self._rows))

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, subject: str) -> SubjectItems:
        """Return what a subject has. It is not to be changed."""
        row = self._rows.get(subject)
        if type(row) is SubjectItems:
            return row
        if type(row) is not bytes:
            return _NOTHING
        last, items = self._last_read
        if row is not last:
            items = self._unpack(subject, row)
            self._last_read = row, items
        return items

    def change(self, subject: str) -> SubjectItems:
        """Return what a subject has, to be changed; call `keep` after the change."""
        row = self._rows.get(subject)
        if type(row) is SubjectItems:
            return row
        items = self._unpack(subject, row) if type(row) is bytes else SubjectItems({}, {})
        self._rows[subject] = items
        self._unpacked[subject] = None
        while len(self._unpacked) > MAX_UNPACKED_SUBJECTS:
            oldest = next(iter(self._unpacked))
            unpacked = self._rows[oldest]
            # in this order: a signal handler may raise anywhere
            if type(unpacked) is SubjectItems:
                self._rows[oldest] = self._pack(unpacked)
            del self._unpacked[oldest]
        return items

    def keep(self, subject: str, items: SubjectItems) -> None:
        """Keep what `change` returned, even if a signal handler's own changes have packed it meanwhile."""
        self._rows[subject] = items

    def replace_all(self, replace: Callable[[SubjectItems], SubjectItems]) -> None:
        """Replace what each subject has by `replace` of it."""
        for subject in self:
            items, is_packed = replace(self.read(subject)), type(self._rows[subject]) is bytes
            self._rows[subject] = self._pack(items) if is_packed else items

    def _pack(self, items: SubjectItems) -> bytes:
        entries: list[tuple[int | bytes, ...]] = []
        for digest, account in items.accounts.items():
            number = self._number(
                digest, account._replace(subject="", units=0, reports=0, tags=(), tag=b"", sealed=b"")
            )
            own: tuple[int | bytes, ...] = account.units, account.reports, account.tag, account.sealed, *account.tags
            entries.append((number, *own) if any(own) else (number,))
        for digest, (report, period, num_recordings, local, number_sealed) in items.drafts.items():
            template = Draft(report._replace(cohort=0, bits=b"", tag=b"", sealed=b""), period, 0, local)
            own_report = report.cohort, report.bits, report.tag, report.sealed
            entries.append((self._number(digest, template), num_recordings, number_sealed, *own_report))
        return marshal.dumps(tuple(entries))

    def _number(self, digest: str, template: Account | Draft) -> int:
        # with the types, because 1 == 1.0, and the journal writes them differently
        key = digest, template, *map(type, template)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._templates)
            self._templates.append((digest, template))
        return number

    def _unpack(self, subject: str, row: bytes) -> SubjectItems:
        items = SubjectItems({}, {})
        for number, *own in marshal.loads(row):  # noqa: S302  (`_pack` wrote it, in this process)
            digest, template = self._templates[number]
            if isinstance(template, Draft):
                num_recordings, number_sealed, cohort, bits, tag, sealed = own
                report = template.report._replace(cohort=cohort, bits=bits, tag=tag, sealed=sealed)
                items.drafts[digest] = Draft(report, template.period, num_recordings, template.local, number_sealed)
            elif own:
                units, reports, tag, sealed, *tags = own
                items.accounts[digest] = template._replace(
                    subject=subject, units=units, reports=reports, tag=tag, sealed=sealed, tags=tuple(tags)
                )
            else:
                items.accounts[digest] = template._replace(subject=subject)
        return items


class PackedItems(MutableMapping[Key, T], Generic[T]):
    """The accounts or the drafts of a table as a dictionary."""

    def __init__(self, table: SubjectTable, select: Callable[[SubjectItems], dict[str, T]]) -> None:
        self._table = table
        self._select: Callable[[SubjectItems], dict[str, T]] = select

    def __getitem__(self, key: Key) -> T:
        return self._select(self._table.read(key[0]))[key[1]]

    def __setitem__(self, key: Key, item: T) -> None:
        subject, digest = key
        items = self._table.change(subject)
        self._select(items)[digest] = item
        self._table.keep(subject, items)

    def __delitem__(self, key: Key) -> None:
        subject, digest = key
        items = self._table.change(subject)
        del self._select(items)[digest]
        self._table.keep(subject, items)

    def __iter__(self) -> Iterator[Key]:
        for subject in self._table:
            for digest in list(self._select(self._table.read(subject))):
                yield subject, digest

    def __len__(self) -> int:
        return sum(len(self._select(self._table.read(subject))) for subject in self._table)
