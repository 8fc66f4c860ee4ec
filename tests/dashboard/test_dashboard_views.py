"""The dashboard, in a browser: what it shows of a real service, and of caches.

CACHEW names the command (default build/cachew)."""

import json
import os
import signal
import socket

import pytest

from browser import PROGRAM
from command import need_test_build, write
from daemons import answer, endless_job
from dashboard_answers import CACHE_POINT, KEEP, enlarge, rows, served, up, url
from deadlines import wait_for

pytestmark = pytest.mark.skipif(not PROGRAM, reason="no browser is there (package chromium-headless-shell)")
BAD_NAME = """<img src=x onerror="alert(1)">'&amp;</td><script>alert(2)</script>/%41\u202e#?\x1b[31m"""
SHOWN_NAME = BAD_NAME.replace("\u202e", "\\u202e").replace("\x1b", "\\u001b")


def test_a_job_its_decision_and_a_lost_worker(daemons, pipeline, page):
    service = up(daemons, "--autoscale", "--workers", 3, "--policy", "fixed:3")
    with endless_job(pipeline, service, "one"):
        page.open(url(service))
        page.evaluate(KEEP % ("#news", "#news"))
        page.until(
            "document.querySelector('#events li.decision strong')?.textContent.startsWith('3 workers')"
        )
        page.until("document.querySelector('.timeline .mark.decision text')?.textContent === '1'")
        assert page.text("#job-name") == "one"
        page.until("document.querySelector('#workers tbody').rows.length === 3")
        page.until("document.querySelector('#moment-text').textContent.includes('3 workers of 3 wanted')")
        assert [row[0] for row in rows(page, "pools")] == ["local"] and "fixed:3" in page.text("#facts")
        lost = service.json("/api/v1/workers")[0]
        os.kill(lost["pid"], signal.SIGKILL)
        gone = f"Worker {lost['id']} is gone"
        page.until(f"document.querySelector('#events li.loss strong')?.textContent === '{gone}'")
        page.until(
            "document.querySelector('.timeline .mark.loss text')?.textContent"
            " === String(document.querySelector('#events li.loss').value)"
        )
        page.until(
            "[...document.querySelectorAll('#workers tbody tr')].some((row) => "
            "row.textContent.includes('gone'))"
        )
        # another one took its place
        page.until("document.querySelector('#facts').textContent.includes('3 ready')")
        page.until(f"window.told.some((news) => news.includes('{gone}'))")
        page.until("document.querySelector('#operators tbody')?.rows.length >= 2")
        assert {"synthetic", "delay"} <= {row[0] for row in rows(page, "operators")}
        page.until("document.querySelector('#ranks tbody').rows[0]?.cells[1].textContent.includes('running')")
        assert rows(page, "ranks")[0][2].startswith(f"{socket.gethostname()}:")
        page.until("document.querySelector('#jobs tbody').rows[0].cells[9].textContent === '3 of 3'")
        (row,) = rows(page, "jobs")
        assert row[0] == "one" and "running" in row[1]


def test_what_a_job_is_to_gain(daemons, pipeline, page):
    service = up(
        daemons,
        "--autoscale",
        "--workers",
        1,
        "--policy",
        "fixed:1",
        "--objective",
        "cost",
        "--price-client",
        8.8,
        "--currency",
        "€",
    )
    with endless_job(pipeline, service, "one"):
        page.open(url(service))
        page.until(
            "document.querySelector('#job-state').textContent.includes('; objective: cost, the "
            "ranks cost 8.80 € per hour; ')"
        )
        page.until("document.querySelector('#pools tbody')?.rows[0]?.cells[4].textContent === '0.43 €'")
        assert answer(
            "jobs", "--service", service.address, "--aim", "one", "--objective", "time", "--price-client", 32
        )
        page.until(
            "document.querySelector('#job-state').textContent.includes('; objective: time, the ranks cost 32 "
            "€ per hour; ')"
        )


def test_what_was_before_the_page_was_opened(daemons, pipeline, browser, page):
    """It is the dispatcher that remembers."""
    service = up(daemons, "--workers", 1)
    with endless_job(pipeline, service, "one"):
        page.open(url(service))
        page.until("document.querySelector('#moment').max >= 3")
    later = browser.page()
    later.open(url(service, "one"))
    later.until(
        "document.querySelector('#jobs').textContent.includes('unattended') && "
        "document.querySelector('#moment').max >= 3"
    )
    assert (
        later.evaluate(
            "document.querySelector('.timeline .line.main').getAttribute('d').match(/[ML]/g).length"
        )
        >= 4
    )
    later.close()


def test_nothing_is_there(daemons, page):
    dispatcher = daemons.start(
        "dispatcher", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--name", "alone"
    )
    page.open(url(dispatcher))
    page.until("document.querySelector('#connection').textContent === 'Live'")
    assert "There are no jobs." in page.text("#jobs") and "There are no workers." in page.text("#workers")
    assert "none: all workers serve all jobs" in page.text("#facts") and page.text("#dispatcher") == "alone"
    assert page.evaluate("document.querySelector('#job').hidden && document.querySelector('#pools').hidden")
    page.open(url(dispatcher, "nobody knows it"))
    page.until(
        "document.querySelector('#job-state').textContent === 'The dispatcher does not know this "
        "job. Jobs are removed an hour after their end.'"
    )


