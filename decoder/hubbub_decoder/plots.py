"""Plots (matplotlib) that check a decoding or a metric. Each takes axes, or makes a pyplot figure, and returns the axes.

Every result draws its own rows: `decoding.plot()`, `comparison.plot()`, `trends.plot()`, `association.plot()`.

>>> import matplotlib
>>> matplotlib.use("agg")
>>> from hubbub import Metric, UnaryResponse
>>> from hubbub.summary import BitCounts
>>> from hubbub_decoder import decode, plots
>>> survey = Metric.boolean("from_jfk", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
>>> decoding = decode(BitCounts(survey, [1000], [[400]]))
>>> axes = plots.plot_against_truth(decoding, {"true": 0.3})
>>> axes.figure.savefig("estimates.svg")  # doctest: +SKIP
"""

from hubbub_decoder.results.diagnostic_plots import (
    plot_against_truth,
    plot_epsilon,
    plot_numbers,
    plot_residuals,
)
from hubbub_decoder.results.plots import to_svg

__all__ = ["plot_against_truth", "plot_epsilon", "plot_numbers", "plot_residuals", "to_svg"]
