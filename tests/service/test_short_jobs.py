"""Short jobs in a row leave nothing behind: some of them here, thousands with `make soak` (short_jobs.py)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import short_jobs  # noqa: E402


def test_two_hundred_short_jobs_leave_nothing():
    assert short_jobs.measure(200) == []
