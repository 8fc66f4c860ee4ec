"""monitoring/: alerts and Grafana's dashboard name metrics and labels that there are; and where Debian's
prometheus is installed, it takes all of it, and scrapes a service.

CACHEW names the command (default build/cachew)."""

import contextlib
import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from command import run, write
from deadlines import HANG_S, wait_for
from test_daemons import label_names, samples

HERE = Path(__file__).resolve().parent
MONITORING = HERE.parent / "monitoring"
BOARD = json.loads((MONITORING / "grafana-dashboard.json").read_text())
ALERTS = (MONITORING / "cachew-alerts.yml").read_text()
with_promtool = pytest.mark.skipif(
    not shutil.which("promtool"), reason="promtool is not there (package prometheus)"
)
with_prometheus = pytest.mark.skipif(
    not shutil.which("prometheus"), reason="prometheus is not there (package prometheus)"
)


@pytest.fixture
def service(daemons, tmp_path):
    """A service, a Daemon, after a job; and its workers."""
    pipeline = write(tmp_path / "pipeline.json", [{"op": "range", "stop": 4000}, {"op": "batch", "size": 8}])
    words = ["--memory", "256M", "--autoscale", "--workers", 2, "--min-workers", 2, "--policy", "fixed:2"]
    up = daemons.start("up", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *words)
    run(pipeline, "--service", up.address, "--job", "one")

    def ready():
        found = [w for w in up.json("/api/v1/workers") if w["state"] == "ready"]
        return found if len(found) == 2 else None

    return up, wait_for(ready)


def pages(service):
    up, workers = service
    yield up.get("/metrics")[1]
    with urllib.request.urlopen(f"http://{workers[0]['http']}/metrics", timeout=HANG_S) as answer:
        yield answer.read().decode()


def expressions():
    """(where, PromQL) of everything."""
    yield from re.findall(r"alert: (\w+)\n\s+expr: (.*)\n", ALERTS)
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in BOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]
    for annotation in BOARD["annotations"]["list"]:
        yield annotation["name"], annotation["expr"]


def test_metrics_and_labels_that_are_named_are_there(service):
    there = {}
    for page in pages(service):
        values, types = samples(page)
        there |= {name: values.get(name, {}) for name in types}
    named = 0
    for where, expression in expressions():
        for name, _, matchers in re.findall(r"\b(cachew_\w+)(\{([^}]*)\})?", expression):
            named += 1
            assert name in there, (where, name)
            for label, text in re.findall(r'(\w+)=~?"([^"]*)"', matchers):
                if label == "instance":  # Prometheus' own
                    continue
                assert label in label_names(there[name]), (where, name, label)
                assert all(f'{label}="{value}"' in " ".join(there[name]) for value in text.split("|")), (
                    where,
                    name,
                    text,
                )
        for labels in re.findall(r"by \(([^)]*)\)", expression):
            metrics = re.findall(r"\bcachew_\w+", expression)
            assert all(
                label.strip() in ("instance", "job")
                or any(label.strip() in label_names(there[m]) for m in metrics)
                for label in labels.split(",")
            ), (where, labels)
    assert named > 30


def test_every_alert_is_explained_and_tried():
    names = re.findall(r"alert: (\w+)", ALERTS)
    page = (HERE.parent / "docs" / "dashboard.md").read_text()
    tried = (MONITORING / "cachew-alerts.test.yml").read_text()
    assert len(names) == len(set(names)) > 5
    for name in names:
        assert f"`{name}`" in page and f'alertname="{name}"' in tried, name


def test_grafana_dashboard_is_whole():
    panels = BOARD["panels"]
    assert len({p["id"] for p in panels}) == len(panels)
    taken = set()
    for p in panels:
        place = p["gridPos"]
        assert p["title"] and p["targets"] and place["x"] + place["w"] <= 24
        assert p["datasource"] == {"type": "prometheus", "uid": "${source}"}
        assert len({t["refId"] for t in p["targets"]}) == len(p["targets"]) and all(
            t["legendFormat"] for t in p["targets"]
        )
        cells = {(place["x"] + i, place["y"] + k) for i in range(place["w"]) for k in range(place["h"])}
        assert not cells & taken, p["title"]
        taken |= cells


