"""Ten lines for an analyst: counts in, estimates with honest intervals out."""

import rich

from hubbub_decoder import decode
from hubbub_decoder.pull import pull_summary

summary = pull_summary("http://127.0.0.1:8000", "homepage")  # or hubbub.summary.read_summary("homepage.parquet")
candidates = ["https://example.org/", "https://example.com/", "about:blank"]
decoding = decode(summary, candidates)
rich.print(decoding)  # a table with bars
for estimate in decoding.detected:
    print(f"{estimate.candidate}: {estimate.share:.1%}, between {estimate.low:.1%} and {estimate.high:.1%}")
decoding.save("homepage.csv")
