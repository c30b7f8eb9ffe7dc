"""Decode counts: whether the estimates can be used, and a share with its confidence interval."""

from hubbub.summary import read_summary
from hubbub_decoder import decode

candidates = [f"v{i}" for i in range(1, 201)]
decoding = decode(read_summary("homepage.parquet"), candidates)
print(decoding.diagnose().verdict)  # whether the estimates can be used
low, high = decoding["v1"].interval
print(f"v1 has a share of {decoding['v1'].share:.1%}, between {low:.1%} and {high:.1%}")
