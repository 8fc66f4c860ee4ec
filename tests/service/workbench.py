"""A cluster, a pipeline and what it gives locally: what tests of the service share."""

import json

import oracle
from cluster import CACHEW, Cluster, local_run

SHUFFLE, BATCH = {"op": "shuffle"}, {"op": "batch", "size": 8}
FILTER = {"op": "filter", "where": "value % 3 != 0"}


def numbers(n, *ops):
    return [{"op": "range", "stop": n}, *ops]


def slow(us):
    return {"op": "delay", "us": us}


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
        """Without its delays: they change nothing."""
        self.locals += 1
        path = self.cluster.directory / f"local{self.locals}.json"
        path.write_text(json.dumps({"cachew": 1, "pipeline": [op for op in chain if op["op"] != "delay"], **beside}))
        return local_run(CACHEW, path, self.tmp_path / f"local{self.locals}", words)[0]

    def ranks(self, chain, world=1, job="job", words=(), **options):
        path = self.pipeline(chain)
        return [self.cluster.rank(path, job, rank=rank, world_size=world, words=["--wait", "30", *words], **options).start() for rank in range(world)]

    def judge_set(self, chain, ranks, guarantee="exactly-once", words=(), dropped=0):
        """In order any: which elements came, and what is in them, if the ranks dumped them."""
        local = self.local(chain, *words)
        job = oracle.Job("any", guarantee, [oracle.Generation(len(ranks), None, [r.parts() for r in ranks])], local.n_epochs, dropped)
        assert oracle.check(job, local) == []
        assert self.cluster.deaths() == []

    def judge(self, chain, *generations, words=()):
        """generations: (world size, state that they began from, ranks)."""
        local = self.local(chain, *words)
        job = oracle.Job("exact", "exactly-once", [oracle.Generation(world, at, [r.parts() for r in ranks]) for world, at, ranks in generations], local.n_epochs)
        assert oracle.check(job, local) == []
        assert self.cluster.deaths() == []
        return local


PIPELINES = {
    "counted": numbers(1000, SHUFFLE, BATCH),
    "filtered": numbers(1000, FILTER, SHUFFLE, BATCH),
    "bucketed": numbers(900, SHUFFLE, {"op": "bucket_by_length", "length": "value * 7 % 23", "boundaries": [4, 9, 17], "sizes": [7, 5, 8, 3]}),
    "one split": numbers(600, SHUFFLE, FILTER, {"op": "take", "count": 250}, BATCH),
    "no batches": numbers(150, SHUFFLE),
    "nearly empty": numbers(3320, {"op": "filter", "where": "value % 37 == 5"}, SHUFFLE, {"op": "batch", "size": 3, "drop_remainder": True}),
}


SLOW = numbers(2400, slow(1500), FILTER, SHUFFLE, BATCH)
