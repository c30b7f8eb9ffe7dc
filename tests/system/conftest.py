"""Fixtures of the client's tests, for examples that embed a client."""

from tests.client.conftest import internal_errors_fail_tests, rig

__all__ = ["internal_errors_fail_tests", "rig"]
