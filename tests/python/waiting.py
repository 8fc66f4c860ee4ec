"""Waiting for events: what tests of the package share. Nothing here depends on how fast the machine is."""

import os
import time

import cachew
from deadlines import HANG_S


def in_use(it):
    """Whether another thread is inside."""
    try:
        it.state_dict()
    except cachew.UsageError:
        return True
    return False


def sleeps(pid):
    """Whether the main thread of a process waits for something."""
    with open(f"/proc/{pid}/status") as file:
        return "S (sleeping)" in file.read()


def held(file, where=lambda batch: True):
    """A function of batches that returns those for which where() holds once a file is there."""
    path = os.fspath(file)

    def function(batch):
        while where(batch) and not os.path.exists(path):
            time.sleep(0.01)
        return batch

    return function


def open_patiently():
    """Gives each iterator over a service HANG_S for opening, unless its options say how long."""
    real = cachew._core.open

    def patient(pipeline, options):
        if options.service is not None and options.open_timeout_s == 0:
            options = options._replace(open_timeout_s=HANG_S)
        return real(pipeline, options)

    cachew._core.open = patient
