"""Strings of strangers as people read them, in a terminal too."""

from __future__ import annotations
