"""How each kind is planned: `planner_for` and `planner_of` of `planning/wishes.py` return it.

Each module registers the planners of its kinds, and is imported here.
"""

from hubbub_decoder.planning.kinds import numbers, one_hot, sets, strings

__all__ = ["numbers", "one_hot", "sets", "strings"]
