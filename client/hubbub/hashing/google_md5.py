"""Hash scheme `google-md5`, compatible with google/rappor, to decode reports of its clients.

    digest = MD5(cohort as 4 bytes, big-endian || value as UTF-8)        bit i = digest[i] mod k

Each hash is one byte, so k <= 256 and h <= 16. Positions are not uniform unless k divides 256, and several hashes may coincide.

Source: google/rappor, client/python/rappor.py, get_bloom_bits.
"""

from __future__ import annotations

import hashlib


def bit_positions(value: bytes, cohort: int, num_bits: int, num_hashes: int) -> list[int]:
    """Return the position of each hash, in the order of the hashes. Positions may repeat.

    value : UTF-8      cohort : in [0, 2**32)      num_bits : in [1, 256]      num_hashes : in [1, 16]

    >>> bit_positions(b"v1", cohort=0, num_bits=16, num_hashes=2)
    [8, 10]
    """
    digest = hashlib.md5(cohort.to_bytes(4, "big") + value, usedforsecurity=False).digest()
    return [byte % num_bits for byte in digest[:num_hashes]]
