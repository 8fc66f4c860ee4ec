"""Dispatchers and workers, black box: their pages, metrics and logs, TLS and tokens, which addresses they
take, `cachew keys` and `cachew top`.

CACHEW names the command (default build/cachew)."""

import collections
import contextlib
import http.client
import itertools
import json
import os
import pty
import re
import resource
import select
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from certificates import sign  # noqa: E402
from command import patient  # noqa: E402
from deadlines import HANG_S, started, wait_for  # noqa: E402
from example_data import CACHEW  # noqa: E402


pytestmark = pytest.mark.usefixtures("patience")


def cachew(*words, env=None, **options):
    return subprocess.run(
        [CACHEW, *patient(words)],
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env={**os.environ, **(env or {})},
        **options,
    )


def refused(*words, code=2):
    """The message of a command that must end with this code."""
    ran = cachew(*words)
    assert ran.returncode == code, (words, ran)
    assert not ran.stdout
    return ran.stderr


def digest(pipeline, *words):
    ran = cachew("run", pipeline, "--digest", "--json", *words)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)["digest"]


@pytest.fixture
def pipeline(tmp_path):
    path = tmp_path / "pipeline.json"
    path.write_text(
        json.dumps(
            {
                "cachew": 1,
                "pipeline": [
                    {"op": "range", "stop": 4000},
                    {"op": "assign", "set": {"y": "value * 3"}},
                    {"op": "shuffle"},
                    {"op": "batch", "size": 32},
                ],
            }
        )
    )
    return path


# ---- pages ----

SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (-?[0-9.e+-]+|NaN|[+-]Inf)$")


def samples(text):
    """{name: {labels: value}} and {name: type} of a page of metrics, every line of which must be one."""
    values, types = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            assert name not in types
            types[name] = kind
        elif not line.startswith("# HELP "):
            name, labels, value = SAMPLE.match(line).groups()
            assert name in types
            assert labels not in values.setdefault(name, {})
            values[name][labels or ""] = float(value)
    return values, types


def documented(heading):
    """{name: (type, unit, labels)} of a table of docs/metrics.md."""
    section = (
        (HERE.parent / "docs" / "metrics.md").read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    )
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("| `")
    ]
    return {row[0].strip("`"): (row[1], row[2], set(re.findall(r"`(\w+)`", row[3]))) for row in rows}


def label_names(values):
    return {name for labels in values for name in re.findall(r'(\w+)="', labels)}


def test_metrics_are_those_of_the_page(daemons, pipeline):
    dispatcher, workers = daemons.service(workers=2, http=True)
    assert digest(pipeline, "--service", dispatcher.address, "--job", "one", "--transport", "tcp") == digest(
        pipeline
    )
    for heading, daemon in (("Dispatcher", dispatcher), ("Worker", workers[0])):
        values, types = samples(daemon.get("/metrics")[1])
        listed = documented(heading)
        assert set(types) == set(listed)
        for name, (kind, unit, labels) in listed.items():
            assert types[name] == kind, name
            assert (kind == "counter") == name.endswith("_total"), name
            assert (unit in ("seconds", "bytes")) == any(
                name.removesuffix("_total").endswith(f"_{u}") for u in ("seconds", "bytes")
            ), name
            assert label_names(values.get(name, {})) == labels, name


def test_metrics_count_what_happened(daemons, pipeline):
    dispatcher, workers = daemons.service(workers=2, http=True)
    digest(pipeline, "--service", dispatcher.address, "--job", "one")
    d, _ = samples(dispatcher.get("/metrics")[1])
    assert d["cachew_dispatcher_workers"] == {'state="ready"': 2, 'state="draining"': 0, 'state="gone"': 0}
    assert d["cachew_dispatcher_jobs"]['state="done"'] == 1 and sum(d["cachew_dispatcher_jobs"].values()) == 1
    assert d["cachew_dispatcher_connections"]['role="worker"'] == 2
    n_ranges = dispatcher.json("/api/v1/status")["completed"]
    assert d["cachew_dispatcher_ranges_completed_total"][""] == n_ranges > 1
    assert d["cachew_dispatcher_ranges_leased_total"][""] >= n_ranges
    assert d["cachew_dispatcher_journal_commits_total"][""] > 0 and d["cachew_dispatcher_journal_ok"][""] == 1
    w = [samples(worker.get("/metrics")[1])[0] for worker in workers]
    assert sum(x["cachew_worker_sent_batches_total"][""] for x in w) >= 125
    # one of them may have had nothing to do
    assert (
        sum(x.get("cachew_worker_operator_elements_total", {}).get('operator="assign"', 0) for x in w) >= 4000
    )
    assert all(
        x["cachew_worker_registered"][""] == 1
        and x["cachew_worker_memory_limit_bytes"][""] == 256 << 20
        and x["cachew_worker_cpu_seconds_total"][""] > 0
        for x in w
    )


