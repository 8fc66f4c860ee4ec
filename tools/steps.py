"""Runs the commands of a long job one after the other and shows the progress of each.

`./demo` (demo.py) and `./test` (test.py) use it. On a terminal the line of the running step is kept up to
date; elsewhere a line is printed every 30 s, so that a log shows progress.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

# How commands print their progress: ninja "[12/345]", meson test "12/59 ", cachew photos "12 of 345", pytest
# "[ 45%]".
COUNTED = re.compile(rb"^\[ *(\d+)/(\d+)\]|^ *(\d+)/(\d+) |(?:^|\s)([\d,]+) of ([\d,]+)\b")
PERCENT = re.compile(rb"\[ *(\d+)%\]")
# How pytest and meson test print a failed test.
FAILED = re.compile(rb"^\[gw\d+\] \[ *\d+%\] (?:FAILED|ERROR) |^ *\d+/\d+ .*:\S+ +(?:FAIL|TIMEOUT|ERROR)\b")
SHOWN_AFTER_S = 2  # a shorter step shows no progress
END_S = 10  # an interrupted command that takes longer to end is killed
SURE_PART = 0.05  # the remaining time is shown when this part of a command is done
TERMINAL_EVERY_S = 0.5
LOG_EVERY_S = 30


def part_done(line):
    """Returns the part of a command's work, 0 to 1, that is done according to a line of its output; None if
    the line does not say it."""
    found = PERCENT.findall(line)
    if found:
        return int(found[-1]) / 100
    match = COUNTED.search(line)
    if not match:
        return None
    done, total = (int(text.replace(b",", b"")) for text in match.groups() if text is not None)
    return min(done / total, 1) if total else None


def duration(seconds):
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, tens = divmod(round(seconds / 10), 6)
    return f"{minutes} min" + (f" {tens}0 s" if tens and minutes < 10 else "")


class Line:
    """The line of the running step: its head is printed at once, and later its progress or its result after
    the head."""

    def __init__(self, head):
        self.head, self.terminal = head, sys.stdout.isatty()
        self.every_s = TERMINAL_EVERY_S if self.terminal else LOG_EVERY_S
        self.began = self.shown = time.monotonic()
        self.has_only_head = True
        print(head, end=" ", flush=True)

    def seconds(self):
        return time.monotonic() - self.began

    def progress(self, text):
        now = time.monotonic()
        if now - self.began < SHOWN_AFTER_S or now - self.shown < self.every_s:
            return
        self.shown = now
        if self.terminal:
            # the line must not wrap, or it could not be overwritten
            room = shutil.get_terminal_size().columns - len(text) - 2
            print(f"\r\033[K{self.head[: max(room, 0)]} {text}", end="", flush=True)
        else:
            print(("\n" if self.has_only_head else "") + f"    {text}", flush=True)
            self.has_only_head = False

    def end(self, text):
        if self.terminal:
            print(f"\r\033[K{self.head} {text}", flush=True)
        else:
            print(text if self.has_only_head else f"{self.head} {text}", flush=True)


class Output:
    """Writes what a command prints to a file; `part` is the part of its work that is done, None if unknown;
    `n_failed` is the number of tests that have failed."""

    def __init__(self, stream, path):
        self.part, self.n_failed, self.path, self.error = None, 0, path, None
        self.thread = threading.Thread(target=self.read_all, args=(stream,), daemon=True)
        self.thread.start()
        self.began = time.monotonic()

    def read_all(self, stream):
        try:
            self.read(stream)
        except OSError as error:  # such as a full disk: the command then waits until `run` ends it
            self.error = OSError(error.errno, error.strerror, str(self.path))

    def read(self, stream):
        line = b""
        with open(self.path, "wb") as kept:
            while chunk := os.read(stream.fileno(), 1 << 16):
                kept.write(chunk)
                kept.flush()
                *whole, line = re.split(rb"[\r\n]", line + chunk)
                self.n_failed += sum(bool(FAILED.search(text)) for text in whole)
                for text in [*whole, line]:
                    part = part_done(text)
                    self.part = self.part if part is None else part
        stream.close()


def kill_group(process):
    """Kills the processes of a process group that still run."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def end_group(process):
    """Ends a process group with SIGTERM, and after END_S with SIGKILL."""
    os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    kill_group(process)
    process.wait()


def end_by_signals():
    """Makes SIGTERM and SIGHUP raise KeyboardInterrupt, so that the running command is ended, too."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


def run(command, line, kept, env=None, poll=None):
    """Runs a command, writes its output to the file `kept`, and shows its progress on `line`. Returns its
    exit status.

    poll: a function that returns the part that is done (0 to 1), for a command that does not print it. If
    this program is interrupted, the command and its child processes are ended before this function
    returns."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **(env or {})},
        preexec_fn=os.setpgrp,
    )
    output = Output(process.stdout, kept)
    try:
        while True:
            try:
                status = process.wait(0.2)
                break
            except subprocess.TimeoutExpired:
                if output.error:
                    raise output.error from None
                part = poll() if poll else output.part
                line.progress(
                    progress_text(line.seconds(), part, time.monotonic() - output.began, output.n_failed)
                )
    except BaseException:
        end_group(process)
        raise
    kill_group(process)  # child processes that the command did not end
    output.thread.join(10)
    if output.error:
        raise output.error
    return status


def progress_text(seconds, part, taken, n_failed):
    """seconds: time since the step began; part: the part of its command that is done; taken: seconds since
    the command began."""
    text = f"{part:.0%}, {duration(seconds)}" if part else duration(seconds)
    if part and SURE_PART <= part < 1:
        text += f", about {duration(taken / part - taken)} left in this step"
    return f"{text}, {n_failed} failed" if n_failed else text
