"""How each kind is planned: `planner_for(wishes)` and `planner_of(word)` return it.

Each module registers the planners of its kinds, and is imported here.
"""

from hubbub_decoder.planning.kinds import one_hot, strings

__all__ = ["one_hot", "strings"]