def test_targets(service):
    """What Prometheus' discovery over HTTP reads: workers that are there."""
    up, workers = service
    targets = up.json("/api/v1/targets")
    assert sorted(t["targets"][0] for t in targets) == sorted(w["http"] for w in workers)
    assert {t["labels"]["pool"] for t in targets} == {"local"} and {
        t["labels"]["worker"] for t in targets
    } == {str(w["id"]) for w in workers}


# ---- with Prometheus ----


def promtool(*words, **options):
    ran = subprocess.run(
        ["promtool", *map(str, words)], check=False, capture_output=True, text=True, timeout=HANG_S, **options
    )
    assert ran.returncode == 0, (words, ran.stdout, ran.stderr)
    return ran.stdout + ran.stderr


@with_promtool
def test_alerts_fire_when_they_should():
    assert "SUCCESS" in promtool("check", "rules", MONITORING / "cachew-alerts.yml")
    assert "SUCCESS" in promtool("test", "rules", MONITORING / "cachew-alerts.test.yml")
    promtool("check", "config", MONITORING / "prometheus.yml")


@with_promtool
def test_names_are_as_prometheus_wants_them(service):
    for page in pages(service):
        assert promtool("check", "metrics", input=page).strip() == ""


@contextlib.contextmanager
def prometheus(directory, up):
    """A real one, configured as in monitoring/, but more often; gives a function that asks it."""
    for name in ("prometheus.yml", "cachew-alerts.yml"):
        text = (
            (MONITORING / name).read_text().replace("127.0.0.1:9190", up.ready["http"]).replace("15s", "1s")
        )
        (directory / name).write_text(text)
    log = directory / "prometheus.log"
    with log.open("w") as err:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={directory}/prometheus.yml",
                f"--storage.tsdb.path={directory}/tsdb",
                "--web.listen-address=127.0.0.1:0",
            ],
            stdout=subprocess.DEVNULL,
            stderr=err,
        )
    try:

        def is_ready():
            assert process.poll() is None, log.read_text()
            return "ready to receive web requests" in log.read_text()

        wait_for(is_ready)
        found = re.search(r"Listening on\" address=([\d.:]+)", log.read_text())

        def ask(what, **query):
            url = f"http://{found.group(1)}/api/v1/{what}?{urllib.parse.urlencode(query)}"
            with urllib.request.urlopen(url, timeout=HANG_S) as answer:
                return json.load(answer)["data"]

        yield ask
    finally:
        process.terminate()
        process.wait(HANG_S)


@with_prometheus
def test_prometheus_scrapes_a_service(service, tmp_path):
    """Each target answers at least once: on a busy machine some scrapes come too late."""
    up, workers = service
    directory = tmp_path / "prometheus"
    directory.mkdir()
    with prometheus(directory, up) as ask:

        def result(expression):
            return ask("query", query=expression)["result"]

        wait_for(lambda: len(result("max_over_time(up[1d]) == 1")) == 3)
        targets = ask("targets")["activeTargets"]
        assert {t["labels"]["job"] for t in targets} == {"cachew-dispatcher", "cachew-worker"}, targets
        (completed,) = wait_for(
            lambda: result("last_over_time(cachew_dispatcher_ranges_completed_total[1d])")
        )
        assert float(completed["value"][1]) > 0
        registered = "last_over_time(cachew_worker_registered[1d])"
        wait_for(
            lambda: {r["metric"]["worker"] for r in result(registered)} == {str(w["id"]) for w in workers}
        )
        for _, expression in expressions():
            if "label_values" not in expression:
                ask("query", query=expression.replace("$__rate_interval", "1m").replace("$dispatcher", ".*"))

        def evaluated():
            (group,) = ask("rules")["groups"]
            return group if all(rule["health"] != "unknown" for rule in group["rules"]) else None

        group = wait_for(evaluated)
        assert {rule["health"] for rule in group["rules"]} == {"ok"}, group
