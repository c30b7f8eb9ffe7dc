"""Plots of a decoding (matplotlib): intervals of the largest estimates, and estimates against true shares.

import hubbub_decoder.plots
hubbub_decoder.plots.plot_intervals(decoding).savefig("estimates.png")
"""

from hubbub_decoder.results.plots import plot_against_truth, plot_intervals, to_svg

__all__ = ["plot_against_truth", "plot_intervals", "to_svg"]
