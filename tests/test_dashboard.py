"""The dashboard, in a browser: what it shows of a real service, and of a large one that is made up from real
answers; by keyboard; in light and dark; by those who don't see it.

CACHEW names the command (default build/cachew)."""

import contextlib
import http.server
import json
import os
import signal
import socket
import threading
import urllib.parse
from pathlib import Path

import pytest

from browser import PROGRAM, Browser
from command import need_test_build, write
from daemons import Daemons, answer, endless_job
from deadlines import HANG_S, wait_for

HERE = Path(__file__).resolve().parent
pytestmark = pytest.mark.skipif(not PROGRAM, reason="no browser is there (package chromium-headless-shell)")
WEB = HERE.parent / "src" / "service" / "dispatcher" / "web"
BAD_NAME = """<img src=x onerror="alert(1)">'&amp;</td><script>alert(2)</script>/%41\u202e#?\x1b[31m"""
SHOWN_NAME = BAD_NAME.replace("\u202e", "\\u202e").replace("\x1b", "\\u001b")


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


PIPELINE = [
    {"op": "synthetic", "count": 4096, "shape": [16]},
    {"op": "delay", "us": 300},
    {"op": "batch", "size": 8},
]


@pytest.fixture
def pipeline(tmp_path):
    return write(tmp_path / "pipeline.json", PIPELINE)


