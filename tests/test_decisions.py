"""What is decided about a job is told alike by the log, `cachew jobs explain`, /api/v1 and the dashboard: about workers, and about caches.

CACHEW names the command (default build/cachew), a build with crash points, for its slow stores."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from browser import PROGRAM, Browser  # noqa: E402
from daemons import TIMEOUT_S  # noqa: E402
from example_data import CACHEW  # noqa: E402

pytestmark = pytest.mark.skipif(not PROGRAM, reason="no browser is there (package chromium-headless-shell)")
# Decisions, the oldest first, as [what, why].
ON_PAGE = """[...document.querySelectorAll('#events li:not(.loss)')].reverse().map((li) => [li.querySelector('strong').textContent, li.querySelectorAll('p')[1].textContent])"""


@pytest.fixture
def page(tmp_path):
    b = Browser(tmp_path / "browser")
    p = b.page()
    yield p
    p.close()
    b.end()


def said(*words):
    ran = subprocess.run([CACHEW, *map(str, words)], check=False, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert ran.returncode == 0, (words, ran)
    return ran.stdout


def records(service):
    return [d["record"] for d in service.json("/api/v1/jobs/one/decisions")]


def decided(page, words):
    """Waits until the page shows a decision whose line has these words."""
    page.until(f"[...document.querySelectorAll('#events strong')].some((what) => what.textContent.includes({json.dumps(words)}))")


def in_log(service):
    return re.findall(r'job "one": (.*)', service.err)


def test_all_tell_the_same(daemons, page, tmp_path):
    if not json.loads(said("doctor", "--crash-points", "--json"))["crash_points"]:
        pytest.skip("this build has no slow stores")
    speed = tmp_path / "speed"
    # Storage takes 100 ms for an element that takes 10 to compute, later 2. All of it is slept: what a busy machine adds to that, and to the client's steps,
    # is little beside it. Were it much quicker, the elements that are read to know what reading takes would be most of an epoch, and batches come in bursts.
    speed.write_text("30000 0")
    pipeline = tmp_path / "pipeline.json"
    chain = [{"op": "synthetic", "count": 160, "shape": [32, 32, 3], "dtype": "uint8"}, {"op": "delay", "us": 10000}, {"op": "autocache"},
             {"op": "random_flip", "component": "data"}, {"op": "batch", "size": 8}]
    pipeline.write_text(json.dumps({"cachew": 1, "pipeline": chain}))
    service = daemons.start("up", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--memory", "256M", "--threads", 1, "--autoscale", "--workers", 2,
                            "--cache-dir", tmp_path / "cache", env={"CACHEW_STORE": str(speed)})
    words = [CACHEW, "run", pipeline, "--service", service.address, "--job", "one", "--epochs", 1000000]
    with subprocess.Popen([str(w) for w in words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as job:
        try:
            page.open(f"http://{service.ready['http']}/#job=one")
            decided(page, "2 workers, 1 before")
            decided(page, "cached nowhere, after autocache (operator 2) before")
            speed.write_text("1500000 0")
            decided(page, "cached after autocache (operator 2), nowhere before")

            def told():
                """By all four while nothing was decided."""
                before = records(service)
                command = [d["record"] for d in json.loads(said("jobs", "explain", "one", "--service", service.address, "--json"))]
                text = re.findall(r"^ *\d+\.\d s  (.*)$", said("jobs", "explain", "one", "--service", service.address), re.MULTILINE)
                page.until(f"document.querySelectorAll('#events li:not(.loss)').length >= {len(before)}")
                found = before, command, text, in_log(service), page.evaluate(ON_PAGE), records(service)
                return found if before == found[-1] else None
            while not (found := told()):
                assert job.poll() is None, "the job was over before"
            api, command, text, log, shown, _ = found
        finally:
            job.kill()
            job.communicate()
    lines = [f"{r['what']}: {r['why']}" for r in api]
    assert 2 <= len(lines) < 32  # so many are kept
    assert command == api
    assert text == lines
    assert log == lines
    assert [": ".join(one) for one in shown] == lines
    assert all(what.split(";")[0].startswith(f"{sum(r['chosen']['workers'].values())} worker") for r, (what, _) in zip(api, shown, strict=True))
