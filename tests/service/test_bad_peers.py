"""Peers that crowd, are silent, never read or have the wrong token: the jobs of others go on, and
nothing grows.
"""

import resource
import select
import socket
import threading
import time

import pytest
import raw_peer
from cluster import CACHEW
from command import SANITIZED
from deadlines import HANG_S, SILENCE_S
from raw_peer import CLIENT, FAILURE, GET, ADMIN_CLIENT, PING, QUERY, WORKER
from short_jobs import look
from workbench import BATCH, SHUFFLE, numbers, slow

CROWD = 2000
DESCRIPTORS = 1024
JOB = numbers(1600, slow(500), SHUFFLE, BATCH)
BATCHES = 200  # of JOB
UNKNOWN = 300  # no kind of message
MAY_QUEUE = 64 << 20  # of what a peer does not read, docs/protocol.md
BESIDE = (128 if SANITIZED else 64) << 20  # what the memory allocator adds


def address_of(bench, role):
    return bench.cluster.direct if role == "dispatcher" else bench.cluster.workers["w0"].address


class Crowd:
    """So many connections at a time, each of which says this and then nothing; who is cut off comes again.
    Runs until it is left.
    """

    def __init__(self, address, said, n=CROWD):
        self.host, self.port = address.rsplit(":", 1)
        self.said, self.n = said, n
        self.sockets, self.came, self.over = set(), 0, False
        self.full = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def come(self):
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex((self.host, int(self.port)))
        self.sockets.add(s)
        self.came += 1
        self.poll.register(s, select.POLLIN | select.POLLOUT)
        self.by_fd[s.fileno()] = s

    def step(self, fd, events):
        s = self.by_fd[fd]
        try:
            if events & select.POLLOUT:
                self.poll.modify(s, select.POLLIN)
                s.send(self.said)
            if events & (select.POLLHUP | select.POLLERR) or (events & select.POLLIN and not s.recv(65536)):
                raise ConnectionResetError
        except BlockingIOError:
            pass
        except OSError:
            self.poll.unregister(s)
            self.sockets.discard(s)
            del self.by_fd[fd]
            s.close()

    def run(self):
        self.poll, self.by_fd = select.poll(), {}
        while not self.over:
            for _ in range(min(100, self.n - len(self.sockets))):
                self.come()
            for fd, events in self.poll.poll(20):
                self.step(fd, events)
            if self.came >= self.n:
                self.full.set()
        for s in self.sockets:
            s.close()

    def __enter__(self):
        self.thread.start()
        assert self.full.wait(HANG_S), f"{self.came} of {self.n} connections"
        return self

    def __exit__(self, *_):
        self.over = True
        self.thread.join()


@pytest.fixture
def many_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CROWD + 500:
        pytest.skip(f"this process may open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


SAID = {
    "half-open": b"",
    "half-a-header": b"CWF1",
    "greeted": raw_peer.hello(ADMIN_CLIENT),
    "client": raw_peer.hello(CLIENT),
    "worker": raw_peer.hello(WORKER),
}


@pytest.mark.parametrize(
    "role, said",
    [
        ("dispatcher", "half-open"),
        ("dispatcher", "half-a-header"),
        ("dispatcher", "greeted"),
        ("dispatcher", "client"),
        ("dispatcher", "worker"),
        ("worker", "half-open"),
        ("worker", "client"),
    ],
)
def test_two_thousand_connections_where_a_thousand_fit(bench, many_descriptors, tmp_path, role, said):
    limited = tmp_path / "limited"
    limited.write_text(f'#!/bin/sh\nulimit -n {DESCRIPTORS}\nexec "{CACHEW}" "$@"\n')
    limited.chmod(0o755)
    bench.cluster.command = str(limited)
    bench.cluster.env["CACHEW_SILENCE_S"] = str(SILENCE_S)  # who has greeted and is silent makes room by that
    bench.cluster.start(2)
    before = bench.ranks(JOB, job="before", words=["--transport", "tcp"])[0]
    bench.cluster.wait_lines(before, 3)
    with Crowd(address_of(bench, role), SAID[said]):
        # it goes on, or has ended meanwhile
        bench.cluster.wait_lines(before, min(before.lines() + 5, BATCHES))
        other = bench.ranks(JOB, job="other", words=["--transport", "tcp"])[0]  # and others begin
        before.finish()
        other.finish()
    bench.judge(JOB, (1, None, [before]))
    bench.judge(JOB, (1, None, [other]))


@pytest.mark.parametrize(
    "role, kind, asked",
    [
        ("dispatcher", ADMIN_CLIENT, QUERY),
        ("dispatcher", CLIENT, PING),
        ("dispatcher", CLIENT, UNKNOWN),
        ("worker", CLIENT, GET),
        ("worker", CLIENT, PING),
        ("worker", CLIENT, UNKNOWN),
    ],
)
def test_who_asks_and_never_reads_is_cut_off(bench, role, kind, asked):
    bench.cluster.start(1)
    r = bench.ranks(JOB)[0]
    bench.cluster.wait_lines(r, 3)
    daemon = bench.cluster.dispatcher if role == "dispatcher" else bench.cluster.workers["w0"]
    before = look(daemon.pid)["bytes"]
    # A Get of a stream that is not there, for one batch: it is answered at once.
    questions = (
        raw_peer.frame(raw_peer.envelope(asked, raw_peer.number(5, 1) if asked == GET else b"", request=5))
        * 2000
    )
    with raw_peer.connect(address_of(bench, role), HANG_S) as s:
        s.sendall(raw_peer.hello(kind))
        deadline = time.monotonic() + HANG_S
        with pytest.raises(ConnectionError):
            while time.monotonic() < deadline:
                s.sendall(questions)
                assert look(daemon.pid)["bytes"] < before + MAY_QUEUE + BESIDE
    r.finish()
    bench.judge(JOB, (1, None, [r]))


@pytest.mark.parametrize("role", ["dispatcher", "worker"])
def test_wrong_tokens_by_the_hundred(bench, tmp_path, role):
    token = tmp_path / "token"
    token.write_text("the right one\n")
    token.chmod(0o600)
    bench.cluster.dispatcher_words += ["--token-file", token]
    bench.cluster.worker_words += ["--token-file", token]
    bench.cluster.start(1)
    r = bench.ranks(JOB, words=["--token-file", token])[0]
    bench.cluster.wait_lines(r, 3)
    for i in range(300):
        with raw_peer.connect(address_of(bench, role)) as s:
            s.sendall(raw_peer.hello(CLIENT, f"wrong {i}" if i % 3 else ""))
            kinds = [kind for _, _, kind, _ in raw_peer.read_frames(s)]
            assert kinds == [FAILURE]  # without waiting for the end: who lets it in does not end it
            assert raw_peer.read_all(s) == b""
    r.finish()
    bench.judge(JOB, (1, None, [r]))
