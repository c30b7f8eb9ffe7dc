"""What one person says in one period: a cohort and the bits after both randomizations."""

from __future__ import annotations

from dataclasses import dataclass

from bitarray import frozenbitarray


@dataclass(frozen=True, slots=True)
class Report:
    """One report for one metric and period.

    cohort : in [0, m)      bits : k bits, little-endian, bit i of the report at index i
    """

    cohort: int
    bits: frozenbitarray

    @classmethod
    def from_int(cls, cohort: int, bits: int, num_bits: int) -> Report:
        """Take the bits as an integer, bit i = (bits >> i) & 1.

        >>> Report.from_int(cohort=3, bits=0b101, num_bits=10).to_bytes()
        b'\\x05\\x00'
        """
        row = frozenbitarray(bits.to_bytes((num_bits + 7) // 8, "little"), "little")
        return cls(cohort, row if num_bits % 8 == 0 else row[:num_bits])

    def to_bytes(self) -> bytes:
        """Return the row as it goes on the wire: ceil(k / 8) bytes, padding bits zero."""
        return self.bits.tobytes()
