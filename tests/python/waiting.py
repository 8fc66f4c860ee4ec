"""Waiting for what comes soon."""

import time

import cachew


def comes_to(condition, limit_s=30):
    """A thread that was joined is a moment longer in /proc."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it does not come to that"


def in_use(it):
    """Whether another thread is inside."""
    try:
        it.state_dict()
    except cachew.UsageError:
        return True
    return False
