"""Measurements behind the figures of the documents: `python -m benchmarks` lists them, `make bench-NAME` runs one.

A module of this folder guards a figure, which is measured again before a release. A module of `benchmarks.studies` answered a question once;
its table stands in a document.
"""
