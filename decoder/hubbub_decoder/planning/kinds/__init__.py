"""How each kind is planned: `planner_for` and `planner_of` of `planning/wishes.py` return it.

Each module registers the planners of its kinds, and is imported here.
"""

from hubbub_decoder.planning.kinds import one_hot, strings

__all__ = ["one_hot", "strings"]
