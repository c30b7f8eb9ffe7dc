"""One report: the cohort and the bits after both randomized responses."""

from __future__ import annotations

from dataclasses import dataclass

from bitarray import frozenbitarray


@dataclass(frozen=True, slots=True)
class Report:
    """Report of one client for one metric and period.

    cohort : in [0, m)
    bits   : k bits; bit i of the report at index i
    """

    cohort: int
    bits: frozenbitarray

    @classmethod
    def from_int(cls, cohort: int, bits: int, num_bits: int) -> Report:
        """Return the report with bit i = `(bits >> i) & 1`.

        >>> Report.from_int(cohort=3, bits=0b101, num_bits=10).to_bytes()
        b'\\x05\\x00'
        """
        row = frozenbitarray(bits.to_bytes((num_bits + 7) // 8, "little"), "little")
        return cls(cohort, row if num_bits % 8 == 0 else row[:num_bits])

    def to_bytes(self) -> bytes:
        """Return the bits as they are sent: ceil(k / 8) bytes, bit i is bit i % 8 of byte i // 8, padding bits are zero."""
        return self.bits.tobytes()
