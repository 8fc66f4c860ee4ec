"""A host process: runs Python functions on rows that lie in shared memory. docs/hosts.md describes
its requests and answers.

Started as `python -m cachew._host` by the engine, with its socket, the shared memory of requests and of
answers, and a pipe; when the engine closes that, the host ends.
"""

import fcntl
import json
import os
import signal
import socket
import struct
import sys

# before the folder of the package is on the path, where files are named as other packages are
import numpy  # noqa: F401

HERE = os.path.dirname(os.path.abspath(__file__))
PARENT = os.path.dirname(HERE)

sys.path.insert(0, HERE)  # not as parts of the package, which would be loaded with them, and its engine
from _host_function import Function, become_copy  # noqa: E402
from _host_rows import Memory  # noqa: E402
from _host_values import text_of  # noqa: E402

sys.path.remove(HERE)

SOCKET, IN, OUT, LIFE = 3, 4, 5, 6
VERSION = 1
READY, DEFINE, CALL, DONE, ERROR = 1, 2, 3, 4, 5
FRAME = struct.Struct("=IIQQQ")


def live_no_longer_than_the_parent():
    """The kernel kills this process when the other end of LIFE is closed: by the engine, or because its
    process is gone.
    """
    # with what it started
    fcntl.fcntl(LIFE, fcntl.F_SETOWN, -os.getpgrp() if os.getpgrp() == os.getpid() else os.getpid())
    fcntl.fcntl(LIFE, 10, signal.SIGKILL)  # F_SETSIG, which the module has no name for in all versions
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
            sys.exit(0)
        data += part
    return bytes(data)


def main():
    if PARENT not in sys.path:
        sys.path.append(PARENT)  # where the package is
    for fd in (SOCKET, IN, OUT, LIFE):
        os.set_inheritable(fd, False)
    live_no_longer_than_the_parent()
    connection = socket.socket(fileno=SOCKET)
    os.register_at_fork(after_in_child=become_copy)
    requests, answers, functions, pid = Memory(IN), Memory(OUT), {}, os.getpid()
    connection.sendall(FRAME.pack(READY, VERSION, 0, 0, 0))
    while True:
        kind, version, key, size, call = FRAME.unpack(receive(connection, FRAME.size))
        if version != VERSION:
            raise SystemExit(
                f"the engine speaks version {version} of the protocol of hosts, this package "
                f"{VERSION}: they are of different releases"
            )
        try:
            if kind == DEFINE:
                functions[key] = Function(json.loads(receive(connection, size)))
                reply = FRAME.pack(DONE, VERSION, key, 0, call)
            else:
                used = functions[key].run(
                    requests,
                    size,
                    answers,
                    lambda used, key=key, call=call: connection.sendall(
                        FRAME.pack(DONE, VERSION, key, used, call)
                    ),
                )
                if used is None:  # it was answered on the way
                    continue
                reply = FRAME.pack(DONE, VERSION, key, used, call)
        except Exception as error:
            text = text_of(error).encode()
            reply = FRAME.pack(ERROR, VERSION, key, len(text), call) + text
        if os.getpid() != pid:
            os._exit(0)  # a fork of the function's that came back here: one answer is enough
        connection.sendall(reply)


if __name__ == "__main__":
    main()