def up(daemons, *words):
    return daemons.start("up", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--memory", "256M", *words)


def url(service, name=None):
    return f"http://{service.ready['http']}/" + (f"#job={urllib.parse.quote(name, safe='')}" if name else "")


def rows(page, section):
    """The texts of the table of a section, row by row."""
    return page.evaluate(
        f"[...document.querySelectorAll('#{section} tbody tr')].map((row) => "
        f"[...row.cells].map((cell) => cell.textContent))"
    )


# ---- what it shows ----

# What is read out, kept: the next text takes its place.
KEEP = """window.told = [];
new MutationObserver(() => window.told.push(document.querySelector('%s').textContent))
    .observe(document.querySelector('%s'), {subtree: true, childList: true, characterData: true})"""


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


CACHE_POINT = {
    "name": "autocache (operator 2)",
    "in_use": True,
    "unread": False,
    "cached": 1.0,
    "bytes": 100.0,
    "compute_s": 0.001,
    "read_s": 0.00002,
    "store_s": None,
}


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


# ---- how it is used ----

# [element, what it is called, outline, whether it shows]
FOCUSED = """(() => {
    const a = document.activeElement;
    return [
        a.tagName,
        a.id || a.ariaLabel || a.textContent.trim().slice(0, 40),
        getComputedStyle(a).outlineStyle,
        a.getBoundingClientRect().width > 0,
    ];
})()"""


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


SHOWN = (
    "document.querySelectorAll('#jobs a').length === 2 && document.querySelectorAll('#events li').length "
    "=== 2"
    " && document.querySelector('#moment').max > 1"
    " && ['operators', 'cache_points', 'caches'].every((s) => document.querySelector(`#${s} "
    "tbody`)?.rows.length > 0)"
)


def test_by_keyboard(small, page):
    with served(small) as address:
        page.open(address)
        page.until(SHOWN)
        page.press("Tab")
        assert page.evaluate(FOCUSED)[1] == "Skip to the jobs"
        page.press("Enter")
        assert page.evaluate("document.activeElement.id") == "jobs"
        seen = []
        # to the end, and perhaps around
        while not seen or (seen[-1][0] != "BODY" and not seen[-1][1].startswith("Skip")):
            page.press("Tab")
            seen.append(page.evaluate(FOCUSED))
            assert len(seen) < 60, seen
            if seen[-1][1] == "job-0001":
                page.press("Enter")
                page.until("document.querySelector('#job-name').textContent === 'job-0001'")
                assert page.evaluate("document.activeElement.textContent") == "job-0001"  # still there
                page.until(
                    "document.querySelectorAll('#events li').length > 0 && "
                    "document.querySelector('#moment').max >= 3"
                )
            elif seen[-1][1] == "moment":
                before = page.evaluate("document.querySelector('#moment-text').textContent")
                page.press("ArrowLeft")
                page.press("ArrowLeft")
                page.until(
                    f"document.querySelector('#moment-text').textContent !== {json.dumps(before)} "
                    f"&& document.querySelector('.timeline path.moment')"
                )
                assert "ago" in page.evaluate(
                    "document.querySelector('#moment').getAttribute('aria-valuetext')"
                )
                page.press("End")
                page.until("!document.querySelector('.timeline path.moment')")
            elif seen[-1][1].startswith("Show"):
                page.press("Enter")
                page.until(
                    "document.querySelector('.timeline path.moment') || "
                    "document.querySelector('#moment').value === "
                    "document.querySelector('#moment').max"
                )
        stops = seen[:-1]
        assert all(outline != "none" and visible for _, _, outline, visible in stops), stops
        names = [name for _, name, _, _ in stops]
        assert (
            names.index("job-0000") < names.index("job-0001") < names.index("moment") < names.index("status")
        )  # as they stand there
        assert any(name.startswith("Show") for name in names)


def test_the_address_names_the_view(small, page):
    """Links, Back, Forward and reload."""
    job, worker = (
        f"document.querySelector('#{section}').checkVisibility() && "
        f"document.querySelector('#{name}').textContent === "
        for section, name in (("job", "job-name"), ("worker", "worker-id"))
    )
    with served(small) as address:
        page.open(f"{address}#job=job-0001")
        page.until(SHOWN)
        page.until(f"{job} 'job-0001'")
        page.evaluate("document.querySelector('#workers a[aria-label=\"Worker 2\"]').click()")
        page.until(f"{worker} '2'")
        assert page.evaluate("location.hash") == "#job=job-0001&worker=2"
        assert page.evaluate("document.activeElement.id") == "worker"
        assert page.evaluate("document.title") == "Cachew: worker 2"
        assert not page.evaluate("document.querySelector('#jobs').checkVisibility()")
        assert "draining" in page.text("#worker-state") or "gone" in page.text("#worker-state")
        page.evaluate("history.back()")
        page.until(f"{job} 'job-0001'")
        assert page.evaluate("document.activeElement.ariaLabel") == "Worker 2"
        page.evaluate("history.forward()")
        page.until(f"{worker} '2'")
        loaded = page.loaded
        page.call("Page.reload")
        page.until_loaded(loaded)
        page.until(f"{worker} '2'")
        page.evaluate("document.querySelector('#worker-back').click()")
        page.until(f"{job} 'job-0001'")
        assert page.evaluate("document.title") == "Cachew: job job-0001"
        page.evaluate("document.querySelector('.skip').click()")  # the view stays
        assert page.evaluate("[location.hash, document.activeElement.id]") == ["#job=job-0001", "jobs"]
        page.open(f"{address}#worker=99")
        page.until(f"{worker} '99'")
        assert "does not know this worker" in page.text("#worker-problem")
        page.open(f"{address}#job=%E0%A4%A")  # badly encoded
        page.until(f"{job} 'job-0000'")


ACTIVE = "document.activeElement.id"


@pytest.mark.parametrize("n", [1, 50, 1000])
def test_search_by_keyboard(real, page, n):
    """By name, state and host; the page draws at most 50 jobs."""
    answers = enlarge(real, n, 2, 1)
    for i in range(n):
        for what in ("history", "decisions"):
            answers[f"jobs/job-{i:04}/{what}"] = answers[f"jobs/job-0000/{what}"]
    with served(answers) as address:
        page.open(address)
        page.until("document.querySelector('#job-name').textContent === 'job-0000'")
        assert len(rows(page, "jobs")) == min(n, 50)
        page.press("/")
        assert page.evaluate(ACTIVE) == "jobs-find"
        assert page.evaluate("document.activeElement.value") == ""  # the key opened it, and wrote nothing
        page.write("RUNNING node0:")
        wanted = [f"job-{i:04}" for i in range(0, n, 10) if i % 4 != 3]
        page.until(f"document.querySelector('#jobs tbody').rows.length === {min(len(wanted), 50)}")
        assert [row[0] for row in rows(page, "jobs")] == wanted[:50]
        page.press("Escape")
        page.until(f"document.querySelector('#jobs tbody').rows.length === {min(n, 50)}")
        assert page.evaluate(ACTIVE) == "jobs-find"
        last = f"job-{n - 1 - (n % 4 == 0):04}"  # the last one that is running
        page.write(last)
        page.press("Enter")
        page.until(f"document.querySelector('#job-name').textContent === '{last}'")
        assert page.evaluate("location.hash") == f"#job={last}"
        page.press("?")  # a letter of the search
        assert page.evaluate("document.activeElement.value") == f"{last}?"
        page.press("Escape")
        page.press("Escape")
        assert page.evaluate("document.activeElement.tagName") == "BODY"
        page.press("?")
        assert page.evaluate("document.querySelector('#keys').open")
        page.press("/")  # the dialog keeps the keys
        assert page.evaluate("document.querySelector('#keys').contains(document.activeElement)")
        page.press("Escape")
        page.until("!document.querySelector('#keys').open")
        page.press("Escape")
        page.until("location.hash === '#'  || location.hash === ''")
        assert page.evaluate("document.querySelectorAll('*').length") < 3000


def test_changes_of_states_are_read_out(small, page):
    with served(small) as address:
        page.open(address)
        page.until(SHOWN)
        assert page.text("#changes") == ""
        page.evaluate(KEEP % ("#changes", "#changes"))
        small["jobs"] = [{**small["jobs"][0], "state": "failed"}, *small["jobs"][1:]]
        small["workers"] = [
            {**w, "state": "gone"} if w["state"] == "draining" else w for w in small["workers"]
        ]
        page.until(
            "['Job job-0000: failed.', 'Worker 3: gone.'].every((text) => "
            "window.told.some((told) => told.includes(text)))"
        )
        one = small["jobs"][1]
        small["jobs"] = [*small["jobs"], *({**one, "name": f"new-{i}"} for i in range(9))]
        page.until("document.querySelector('#changes').textContent === '9 jobs and workers changed state.'")


def titles(page, section):
    return page.evaluate(
        f"[...document.querySelectorAll('#{section} .timeline .title')].map((t) => t.textContent)"
    )


def test_page_of_a_worker(daemons, pipeline, page):
    service = up(daemons, "--workers", 1)
    with endless_job(pipeline, service, "one"):
        page.open(f"{url(service)}#worker=1")
        page.until("document.querySelector('#worker-moment')?.max >= 2")
        assert titles(page, "worker") == ["CPUs", "Memory", "Elements per second"]  # it has no cache
        page.until(
            "/: [0-9.]+ CPUs and .*[1-9] .B of memory in use; [1-9][0-9.,]* elements per second[.]$/"
            ".test(document.querySelector('#worker-moment-text').textContent)"
        )
        page.until("document.querySelector('#worker-log').textContent.includes('registered as worker 1')")
        assert "ready" in page.text("#worker-state") and service.ready["workers"][0]["address"] in page.text(
            "#worker-facts"
        )


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_curves_of_a_worker(small, page, theme):
    page.theme(theme)
    small["workers/2/history"].update(cache_part=[None] * 300, interval_s=8.0)
    with served(small) as address:
        page.open(f"{address}#worker=1")
        page.until("document.querySelector('#worker-moment')?.max === '299'")
        assert titles(page, "worker") == [
            "CPUs",
            "Memory",
            "Elements per second",
            "Part of the elements found in the cache",
            "Cache directory",
        ]
        assert page.text("#worker-moment-text").endswith(
            ": 1.50 CPUs and 200 MB of memory in use; 640 elements per second, 75 % found in the cache."
        )
        assert [row[1] for row in rows(page, "worker-log")] == ["draining\\u202e", "registered as worker 1"]
        page.open(f"{address}#worker=2")
        page.until("document.querySelector('#worker-timeline-note').textContent.includes('mean of 8 s.')")
        assert "Part of the elements found in the cache" not in titles(page, "worker")
        assert not [f for f in contrasts(page) if f[0] < 4.5]


def mouse(page, kind, x, y, clicks=1):
    page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=clicks)


