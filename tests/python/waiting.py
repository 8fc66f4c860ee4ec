"""Waiting for what comes soon."""

import time


def comes_to(condition, limit_s=30):
    """A thread that was joined is a moment longer in /proc."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it does not come to that"
