"""What the decoder does with each kind of metric: `operations_of(metric)` returns it.

Each module registers the operations of its kinds, and is imported here.
"""

from hubbub_decoder.kinds import joint, numbers, one_hot, sets, strings

__all__ = ["joint", "numbers", "one_hot", "sets", "strings"]