def drag(page, begin, end):
    """Over the middle of the time line, between these parts of its width."""
    page.evaluate("document.querySelector('.timeline').scrollIntoView({block: 'center'})")
    left, top, width, height = page.evaluate(
        "(({left, top, width, height}) => [left, top, width, height])"
        "(document.querySelector('.timeline').getBoundingClientRect())"
    )
    x, y = [left + 58 + part * (width - 72) for part in (begin, end)], top + height / 2
    mouse(page, "mousePressed", x[0], y)
    mouse(page, "mouseMoved", x[1], y)
    page.until("document.querySelector('.timeline .selection')")
    mouse(page, "mouseReleased", x[1], y)
    page.until("!document.querySelector('.timeline .selection')")


def asked_range(page):
    """[from, to] of the last request for a history, in seconds since the dispatcher started."""
    last = [a for a in page.asked if "/history?" in a][-1]
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(last).query)
    return [float(query[key][0]) if key in query else None for key in ("from", "to")]


CHOSEN = "document.querySelector('#ranges [aria-current]')?.textContent"


def test_ranges(small, page):
    """By link, by mouse and by key. The made-up dispatcher has run for 600 s."""
    small["status"] = {**small["status"], "uptime_s": 600.0}
    with served(small) as address:
        page.open(address)
        page.until(SHOWN)
        assert page.evaluate(CHOSEN) == "15 minutes" and asked_range(page) == [-300, None]
        for title, text, span in (("hour", "1h", 3600), ("day", "1d", 86400), ("7 days", "7d", 604800)):
            page.evaluate(
                "[...document.querySelectorAll('#ranges a')]"
                f".find((a) => a.textContent === '{title}').click()"
            )
            page.until(f"{CHOSEN} === '{title}'")
            assert page.evaluate("location.hash") == f"#range={text}"
            assert asked_range(page) == [600 - span, None]
        assert page.evaluate("document.querySelector('#jobs a').hash") == "#job=job-0000&range=7d"
        page.evaluate("history.back()")
        page.until(f"{CHOSEN} === 'day'")
        # all that is known is 600 s, so that is what the time axis shows
        drag(page, 0.25, 0.5)
        page.until(f"{CHOSEN}.includes(' to ')")
        begin, end = asked_range(page)
        assert abs(begin - 150) < 5 and abs(end - 300) < 5
        assert page.evaluate("location.hash").startswith("#range=1")
        assert page.evaluate("document.querySelectorAll('.timeline .mark').length") <= 2
        page.call("Page.reload")
        page.until(f"{CHOSEN}?.includes(' to ')")
        page.press("+")
        page.until("history.state?.zoomed && document.querySelector('#ranges').children.length === 5")
        page.until_requests(lambda: asked_range(page)[1] - asked_range(page)[0] < 100)
        page.press("-")
        page.until_requests(lambda: asked_range(page)[1] - asked_range(page)[0] > 140)
        left, top = page.evaluate(
            "(({left, top}) => [left, top])(document.querySelector('.timeline').getBoundingClientRect())"
        )
        for clicks in (1, 2):
            mouse(page, "mousePressed", left + 300, top + 60, clicks)
            mouse(page, "mouseReleased", left + 300, top + 60, clicks)
        page.until(f"{CHOSEN} === 'day'")
        page.press("+")
        page.until(f"{CHOSEN}.includes(' to ')")
        page.press("Escape")
        page.until(f"{CHOSEN} === 'day'")
        page.open(f"{address}#range=12-nonsense")
        page.until(f"{CHOSEN} === '15 minutes'")


