"""Bits that candidates set in every cohort, hashed with numpy: the vectorized equal of `hubbub.hashing`.

The client's scalar functions define the schemes, and a test compares both. Symbols: M candidates, m cohorts, k bits, h hashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import md5

import mmh3
import numpy as np
from numpy.typing import NDArray

from hubbub.metrics.discovery import Discovery
from hubbub.metrics.kinds.strings import Md5Filter
from hubbub.metrics.params import Params

_MAX_CHUNK_VALUES = 1 << 12
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)

Positions = NDArray[np.int16]
"""(M, m, h) bits of each candidate in each cohort, ascending; k fills the place of a repeated bit."""


def bit_positions(candidates: Sequence[str], params: Params) -> Positions:
    """Bits that each candidate sets in each cohort: (M, m, h), ascending, each bit once.

    Where hashes of google-md5 coincide, k fills the missing places, after the others.
    """
    return hash_positions([candidate.encode() for candidate in candidates], params, range(params.num_cohorts))


def discovery_positions(candidates: Sequence[str], params: Params, discover: Discovery) -> Positions:
    """Bits that each candidate sets in each cohort of a metric with `discover`, those of the cohort's fragment: (M, m, h)."""
    values = [candidate.encode() for candidate in candidates]
    positions = np.empty((len(values), params.num_cohorts, params.num_hashes), np.int16)
    for group in range(len(discover.lengths) + 1):
        cohorts = discover.cohorts(group, params.num_cohorts)
        fragments = [discover.fragment(value, group) for value in values]
        positions[:, cohorts.start : cohorts.stop] = hash_positions(fragments, params, cohorts)
    return positions


def hash_positions(values: Sequence[bytes], params: Params, cohorts: range) -> Positions:
    """Bits that each byte string sets in each of these cohorts: (M, cohorts, h)."""
    positions = np.empty((len(values), len(cohorts), params.num_hashes), np.int16)
    hash_chunk = _google_md5 if params.hash_scheme == "google-md5" else _murmur3_v1
    for start in range(0, len(values), _MAX_CHUNK_VALUES):
        chunk = values[start : start + _MAX_CHUNK_VALUES]
        positions[start : start + len(chunk)] = hash_chunk(chunk, params, cohorts)
    return positions


def _murmur3_v1(values: Sequence[bytes], params: Params, cohorts: range) -> Positions:
    """Hash each value once with MurmurHash3, then mix in the cohorts by arithmetic modulo 2**64: (M, m, h)."""
    k, h = params.num_bits - params.mechanism.num_blanks, params.num_hashes
    words = np.frombuffer(b"".join(mmh3.mmh3_x64_128_digest(value, 0) for value in values), "<u8").reshape(-1, 2)
    mixed_cohorts = _mix(np.arange(cohorts.start, cohorts.stop, dtype=np.uint64))
    base = _mix(words[:, :1] ^ mixed_cohorts) + words[:, 1:]
    taken = np.empty((*base.shape, h), np.int16)
    for i in range(h):
        uniform = _mix(base + np.uint64(i)) >> np.uint64(32)
        position = ((uniform * np.uint64(k - i)) >> np.uint64(32)).astype(np.int16)
        for earlier in range(i):  # ascending, so each taken position at or below pushes one further up
            position += taken[..., earlier] <= position
        taken[..., i] = position
        taken[..., : i + 1].sort(axis=-1)
    return taken


def _mix(word: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Finalizer of splitmix64, elementwise."""
    word = (word ^ (word >> np.uint64(30))) * _MIX_1
    word = (word ^ (word >> np.uint64(27))) * _MIX_2
    return word ^ (word >> np.uint64(31))


def _google_md5(values: Sequence[bytes], params: Params, cohorts: range) -> Positions:
    """One byte of MD5(cohort || value) modulo k for each hash, two above 256 bits; a bit that two hashes hit counts once: (M, m, h)."""
    k, h = params.num_bits, params.num_hashes
    word = np.dtype(f"<u{Md5Filter.bytes_per_hash(k)}")
    prefixes = [cohort.to_bytes(4, "big") for cohort in cohorts]
    digests = b"".join(md5(prefix + value, usedforsecurity=False).digest() for value in values for prefix in prefixes)
    hashed = np.frombuffer(digests, word).reshape(len(values), len(prefixes), -1)[..., :h]
    taken = np.sort((hashed.astype(np.int32) % k).astype(np.int16), axis=-1)
    again = taken[..., 1:] == taken[..., :-1]
    taken[..., 1:][again] = k
    taken.sort(axis=-1)
    return taken
