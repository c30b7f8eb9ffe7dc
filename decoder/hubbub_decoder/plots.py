"""Plots of a decoding (matplotlib): intervals of the largest estimates, estimates against true shares, distributions of numbers.

import hubbub_decoder.plots
hubbub_decoder.plots.plot_intervals(decoding).savefig("estimates.png")
"""

from hubbub_decoder.results.plots import plot_against_truth, plot_intervals, plot_numbers, to_svg

__all__ = ["plot_against_truth", "plot_intervals", "plot_numbers", "to_svg"]