def contrasts(page):
    return page.evaluate((HERE / "contrast.js").read_text())


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_contrast(small, page, theme):
    """Text 4.5 at least, lines 3: what WCAG 2 asks for."""
    page.theme(theme)
    with served(small) as address:
        page.open(address)
        page.until(SHOWN)
        page.until(
            "['#events li.decision', '#events li.loss', '#workers .bad'].every((s) => "
            "document.querySelector(s))"
        )
        page.evaluate(
            "document.querySelector('#moment').value = 0; "
            "document.querySelector('#moment').dispatchEvent(new Event('input'))"
        )
        page.press("?")
        assert page.evaluate("document.querySelector('#keys').checkVisibility()")
        found = contrasts(page)
        dark = (
            sum(page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)"))
            < 384
        )
        assert dark == (theme == "dark")
        assert len(found) > 80 and not [f for f in found if f[0] < 4.5]
    page.until("document.body.classList.contains('stale')")
    assert not [f for f in contrasts(page) if f[0] < 4.5]


def test_for_who_does_not_see_it(small, page):
    with served(small) as address:
        page.open(address)
        page.until(SHOWN)
        tree = page.tree()
        for role in ("link", "button", "slider", "searchbox", "table", "image", "heading"):
            assert all(name.strip() for r, name in tree if r == role), role
        assert {
            "banner",
            "main",
            "contentinfo",
            "region",
            "status",
            "table",
            "columnheader",
            "rowheader",
            "slider",
        } <= {r for r, _ in tree}
        assert [name for r, name in tree if r == "image"][0].startswith(
            "Time line. "
        ) and "batches per second, demand" in [name for r, name in tree if r == "image"][0]
        assert page.evaluate("document.documentElement.lang") == "en"
        levels = page.evaluate(
            "[...document.querySelectorAll('h1, h2, h3')].filter((h) => "
            "h.checkVisibility()).map((h) => Number(h.tagName[1]))"
        )
        assert levels[0] == 1 and levels.count(1) == 1 and all(b - a <= 1 for a, b in zip(levels, levels[1:]))
        assert page.evaluate(
            "[...document.querySelectorAll('table')].every((t) => "
            "[...t.tHead.rows[0].cells].every((c) => c.scope === 'col'))"
        )
        assert page.evaluate(
            "new Set([...document.querySelectorAll('[id]')].map((e) => e.id)).size === "
            "document.querySelectorAll('[id]').length"
        )
        # Lines differ by more than their colour, and states have words.
        assert (
            len(
                {
                    page.evaluate(
                        f"getComputedStyle(document.querySelector('.timeline .line.{s}')).strokeDasharray"
                    )
                    for s in ("main", "other")
                }
            )
            == 2
        )
        assert "ready" in page.text("#workers tbody")


