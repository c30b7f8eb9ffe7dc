"""Hash schemes: value and cohort -> positions of the one bits. One file per scheme.

hubbub_decoder/model/design_matrix.py has the same functions for arrays of values. Keep both in sync.
"""

from __future__ import annotations

from hubbub.hashing import google_md5, murmur3_v1

__all__ = ["google_md5", "murmur3_v1"]
