"""The program of a host process while cachew.debug() is in use: it passes its descriptors to the user's
process, which then runs the functions itself, and waits for its end. The engine sees a host process like any
other.
"""

import os
import socket
import sys

SOCKET, IN, OUT = 3, 4, 5

with socket.socket(socket.AF_UNIX) as parent:
    try:
        parent.connect("\0" + os.environ["CACHEW_DEBUG_ADDRESS"])
    except OSError:  # debugging has ended meanwhile
        sys.exit()
    socket.send_fds(parent, [b"."], [SOCKET, IN, OUT])
    os.close(SOCKET)  # so that only the user's process has it: if that closes it, this host counts as dead
    parent.recv(1)  # until the user's process ends or drops this host
