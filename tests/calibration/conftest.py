"""Fixtures of the decoder's tests."""

from tests.decoder.conftest import one_blas_thread

__all__ = ["one_blas_thread"]
