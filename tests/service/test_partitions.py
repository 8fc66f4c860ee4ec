"""Networks that fail, with the kernel's own: links that go down and packets that get lost, between roles on
hosts of their own. As root only.
"""

import subprocess

import namespaces
import pytest
from deadlines import HANG_S, PATIENT
from workbench import BATCH, FILTER, SHUFFLE, Bench, numbers, slow, until_said, with_more_time

WHY_NOT = namespaces.missing()
WHY_NO_LOSS = namespaces.missing("nft")
JOB = numbers(7000, slow(500), FILTER, SHUFFLE, BATCH)
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))


@pytest.fixture
def bench(tmp_path):
    hosts = namespaces.Hosts("d", "c", "w0", "w1")
    b = Bench.__new__(Bench)
    b.tmp_path, b.locals = tmp_path, 0
    try:
        b.cluster = namespaces.NetCluster(hosts, tag="net")
        b.hosts = hosts
        b.cluster.worker_words += ["--threads", "1", "--memory", "64M"]
        yield b
        b.cluster.close()
    finally:
        hosts.close()


def partition(bench, name, notices):
    """Until the dispatcher, which is told nothing, has noticed it."""
    bench.hosts.down(name)
    until_said(notices, "sent nothing for")
    bench.hosts.up(name)


def ready(bench, n):
    """Until so many workers are there."""
    bench.cluster.until(
        "workers", lambda workers: sum(w["state"] == "ready" for w in workers) == n, f"{n} workers"
    )


def begun(bench):
    """A job of which 20 batches were taken, and which is held."""
    bench.cluster.start(2)
    r = bench.ranks(JOB, held=20)[0]
    bench.cluster.wait_lines(r, 20)
    return r


def test_a_worker_is_cut_off_and_comes_back(bench):
    r = begun(bench)
    bench.hosts.down("w1")
    until_said(bench.cluster.dispatcher, "sent nothing for")
    r.hold(60)
    bench.cluster.wait_lines(r, 60)  # the other one goes on
    bench.hosts.up("w1")
    ready(bench, 2)
    r.finish()
    bench.judge(JOB, (1, None, [r]))


@pytest.mark.large
def test_the_dispatcher_is_cut_off(bench):
    bench.cluster.env["CACHEW_SILENCE_S"] = "20"  # only the dispatcher is given up
    r = begun(bench)
    bench.cluster.until(
        "workers", lambda workers: sum(w["leases"] for w in workers) >= 4, "leases for what follows"
    )
    bench.hosts.down("d")
    r.hold(25)
    bench.cluster.wait_lines(r, 25)  # what was leased still comes
    until_said(bench.cluster.workers["w0"], "sent nothing for")
    bench.hosts.up("d")
    ready(bench, 2)
    r.finish()
    bench.judge(JOB, (1, None, [r]))


def test_the_client_is_cut_off(bench):
    r = begun(bench)
    partition(bench, "c", bench.cluster.dispatcher)
    r.finish()
    bench.judge(JOB, (1, None, [r]))


@pytest.mark.large
def test_all_are_cut_off_from_each_other(bench):
    r = begun(bench)
    for name in ("c", "w0", "w1"):
        bench.hosts.down(name)
    partition(bench, "d", bench.cluster.workers["w0"])
    for name in ("c", "w0", "w1"):
        bench.hosts.up(name)
    r.finish()
    bench.judge(JOB, (1, None, [r]))


@pytest.mark.large
@pytest.mark.skipif(WHY_NO_LOSS is not None, reason=str(WHY_NO_LOSS))
@pytest.mark.parametrize("between", [("c", "w0"), ("c", "d"), ("w0", "d")], ids="-".join)
def test_a_fifth_of_the_packets_is_lost(bench, between):
    bench.cluster.env.update(PATIENT)  # losses, not silence
    bench.cluster.start(2)
    bench.hosts.lose(*between, 20)
    r = bench.ranks(numbers(3000, slow(1000), FILTER, SHUFFLE, BATCH))[0]
    r.finish()
    assert bench.hosts.lost(between[0]) > 0
    bench.judge(numbers(3000, FILTER, SHUFFLE, BATCH), (1, None, [r]))


@pytest.mark.skipif(WHY_NO_LOSS is not None, reason=str(WHY_NO_LOSS))
def test_a_host_whose_first_address_is_silent_is_reached_at_the_next(bench, tmp_path):
    """Of a name with two addresses, the one that is tried first gets no answer."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 twice\n127.0.0.2 twice\n")
    inside = bench.hosts.inside("d")
    bench.cluster.direct = "127.0.0.2:0"
    bench.cluster.start(0)
    port = bench.cluster.direct.rpartition(":")[2]
    namespaces.run(
        *inside,
        "nft",
        "add table inet silent; add chain inet silent in { type filter hook "
        "input priority 0; }; "
        f"add rule inet silent in ip daddr 127.0.0.1 tcp dport {port} drop",
    )

    def attempt(wait_s):
        ran = subprocess.run(
            [
                *inside,
                "unshare",
                "-m",
                "sh",
                "-c",
                'mount --bind "$0" /etc/hosts && exec "$@"',
                hosts,
                bench.cluster.command,
                "workers",
                "--service",
                f"twice:{port}",
                "--json",
                "--wait",
                str(wait_s),
            ],
            check=False,
            capture_output=True,
            text=True,
            timeout=HANG_S,
        )
        assert (ran.returncode, ran.stdout.strip()) == (0, "[]"), ran.stderr

    with_more_time(attempt, 5)
