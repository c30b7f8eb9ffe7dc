"""Conformance kit: whether a client in another language makes and sends the reports that the documentation specifies.

rules                rules with their numbers; vectors.json has the cases of those of the encoding
scenarios            days of a client with a scripted aggregator and clock
scripted_aggregator  a server whose answers a scenario sets
noise                tests of the noise of a client's own generator
adapter              the client's program, which answers lines of JSON
"""
