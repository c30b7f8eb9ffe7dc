"""Conformance kit: whether a client in another language makes the reports that docs/reference/format.md specifies.

rules     rules of the page with their cases, from vectors.json
adapter   the client's program, which answers lines of JSON
run       asks the adapter about the cases of each rule
"""
