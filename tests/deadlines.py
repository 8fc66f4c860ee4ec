"""Deadlines of tests. They only end a hang: no verdict depends on how fast the machine is."""

import time

HANG_S = 3600  # a command, a page or an event that takes longer hangs
# For the environment of daemons and clients (src/base/patience.h): no process is given up because it is slow. Tests of
# these limits set their own. It is less than HANG_S, so that a test that hangs says what was waited for.
PATIENT_S = 900
PATIENT = {"CACHEW_SILENCE_S": str(PATIENT_S), "CACHEW_START_S": str(PATIENT_S)}
SILENCE_S = 3  # the default of CACHEW_SILENCE_S, for tests of that limit
PAUSE_S = 0.01  # between two looks: the processes under test need the CPU


def wait_for(condition, goes_on=lambda: True):
    """Waits until condition() is true, and returns its value. What would make it true runs as long as goes_on() is true."""
    until = time.monotonic() + HANG_S
    while not (value := condition()):
        assert goes_on(), "what would make the condition true has ended"
        assert time.monotonic() < until, f"the condition is false after {HANG_S} s"
        time.sleep(PAUSE_S)
    return value