@pytest.mark.parametrize("width", [320, 400, 1280])
def test_no_scrolling_sideways(small, page, width):
    page.size(width, 800)
    with served(small) as address:
        page.open(address)
        page.until(SHOWN)
        assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
        page.press("?")
        assert page.evaluate("document.querySelector('#keys').getBoundingClientRect().right <= innerWidth")
        page.press("Escape")
        page.open(f"{address}#worker=1")
        page.until("document.querySelector('#worker-moment')?.max === '299'")
        assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")


# ---- a large service ----


class Large(http.server.BaseHTTPRequestHandler):
    """The files of the dashboard, and answers that are made up."""

    def do_GET(self):
        path = urllib.parse.unquote(self.path.split("?")[0])
        answer = self.server.answers.get(path.removeprefix("/api/v1/"))
        file = WEB / (path.removeprefix("/") or "index.html")
        body = (
            json.dumps(answer).encode()
            if answer is not None
            else file.read_bytes()
            if file.is_file()
            else None
        )
        kinds = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
        self.send_response(200 if body is not None else 404)
        self.send_header(
            "Content-Type", "application/json" if answer is not None else kinds.get(file.suffix, "text/plain")
        )
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_):
        pass


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


@contextlib.contextmanager
def served(answers):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Large) as server:
        server.answers = answers
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join(HANG_S)


