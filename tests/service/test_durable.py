"""What the dispatcher acknowledges is on the disk: its system calls, as strace saw them, in their order."""

import os
import re
import shutil

import pytest
from raw_peer import COMPLETED, DONE, REVOKE, fields, frames
from workbench import BATCH, FILTER, SHUFFLE, Bench, numbers, slow

N = 6000
JOB = numbers(N, slow(1000), FILTER, SHUFFLE, BATCH)  # of many ranges
RECEIVES, SENDS, SYNCS = (
    ("recvmsg", "recvfrom", "read", "readv"),
    ("sendmsg", "sendto", "write", "writev"),
    ("fdatasync", "fsync"),
)
LINE = re.compile(r"^(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)$")
QUOTED = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


def bytes_of(escaped):
    return bytes.fromhex(escaped.replace("\\x", ""))


class Calls:
    """What was said on each connection, and when: (place in the trace, bytes) of each descriptor, received
    and sent; (begin, end) of each sync of the journal.
    """

    def __init__(self, path):
        self.received, self.sent, self.syncs = {}, {}, []
        begun = {}  # by thread: (call, what it said when it began, place)
        for at, text in enumerate(path.read_text().splitlines()):
            found = LINE.match(text)
            if not found:
                continue
            thread, resumed, called, rest = found.groups()
            call = resumed or called
            first, place = begun.pop(thread, ("", at))[0:2] if resumed else ("", at)
            if rest.endswith("<unfinished ...>"):
                begun[thread] = (rest, at)
                continue
            self.add(call, first + rest, place, at)

    def add(self, call, text, begin, end):
        result = re.search(r"\) += (-?\d+)", text)
        if not result or int(result[1]) < 0:
            return
        fd, name = re.match(r"(\d+)<([^>]*)", text).groups()
        name = bytes_of(name)
        if call in SYNCS and b"/journal.db" in name:
            self.syncs.append((begin, end))
        elif call in (*RECEIVES, *SENDS) and name.startswith(b"socket:"):
            data = b"".join(map(bytes_of, QUOTED.findall(text[: result.start()])))[: int(result[1])]
            # What is received is known when the call ends; what is sent, when it begins.
            (self.received if call in RECEIVES else self.sent).setdefault(fd, []).append(
                (end if call in RECEIVES else begin, data)
            )


def messages(pieces):
    """[(place, request, answer, kind, message)] of a connection: the place of the last byte of each."""
    found, stream = [], b""
    for place, data in pieces:
        before = len(frames(stream))
        stream += data
        found += [(place, *said) for said in frames(stream)[before:]]
    return found


def spans(message, field, begin, end):
    """[(epoch, begin, end)] of what is in this field of a message; begin and end: numbers of fields."""
    parts = [dict(fields(value)) for number, value in fields(message) if number == field]
    return [(part.get(1, 0), part.get(begin, 0), part[end]) for part in parts]


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not there (package strace)")
def test_no_completion_is_acknowledged_before_its_fdatasync(tmp_path):
    # LeakSanitizer does not work in a traced process.
    bench = Bench(tmp_path, env={"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"})
    trace = tmp_path / "trace"
    # -D: the dispatcher is our child, strace its; -xx: bytes as they are.
    strace = [
        "strace",
        "-D",
        "-f",
        "-y",
        "-xx",
        "-s",
        "1000000",
        "-e",
        "signal=none",
        "-e",
        f"trace={','.join((*RECEIVES, *SENDS, *SYNCS))}",
        "-o",
        str(trace),
    ]
    bench.cluster.prefix = lambda name: strace if name.startswith("dispatcher") else []
    try:
        # with a second one, a late range has two completions, of which the later one is durable already
        bench.cluster.start(1)
        r = bench.ranks(JOB)[0]
        r.finish()
        bench.judge(JOB, (1, None, [r]))
        assert bench.cluster.drain() == []
    finally:
        bench.cluster.close()
    calls = Calls(trace)
    n = n_synced = 0
    for fd, pieces in calls.received.items():
        said = {
            request: (place, *spans(message, 2, 5, 6))
            for place, request, _, kind, message in messages(pieces)
            if kind == COMPLETED
        }
        revoked = set()
        for place, _, answer, kind, message in messages(calls.sent.get(fd, [])):
            if kind == REVOKE:
                revoked.update(spans(message, 3, 2, 3))
            if kind != DONE or answer not in said:
                continue
            asked, span = said[answer]
            n += 1
            # When its rank has all batches of a range, the dispatcher revokes the range, and does not write a
            # completion that comes later to the journal. The last range may end with its job, unrevoked.
            released = span in revoked or span[2] == N
            assert released or any(asked < begin and end < place for begin, end in calls.syncs), (
                fd,
                answer,
                span,
                asked,
                place,
            )
            n_synced += not released
    assert n >= 5 and n_synced >= 1, (n, n_synced, len(calls.syncs))
