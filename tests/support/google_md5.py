"""Hash scheme `google-md5`, written once more after google/rappor: client/python/rappor.py, get_bloom_bits; client/cpp/encoder.cc."""

from __future__ import annotations

import hashlib


def bit_positions(value: bytes, cohort: int, num_bits: int, num_hashes: int) -> list[int]:
    """Return byte i of MD5(cohort || value) modulo k for each hash, in the order of the hashes. Positions may repeat.

    Above 256 bits a hash is two bytes, the lower one first.
    """
    digest = hashlib.md5(cohort.to_bytes(4, "big") + value, usedforsecurity=False).digest()
    if num_bits <= 256:
        return [byte % num_bits for byte in digest[:num_hashes]]
    return [(digest[2 * i] | digest[2 * i + 1] << 8) % num_bits for i in range(num_hashes)]
