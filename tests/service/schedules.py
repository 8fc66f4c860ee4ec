"""Random schedules: a job, a service, and what is done to them, all from a seed. The same seed is the same
schedule; play.py plays one.

A schedule is JSON throughout, so that one that failed can be printed, kept, cut down by hand and played
again."""

import random

from deadlines import SILENCE_S

# The faults of each role. They happen at random instants (a share of the job's batches, or a time), or in a
# phase of a range's life. A phase is where a process of a test build stands at one of its named points
# (`cachew doctor --crash-points`): it stops itself there, the fault happens, to it or to somebody else, and
# it goes on.
PROCESS_KINDS = {
    "worker": ["kill9", "pause", "restart", "drain"],
    "dispatcher": ["kill9", "pause", "restart"],
    "client": ["kill9", "pause", "restart", "regroup"],
}
LINKS = ["client-dispatcher", "worker-dispatcher", "client-worker"]
LINK_KINDS = ["drop", "reset", "half-close", "delay", "throttle", "stall", "black-hole", "damage", "refuse"]
PHASES = ["attach", "lease", "mid-batch", "part", "completion", "commit"]
INSTANT = "instant"
FAULTS = [
    (role, kind)
    for role, kinds in [*PROCESS_KINDS.items(), *((link, LINK_KINDS) for link in LINKS)]
    for kind in kinds
]
# Every kind of fault in every phase, mixed: each schedule has two of them, so that a row of half as many
# schedules has all.
CELLS = [(role, kind, phase) for role, kind in FAULTS for phase in PHASES]
random.Random("cells").shuffle(CELLS)
CELLS_EACH = 2

MIN_FAULTS = 3  # that take place, of a schedule that counts


def batch(draw, *sizes):
    return {"op": "batch", "size": draw.choice(sizes), "drop_remainder": draw.random() < 0.3}


def counted(draw, data):
    return [{"op": "range", "stop": draw.randint(800, 2400)}, {"op": "shuffle"}, batch(draw, 6, 8, 13)]


def counted_with_passes(draw, data):
    return [
        {"op": "range", "stop": draw.randint(300, 700)},
        {"op": "shuffle"},
        {"op": "repeat", "count": 3},
        {"op": "skip", "count": draw.randint(0, 50)},
        {"op": "take", "count": draw.randint(600, 2000)},
        batch(draw, 7, 8),
    ]


def filtered(draw, data):
    return [
        {"op": "range", "stop": draw.randint(1200, 3000)},
        {"op": "filter", "where": f"value % {draw.randint(3, 7)} != 0"},
        {"op": "shuffle"},
        batch(draw, 5, 8, 11),
    ]


def nearly_empty(draw, data):
    """Ranges that give no batch at all, and batches with parts in many of them."""
    return [
        {"op": "range", "stop": draw.randint(2000, 4000)},
        {"op": "filter", "where": "value % 37 == 5"},
        {"op": "shuffle"},
        batch(draw, 3, 4),
    ]


def bucketed(draw, data):
    sizes = [draw.randint(3, 9) for _ in range(4)]
    return [
        {"op": "range", "stop": draw.randint(1000, 2000)},
        {"op": "filter", "where": "value % 11 != 3"},
        {"op": "shuffle"},
        {"op": "bucket_by_length", "length": "value * 7 % 23", "boundaries": [4, 9, 17], "sizes": sizes},
    ]


def padded(draw, data):
    return [
        {"op": "tfrecord", "files": f"{data}/plain-*.tfrecord"},
        {"op": "parse_example", "features": {"id": "int64", "tokens": {"dtype": "int64", "variable": True}}},
        {"op": "repeat", "count": draw.randint(4, 8)},
        {"op": "shuffle"},
        {
            "op": "bucket_by_length",
            "length": "length(tokens)",
            "boundaries": [2, 4, 6],
            "sizes": [9, 8, 6, 5],
            "pad": {"tokens": -1},
        },
    ]


