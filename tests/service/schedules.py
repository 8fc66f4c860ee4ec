"""Random schedules: a job, a service, and what is done to them, all from a seed. The same seed is the same schedule; play.py plays one.

A schedule is JSON throughout, so that one that failed can be printed, kept, cut down by hand and played again."""

import random

# What can be done to whom. Instants are random (a share of the job's batches, or a time); phases are named points of test builds (`cachew doctor --crash-points`),
# where a process stops itself so that the fault happens there and nowhere else.
PROCESS_KINDS = {
    "worker": ["kill9", "pause", "restart", "drain"],
    "dispatcher": ["kill9", "pause", "restart"],
    "client": ["kill9", "pause", "restart", "regroup"],
}
LINKS = ["client-dispatcher", "worker-dispatcher", "client-worker"]
LINK_KINDS = ["drop", "reset", "half-close", "delay", "throttle", "stall", "black-hole", "damage", "refuse"]
PHASES = ["attach", "lease", "mid-batch", "remnant", "completion", "commit"]
INSTANT = "instant"

MIN_FAULTS, MAX_FAULTS = 3, 5
TIMEOUT_S = 3.0  # of the service: a pause or a silence may be longer, and the other side notices


def batch(draw, *sizes):
    return {"op": "batch", "size": draw.choice(sizes), "drop_remainder": draw.random() < 0.3}


def counted(draw, data):
    return [{"op": "range", "stop": draw.randint(800, 2400)}, {"op": "shuffle"}, batch(draw, 6, 8, 13)]


def counted_with_passes(draw, data):
    return [{"op": "range", "stop": draw.randint(300, 700)}, {"op": "shuffle"}, {"op": "repeat", "count": 3}, {"op": "skip", "count": draw.randint(0, 50)},
            {"op": "take", "count": draw.randint(600, 2000)}, batch(draw, 7, 8)]


def filtered(draw, data):
    return [{"op": "range", "stop": draw.randint(1200, 3000)}, {"op": "filter", "where": f"value % {draw.randint(3, 7)} != 0"}, {"op": "shuffle"}, batch(draw, 5, 8, 11)]


def nearly_empty(draw, data):
    """Splits that give no batch at all, and remnants that go through many of them."""
    return [{"op": "range", "stop": draw.randint(2000, 4000)}, {"op": "filter", "where": "value % 37 == 5"}, {"op": "shuffle"}, batch(draw, 3, 4)]


def bucketed(draw, data):
    sizes = [draw.randint(3, 9) for _ in range(4)]
    return [{"op": "range", "stop": draw.randint(1000, 2000)}, {"op": "filter", "where": "value % 11 != 3"}, {"op": "shuffle"},
            {"op": "bucket_by_length", "length": "value * 7 % 23", "boundaries": [4, 9, 17], "sizes": sizes}]


def padded(draw, data):
    return [{"op": "tfrecord", "files": f"{data}/plain-*.tfrecord"}, {"op": "parse_example", "features": {"id": "int64", "tokens": {"dtype": "int64", "variable": True}}},
            {"op": "repeat", "count": draw.randint(4, 8)}, {"op": "shuffle"},
            {"op": "bucket_by_length", "length": "length(tokens)", "boundaries": [2, 4, 6], "sizes": [9, 8, 6, 5], "pad": {"tokens": -1}}]


def strings(draw, data):
    files = draw.choice(["plain-*.tfrecord", "gzip-*.tfrecord.gz"])
    return [{"op": "tfrecord", "files": f"{data}/{files}"}, {"op": "parse_example", "features": {"id": "int64", "name": "bytes", "blob": "bytes"}},
            {"op": "repeat", "count": draw.randint(3, 6)}, *([{"op": "shuffle"}] if draw.random() < 0.7 else []), batch(draw, 5, 8)]


def one_split(draw, data):
    """The epoch is one split, on one worker."""
    return [{"op": "range", "stop": draw.randint(800, 1600)}, {"op": "shuffle"}, {"op": "filter", "where": "value % 3 != 1"},
            {"op": "take", "count": draw.randint(300, 700)}, batch(draw, 6, 8)]


def failing(draw, data):
    return [{"op": "range", "stop": draw.randint(1000, 2000)}, {"op": "fail", "where": f"value % {draw.randint(9, 17)} == 4"}, {"op": "shuffle"},
            *([{"op": "filter", "where": "value % 4 != 2"}] if draw.random() < 0.5 else []), batch(draw, 6, 8)]


def large(draw, data):
    """Batches of some hundred KiB."""
    return [{"op": "synthetic", "count": draw.randint(400, 700), "shape": [64, 80], "dtype": "float32"}, {"op": "shuffle"}, batch(draw, 6, 10)]


def mixed(draw, data):
    return [{"op": "concat", "inputs": [[{"op": "range", "stop": draw.randint(200, 900)}], [{"op": "range", "start": 5000, "stop": 5600}, {"op": "repeat", "count": 2}]]},
            {"op": "assign", "set": {"square": "value * value", "half": "value / 2"}}, {"op": "shuffle"}, batch(draw, 8, 9)]


def unbatched(draw, data):
    return [{"op": "range", "stop": draw.randint(250, 400)}, *([{"op": "filter", "where": "value % 5 != 0"}] if draw.random() < 0.5 else []), {"op": "shuffle"}]


PIPELINES = [counted, counted_with_passes, filtered, nearly_empty, bucketed, padded, strings, one_split, failing, large, mixed, unbatched]
# In another order other elements share a batch, and what they are padded to differs.
ONLY_EXACT = [padded]


