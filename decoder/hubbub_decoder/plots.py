"""Plots (matplotlib) of decodings, comparisons, trends and metrics. Each takes axes, or makes a pyplot figure, and returns the axes.

>>> import matplotlib
>>> matplotlib.use("agg")
>>> from hubbub import Metric
>>> from hubbub.summary import BitCounts
>>> from hubbub_decoder import decode, plots
>>> survey = Metric.boolean("from_jfk", prob_p=0, prob_q=1, prob_f=0.5)
>>> axes = plots.plot_intervals(decode(BitCounts(survey, [1000], [[400]])))
>>> axes.figure.savefig("estimates.svg")  # doctest: +SKIP
"""

from hubbub_decoder.comparison.plots import plot_changes, plot_trends
from hubbub_decoder.results.diagnostic_plots import plot_epsilon, plot_residuals
from hubbub_decoder.results.plots import plot_against_truth, plot_intervals, plot_numbers, to_svg

__all__ = [
    "plot_against_truth",
    "plot_changes",
    "plot_epsilon",
    "plot_intervals",
    "plot_numbers",
    "plot_residuals",
    "plot_trends",
    "to_svg",
]