def strings(draw, data):
    files = draw.choice(["plain-*.tfrecord", "gzip-*.tfrecord.gz"])
    return [
        {"op": "tfrecord", "files": f"{data}/{files}"},
        {"op": "parse_example", "features": {"id": "int64", "name": "bytes", "blob": "bytes"}},
        {"op": "repeat", "count": draw.randint(3, 6)},
        *([{"op": "shuffle"}] if draw.random() < 0.7 else []),
        batch(draw, 5, 8),
    ]


def one_range(draw, data):
    """The epoch is one range, on one worker."""
    return [
        {"op": "range", "stop": draw.randint(800, 1600)},
        {"op": "shuffle"},
        {"op": "filter", "where": "value % 3 != 1"},
        {"op": "skip", "count": draw.randint(300, 700) // 4},
        batch(draw, 6, 8),
    ]


def limited(draw, data):
    """An epoch that ends where its take is full."""
    return [
        {"op": "range", "stop": draw.randint(1200, 3000)},
        {"op": "shuffle"},
        {"op": "filter", "where": "value % 3 != 1"},
        {"op": "take", "count": draw.randint(300, 700)},
        batch(draw, 6, 8),
    ]


def failing(draw, data):
    return [
        {"op": "range", "stop": draw.randint(1000, 2000)},
        {"op": "fail", "where": f"value % {draw.randint(9, 17)} == 4"},
        {"op": "shuffle"},
        *([{"op": "filter", "where": "value % 4 != 2"}] if draw.random() < 0.5 else []),
        batch(draw, 6, 8),
    ]


def replacing(draw, data):
    """Unshuffled, and without a short last window: so each window has elements that neither fail nor are
    dropped, and can be drawn instead of those that fail.
    """
    return [
        {"op": "range", "stop": 24 * draw.randint(42, 83)},
        {"op": "fail", "where": f"value % {draw.randint(9, 17)} == 4"},
        *([{"op": "filter", "where": "value % 4 != 2"}] if draw.random() < 0.5 else []),
        batch(draw, 6, 8),
    ]


def large(draw, data):
    """Batches of some hundred KiB."""
    return [
        {"op": "synthetic", "count": draw.randint(400, 700), "shape": [64, 80], "dtype": "float32"},
        {"op": "shuffle"},
        batch(draw, 6, 10),
    ]


def mixed(draw, data):
    return [
        {
            "op": "concat",
            "inputs": [
                [{"op": "range", "stop": draw.randint(200, 900)}],
                [{"op": "range", "start": 5000, "stop": 5600}, {"op": "repeat", "count": 2}],
            ],
        },
        {"op": "assign", "set": {"square": "value * value", "half": "value / 2"}},
        {"op": "shuffle"},
        batch(draw, 8, 9),
    ]


def unbatched(draw, data):
    return [
        {"op": "range", "stop": draw.randint(250, 400)},
        *([{"op": "filter", "where": "value % 5 != 0"}] if draw.random() < 0.5 else []),
        {"op": "shuffle"},
    ]


def packed(draw, data):
    """Rows of windows of positions."""
    return [
        {"op": "synthetic", "count": draw.randint(2_000, 6_000), "shape": [5], "dtype": "int32"},
        *([{"op": "filter", "where": "max(data) % 4 != 2"}] if draw.random() < 0.5 else []),
        {"op": "shuffle"},
        {
            "op": "pack",
            "component": "data",
            "length": draw.randint(9, 30),
            "split": draw.random() < 0.5,
            "window": draw.choice([7, 32, 100]),
        },
        batch(draw, 6, 8),
    ]


def zipped(draw, data):
    """An element of two inputs, each in an order of its own."""
    return [
        {
            "op": "zip",
            "inputs": [
                [{"op": "range", "stop": 24 * draw.randint(42, 83)}, {"op": "shuffle"}],
                [
                    {"op": "range", "stop": draw.randint(100, 3_000)},
                    {"op": "rename", "names": {"value": "other"}},
                    {"op": "repeat", "count": -1},
                ],
            ],
        },
        {"op": "shuffle"},
        batch(draw, 6, 8),
    ]


PIPELINES = [
    counted,
    counted_with_passes,
    filtered,
    nearly_empty,
    bucketed,
    padded,
    strings,
    one_range,
    failing,
    replacing,
    large,
    mixed,
    unbatched,
    limited,
    packed,
    zipped,
]
# Behind what is lost other elements share a batch, and what they are padded to differs.
ONLY_EXACTLY_ONCE = [padded]
# without a filter
COUNTED = {
    "counted",
    "counted_with_passes",
    "strings",
    "failing",
    "replacing",
    "large",
    "mixed",
    "unbatched",
    "zipped",
}
LEAVING = [filtered, nearly_empty, bucketed, padded, limited, packed]  # their ranges leave something over
# phases that also an epoch of one range goes through more than once
MANY_TIMES = {"attach", "mid-batch"}
ON_ERROR = {failing: "skip", replacing: "replace"}


def pipeline(draw, data, guarantee, phases):
    """With ranges that go through these phases, more than once."""
    many = not phases <= MANY_TIMES
    choice = [
        p
        for p in (LEAVING if "part" in phases else PIPELINES)
        if (guarantee == "exactly-once" or p not in ONLY_EXACTLY_ONCE) and not (many and p is one_range)
    ]
    choice += [one_range] * 3 if phases and not many else []  # else it is rare
    make = draw.choice(choice)
    out = {"cachew": 1, "pipeline": make(draw, data)}
    if make in ON_ERROR:
        out["on_error"] = ON_ERROR[make]
    return make.__name__, out


def slowed(out, draw, workers, threads, kind):
    """A delay per element, behind the elements' last change, so that the job takes a second or two with all
    its workers.
    """
    chain = out["pipeline"]
    elements = {"nearly_empty": 80, "padded": 700, "strings": 500, "large": 550, "unbatched": 320}.get(
        kind, 1500
    )
    wanted_s = draw.uniform(0.8, 2.2)
    lanes = threads if kind == "one_range" else workers * threads
    at = next(
        i
        for i, op in enumerate(chain)
        if op["op"] in ("shuffle", "batch", "repeat", "bucket_by_length", "skip")
    )
    chain.insert(at, {"op": "delay", "us": max(1, int(wanted_s * lanes * 1e6 / elements))})
    return out


def hold(draw, kind):
    """For how long: mostly short, now and then longer than the service's timeout."""
    if kind in ("pause", "stall", "black-hole") and draw.random() < 0.2:
        return round(draw.uniform(SILENCE_S + 0.3, SILENCE_S + 1.5), 3)
    return round(draw.choice([0.0, draw.uniform(0.02, 0.3), draw.uniform(0.2, 1.2)]), 3)


def targets(role, world, workers):
    return {
        "worker": workers,
        "client": world,
        "dispatcher": 1,
        "client-dispatcher": world,
        "worker-dispatcher": workers,
        "client-worker": workers,
    }[role]


def fault(draw, role, kind, world, workers):
    f = {
        "role": role,
        "kind": kind,
        "target": draw.randrange(targets(role, world, workers)),
        "hold_s": hold(draw, kind),
    }
    if role in LINKS:
        f["direction"] = draw.choice(["up", "down"])
    if kind == "throttle":
        f["rate"] = draw.choice([2_000, 50_000, 500_000])
    if kind == "delay":
        f["delay_s"] = round(draw.uniform(0.005, 0.15), 3)
    return f


# The first passing of a point at which whom it may happen to is there: connections are made by what comes
# first.
FIRST = {
    "worker-lease": 2,
    "dispatcher-lease": 4,
    "worker-completed": 2,
    "dispatcher-completed": 2,
    "dispatcher-commit": 5,
    "dispatcher-committed": 5,
}


def at_point(draw, f, phase, points, world, workers):
    """The fault, while somebody stands at a point of this phase: mostly who it happens to."""
    there = [p for p in points if p["phase"] == phase]
    own = [p for p in there if p["role"] == f["role"]]
    point = draw.choice(own if own and draw.random() < 0.7 else there)
    role, start = point["role"], 0
    # at its beginning a job has none: who attaches is a rank that was started again
    if f["role"] == "client-worker" and phase == "attach":
        point, role, start = next(p for p in there if p["role"] == "client"), "client", 1
    # a transaction per worker that registers
    nth = FIRST.get(point["name"], 1) + (workers if phase == "commit" else 0)
    at = {
        "point": point["name"],
        "role": role,
        "phase": phase,
        "nth": nth + draw.choice([0, 0, 1, 2, draw.randint(3, 8)]) * (phase != "attach"),
        "target": f["target"] if role == f["role"] else draw.randrange(targets(role, world, workers)),
    }
    return {**f, "at": {**at, "start": start} if start else at}


def instant(draw):
    """A share of all batches, or a time after the start: well before the job's end."""
    return (
        {"share": round(draw.random() ** 1.3 * 0.8, 3)}
        if draw.random() < 0.75
        else {"time_s": round(draw.random() * 0.6, 3)}
    )


def cells_of(seed, points):
    """The faults in phases that this schedule has."""
    return [CELLS[(CELLS_EACH * seed + i) % len(CELLS)] for i in range(CELLS_EACH)] if points else []


def faults_of(draw, cells, points, order, world, workers, transport):
    out = [
        {
            **fault(
                draw,
                *draw.choice([f for f in FAULTS if f[0] != "client-worker" or transport == "tcp"]),
                world,
                workers,
            ),
            "at": instant(draw),
        }
        for _ in range(draw.choice([3, 3, 4]))
    ]
    for role, kind, phase in cells:
        f = at_point(draw, fault(draw, role, kind, world, workers), phase, points, world, workers)
        if "start" in f["at"]:
            out.append(
                {
                    **fault(draw, "client", "restart", world, workers),
                    "target": f["at"]["target"],
                    "hold_s": 0.0,
                    "at": {"share": 0.1},
                }
            )
        out.append(f)
    for f in out:
        if order == "any" and f["kind"] == "regroup":  # each rank's state is its own
            f["kind"] = "restart"
    return out


def make(seed, data, points=()):
    """The schedule of this seed. data: where make_data.py wrote its records; points: named points of the
    build, with role and phase.
    """
    draw = random.Random(f"schedule/{seed}")
    cells = cells_of(seed, points)
    phases, roles, kinds = (
        {phase for _, _, phase in cells},
        {role for role, _, _ in cells},
        {kind for _, kind, _ in cells},
    )
    workers, world = draw.choice([1, 2, 2, 3, 3, 4, 5, 6]), draw.choice([1, 1, 2, 2, 3, 4])
    order, guarantee = draw.choice(
        [("exact", "exactly-once")] * 6 + [("any", "exactly-once")] * 2 + [("any", "at-most-once")]
    )
    transport = draw.choice(["auto", "shm", "unix", "tcp", "tcp", "tcp"])
    threads = draw.choice([1, 2])
    # What the phases need to be there:
    if "regroup" in kinds:
        order, guarantee = "exact", "exactly-once"
    if "client-worker" in roles:  # other transports have no proxy between them
        transport, world = "tcp", max(world, 2)
    kind, chain = pipeline(draw, data, guarantee, phases)
    if guarantee == "at-most-once" and kind == "limited":  # of several ranks none knows when the take is full
        world = 1
    faults = faults_of(draw, cells, points, order, world, workers, transport)
    state = draw.random() < 0.85
    return {
        "seed": seed,
        "kind": kind,
        "pipeline": slowed(chain, draw, workers, threads, kind),
        "run_seed": draw.randrange(1000),
        "epochs": draw.choice([1, 1, 2]) if kind in ("unbatched", "one_range") else draw.choice([1, 1, 1, 2]),
        "workers": workers,
        "threads": threads,
        "world_size": world,
        "order": order,
        "guarantee": guarantee,
        "transport": transport,
        "state_dir": "commit" in phases or draw.random() < 0.7,
        "clients_first": draw.random() < 0.2,
        "with_state": state or guarantee == "at-most-once",
        "state_every": draw.choice([1, 3, 10]),
        "memory": draw.choice(["64M", "256M"]),
        "faults": faults,
        # a test build's ranges end anywhere (mutation "cut")
        "cut": random.Random(f"cut/{seed}").random() < 0.5,
    }