def test_names_are_texts(daemons, pipeline, page):
    service = up(daemons, "--workers", 1)
    with endless_job(pipeline, service, BAD_NAME), endless_job(pipeline, service, "other"):
        page.open(url(service))
        page.until("document.querySelector('#jobs tbody').rows.length === 2")
        assert SHOWN_NAME in [row[0] for row in rows(page, "jobs")]
        assert page.evaluate("document.querySelectorAll('img, td script, th script').length") == 0
        for name in ("other", SHOWN_NAME):
            page.evaluate(
                f"[...document.querySelectorAll('#jobs a')].find((a) => a.textContent === "
                f"{json.dumps(name)}).click()"
            )
            page.until(
                f"document.querySelector('#job-name').textContent === {json.dumps(name)} && "
                f"document.querySelector('.timeline .line.main').getAttribute('d') !== ''"
            )
        page.open("about:blank")
        page.open(url(service, BAD_NAME))  # an address that was sent to somebody
        page.until(
            "document.querySelector('#jobs a[aria-current]') && !document.querySelector('#job-known').hidden"
        )
        assert page.evaluate("document.querySelector('#jobs a[aria-current]').textContent") == SHOWN_NAME


def test_a_dispatcher_that_goes_away_and_comes_back(daemons, page):
    words = ["--listen", "127.0.0.1:0", "--http"]
    dispatcher = daemons.start("dispatcher", *words, "127.0.0.1:0", "--name", "first")
    page.open(url(dispatcher))
    page.until("document.querySelector('#connection').textContent === 'Live'")
    page.evaluate("document.querySelector('.skip').focus()")
    dispatcher.end(signal.SIGKILL)
    page.until(
        "document.querySelector('#connection').textContent.startsWith('No answer from the dispatcher since ')"
    )
    assert page.evaluate("document.body.classList.contains('stale')") and page.text("#dispatcher") == "first"
    daemons.start("dispatcher", *words, dispatcher.ready["http"], "--name", "second")
    page.until(
        "document.querySelector('#connection').textContent === 'Live' && "
        "document.querySelector('#dispatcher').textContent === 'second'"
    )
    assert not page.evaluate("document.body.classList.contains('stale')")
    assert page.evaluate("document.activeElement.className") == "skip"  # nothing took the focus away


