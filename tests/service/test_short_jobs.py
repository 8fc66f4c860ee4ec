"""Short jobs in a row leave nothing behind: some of them here, thousands with `make soak` (short_jobs.py)."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import short_jobs  # noqa: E402
from command import SANITIZED  # noqa: E402


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer keeps freed memory")
def test_two_hundred_short_jobs_leave_nothing():
    assert short_jobs.measure(200) == []
