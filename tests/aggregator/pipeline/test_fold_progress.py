"""Time of the last fold and age of the oldest segment, without storing arrival times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.pipeline.folding import FoldProgress


class Segments:
    """Ids of segments with the round in which each arrived; a round folds the selected ones."""

    def __init__(self) -> None:
        self.now = 0.0
        self.came: dict[int, float] = {}
        self._next = 1
        self.progress = FoldProgress(self.ids, lambda: 1e9 + self.now, lambda: self.now)

    def ids(self) -> tuple[int, int] | None:
        return (min(self.came), max(self.came)) if self.came else None

    def arrive(self, number: int) -> None:
        for _ in range(number):
            self.came[self._next] = self.now
            self._next += 1

    def round(self, folded: set[int], arriving: int, fails: bool) -> None:
        def fold() -> None:
            self.arrive(arriving)
            self.came = {number: when for number, when in self.came.items() if number not in folded}
            if fails:
                raise OSError("private")

        if fails:
            with pytest.raises(OSError, match="private"):
                self.progress.round(fold)
        else:
            self.progress.round(fold)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.sets(st.integers(1, 40)), st.booleans(), st.integers(1, 9)),
        max_size=20,
    )
)
def test_oldest_segment_age_counts_from_first_round_without_its_fold(
    rounds: list[tuple[int, int, set[int], bool, int]],
) -> None:
    """The model stores for each segment the start of the first complete round that did not fold it."""
    segments, left, last_fold = Segments(), dict[int, float](), 0.0
    for before, during, folded, fails, seconds in rounds:
        segments.arrive(before)
        began, there = segments.now, set(segments.came)
        segments.round(folded, during, fails)
        left = {number: when for number, when in left.items() if number in segments.came}
        left |= {number: began for number in segments.came if number in there and number not in left}
        last_fold = last_fold if fails else 1e9 + segments.now
        segments.now += seconds
        oldest = min(segments.came, default=0)
        assert segments.progress.oldest_segment_age() == (segments.now - left[oldest] if oldest in left else 0.0)
        assert segments.progress.last_fold == last_fold


def test_oldest_segment_age_is_zero_while_folding_works() -> None:
    """Otherwise a scrape would show when a segment arrived."""
    segments = Segments()
    for _ in range(5):
        segments.arrive(2)
        segments.round(set(range(100)), 0, fails=False)
        segments.now += 10
        segments.arrive(1)
        assert segments.progress.oldest_segment_age() == 0.0


def test_unreachable_database_keeps_the_error_of_the_fold() -> None:
    answers = iter([(1, 2)])

    def ids() -> tuple[int, int]:
        try:
            return next(answers)
        except StopIteration:
            raise StoreError("the database is away") from None

    def fold() -> None:
        raise OSError("private")

    with pytest.raises(OSError, match="private"):
        FoldProgress(ids, lambda: 0.0).round(fold)
