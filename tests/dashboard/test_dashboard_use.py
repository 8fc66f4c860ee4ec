"""The dashboard, in a browser: by keyboard and mouse, in light and dark, by those who don't see it.

CACHEW names the command (default build/cachew)."""

import json
import urllib.parse

import pytest

from browser import PROGRAM
from daemons import endless_job
from dashboard_answers import HERE, KEEP, enlarge, rows, served, up, url

pytestmark = pytest.mark.skipif(not PROGRAM, reason="no browser is there (package chromium-headless-shell)")
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
