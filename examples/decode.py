"""Decode counts: estimates with confidence intervals, as a table and a CSV file."""

import rich

from hubbub.summary import read_summary
from hubbub_decoder import decode

summary = read_summary("homepage.parquet")
candidates = [f"v{i}" for i in range(1, 201)]  # the strings to look for; v101 to v200 have no reports
decoding = decode(summary, candidates)
rich.print(decoding)  # a table with bars
for estimate in decoding.detected:
    low, high = estimate.interval
    print(f"{estimate.candidate}: {estimate.share:.1%}, between {low:.1%} and {high:.1%}")
decoding.save("homepage.csv")
