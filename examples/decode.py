"""Ten lines for an analyst: counts in, estimates with honest intervals out."""

import rich

from hubbub.summary import read_summary
from hubbub_decoder import decode

summary = read_summary("homepage.parquet")
candidates = [f"v{i}" for i in range(1, 201)]  # the strings you look for; here v101 to v200 were reported by nobody
decoding = decode(summary, candidates)
rich.print(decoding)  # a table with bars
for estimate in decoding.detected:
    low, high = estimate.selection_adjusted_interval  # valid although the candidate was selected for being detected
    print(f"{estimate.candidate}: {estimate.share:.1%}, between {low:.1%} and {high:.1%}")
decoding.save("homepage.csv")
