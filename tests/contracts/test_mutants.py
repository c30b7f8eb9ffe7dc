"""The table of mutants names places that exist: a line that moves takes its entries with it."""

from __future__ import annotations

from tests.mutants.__main__ import TABLE, read_table
from tests.mutants.mutation import Mutant, mutants_of
from tests.support.paths import REPOSITORY


def test_every_mutant_is_in_the_code() -> None:
    table = read_table(TABLE)
    assert len(table) > 300
    possible: set[Mutant] = set()
    for area, file in {(mutant.area, mutant.file) for mutant in table}:
        possible |= mutants_of(area, file, (REPOSITORY / file).read_text(encoding="utf-8")).keys()
    assert [mutant for mutant in table if mutant not in possible] == []
