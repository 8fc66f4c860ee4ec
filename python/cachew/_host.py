"""The program of a host process: it runs Python functions on rows that lie in shared memory. docs/hosts.md
describes the requests and answers.

The engine starts it with four descriptors: a socket (SOCKET), the shared memory of requests (IN) and of
answers (OUT), and the reading end of a pipe (LIFE). The host ends when the engine closes the other end of the
pipe.
"""

import fcntl
import json
import os
import signal
import socket
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PARENT = os.path.dirname(HERE)
# Python begins the path with a program's directory, without symbolic links
sys.path[:] = [place for place in sys.path if os.path.realpath(place) != os.path.realpath(HERE)]

# imported while HERE is not on the path, because HERE has files that are named as other packages: torch.py,
# jax.py
import numpy  # noqa: E402, F401

# imported as top-level modules: as parts of the package they would load the whole package, and the engine
sys.path.insert(0, HERE)
from _host_function import Function, become_copy, load  # noqa: E402, F401
from _host_rows import Memory  # noqa: E402
from _host_tokenizer import Tokenizer  # noqa: E402
from _host_values import text_of  # noqa: E402

sys.path.remove(HERE)

SOCKET, IN, OUT, LIFE = 3, 4, 5, 6
VERSION = 1
READY, DEFINE, CALL, DONE, ERROR = 1, 2, 3, 4, 5
FRAME = struct.Struct("=IIQQQ")


def live_no_longer_than_the_parent():
    """Makes the kernel kill this process when the other end of LIFE is closed: by the engine, or because the
    engine's process has ended.
    """
    # Which processes the kernel kills: if this process leads a process group, the group (a negative number),
    # so that child processes of the user's functions are killed, too; otherwise this process only.
    fcntl.fcntl(LIFE, fcntl.F_SETOWN, -os.getpgrp() if os.getpgrp() == os.getpid() else os.getpid())
    fcntl.fcntl(LIFE, 10, signal.SIGKILL)  # 10: F_SETSIG, a name that fcntl lacks in some Python versions
    fcntl.fcntl(LIFE, fcntl.F_SETFL, fcntl.fcntl(LIFE, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    try:
        if os.read(LIFE, 1) == b"":
            sys.exit(0)
    except BlockingIOError:
        pass


def receive(connection, size):
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def definition(spec, function=Function):
    """What a spec defines. function: makes a Function of a spec."""
    return Tokenizer(spec) if spec["kind"] == "tokenize" else function(spec)


class Host:
    """Answers the engine's requests, which come one at a time.

    connection: the socket to the engine. requests, answers: descriptors of the shared memory. define: makes
    of a spec what it defines.
    """

    def __init__(self, connection, requests, answers, define=definition):
        self.connection, self.define, self.functions = connection, define, {}
        self.requests, self.answers, self.pid = Memory(requests), Memory(answers), os.getpid()
        connection.sendall(FRAME.pack(READY, VERSION, 0, 0, 0))

    def answer(self):
        """Receives one request and answers it. Raises EOFError if the engine closed the connection."""
        # key: the function's number. size: bytes of the text that follows (DEFINE) or of the request in the
        # shared memory (CALL). call: a number, which the answer repeats.
        kind, version, key, size, call = FRAME.unpack(receive(self.connection, FRAME.size))
        if version != VERSION:
            raise SystemExit(
                f"the engine uses version {version} of the protocol with host processes, this package "
                f"{VERSION}: they are from different releases"
            )

        def done(used):
            """Sends an answer of `used` bytes."""
            self.connection.sendall(FRAME.pack(DONE, VERSION, key, used, call))

        reply = None
        try:
            if kind == DEFINE:
                self.functions[key] = self.define(json.loads(receive(self.connection, size)))
                used = 0
            else:
                # used: bytes of the answer in the shared memory. If an iterable is slow, `run` sends an early
                # answer with `done`, and returns None.
                used = self.functions[key].run(self.requests, size, self.answers, done)
        except Exception as error:
            text = text_of(error).encode()
            reply = FRAME.pack(ERROR, VERSION, key, len(text), call) + text
        if os.getpid() != self.pid:
            os._exit(0)  # the function forked, and this is the child: only the parent may answer
        if reply is not None:
            self.connection.sendall(reply)
        elif used is not None:
            done(used)


def main():
    if PARENT not in sys.path:
        sys.path.append(PARENT)  # the directory that contains the package
    for fd in (SOCKET, IN, OUT, LIFE):
        os.set_inheritable(fd, False)
    live_no_longer_than_the_parent()
    os.register_at_fork(after_in_child=become_copy)  # notes, in a child that a function forks, that it is one
    host = Host(socket.socket(fileno=SOCKET), IN, OUT)
    try:
        while True:
            host.answer()
    except EOFError:
        sys.exit(0)


if __name__ == "__main__":
    main()
