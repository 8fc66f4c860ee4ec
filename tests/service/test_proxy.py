"""The fault proxy's own tests: each fault is what it says, seen from both ends."""

import select
import socket
import struct
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from proxy import DOWN, UP, Network  # noqa: E402

LIMIT_S = 900  # what takes longer hangs


class Ends:
    """A proxy, and the two ends of connections through it."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(LIMIT_S)
        self.network = Network(seed=1)
        self.proxy = self.network.proxy("test", "127.0.0.1:%d" % self.listener.getsockname()[1])
        self.open = []

    def connect(self):
        host, port = self.proxy.address.split(":")
        near = socket.create_connection((host, int(port)), LIMIT_S)
        self.open.append(near)
        return near

    def pair(self):
        near = self.connect()
        far, _ = self.listener.accept()
        far.settimeout(LIMIT_S)
        self.open.append(far)
        return near, far

    def close(self):
        for s in [*self.open, self.listener]:
            s.close()
        self.network.close()


@pytest.fixture
def ends():
    e = Ends()
    yield e
    e.close()


def receive(sock, n):
    data = b""
    while len(data) < n:
        more = sock.recv(n - len(data))
        if not more:
            break
        data += more
    return data


def silent(sock, seconds=0.2):
    return not select.select([sock], [], [], seconds)[0]


def test_it_carries_both_ways(ends):
    near, far = ends.pair()
    near.sendall(b"question")
    assert receive(far, 8) == b"question"
    data = bytes(range(256)) * 20000
    sender = threading.Thread(target=far.sendall, args=(data,))
    sender.start()
    assert receive(near, len(data)) == data
    sender.join()
    near.close()
    assert far.recv(1) == b""


def test_drop(ends):
    near, far = ends.pair()
    near.sendall(b"x")
    assert receive(far, 1) == b"x" and ends.proxy.drop() == 1
    assert near.recv(1) == b"" and far.recv(1) == b""


def test_reset(ends):
    near, far = ends.pair()
    near.sendall(b"x")
    assert receive(far, 1) == b"x" and ends.proxy.reset() == 1
    for end in (near, far):
        with pytest.raises(ConnectionResetError):
            end.recv(1)


@pytest.mark.parametrize("direction", [UP, DOWN])
def test_half_close(ends, direction):
    near, far = ends.pair()
    near.sendall(b"x")
    assert receive(far, 1) == b"x" and ends.proxy.half_close(direction) == 1
    ended, goes_on, other = (far, near, far) if direction == UP else (near, far, near)
    assert ended.recv(1) == b""
    other.sendall(b"still")
    assert receive(goes_on, 5) == b"still"


def test_half_close_of_what_was_reset(ends):
    """A fault comes while the loop has not seen yet that the far end is gone."""
    near, far = ends.pair()
    near.sendall(b"x")
    assert receive(far, 1) == b"x"
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def both():
        ends.open.remove(far)
        far.close()
        (connection,) = ends.proxy.connections
        connection.end(UP)

    ends.network.call(both)
    assert receive(near, 1) == b""


def test_black_hole(ends):
    near, far = ends.pair()
    near.sendall(b"x")
    assert receive(far, 1) == b"x" and ends.proxy.black_hole(True) == 1
    near.sendall(b"lost")
    far.sendall(b"lost")
    later = ends.connect()
    later.sendall(b"lost too")
    assert silent(near) and silent(far) and silent(later, 0.01)
    ends.proxy.heal()
    assert near.recv(1) == b"" and far.recv(1) == b""
    near, far = ends.pair()
    near.sendall(b"y")
    assert receive(far, 1) == b"y"


def test_stall_loses_nothing(ends):
    near, far = ends.pair()
    ends.proxy.stall(True)
    near.sendall(b"later")
    assert silent(far)
    ends.proxy.stall(False)
    assert receive(far, 5) == b"later"


def test_throttle_and_delay(ends):
    near, far = ends.pair()
    ends.proxy.throttle(20_000)
    begin = time.monotonic()
    near.sendall(b"x" * 10_000)
    assert receive(far, 10_000) and time.monotonic() - begin > 0.35
    ends.proxy.throttle(None)
    ends.proxy.delay(0.3)
    begin = time.monotonic()
    near.sendall(b"y")
    assert receive(far, 1) == b"y" and time.monotonic() - begin > 0.25


def test_damage_turns_one_bit_over(ends):
    near, far = ends.pair()
    near.sendall(b"x")
    assert receive(far, 1) == b"x" and ends.proxy.damage(DOWN) == 1
    far.sendall(bytes(100))
    assert sum(b.bit_count() for b in receive(near, 100)) == 1
    far.sendall(bytes(100))
    assert receive(near, 100) == bytes(100)


def test_refuse_and_nobody_there(ends):
    ends.proxy.refuse(True)
    assert ends.connect().recv(1) == b""
    ends.proxy.heal()
    ends.proxy.aim(None)
    assert ends.connect().recv(1) == b""
    ends.proxy.aim("127.0.0.1:%d" % ends.listener.getsockname()[1])
    near, far = ends.pair()
    near.sendall(b"z")
    assert receive(far, 1) == b"z"
