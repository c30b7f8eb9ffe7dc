"""Hash scheme `murmur3-v1`: h distinct bits, every subset equally likely, any k > h.

    g1, g2 = the two unsigned 64-bit words of MurmurHash3 x64 128-bit of the UTF-8 value, seed 0
    u_i    = mix(mix(g1 ^ _mixed_cohort(cohort)) + g2 + i)                     i = 0 .. h-1, all modulo 2**64
    r_i    = ((u_i >> 32) * (k - i)) >> 32                           uniform on 0 .. k-i-1 up to 2**-32 relative
    bit i  = the r_i-th free position, counted from 0, after the earlier hashes

`mix` is the finalizer of splitmix64 (Steele, Lea, Flood 2014). A value is hashed once; each cohort needs arithmetic only.
"""

from __future__ import annotations

from functools import lru_cache

import mmh3

_MASK = (1 << 64) - 1


def mix(word: int) -> int:
    """Return a bijective mix of 64 bits: the finalizer of splitmix64.

    >>> hex(mix(1))
    '0x5692161d100b05e5'
    """
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & _MASK
    return word ^ (word >> 31)


_mixed_cohort = lru_cache(maxsize=256)(mix)  # a client has one cohort


def bit_positions(value: bytes, cohort: int, num_bits: int, num_hashes: int) -> list[int]:
    """Return the position of each hash, in the order of the hashes. All positions are distinct.

    value : UTF-8      cohort : in [0, 2**64)      num_bits : k, above h      num_hashes : h

    >>> bit_positions(b"v1", cohort=0, num_bits=16, num_hashes=2)
    [2, 13]
    """
    g1, g2 = mmh3.hash64(value, 0, signed=False)
    base = mix(g1 ^ _mixed_cohort(cohort)) + g2
    positions: list[int] = []
    for i in range(num_hashes):
        word = base + i & _MASK  # `mix`, inlined for speed: this runs for every recorded value
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB & _MASK
        position = ((word ^ (word >> 31)) >> 32) * (num_bits - i) >> 32
        for lower in sorted(positions) if i > 1 else positions:  # skip the positions of earlier hashes
            if lower > position:
                break
            position += 1
        positions.append(position)
    return positions
