"""Hash schemes that clients report: value and cohort -> positions of the one bits. One file per scheme.

hubbub_decoder/model/vectorized_hashing.py has the same functions for arrays of values. Keep both in sync.
"""

from __future__ import annotations

from hubbub.hashing import murmur3_v1

__all__ = ["murmur3_v1"]
