"""Conformance kit: whether a client in another language makes and sends the reports that the documentation specifies.

rules                rules with their numbers; vectors.json has the cases of those of the encoding
world                a client, a scripted aggregator and the time of both
scenarios            days of a client, its uploads and the answers to them
ledger, consent      what values cost, and what a withdrawal deletes
clock                epochs, days without a run, outages, and when a report leaves
recording            several recordings, noise and sealed values
scripted_aggregator  a server whose answers a scenario sets
noise                tests of the noise of a client's own generator
adapter              the client's program, which answers lines of JSON
"""
