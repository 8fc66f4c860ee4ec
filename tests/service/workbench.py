"""A cluster, a pipeline and what it gives locally: what tests of the service share."""

import json
import os
import select
import socket

import oracle
from cluster import CACHEW, Cluster, Deadline, Growth, local_run
from deadlines import HANG_S

SHUFFLE, BATCH = {"op": "shuffle"}, {"op": "batch", "size": 8}
FILTER = {"op": "filter", "where": "value % 3 != 0"}


def numbers(n, *ops):
    return [{"op": "range", "stop": n}, *ops]


def slow(us):
    return {"op": "delay", "us": us}


def hangs(where):
    """Operators of which the last never comes to an end for these elements. In comparisons they are left out.
    Elements take a millisecond, so that few are computed together with those.
    """
    return [slow(1000), {"op": "fail", "where": where, "kind": "hang"}]


def is_held_up(op):
    return op["op"] == "delay" or op.get("kind") == "hang"


def until_said(process, text):
    """Until a process has said this on stderr."""
    growth, deadline = Growth(process.err_path.parent), Deadline(HANG_S)
    try:
        while text not in process.said(100000):
            assert process.running or text in process.said(100000), (
                f"{process.name} ended with {process.code}: {process.said()}"
            )
            select.select(
                [growth.fd],
                [],
                [],
                min(deadline.left(f"{process.name} to say {text!r}; it said {process.said()}"), 1),
            )
            growth.seen()
    finally:
        growth.close()


LONGEST_ATTEMPT_S = 450


def with_more_time(attempt, first_s=1):
    """Runs attempt(deadline_s), a test of a deadline. On a slow machine the deadline may pass before the
    test is ready for it: after a failure the deadline is four times as long, up to LONGEST_ATTEMPT_S."""
    wait_s = first_s
    while True:
        try:
            return attempt(wait_s)
        except AssertionError:
            if wait_s * 4 > LONGEST_ATTEMPT_S:
                raise
        wait_s *= 4


def free_address():
    """Of this machine, where nobody else listens: not 127.0.0.1, of which others take any port."""
    pid = os.getpid()
    with socket.create_server((f"127.{1 + pid // 250 % 250}.{1 + pid % 250}.1", 0)) as free:
        return "%s:%d" % free.getsockname()


class Bench:
    """A cluster, a pipeline and what it gives locally."""

    def __init__(self, tmp_path, **options):
        self.tmp_path = tmp_path
        self.cluster = Cluster(**options)
        self.locals = 0

    def pipeline(self, chain, **beside):
        path = self.cluster.directory / f"p{self.locals}.json"
        path.write_text(json.dumps({"cachew": 1, "pipeline": chain, **beside}))
        return path

    def local(self, chain, *words, **beside):
        """Without what only holds it up: that changes nothing."""
        self.locals += 1
        path = self.cluster.directory / f"local{self.locals}.json"
        path.write_text(
            json.dumps({"cachew": 1, "pipeline": [op for op in chain if not is_held_up(op)], **beside})
        )
        return local_run(CACHEW, path, self.tmp_path / f"local{self.locals}", words)[0]

    def ranks(self, chain, world=1, job="job", words=(), **options):
        path = self.pipeline(chain)
        return [
            self.cluster.rank(path, job, rank=rank, world_size=world, words=words, **options).start()
            for rank in range(world)
        ]

    def judge_any(self, chain, ranks, guarantee="exactly-once", words=()):
        """In order any; at most once: which elements came, and what is in them, if the ranks dumped them."""
        local = self.local(chain, *words)
        job = oracle.Job(
            "any",
            guarantee,
            [oracle.Generation(len(ranks), None, [r.parts() for r in ranks])],
            local.n_epochs,
        )
        assert oracle.check(job, local) == []
        assert self.cluster.deaths() == []

    def judge(self, chain, *generations, words=()):
        """generations: (world size, state that they began from, ranks)."""
        local = self.local(chain, *words)
        job = oracle.Job(
            "exact",
            "exactly-once",
            [oracle.Generation(world, at, [r.parts() for r in ranks]) for world, at, ranks in generations],
            local.n_epochs,
        )
        assert oracle.check(job, local) == []
        assert self.cluster.deaths() == []
        return local


PIPELINES = {
    "counted": numbers(1000, SHUFFLE, BATCH),
    "filtered": numbers(1000, FILTER, SHUFFLE, BATCH),
    "bucketed": numbers(
        900,
        SHUFFLE,
        {
            "op": "bucket_by_length",
            "length": "value * 7 % 23",
            "boundaries": [4, 9, 17],
            "sizes": [7, 5, 8, 3],
        },
    ),
    "buckets with keys of two bytes": numbers(
        3000,
        SHUFFLE,
        {
            "op": "bucket_by_length",
            "length": "value * 7 % 701",
            "boundaries": [*range(2, 702, 2)],
            "sizes": [1 + k % 6 for k in range(351)],
        },
    ),
    "one range": numbers(600, SHUFFLE, FILTER, {"op": "skip", "count": 150}, BATCH),
    "taken": numbers(900, SHUFFLE, FILTER, {"op": "take", "count": 250}, BATCH),
    "no batches": numbers(150, SHUFFLE),
    "nearly empty": numbers(
        3320,
        {"op": "filter", "where": "value % 37 == 5"},
        SHUFFLE,
        {"op": "batch", "size": 3, "drop_remainder": True},
    ),
}


SLOW = numbers(2400, slow(1500), FILTER, SHUFFLE, BATCH)
