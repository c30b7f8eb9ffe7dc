"""Fixtures of the client's tests, for examples that embed a client."""

from tests.client.conftest import _our_failures_fail_tests, rig

__all__ = ["_our_failures_fail_tests", "rig"]
