"""Fixtures of the tests of the dashboard."""

import sys
from pathlib import Path

import pytest

from browser import Browser
from command import write
from daemons import Daemons, endless_job
from deadlines import wait_for

sys.path.insert(0, str(Path(__file__).resolve().parent))
from dashboard_answers import CACHE_POINT, PIPELINE, enlarge, up  # noqa: E402


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    b = Browser(tmp_path_factory.mktemp("browser"))
    yield b
    b.end()


@pytest.fixture
def page(browser):
    p = browser.page()
    yield p
    p.close()


@pytest.fixture
def pipeline(tmp_path):
    return write(tmp_path / "pipeline.json", PIPELINE)


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """What a small service answers, with a decision. Its measurements are whatever they were: those that
    tests look at are made up, in `enlarge`."""
    directory = tmp_path_factory.mktemp("real")
    (directory / "daemons").mkdir()
    daemons = Daemons(directory / "daemons")
    service = up(daemons, "--autoscale", "--workers", 1, "--policy", "fixed:1")
    with endless_job(write(directory / "pipeline.json", PIPELINE), service, "job"):

        def ask(*paths):
            return {path: service.json(f"/api/v1/{path}") for path in paths}

        def is_measured(got):
            job, stream = next(iter(got["jobs"]), None), next(iter(got["streams"]), None)
            return job and job["ranks"] and job["now"] and stream and stream["computing"]["operators"]

        def answers():
            got = ask("status", "jobs", "workers", "pools", "streams")
            if not is_measured(got):
                return None
            got |= ask("jobs/job/history", "jobs/job/decisions")
            return got if got["jobs/job/history"]["t"] and got["jobs/job/decisions"] else None

        found = wait_for(answers)
    daemons.end()
    return found


@pytest.fixture
def small(real):
    """Answers with something of everything that a page shows: two jobs; a decision and a loss; workers that
    are ready, gone and draining; caches, of workers and of the pipeline."""
    answers = enlarge(real, 2, 3, 1)
    (stream,) = answers["streams"]
    answers["streams"] = [{**stream, "positions": 400, "caching": {"cache_points": [CACHE_POINT]}}]
    answers["jobs/job-0000/history"]["events"] = answers["jobs/job-0000/history"]["events"][-1:]
    answers["jobs/job-0000/decisions"] = answers["jobs/job-0000/decisions"][-1:]
    for what in ("history", "decisions"):
        answers[f"jobs/job-0001/{what}"] = answers[f"jobs/job-0000/{what}"]
    return answers