def test_records_that_can_not_be_computed_are_counted(daemons, tmp_path):
    # of several, another might run again what takes one of them long
    dispatcher, workers = daemons.service(http=True)
    fails = {"op": "fail", "where": "value % 100 == 7", "kind": "error"}
    for action, expected in (
        ("skip", {'action="skipped"': 40, 'action="replaced"': 0}),
        ("replace", {'action="skipped"': 40, 'action="replaced"': 40}),
    ):
        path = tmp_path / f"{action}.json"
        path.write_text(
            json.dumps(
                {
                    "cachew": 1,
                    "on_error": action,
                    "pipeline": [{"op": "range", "stop": 4000}, fails, {"op": "batch", "size": 32}],
                }
            )
        )
        assert cachew("run", path, "--service", dispatcher.address, "--job", action).returncode == 0
        counted = [
            samples(worker.get("/metrics")[1])[0]["cachew_worker_quarantined_records_total"]
            for worker in workers
        ]
        assert {labels: sum(c[labels] for c in counted) for labels in expected} == expected


def test_records_that_are_skipped_in_parts_of_batches_are_counted_once(daemons, tmp_path):
    """The first ranges have 64 positions, so that batches of 100 come in parts."""
    dispatcher, (worker,) = daemons.service(http=True)
    path = tmp_path / "p.json"
    path.write_text(
        json.dumps(
            {
                "cachew": 1,
                "on_error": "skip",
                "pipeline": [
                    {"op": "range", "stop": 600},
                    {"op": "fail", "where": "value % 5 == 0"},
                    {"op": "filter", "where": "value >= 0"},
                    {"op": "batch", "size": 100},
                ],
            }
        )
    )
    assert cachew("run", path, "--service", dispatcher.address, "--job", "one").returncode == 0
    assert samples(worker.get("/metrics")[1])[0]["cachew_worker_quarantined_records_total"] == {
        'action="skipped"': 120,
        'action="replaced"': 0,
    }


def test_counters_never_fall_and_nobody_hangs_while_they_are_read(daemons, pipeline):
    """A worker that is asked while it computes, and while its streams end: reading what the runner counted
    once waited for a thread that waited for it.
    """
    dispatcher, (worker,) = daemons.service(http=True)
    compared = 0
    for seed in itertools.count():
        if seed >= 3 and compared > 10:
            break
        words = [
            "run",
            pipeline,
            "--service",
            dispatcher.address,
            "--job",
            f"job{seed}",
            "--seed",
            seed,
            "--set",
            "0.stop=200000",
            "--wait",
            HANG_S,
        ]
        with started([CACHEW, *words], stdout=subprocess.DEVNULL) as job:
            before = {}
            while job.poll() is None:
                now, types = samples(worker.get("/metrics")[1])
                for name, values in before.items():
                    for labels, value in values.items():
                        assert types[name] == "gauge" or now[name][labels] >= value, (name, labels)
                compared += bool(before)
                before = now
            assert job.returncode == 0
    assert worker.end() == 0


