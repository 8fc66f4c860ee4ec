"""What is decided about a job is told alike by the log, `cachew jobs explain`, /api/v1 and the dashboard:
about workers, and about caches.

What is decided by which measurements is tested without processes (tests/unit/test_dispatcher_scale.c,
test_policy*.c).

CACHEW names the command (default build/cachew), a build with crash points, for its scripted policy."""

import json
import re

import pytest
from browser import PROGRAM, Browser
from command import cachew, need_test_build, write
from daemons import answer, endless_job

pytestmark = pytest.mark.skipif(not PROGRAM, reason="no browser is there (package chromium-headless-shell)")
# Decisions, the oldest first, as [what, why].
ON_PAGE = """[...document.querySelectorAll('#events li:not(.loss)')].reverse().map((li) => [
    li.querySelector('strong').textContent,
    li.querySelectorAll('p')[1].textContent,
])"""


@pytest.fixture
def page(tmp_path):
    b = Browser(tmp_path / "browser")
    p = b.page()
    yield p
    p.close()
    b.end()


def records(service):
    return [d["record"] for d in service.json("/api/v1/jobs/one/decisions")]


def decided(page, words):
    """Waits until the page shows a decision whose line has these words."""
    page.until(
        f"[...document.querySelectorAll('#events strong')].some((what) => "
        f"what.textContent.includes({json.dumps(words)}))"
    )


def in_log(service):
    return re.findall(r'job "one": (.*)', service.err)


CHAIN = [
    {"op": "synthetic", "count": 160, "shape": [32, 32, 3], "dtype": "uint8"},
    {"op": "delay", "us": 1000},
    {"op": "autocache"},
    {"op": "random_flip", "component": "data"},
    {"op": "batch", "size": 8},
]


@pytest.fixture
def job(daemons, tmp_path):
    """A service with two workers and caches, and the process of an endless job. Its decisions are a script
    (src/policy/script.c): they come in this order on a machine of any speed."""
    need_test_build()
    words = [
        "--memory",
        "256M",
        "--threads",
        1,
        "--autoscale",
        "--workers",
        2,
        "--policy",
        "script",
        "--cache-dir",
        tmp_path / "cache",
    ]
    service = daemons.start("up", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *words)
    with endless_job(write(tmp_path / "pipeline.json", CHAIN), service, "one") as process:
        yield service, process


def told_by_all(service, page):
    """(API, command as JSON, command as text, log, page) while nothing was decided; None: something was."""
    before = records(service)
    words = ["jobs", "explain", "one", "--verbose", "--service", service.address]
    command = [d["record"] for d in answer(*words)]
    text = re.findall(r"^ *\d+\.\d s  (.*)$", cachew(*words).out, re.MULTILINE)
    page.until(f"document.querySelectorAll('#events li:not(.loss)').length >= {len(before)}")
    found = before, command, text, in_log(service), page.evaluate(ON_PAGE)
    return found if before == records(service) else None


def test_all_tell_the_same(job, page):
    service, process = job
    page.open(f"http://{service.ready['http']}/#job=one")
    decided(page, "2 workers, 1 before")
    decided(page, "cached nowhere, after autocache (operator 2) before")
    decided(page, "cached after autocache (operator 2), nowhere before")
    while not (found := told_by_all(service, page)):
        assert process.poll() is None, process.stderr.read()
    api, command, text, log, shown = found
    lines = [f"{r['what']}: {r['why']}" for r in api]
    assert 4 <= len(lines) < 32  # so many are kept
    assert command == api
    assert text == lines
    assert log == lines
    assert [": ".join(one) for one in shown] == lines
    assert len(shown) == len(api)
    for r, (what, _) in zip(api, shown):
        assert what.split(";")[0].startswith(f"{sum(r['chosen']['workers'].values())} worker")