def enlarge(real, jobs, workers, ranks):
    (one,), (worker,) = real["jobs"], real["workers"]
    answers = dict(real)
    now = {
        "rate": 80.0,
        "demand": 100.0,
        "waited": 0.2,
        "waited_most": 0.3,
        "workers": 2.0,
        "wanted": 2.0,
        "cpus": 1.5,
        "cached": 0.95,
    }
    one = {**one, "state": "running", "now": now, "scaling": {**one["scaling"], "wanted": 2, "running": 2}}
    rank = {
        "attached": True,
        "finished": False,
        "batches": 1000,
        "wait_s": 10.0,
        "step_s": 0.008,
        "late": 7,
        "client": "node0:0",
    }
    answers["jobs"] = [
        {**one, "name": f"job-{i:04}", "state": "done" if i % 4 == 3 else "running"} for i in range(jobs)
    ]
    for i, job in enumerate(answers["jobs"]):
        job["ranks"] = [{**one["ranks"][0], **rank, "client": f"node{i % 10}:{i}"}]
    answers["jobs"][0]["ranks"] = [
        {**one["ranks"][0], **rank, "rank": r, "waited": r / ranks if ranks > 1 else 0.2}
        for r in range(ranks)
    ]
    cache = {
        "cache_used": 5e9,
        "cache_quota": 1e11,
        "cache_hits": 900,
        "cache_misses": 100,
        "cache_bad": 0,
        "cache_late": 0,
        "cache_refused": 0,
        "cache_skipped": 3,
        "cache_hits_per_s": 40.0,
        "cache_part": 1.0,
    }
    states = [("ready", "gone", "draining")[i % 10 % 3 if i % 10 < 3 else 0] for i in range(workers)]
    answers["workers"] = [
        {**worker, **cache, "id": i + 1, "name": f"worker-{i + 1}", "state": state}
        for i, state in enumerate(states)
    ]
    history = real["jobs/job/history"]
    long = {k: [v] * 300 for k, v in now.items()}
    long["t"] = [2.0 * i for i in range(300)]
    answers["jobs/job-0000/history"] = {
        **history,
        **long,
        "uptime_s": 600.0,
        "events": [{"t": 20.0 * i, "kind": "worker-gone", "worker": i} for i in range(30)],
    }
    for i in range(workers):
        answers[f"workers/{i + 1}/history"] = {
            "uptime_s": 600.0,
            "interval_s": 2.0,
            "t": long["t"],
            "cpus": [1.5] * 300,
            "memory_in_use": [2e8] * 300,
            "elements_per_s": [640.0] * 300,
            "cache_part": [0.75] * 300,
            "cache_used": [5e9] * 300,
            "log": [{"t": 1.5, "text": "registered as worker 1"}, {"t": 590.0, "text": "draining\u202e"}],
        }
    decision = real["jobs/job/decisions"][0]
    answers["jobs/job-0000/decisions"] = [
        {**decision, "t": 10.0 * i, "ago_s": 590 - 10.0 * i} for i in range(32)
    ]
    return answers


def test_a_large_service_is_no_more_work_than_a_small_one(real, page):
    """500 jobs, 1,000 workers with caches, 4,096 ranks: what is drawn is bounded, and the rest is a page or
    a word away.
    """
    with served(enlarge(real, 500, 1000, 4096)) as address:
        page.open(address)
        page.until(
            "document.querySelector('#job-name').textContent === 'job-0000' && "
            "document.querySelectorAll('.timeline .mark').length === 62"
        )
        for section, n in (("jobs", "500"), ("workers", "1,000"), ("caches", "900"), ("ranks", "4,096")):
            assert page.evaluate(f"document.querySelector('#{section} tbody').rows.length") == 50
            assert page.text(f"#{section} .range") == f"1–50 of {n}"
        assert (
            page.evaluate(
                "document.scrollingElement.scrollHeight - "
                # nothing hidden below
                "(document.querySelector('footer').getBoundingClientRect().bottom + scrollY)"
            )
            < 100
        )
        n = page.evaluate("document.querySelectorAll('*').length")
        page.until_asked(len(page.asked) + 14)  # twice more: nothing was added
        assert page.evaluate("document.querySelectorAll('*').length") == n < 8000
        page.evaluate("document.querySelector('#workers-next').click()")
        assert page.text("#workers .range") == "51–100 of 1,000"
        for _ in range(30):
            page.evaluate("document.querySelector('#workers-next').click()")
        assert (
            page.text("#workers .range") == "951–1,000 of 1,000"
            and page.evaluate("document.querySelector('#workers-next').getAttribute('aria-disabled')")
            == "true"
        )
        page.evaluate(
            "{ const find = document.querySelector('#workers-find'); find.value = 'worker-777'; "
            "find.dispatchEvent(new Event('input')); }"
        )
        assert [row[1] for row in rows(page, "workers")] == ["worker-777"]
        page.evaluate(
            "{ const find = document.querySelector('#workers-find'); find.value = 'nowhere'; "
            "find.dispatchEvent(new Event('input')); }"
        )
        assert "No row contains all of these words." in page.text("#workers")