def test_a_worker_says_what_it_set_by_itself(daemons, pipeline):
    """While a job runs, for who asks; and in its log."""
    dispatcher, (worker,) = daemons.service(http=True)
    words = [
        "run",
        pipeline,
        "--service",
        dispatcher.address,
        "--job",
        "one",
        "--epochs",
        1000000,
        "--set",
        "0.stop=100000000",
        "--json",
        "--wait",
        HANG_S,
    ]
    with started(
        [CACHEW, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as job:

        def tuned():
            return [row for stream in worker.json("/api/v1/tuning")["streams"] for row in stream["tuning"]]

        wait_for(tuned)  # which of its values it sets first depends on how fast the machine is
        rows = tuned()
        for row in rows:
            assert set(row) - {"of"} == {"t", "what", "times", "record"} and set(row["record"]) == {
                "seen",
                "alternatives",
                "chosen",
                "why",
            }
        wait_for(lambda: worker.json("/api/v1/tuning")["clients"])  # a stream may run before there is one
        # its memory is shared: nothing is sent that could be compressed
        assert [client["tuning"] for client in worker.json("/api/v1/tuning")["clients"]] == [[]]
        wait_for(lambda: all(f": {row['what']} " in worker.err for row in rows))
        job.send_signal(signal.SIGINT)
        credits = [row for row in json.loads(job.communicate()[0])["tuning"] if row["what"] == "credits"]
    assert (
        credits
        and credits[-1]["record"]["chosen"]["credits"] == 64
        and credits[-1]["record"]["seen"]["lent"] == 1
    )


def test_pages(daemons, pipeline):
    dispatcher, (worker,) = daemons.service(http=True)
    digest(pipeline, "--service", dispatcher.address, "--job", "one")
    for daemon in (dispatcher, worker):
        assert daemon.get("/healthz") == (200, "ok\n") and daemon.get("/readyz") == (200, "ready\n")
        assert daemon.get("/nothing")[0] == 404 and daemon.json("/api/v1/status")["pid"] == daemon.process.pid
    for what in ("jobs", "workers"):
        asked = json.loads(cachew(what, "--service", dispatcher.address, "--json").stdout)
        page = dispatcher.json(f"/api/v1/{what}")
        assert [set(row) for row in page] == [set(row) for row in asked] and len(page) == 1
    assert [job["name"] for job in dispatcher.json("/api/v1/jobs")] == ["one"]
    assert dispatcher.json("/api/v1/workers")[0]["http"] == worker.ready["http"]
    words = [
        "run",
        pipeline,
        "--service",
        dispatcher.address,
        "--job",
        "two",
        "--epochs",
        "1000000",
        "--wait",
        str(HANG_S),
    ]
    with started([CACHEW, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
        # that of a job that is over soon goes
        while not any(
            s["completed"] > 0 and s["jobs"] == ["two"] for s in dispatcher.json("/api/v1/streams")
        ):
            assert job.poll() is None
        job.kill()
    assert dispatcher.get("/")[1].startswith("<!doctype html>") and worker.get("/")[0] == 404
    for file in (HERE.parent / "src" / "service" / "dispatcher" / "web").glob("*.*"):
        if file.name not in ("index.html", "meson.build"):
            assert dispatcher.get(f"/{file.name}") == (200, file.read_text())
    assert dispatcher.get("/index.html")[0] == 404 and dispatcher.get("/../web.h")[0] == 404
    assert dispatcher.get("/api/v1/nothing")[0] == 404 and worker.get("/api/v1/jobs")[0] == 404


@pytest.fixture
def many_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip(f"this process may open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def asking(daemon, said):
    """A connection on which so much was said."""
    host, port = daemon.ready["http"].rsplit(":", 1)
    s = socket.create_connection((host, int(port)), timeout=HANG_S)
    with contextlib.suppress(ConnectionError):  # it was sent off already
        s.sendall(said)
    return s


HALF = b"GET /healthz HTTP/1.1\r\nHost: local"


def test_health_is_told_beside_1200_connections_with_half_a_request(daemons, many_descriptors):
    """Each 64 of them kept all others out for ten seconds."""
    dispatcher = daemons.start("dispatcher", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
    with contextlib.ExitStack() as crowd:
        halves = [crowd.enter_context(asking(dispatcher, HALF)) for _ in range(1200)]

        def healthy():
            # in a crowd a tenth of a second is left to ask in
            with contextlib.suppress(urllib.error.URLError, http.client.HTTPException, ConnectionError):
                return dispatcher.get("/healthz") == (200, "ok\n")
            return False

        wait_for(healthy)
        ended = select.poll()
        for s in halves:
            ended.register(s, select.POLLIN)
        assert len(halves) - len(ended.poll(0)) < 128


@pytest.mark.large
def test_a_request_that_comes_byte_by_byte_has_a_deadline(daemons):
    """Whoever said a byte now and then could stay for ever."""
    dispatcher = daemons.start(
        "dispatcher", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", env={"CACHEW_SILENCE_S": "3"}
    )
    with asking(dispatcher, HALF) as s:
        with contextlib.suppress(ConnectionError):  # it was sent off meanwhile
            assert any(select.select([s], [], [], 0.2)[0] or s.sendall(b"l") for _ in range(5 * HANG_S))
            assert s.recv(1000) == b""


def test_worker_is_not_ready_without_its_dispatcher(daemons):
    dispatcher, (worker,) = daemons.service(http=True)
    dispatcher.end(signal.SIGKILL)
    while worker.get("/readyz")[0] == 200:
        pass
    assert worker.get("/readyz")[0] == 503 and worker.get("/healthz")[0] == 200


def test_without_the_option_there_are_no_pages(daemons):
    dispatcher, (worker,) = daemons.service()
    assert "http" not in dispatcher.ready and "http" not in worker.ready


# ---- logs, limits ----


def test_logs_as_json(daemons):
    dispatcher, (worker,) = daemons.service("--log-format", "json")
    daemons.end()
    for daemon, role in ((dispatcher, "dispatcher"), (worker, "worker")):
        lines = [json.loads(line) for line in daemon.err.splitlines()]
        assert lines
        for line in lines:
            assert set(line) == {"time", "level", "role", "pid", "message"} and line["level"] in (
                "info",
                "warning",
                "error",
            )
            assert (line["role"], line["pid"]) == (role, daemon.process.pid) and re.fullmatch(
                r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]
            )
    assert any("SIGTERM" in json.loads(line)["message"] for line in worker.err.splitlines())


def test_error_that_ends_a_daemon_is_json_too():
    said = json.loads(
        refused("dispatcher", "--listen", "127.0.0.1:0", "--state-dir", "/dev/null/x", "--log-format", "json")
    )
    assert said["level"] == "error" and "/dev/null/x" in said["message"]


def test_daemons_take_all_the_open_files_they_may(daemons):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
    try:
        dispatcher, (worker,) = daemons.service()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for daemon in (dispatcher, worker):
        limits = Path(f"/proc/{daemon.process.pid}/limits").read_text()
        assert re.search(r"Max open files +(\d+) ", limits)[1] == str(hard)


@pytest.mark.parametrize("how", ["second signal", "no time"])
def test_worker_ends_at_once_where_nobody_wants_to_wait(daemons, tmp_path, how):
    pipeline = tmp_path / "slow.json"
    pipeline.write_text(
        json.dumps(
            {
                "cachew": 1,
                "pipeline": [
                    {"op": "range", "stop": 4000},
                    {"op": "delay", "us": 20_000_000},
                    {"op": "batch", "size": 32},
                ],
            }
        )
    )
    dispatcher = daemons.start("dispatcher", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
    worker = daemons.start(
        "worker",
        "--dispatcher",
        dispatcher.address,
        "--memory",
        "64M",
        "--drain-timeout",
        "0" if how == "no time" else "1000000",
    )
    words = [CACHEW, "run", pipeline, "--service", dispatcher.address, "--job", "slow", "--wait", str(HANG_S)]
    with started(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE):
        while not any(w["leases"] for w in dispatcher.json("/api/v1/workers")):
            pass
        worker.process.send_signal(signal.SIGTERM)
        if how == "second signal":
            while "finishes" not in worker.err:
                pass
            worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(HANG_S) == 0
        if how == "second signal":
            assert "a second signal: the worker still has" in worker.err


def test_up_ends_while_a_worker_is_started_in_vain(daemons):
    up = daemons.start("up", "--listen", "127.0.0.1:0", "--drain-timeout", "1")
    dispatcher, worker = up.ready["pid"], up.ready["workers"][0]["pid"]
    os.kill(dispatcher, signal.SIGSTOP)
    try:
        os.kill(worker, signal.SIGKILL)
        while "it is started again" not in up.err:
            pass
        up.process.send_signal(signal.SIGINT)
        up.process.wait(HANG_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(dispatcher, signal.SIGCONT)


def test_up_takes_no_more_words_than_it_can_give_on():
    assert "--data-root and --plugin are given 200 times" in refused("up", *(["--data-root", "/"] * 200))


# ---- traces ----


def spans(text):
    """{(name, id): [(from, to), ...]} of a trace, whose spans all end. There are several where a range was
    run again.
    """
    begun, found = {}, collections.defaultdict(list)
    for event in json.loads(text):
        key = (event["name"], event.get("id"), event["pid"])
        if event["ph"] == "b":
            assert key not in begun
            begun[key] = event["ts"]
        elif event["ph"] == "e":
            found[key[:2]].append((begun.pop(key), event["ts"]))
    assert not begun
    return found


def traced(daemons, pipeline, directory):
    """A run over two workers; the traces of the three are in the directory."""
    dispatcher = daemons.start("dispatcher", "--listen", "127.0.0.1:0")
    workers = [
        daemons.start(
            "worker",
            "--dispatcher",
            dispatcher.address,
            "--memory",
            "256M",
            "--trace",
            directory / f"worker{i}.json",
        )
        for i in range(2)
    ]
    digest(pipeline, "--service", dispatcher.address, "--job", "one", "--trace", directory / "run.json")
    return workers


@pytest.mark.parametrize(
    ("ops", "n_batches"),
    [
        ([{"op": "batch", "size": 32}], 125),
        ([{"op": "filter", "where": "value % 2 == 0"}, {"op": "batch", "size": 32}], 63),
        ([{"op": "bucket_by_length", "length": "value % 100", "boundaries": [50], "sizes": [32, 16]}], 188),
    ],
)
def test_traces_show_the_life_of_each_batch(daemons, pipeline, tmp_path, ops, n_batches):
    """Whether batches follow from positions, from how many elements a filter left, or from those of each
    bucket.
    """
    described = json.loads(pipeline.read_text())
    pipeline.write_text(json.dumps({**described, "pipeline": described["pipeline"][:-1] + ops}))
    traced(daemons, pipeline, tmp_path)
    daemons.end()
    files = [tmp_path / name for name in ("run.json", "worker0.json", "worker1.json")]
    alone = [json.loads(path.read_text()) for path in files]  # each is a file of its own, too
    together = cachew("trace", *files)
    assert together.returncode == 0 and len(json.loads(together.stdout)) == sum(map(len, alone))
    found = spans(together.stdout)
    batches = [key for name, key in found if name == "batch"]
    assert len(batches) == len(set(batches)) == n_batches
    for key in batches:
        ((asked, handed_out),) = found["batch", key]
        answers, ranges = found["answer", key], found["range", key.rsplit("/", 1)[0]]
        assert any(asked <= begun <= ended <= handed_out for begun, ended in answers)
        assert any(begun == asked and ended <= handed_out for begun, ended in found["fetch", key])
        assert all(leased <= computed for leased, computed in ranges) and any(
            leased <= answered for leased, _ in ranges for _, answered in answers
        )


def test_trace_of_a_worker_that_was_killed_can_be_read(daemons, pipeline, tmp_path):
    for worker in traced(daemons, pipeline, tmp_path):
        worker.end(signal.SIGKILL)
    with (tmp_path / "worker0.json").open("a") as f:
        f.write('{"ph":"b","cat":"ba')  # as if it had been writing
    ran = cachew("trace", *(tmp_path / name for name in ("worker0.json", "run.json")))
    assert ran.returncode == 0 and len([name for name, _ in spans(ran.stdout) if name == "batch"]) == 125


def test_traces_that_are_none(daemons, pipeline, tmp_path):
    (tmp_path / "other").write_text("[]\n")
    assert "is not a trace" in refused("trace", tmp_path / "other")
    assert "nowhere" in refused("trace", tmp_path / "nowhere")
    assert "needs --service" in refused("run", pipeline, "--trace", tmp_path / "x")
    assert "--trace" in refused("worker", "--dispatcher", "127.0.0.1:1", "--trace", tmp_path / "no" / "x")
    dispatcher, _ = daemons.service()
    ran = cachew("run", pipeline, "--service", dispatcher.address, "--job", "full", "--trace", "/dev/full")
    assert ran.returncode == 1 and "--trace: can't be written" in ran.stderr


# ---- keys ----


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tls") / "keys"
    ran = cachew("keys", "init", directory, "--host", "node1.example", "--host", "10.1.2.3", "--days", "2")
    assert ran.returncode == 0, ran
    return directory


def server_words(keys):
    return [
        "--tls-cert",
        keys / "server.pem",
        "--tls-key",
        keys / "server-key.pem",
        "--tls-ca",
        keys / "ca.pem",
        "--token-file",
        keys / "token",
    ]


def client_words(keys):
    return ["--tls-ca", keys / "ca.pem", "--token-file", keys / "token"]


def test_keys(keys):
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in keys.iterdir()}
    assert modes == {
        "ca.pem": 0o644,
        "server.pem": 0o644,
        "client.pem": 0o644,
        "ca-key.pem": 0o600,
        "server-key.pem": 0o600,
        "client-key.pem": 0o600,
        "token": 0o600,
    }
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700
    assert re.fullmatch(r"[0-9a-f]{64}\n", (keys / "token").read_text())
    decoded = ssl._ssl._test_decode_cert(str(keys / "server.pem"))
    assert set(decoded["subjectAltName"]) == {
        ("DNS", "localhost"),
        ("IP Address", "127.0.0.1"),
        ("IP Address", "0:0:0:0:0:0:0:1"),
        ("DNS", "node1.example"),
        ("IP Address", "10.1.2.3"),
    }


def test_keys_are_never_replaced(keys, tmp_path):
    before = {path.name: path.read_bytes() for path in keys.iterdir()}
    assert "ca.pem exists already" in refused("keys", "init", keys)
    assert {path.name: path.read_bytes() for path in keys.iterdir()} == before
    half = tmp_path / "half"
    half.mkdir()
    (half / "client.pem").write_text("mine")
    assert "client.pem exists already" in refused("keys", "init", half)
    assert [path.name for path in half.iterdir()] == ["client.pem"] and (
        half / "client.pem"
    ).read_text() == "mine"


@pytest.mark.parametrize("host", ["a,IP:1.2.3.4", "", "a b", "host:5050", "-x", "a" * 300])
def test_names_that_no_host_has_are_refused(tmp_path, host):
    assert "--host" in refused("keys", "init", tmp_path / "keys", "--host", host)
    assert not (tmp_path / "keys").exists()


def test_keys_print_lines_that_work(daemons, pipeline, tmp_path):
    """What it prints is started as it stands, with a port that is free."""
    text = cachew("keys", "init", tmp_path / "keys").stdout
    lines = {line.split()[1]: line.split()[1:] for line in text.splitlines() if line.startswith("cachew ")}
    words = [w.replace(":5050", ":0") for w in lines["dispatcher"]]
    dispatcher = daemons.start(*words)
    port = dispatcher.address.rsplit(":", 1)[1]
    daemons.start(*[w.replace(":5050", f":{port}") for w in lines["worker"]], "--memory", "256M")
    words = [w.replace(":5050", f":{port}").replace("PIPELINE.json", str(pipeline)) for w in lines["run"]]
    assert digest(pipeline, *words[2:], "--transport", "tcp") == digest(pipeline)


# ---- TLS and tokens ----


@pytest.mark.parametrize("mutual", [False, True])
def test_service_over_tls(daemons, pipeline, keys, mutual):
    more = ["--tls-mutual"] if mutual else []
    client = [
        *client_words(keys),
        *(["--tls-cert", keys / "client.pem", "--tls-key", keys / "client-key.pem"] if mutual else []),
    ]
    dispatcher, workers = daemons.service(*server_words(keys), *more, workers=2)
    for transport in ("tcp", "auto"):
        assert digest(
            pipeline, "--service", dispatcher.address, "--job", transport, "--transport", transport, *client
        ) == digest(pipeline)
    for verb in ("jobs", "workers"):
        assert len(json.loads(cachew(verb, "--service", dispatcher.address, "--json", *client).stdout)) == 2
    assert (
        cachew("top", "--service", dispatcher.address, "--once", "--interval", "0", *client).returncode == 0
    )
    port = int(workers[0].address.rsplit(":", 1)[1])
    context = ssl.create_default_context(cafile=keys / "ca.pem")
    with (
        socket.create_connection(("127.0.0.1", port), HANG_S) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as s,
    ):
        assert s.version() == "TLSv1.3"  # the workers' port too
    if mutual:
        assert "certificate" in refused("jobs", "--service", dispatcher.address, *client_words(keys), code=3)


def test_up_over_tls(daemons, pipeline, keys):
    up = daemons.start("up", "--listen", "127.0.0.1:0", "--workers", "2", *server_words(keys))
    assert len(up.ready["workers"]) == 2
    assert digest(
        pipeline, "--service", up.address, "--job", "one", "--transport", "tcp", *client_words(keys)
    ) == digest(pipeline)
    assert up.end() == 0


def signed_words(keys, directory, name, days):
    made, key = sign(keys, directory, name, days)
    return ["--tls-cert", made, "--tls-key", key, "--token-file", keys / "token"]


def test_expired_certificate_is_refused(daemons, pipeline, keys, tmp_path):
    # so that it is the date
    good = daemons.start("dispatcher", "--listen", "127.0.0.1:0", *signed_words(keys, tmp_path, "good", 1))
    assert json.loads(cachew("jobs", "--service", good.address, "--json", *client_words(keys)).stdout) == []
    expired = daemons.start(
        "dispatcher", "--listen", "127.0.0.1:0", *signed_words(keys, tmp_path, "expired", -1)
    )
    for words in (["jobs"], ["run", pipeline, "--job", "x"]):
        assert "certificate has expired" in refused(
            *words, "--service", expired.address, *client_words(keys), code=3
        )
    said = refused("worker", "--dispatcher", expired.address, "--memory", "64M", *server_words(keys), code=3)
    assert "certificate has expired" in said


def test_new_certificates_are_used_without_a_restart(daemons, keys, tmp_path):
    """An expired one is replaced; while certificate and key do not fit together, the old ones are used."""
    old, new = sign(keys, tmp_path, "old", -1), sign(keys, tmp_path, "new", 1)
    used = [tmp_path / "used.pem", tmp_path / "used-key.pem"]
    for source, target in zip(old, used):
        shutil.copy(source, target)
    dispatcher = daemons.start(
        "dispatcher",
        "--listen",
        "127.0.0.1:0",
        "--tls-cert",
        used[0],
        "--tls-key",
        used[1],
        "--token-file",
        keys / "token",
    )
    ask = ["jobs", "--service", dispatcher.address, *client_words(keys)]
    assert "certificate has expired" in refused(*ask, code=3)
    shutil.copy(new[0], used[0])
    until = time.monotonic() + 2
    while time.monotonic() < until:  # the files are looked at once a second
        assert "certificate has expired" in refused(*ask, code=3)
    shutil.copy(new[1], used[1])
    until = time.monotonic() + HANG_S
    while cachew(*ask).returncode != 0:
        assert time.monotonic() < until


def test_a_log_is_not_flooded_by_who_is_refused(daemons, keys):
    dispatcher, (worker,) = daemons.service("--token-file", keys / "token")
    for daemon in (dispatcher, worker):
        host, port = daemon.address.rsplit(":", 1)
        began = time.monotonic()
        for _ in range(200):
            with socket.create_connection((host, int(port)), HANG_S) as s:
                s.sendall(b"GET / HTTP/1.0\r\n\r\n")
                while s.recv(4096):
                    pass
        windows = 2 + (time.monotonic() - began) // 10
        # ten in ten seconds: tests/unit/test_net.c
        assert 1 <= daemon.err.count("another protocol than Cachew's") <= 10 * windows


def test_certificate_of_another_authority_is_refused(daemons, keys, tmp_path):
    cachew("keys", "init", tmp_path / "others")
    dispatcher = daemons.start("dispatcher", "--listen", "127.0.0.1:0", *server_words(tmp_path / "others"))
    said = refused("jobs", "--service", dispatcher.address, *client_words(keys), code=3)
    assert "certificate is not accepted" in said


@pytest.mark.parametrize("tls", [False, True])
def test_wrong_token_is_refused(daemons, pipeline, keys, tmp_path, tls):
    words = server_words(keys) if tls else ["--token-file", keys / "token"]
    dispatcher, _ = daemons.service(*words)
    (tmp_path / "wrong").write_text("wrong-secret-words\n")
    own = ["--tls-ca", keys / "ca.pem"] if tls else []
    for token, message in (
        (["--token-file", tmp_path / "wrong"], "the token is wrong"),
        ([], "the service expects a token"),
    ):
        for verb in (["jobs"], ["run", pipeline, "--job", "x"]):
            assert message in refused(*verb, "--service", dispatcher.address, *own, *token, code=3)
        words = server_words(keys)[:6] if tls else []
        assert message in refused(
            "worker", "--dispatcher", dispatcher.address, "--memory", "64M", *words, *token, code=3
        )
    assert digest(
        pipeline, "--service", dispatcher.address, "--job", "x", *own, "--token-file", keys / "token"
    ) == digest(pipeline)
    secrets = ["wrong-secret-words", (keys / "token").read_text().strip()]
    for daemon in daemons.all:
        assert not any(secret in daemon.err for secret in secrets)
        assert not any(
            secret in Path(f"/proc/{daemon.process.pid}/cmdline").read_text() for secret in secrets
        )


def test_plain_and_tls_do_not_mix(daemons, pipeline, keys):
    over_tls, _ = daemons.service(*server_words(keys))
    plain = daemons.start("dispatcher", "--listen", "127.0.0.1:0", "--token-file", keys / "token")
    said = refused("jobs", "--service", over_tls.address, "--token-file", keys / "token", code=3)
    assert "the service expects TLS" in said
    # at once: it would be the same each time
    for verb in (["run", pipeline, "--service"], ["worker", "--dispatcher"]):
        assert "the service expects TLS" in refused(
            *verb, over_tls.address, "--token-file", keys / "token", code=3
        )
    assert over_tls.err.count("the service expects TLS") <= 4  # and not 10 times a second
    said = refused("jobs", "--service", plain.address, *client_words(keys), code=3)
    assert "does the other side speak TLS?" in said
    # nobody noticed
    assert digest(pipeline, "--service", over_tls.address, "--job", "x", *client_words(keys)) == digest(
        pipeline
    )


def test_options_of_tls_that_do_not_fit_together(keys, tmp_path):
    cert, key = ["--tls-cert", keys / "server.pem"], ["--tls-key", keys / "server-key.pem"]
    listen = ["dispatcher", "--listen", "127.0.0.1:0"]
    assert "--tls-key is missing" in refused(*listen, *cert)
    assert "--tls-cert is missing" in refused(*listen, *key)
    assert "--tls-cert is missing" in refused(*listen, "--tls-ca", keys / "ca.pem")
    assert "--tls-ca is missing" in refused(*listen, *cert, *key, "--tls-mutual")
    assert str(tmp_path / "none.pem") in refused(*listen, "--tls-cert", tmp_path / "none.pem", *key)
    # not the certificate's
    assert "client-key.pem" in refused(*listen, *cert, "--tls-key", keys / "client-key.pem")
    assert "--tls-cert is missing" in refused(
        "worker", "--dispatcher", "127.0.0.1:1", "--tls-ca", keys / "ca.pem"
    )


# ---- addresses ----


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"])
def test_addresses_beyond_this_machine_are_refused(keys, address):
    for verb in (["dispatcher"], ["worker", "--dispatcher", "127.0.0.1:1"]):
        said = refused(*verb, "--listen", address)
        assert f"--listen {address}" in said and "--tls-cert, --tls-key and --token-file are missing" in said
        assert "--tls-cert and --tls-key are missing" in refused(
            *verb, "--listen", address, "--token-file", keys / "token"
        )
        assert "--token-file is missing" in refused(*verb, "--listen", address, *server_words(keys)[:6])
        said = refused(*verb, "--http", address, *server_words(keys))
        assert f"--http {address}" in said and "--insecure" in said


@pytest.mark.parametrize("words", ["secure", "insecure"])
def test_addresses_beyond_this_machine(daemons, keys, words):
    more = server_words(keys) if words == "secure" else ["--insecure", "--http", "0.0.0.0:0"]
    dispatcher = daemons.start("dispatcher", "--listen", "0.0.0.0:0", *more)
    assert dispatcher.address.startswith("0.0.0.0:")
    if words == "insecure":
        port = dispatcher.ready["http"].rsplit(":", 1)[1]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=HANG_S) as answer:
            assert answer.read() == b"ok\n"


@pytest.mark.parametrize("address", ["127.9.8.7:0", "localhost:0"])
def test_all_addresses_of_this_machine_are_taken(daemons, address):
    daemons.start("dispatcher", "--listen", address, "--http", address)


# ---- top ----


def test_top_once(daemons, pipeline):
    dispatcher, (worker,) = daemons.service()
    digest(pipeline, "--service", dispatcher.address, "--job", "one\x1b[31mtwo")
    ran = cachew("top", "--service", dispatcher.address, "--once", "--interval", "0.2")
    assert ran.returncode == 0 and "\x1b" not in ran.stdout and "\x1b" not in dispatcher.err
    assert 'job "one\\u001b[31mtwo" is done' in dispatcher.err
    rows = [line.split() for line in ran.stdout.splitlines()]
    (job,) = [row for row in rows if row and row[0] == "one\\u001b[31mtwo"]
    assert job[1:5] == ["done", "0", "0/1", "125"] and float(job[5]) >= 0  # since the last answer
    (shown,) = [row for row in rows if worker.address in row]
    assert shown[:4] == ["1", worker.address, "ready", "0"]
    told = json.loads(cachew("top", "--service", dispatcher.address, "--once", "--json").stdout)
    assert set(told) == {"status", "jobs", "workers"} and told["status"]["workers"] == 1


@pytest.mark.large
def test_top_shows_no_rank_that_waited_more_than_all_of_the_time(daemons, tmp_path):
    """A rank tells what it waited once a second: in half of one there was none of it, or twice as much
    as fits.
    """
    pipeline = tmp_path / "slow.json"
    pipeline.write_text(
        json.dumps(
            {
                "cachew": 1,
                "pipeline": [
                    {"op": "range", "stop": 100000},
                    {"op": "delay", "us": 300000},
                    {"op": "batch", "size": 1},
                ],
            }
        )
    )
    dispatcher, _ = daemons.service("--http", "127.0.0.1:0")
    with started(
        [CACHEW, "run", pipeline, "--service", dispatcher.address, "--job", "slow", "--wait", str(HANG_S)],
        stdout=subprocess.DEVNULL,
    ):
        wait_for(
            lambda: any(
                j["ranks"][0]["step_s"] is not None and (j["now"] or {}).get("waited")
                for j in dispatcher.json("/api/v1/jobs")
                if j["ranks"]
            )
        )
        for _ in range(6):
            shown = cachew("top", "--service", dispatcher.address, "--once", "--interval", "0.5").stdout
            (part,) = [line.split()[6] for line in shown.splitlines() if line.startswith("slow ")]
            assert part == "-" or 0 <= float(part) <= 100, shown  # none: it was not heard of


def test_top_in_a_pipe_goes_on_until_it_is_ended(daemons):
    dispatcher, _ = daemons.service()
    with started(
        [CACHEW, "top", "--service", dispatcher.address, "--wait", str(HANG_S), "--interval", "0.1"],
        stdout=subprocess.PIPE,
        text=True,
    ) as top:
        tables = 0
        while tables < 3:
            line = top.stdout.readline()
            assert line and "\x1b" not in line
            tables += line.split()[:1] == ["WORKER"]
        top.send_signal(signal.SIGINT)
        top.stdout.read()
        assert top.wait(HANG_S) == 0


def test_top_on_a_terminal_ends_with_q(daemons):
    dispatcher, _ = daemons.service()
    main, side = pty.openpty()
    with started(
        [CACHEW, "top", "--service", dispatcher.address, "--wait", str(HANG_S), "--interval", "60"],
        stdin=side,
        stdout=side,
        stderr=side,
    ) as top:
        os.close(side)
        seen = b""
        while b"WORKER" not in seen:
            assert select.select([main], [], [], HANG_S)[0]
            seen += os.read(main, 65536)
        os.write(main, b"q")
        while b"\x1b[?1049l" not in seen:
            assert select.select([main], [], [], HANG_S)[0]
            seen += os.read(main, 65536)
        assert seen.startswith(b"\x1b[?1049h") and top.wait(HANG_S) == 0
    os.close(main)


def test_top_without_a_dispatcher(tmp_path):
    with socket.socket() as s:  # a port that nobody listens at
        s.bind(("127.0.0.1", 0))
        assert "can't be reached" in refused("top", "--service", f"127.0.0.1:{s.getsockname()[1]}", code=3)
