"""The dashboard, in a browser, of a large service that is made up from real answers.

CACHEW names the command (default build/cachew)."""

import pytest

from browser import PROGRAM
from dashboard_answers import enlarge, rows, served

pytestmark = pytest.mark.skipif(not PROGRAM, reason="no browser is there (package chromium-headless-shell)")


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