def test_rows_that_stay_are_the_same_ones(real, page):
    """What is selected or focused is not taken away when something else changes."""
    answers = enlarge(real, 3, 3, 1)
    with served(answers) as address:
        page.open(address)
        page.until("document.querySelector('#jobs tbody').rows.length === 3")
        page.evaluate(
            "window.kept = [...document.querySelectorAll('#jobs tbody tr')]; "
            "kept[1].querySelector('a').focus()"
        )
        answers["jobs"] = [j for j in answers["jobs"] if j["name"] != "job-0000"] + [
            {**answers["jobs"][1], "name": "job-0009"}
        ]
        page.until("document.querySelector('#jobs').textContent.includes('job-0009')")
        assert page.evaluate(
            "[...document.querySelectorAll('#jobs tbody tr')].map((row) => kept.indexOf(row))"
        ) == [1, 2, -1]
        assert page.evaluate("document.activeElement.textContent") == "job-0001"


@pytest.mark.parametrize(
    ("kind", "waited", "says", "shown"),
    [
        ("none", 0.01, "nothing", "good ●"),
        ("cpu", 0.2, "CPUs of workers: 90 % in use", "odd ▲"),
        ("no-worker", 0.8, "no worker computes for it", "bad ✕"),
    ],
)
def test_what_holds_a_job_back(real, page, kind, waited, says, shown):
    answers = enlarge(real, 1, 1, 1)
    (job,) = answers["jobs"]
    job["bottleneck"] = {"kind": kind, "waited": waited, "says": says, "remedy": "more workers"}
    css, sign = shown.split()
    with served(answers) as address:
        page.open(address)
        page.until("document.querySelector('#jobs tbody')?.rows.length === 1")
        (row,) = rows(page, "jobs")
        assert row[2] == f"{sign} {says}"
        assert page.evaluate("document.querySelector('#jobs tbody').rows[0].cells[2].className") == (
            f"state {css}"
        )
        assert page.evaluate("document.querySelector('#job-held').checkVisibility()") == (css != "good")
        if css != "good":
            assert page.text("#job-held") == (
                f"{sign} Ranks wait {100 * waited:.0f} % of the time; held back by: {says}. "
                "What to do: more workers."
            )
        assert ("1 job" if css == "bad" else "0 jobs") in page.text("#facts")


def test_half_known_numbers(real, page):
    """A job that has only begun: nothing is made up."""
    answers = enlarge(real, 1, 0, 1)
    (one,) = answers["jobs"]
    one.update(now=None, bottleneck=None, held="no worker is connected", why=None, scaling=None)
    one["ranks"] = [{**one["ranks"][0], "step_s": None, "waited": None}]
    empty = {
        k: []
        for k in (
            "t",
            "rate",
            "demand",
            "waited",
            "waited_most",
            "workers",
            "wanted",
            "cpus",
            "cached",
            "events",
        )
    }
    answers["jobs/job-0000/history"] = {"uptime_s": 1.5, "interval_s": 2.0, **empty}
    answers["jobs/job-0000/decisions"] = []
    answers["streams"] = []
    with served(answers) as address:
        page.open(address)
        page.until("document.querySelector('#job-problem').textContent === 'no worker is connected'")
        assert page.text("#moment-text") == "Nothing was measured yet." and page.evaluate(
            "document.querySelector('#moment').disabled"
        )
        (row,) = rows(page, "jobs")
        assert row[5:9] == ["–", "–", "–", "–"]
        assert page.evaluate("document.querySelector('#events-none').checkVisibility()")
