"""Value and cohort -> positions of the bits that are set: one file a hash scheme.

The decoder hashes whole dictionaries with numpy; hubbub_decoder/model/design_matrix.py keeps in sync with these files.
"""

from __future__ import annotations

from hubbub.encoding.hashing import google_md5, murmur3_v1

__all__ = ["google_md5", "murmur3_v1"]
