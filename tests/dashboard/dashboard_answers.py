"""What the tests of the dashboard share: services, and answers of a large one that is made up."""

import contextlib
import http.server
import json
import threading
import urllib.parse
from pathlib import Path

from deadlines import HANG_S

HERE = Path(__file__).resolve().parents[1]
WEB = HERE.parent / "src" / "service" / "dispatcher" / "web"
PIPELINE = [
    {"op": "synthetic", "count": 4096, "shape": [16]},
    {"op": "delay", "us": 300},
    {"op": "batch", "size": 8},
]


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


# What is read out, kept: the next text takes its place.
KEEP = """window.told = [];
new MutationObserver(() => window.told.push(document.querySelector('%s').textContent))
    .observe(document.querySelector('%s'), {subtree: true, childList: true, characterData: true})"""


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