def test_nothing_comes_from_elsewhere(daemons, page):
    dispatcher = daemons.start("dispatcher", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
    page.open(url(dispatcher))
    page.until("document.querySelector('#connection').textContent === 'Live'")
    assert page.asked and all(address.startswith(url(dispatcher)) for address in page.asked)
    policy = page.evaluate("fetch('/').then((answer) => answer.headers.get('content-security-policy'))")
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy
    # The rules hold: what they forbid does not happen.
    refused = page.evaluate("""new Promise((done) => {
        document.addEventListener('securitypolicyviolation', (e) => done(e.effectiveDirective));
        const script = document.createElement('script');
        script.textContent = 'window.ran = true';
        document.head.append(script);
    })""")
    assert refused.startswith("script-src") and page.evaluate("window.ran === undefined")
    page.errors.clear()  # this one was meant


# ---- caches ----


@pytest.fixture
def cached(tmp_path):
    """A pipeline that may be cached."""
    chain = [
        {"op": "synthetic", "count": 400, "shape": [16]},
        {"op": "delay", "us": 1000},
        {"op": "autocache"},
        {"op": "batch", "size": 8},
    ]
    return write(tmp_path / "cached.json", chain)


def test_what_caches_hold(daemons, cached, page, tmp_path):
    """Of a real service. That the cache is used is a script's decision (src/policy/script.c)."""
    need_test_build()
    service = up(
        daemons,
        "--workers",
        2,
        "--threads",
        1,
        "--cache-dir",
        tmp_path / "cache",
        "--autoscale",
        "--policy",
        "script",
    )
    with endless_job(cached, service, "one"):
        page.open(url(service))
        page.until(
            "[...document.querySelectorAll('#cache_points tbody td')].some((cell) => cell.textContent === "
            "'100 %')"
        )
        ((name, _, part, held, *_),) = rows(page, "cache_points")
        assert name == "autocache (operator 2)" and part == "100 %"
        assert len(set(held.split(" of "))) == 1  # all of it
        page.until("document.querySelector('#caches tbody').rows.length === 2")
        assert all(" of " in row[2] for row in rows(page, "caches"))
        wait_for(lambda: any(0 < w["cache_used"] < w["cache_quota"] for w in service.json("/api/v1/workers")))
        computing = wait_for(
            lambda: (c := service.json("/api/v1/streams")[0]["computing"])["cached_positions"] and c
        )
        assert 0 < computing["cached_positions"] <= computing["positions"]


def test_what_caches_give(real, page):
    answers = enlarge(real, 1, 1, 1)
    (stream,) = answers["streams"]
    computing = {**stream["computing"], "positions": 4000.0, "cached_positions": 3600.0}
    answers["streams"] = [
        {**stream, "positions": 400, "caching": {"cache_points": [CACHE_POINT]}, "computing": computing}
    ]
    with served(answers) as address:
        page.open(address)
        page.until(
            "['cache_points', 'caches'].every((s) => document.querySelector(`#${s} tbody`)?.rows.length > 0)"
        )
        ((name, state, part, held, compute, read, store),) = rows(page, "cache_points")
        assert (name, state, part) == ("autocache (operator 2)", "● in use", "100 %")
        assert held == "40 KB of 40 KB" and (compute, read, store) == ("1 ms", "20 µs", "–")
        assert "; 95 % of the elements read from caches" in page.text("#moment-text")
        titles = page.evaluate("[...document.querySelectorAll('.timeline .title')].map((t) => t.textContent)")
        assert "Part of the elements read from caches" in titles
        assert "read" in page.text("#legend")
        assert (
            page.text("#cache_points-note") == "In total, 90 % of the job's elements were read from caches."
        )
        ((_, _, held, found_last, found_all, reads, read_all, *rest),) = rows(page, "caches")
        assert (held, found_last, found_all) == ("5 GB of 100 GB", "100 %", "90 %")
        assert (reads, read_all, rest) == ("40", "900", ["0", "3", "0", "0"])
        assert rows(page, "jobs")[0][8] == "95 %"


def test_what_a_job_gets_and_where_its_computing_time_goes(real, page):
    answers = enlarge(real, 1, 1, 1)
    (stream,) = answers["streams"]
    operators = [
        {"name": "synthetic", "compute_s": 1.0, "elements": 500.0},
        {"name": "delay", "compute_s": 3.0, "elements": 1000.0},
    ]
    computing = {**stream["computing"], "operators": operators, "read_s": 0.0, "read_bytes": 0.0}
    answers["streams"] = [{**stream, "computing": computing}]
    with served(answers) as address:
        page.open(address)
        page.until("document.querySelector('#operators tbody')?.rows.length === 2")
        assert rows(page, "operators") == [
            ["delay", "75 %", "3 s", "1,000", "3 ms"],
            ["synthetic", "25 %", "1 s", "500", "2 ms"],
        ]
        assert rows(page, "ranks") == [["0", "● running", "node0:0", "20 %", "10 s", "8 ms", "1,000", "7"]]
        (row,) = rows(page, "jobs")
        assert row[5:8] == ["80", "100", "20 %"] and row[9] == "2 of 2"


def test_without_a_cache_nothing_is_said_of_one(daemons, cached, page):
    service = up(daemons, "--workers", 1, "--threads", 1)
    with endless_job(cached, service, "one"):
        page.open(url(service))
        page.until(
            "document.querySelector('#moment').max > 1 && document.querySelector('#operators "
            "tbody')?.rows.length"
        )
        assert page.evaluate(
            "document.querySelector('#cache_points').hidden && document.querySelector('#caches').hidden"
        )
        assert "cache" not in page.text("#legend") and "cache" not in page.text("#moment-text")
        assert rows(page, "jobs")[0][8] == "–"
        assert service.json("/api/v1/jobs/one/history")["cached"][-1] is None
        assert service.json("/api/v1/streams")[0]["caching"] is None


def test_decisions_about_caches_are_squares(real, page):
    """Those about workers are circles, and so are those about both."""
    answers = enlarge(real, 1, 1, 1)
    (decision, *_) = answers["jobs/job-0000/decisions"]

    def record(workers, place, why):
        before, after = (
            {"workers": {"local": 2}, "cache": None},
            {"workers": {"local": workers}, "cache": place},
        )
        return {**decision["record"], "before": before, "chosen": after, "what": f"what {why}", "why": why}

    chosen = [(3, None, "a"), (2, "resize", "b"), (3, "resize", "c"), (2, None, "d")]
    answers["jobs/job-0000/decisions"] = [
        {"t": 10.0 * i, "ago_s": 400 - 10.0 * i, "record": record(*one)} for i, one in enumerate(chosen)
    ]
    answers["jobs/job-0000/history"]["events"] = []
    with served(answers) as address:
        page.open(address)
        page.until("document.querySelectorAll('.timeline .mark').length === 4")
        kinds = page.evaluate(
            "[...document.querySelectorAll('.timeline .mark')].map((m) => m.getAttribute('class'))"
        )
        assert kinds == ["mark decision", "mark cache", "mark decision", "mark decision"]
        assert page.evaluate(
            "[...document.querySelectorAll('.timeline .mark')].map((m) => m.querySelector('circle') !== null)"
        ) == [True, False, True, True]
        told = page.evaluate(
            "[...document.querySelectorAll('#events li')].map((li) => [li.className, "
            "li.querySelector('strong').textContent])"
        )
        assert told == [
            ["decision", "what d"],
            ["decision", "what c"],
            ["cache", "what b"],
            ["decision", "what a"],
        ]
