"""Some of the kills of cache_kills.py; `make soak` has more."""

import os

import pytest
from cache_kills import COUNTED, Life

LIVES = 3
KILLS = int(os.environ.get("CACHE_KILLS", "8"))


@pytest.mark.large
@pytest.mark.parametrize("seed", range(LIVES))
def test_killed_at_any_point(tmp_path, seed):
    """Runs, workers and dispatchers that end by kill -9 while they write, publish or evict: nothing wrong is
    delivered, the quota holds, nothing is left lying about.
    """
    life = Life(tmp_path, 1000 + seed).play(KILLS)
    assert life.killed.total() == KILLS
    assert all(life.counts[what] > 0 for what in COUNTED), (life.counts, life.killed)
