"""Plans: the parameters of a metric from wishes, and what a definition buys. Importing it registers the planner of each kind."""

from hubbub_decoder.planning import kinds

__all__ = ["kinds"]
