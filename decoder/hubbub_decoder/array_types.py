"""Types of the arrays that the decoder computes with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]
"""Positions in another array: columns of a design matrix, bits, filters."""

Bits = NDArray[np.uint8]
"""Bits of reports, 0 or 1, one in each byte."""