def pipeline(draw, data, order):
    make = draw.choice([p for p in PIPELINES if order == "exact" or p not in ONLY_EXACT])
    out = {"cachew": 1, "pipeline": make(draw, data)}
    if make is failing:
        out["on_error"] = draw.choice(["skip", "replace"])
    return make.__name__, out


def slowed(out, draw, workers, threads, kind):
    """A delay per element, behind the elements' last change, so that the job takes a second or two with all its workers."""
    chain = out["pipeline"]
    elements = {"padded": 700, "strings": 500, "large": 550, "unbatched": 320}.get(kind, 1500)
    wanted_s = draw.uniform(0.8, 2.2)
    lanes = threads if kind == "one_split" else workers * threads
    at = next(i for i, op in enumerate(chain) if op["op"] in ("shuffle", "batch", "repeat", "bucket_by_length", "skip"))
    chain.insert(at, {"op": "delay", "us": max(1, int(wanted_s * lanes * 1e6 / elements))})
    return out


def hold(draw, kind):
    """For how long: mostly short, now and then longer than the service's timeout."""
    if kind in ("pause", "stall", "black-hole") and draw.random() < 0.25:
        return round(draw.uniform(TIMEOUT_S + 0.3, TIMEOUT_S + 1.5), 3)
    return round(draw.choice([0.0, draw.uniform(0.02, 0.3), draw.uniform(0.2, 1.2)]), 3)


def process_fault(draw, world, workers):
    role = draw.choice(list(PROCESS_KINDS))
    kind = draw.choice(PROCESS_KINDS[role])
    target = draw.randrange({"worker": workers, "client": world, "dispatcher": 1}[role])
    return {"role": role, "kind": kind, "target": target, "hold_s": hold(draw, kind)}


def link_fault(draw, world, workers, transport):
    link = draw.choice(LINKS if transport == "tcp" else LINKS[:2])
    kind = draw.choice(LINK_KINDS)
    target = draw.randrange(world if link == "client-dispatcher" else workers)
    f = {"role": link, "kind": kind, "target": target, "hold_s": hold(draw, kind), "direction": draw.choice(["up", "down"])}
    if kind == "throttle":
        f["rate"] = draw.choice([2_000, 50_000, 500_000])
    if kind == "delay":
        f["delay_s"] = round(draw.uniform(0.005, 0.15), 3)
    return f


def point_fault(draw, points, world, workers, transport):
    """At a named point: the process that passes it is stopped there, and then the fault happens to it or to a connection of its."""
    phase = draw.choice(sorted({p["phase"] for p in points}))
    point = draw.choice([p for p in points if p["phase"] == phase])
    role = point["role"]
    if draw.random() < 0.6:
        kind = draw.choice([k for k in PROCESS_KINDS[role] if k != "regroup"])
        f = {"role": role, "kind": kind, "hold_s": hold(draw, kind)}
    else:
        f = link_fault(draw, world, workers, transport)
    f["target"] = draw.randrange({"worker": workers, "client": world, "dispatcher": 1}[role])
    f["at"] = {"point": point["name"], "role": role, "phase": phase, "nth": draw.choice([1, 1, 2, 3, draw.randint(4, 20)])}
    return f


def instant(draw):
    """A share of all batches, or a time after the start."""
    return {"share": round(draw.random() ** 1.3 * 0.95, 3)} if draw.random() < 0.75 else {"time_s": round(draw.random() * 1.0, 3)}


def make(seed, data, points=()):
    """The schedule of this seed. data: where make_data.py wrote its records; points: named points of the build, with role and phase."""
    draw = random.Random(f"schedule/{seed}")
    workers, world = draw.choice([1, 2, 2, 3, 3, 4, 5, 6]), draw.choice([1, 1, 2, 2, 3, 4])
    order, guarantee = draw.choice([("exact", "exactly-once")] * 6 + [("any", "exactly-once")] * 2 + [("any", "at-most-once")])
    transport = draw.choice(["auto", "shm", "unix", "tcp", "tcp", "tcp"])
    threads = draw.choice([1, 2])
    kind, chain = pipeline(draw, data, order)
    if order == "any" and kind == "one_split":  # refused for several ranks: it would be one rank's alone
        world = 1
    faults = []
    for _ in range(draw.randint(MIN_FAULTS, MAX_FAULTS)):
        f = process_fault(draw, world, workers) if draw.random() < 0.6 else link_fault(draw, world, workers, transport)
        faults.append({**f, "at": instant(draw)})
    for _ in range(draw.choice([0, 1, 2, 2]) if points else 0):
        faults.append(point_fault(draw, points, world, workers, transport))
    for f in faults:
        if order == "any" and f["kind"] == "regroup":  # each rank's state is its own
            f["kind"] = "restart"
    state = draw.random() < 0.85
    return {
        "seed": seed, "kind": kind, "pipeline": slowed(chain, draw, workers, threads, kind), "run_seed": draw.randrange(1000),
        "epochs": draw.choice([1, 1, 2, 3]) if kind in ("nearly_empty", "unbatched", "one_split") else draw.choice([1, 1, 1, 2]),
        "workers": workers, "threads": threads, "world_size": world, "order": order, "guarantee": guarantee, "transport": transport,
        "state_dir": draw.random() < 0.7, "clients_first": draw.random() < 0.3, "with_state": state or guarantee == "at-most-once",
        "state_every": draw.choice([1, 3, 10]), "memory": draw.choice(["64M", "256M"]), "faults": faults,
    }
