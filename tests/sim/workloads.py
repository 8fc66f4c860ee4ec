"""Workloads for policies: curves that were published, modelled ones of every kind, and random ones of the
whole schema.
"""

import random

CLIENT, WORKER = 4.96, 0.427319  # dollars per hour, as in the Pecan paper


def workload(**fields):
    return {
        "workload": 1,
        "seed": 1,
        "epochs": 1,
        "price_per_h": {"client": CLIENT, "worker": WORKER},
        **fields,
    }


def table(seconds, batches, **fields):
    """A curve: seconds per epoch with 1, 2, ... workers, or {workers: seconds}."""
    points = seconds if isinstance(seconds, dict) else dict(enumerate(seconds, 1))
    return workload(
        batches_per_epoch=batches, table={"remote": {str(n): s for n, s in points.items()}}, **fields
    )


def amdahl(a, b, counts, g=0.0, p=1.0):
    return {n: round(((a / n) ** p + b**p) ** (1 / p) + g * n, 6) for n in counts}


POWERS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1000]


def published():
    """Curves of the papers: Cachew's figure 6a (epochs of ResNet50), figure 8 (what to cache), figure 11
    (two jobs), Pecan's prices and counts.
    """
    found = {}
    resnet = [1730, 870, 645, 550, 510, 500, 495, 495]
    for objective in ("time", "cost"):
        found[f"fig6a {objective}"] = table(
            resnet,
            1251,
            epochs=10,
            client_step_s=490 / 1251,
            objective=objective,
            noise=0.1,
            start_delay_s=10,
        )
    # synthetic: 56 GB read, inflated 2.5 times, then a sleep per batch of 900: 556 batches; GlusterFS reads a
    # full batch in about 430 ms
    source, rows = 56e9 / 556, 556
    for sleep in (200, 250, 300, 350, 400, 450, 500):
        stages = [
            {"name": "read", "cpu_s": 0.02},
            {"name": "inflate", "cpu_s": 0.02, "size_factor": 2.5},
            {"name": "sleep", "cpu_s": sleep / 1000},
        ]
        found[f"fig8 sleep {sleep}"] = workload(
            batches_per_epoch=rows,
            epochs=5,
            client_step_s=0.01,
            max_workers=1,
            objective="time",
            noise=0.05,
            model={
                "stages": stages,
                "source_batch_bytes": source,
                "source_bytes_per_s": source / 0.31,
                "store": {"read_bytes_per_s": 2.5 * source / 0.43, "write_bytes_per_s": 2.5 * source / 0.5},
                "cache_markers": ["read", "sleep"],
            },
        )
    # half of ImageNet, batch 256, models of 100 and 50 ms: two workers and four with the cache
    for step, name in ((0.1, "slow"), (0.05, "fast")):
        stages = [
            {"name": "read", "cpu_s": 0.005},
            {"name": "decode", "cpu_s": 0.45, "size_factor": 5},
            {"name": "augment", "cpu_s": 0.17},
        ]
        found[f"fig11 {name}"] = workload(
            batches_per_epoch=2502,
            epochs=4,
            client_step_s=step,
            max_workers=10,
            objective="cost",
            noise=0.1,
            start_delay_s=5,
            model={
                "stages": stages,
                "source_batch_bytes": 28e6,
                "store": {"read_bytes_per_s": 4e9, "write_bytes_per_s": 2e9},
                "cache_markers": ["read", "decode"],
            },
        )
    # Pecan: models need 19, 12, 3 and 4 workers
    for name, batches, epoch_s, workers in (
        ("resnet50", 1251, 406, 19),
        ("simclr", 2502, 972, 12),
        ("retinanet", 1848, 595, 3),
        ("asr", 1000, 417, 4),
    ):
        curve = amdahl(epoch_s * workers * 0.97, 0, range(1, 41))
        found[f"pecan {name}"] = table(
            {n: max(s, epoch_s) for n, s in curve.items()},
            batches,
            epochs=20,
            client_step_s=epoch_s / batches,
            objective="cost",
            noise=0.1,
            start_delay_s=30,
        )
    return found


def modelled():
    """Of every kind, each with another limit: compute, client, storage; filters; 1 to 1,000 workers; noise,
    start delays; short and long jobs.
    """
    found = {}

    def model(
        name, cpu, step, workers, *, source=None, keep=1.0, store=None, cache_points=None, size=1.0, **more
    ):
        stages = [
            {"name": "read", "cpu_s": 0.1 * cpu, "keep": keep},
            {"name": "decode", "cpu_s": 0.7 * cpu, "size_factor": size},
            {"name": "augment", "cpu_s": 0.2 * cpu},
        ]
        parts = {"stages": stages}
        if source:
            parts["source_bytes_per_s"] = source
        if store:
            parts["store"] = {"read_bytes_per_s": store, "write_bytes_per_s": store / 2}
        if cache_points:
            parts["cache_markers"] = cache_points
        found[name] = workload(
            client_step_s=step,
            max_workers=workers,
            model=parts,
            **{"batches_per_epoch": 2000, "epochs": 5, "objective": "time", **more},
        )

    batch = 256 * 131072
    for objective in ("time", "cost"):
        o = {"objective": objective}
        model(f"compute 8 {objective}", 1.5, 0.2, 64, **o)
        model(f"compute 100 {objective}", 20, 0.2, 200, noise=0.1, start_delay_s=30, **o)
        model(
            f"compute 1000 {objective}",
            100,
            0.1,
            1000,
            noise=0.05,
            start_delay_s=60,
            batches_per_epoch=20000,
            **o,
        )
        model(f"client {objective}", 0.1, 0.5, 100, noise=0.2, **o)
        model(
            f"client short {objective}",
            0.1,
            0.5,
            100,
            noise=0.3,
            epochs=1,
            batches_per_epoch=200,
            start_delay_s=60,
            **o,
        )
        model(f"source {objective}", 1.0, 0.05, 64, source=batch / 0.15, noise=0.1, start_delay_s=20, **o)
        model(
            f"source from the start {objective}",
            0.2,
            0.05,
            64,
            source=batch / 0.3,
            noise=0.1,
            start_delay_s=20,
            **o,
        )
        model(f"filter {objective}", 0.3, 0.2, 100, keep=0.2, noise=0.1, start_delay_s=10, **o)
        model(f"noise {objective}", 1.5, 0.2, 64, noise=0.3, start_delay_s=10, **o)
        model(f"slow start {objective}", 1.5, 0.2, 64, noise=0.15, start_delay_s=120, **o)
        model(
            f"short {objective}",
            1.2,
            0.1,
            64,
            epochs=1,
            batches_per_epoch=1000,
            noise=0.1,
            start_delay_s=2,
            **o,
        )
        model(
            f"cache pays {objective}",
            2.0,
            0.2,
            64,
            store=batch / 0.02,
            cache_points=["read", "decode"],
            noise=0.1,
            start_delay_s=10,
            epochs=20,
            **o,
        )
        model(
            f"cache slow {objective}",
            1.0,
            0.2,
            64,
            store=batch / 0.5,
            cache_points=["read", "decode"],
            size=3,
            noise=0.1,
            start_delay_s=10,
            epochs=20,
            **o,
        )
        model(
            f"cache source {objective}",
            0.5,
            0.1,
            64,
            source=batch / 0.25,
            store=batch / 0.05,
            cache_points=["read", "decode"],
            noise=0.1,
            epochs=10,
            **o,
        )
        model(
            f"long {objective}",
            4.0,
            0.25,
            100,
            epochs=90,
            batches_per_epoch=5004,
            noise=0.2,
            start_delay_s=45,
            **o,
        )
        found[f"flat {objective}"] = table(
            {n: 1000 for n in (1, 2, 4, 8, 16, 32)},
            1000,
            epochs=5,
            client_step_s=0.2,
            noise=0.1,
            start_delay_s=20,
            **o,
        )
        found[f"valley {objective}"] = table(
            amdahl(1000, 20, (1, 2, 4, 8, 16, 32, 64), g=4),
            1000,
            epochs=10,
            client_step_s=0.02,
            noise=0.05,
            start_delay_s=10,
            **o,
        )
        found[f"amdahl {objective}"] = table(
            amdahl(2000, 60, POWERS[:12]),
            2000,
            epochs=10,
            client_step_s=0.01,
            noise=0.1,
            start_delay_s=10,
            **o,
        )
        found[f"hinge {objective}"] = table(
            {n: max(2000 / n, 150) for n in range(1, 65)},
            2000,
            epochs=10,
            client_step_s=0.02,
            noise=0.1,
            start_delay_s=10,
            **o,
        )
        found[f"bumpy {objective}"] = table(
            [1000, 560, 400, 330, 280, 255, 260, 240, 243, 230, 236, 228],
            1000,
            epochs=10,
            client_step_s=0.2,
            noise=0.1,
            start_delay_s=10,
            **o,
        )
    return found


def random_workload(seed):
    """Any workload of the schema, without what is optional beyond it."""
    r = random.Random(seed)

    def log(low, high):
        return low * (high / low) ** r.random()

    step = log(0.01, 1)
    need = log(0.3, r.choice((8, 30, 300)))  # workers that serve the client
    most = r.choice((8, 16, 32, 64, 100, 200, 500, 1000))
    served = max(step, step * need / most)  # s per batch at best
    batches = int(max(50, log(300, 40000) / served))  # ideally 5 minutes to 11 hours
    epochs = r.choice((1, 1, 2, 3, 5, 10, 30, 90))
    fields = {
        "seed": seed,
        "epochs": epochs,
        "batches_per_epoch": max(10, batches // epochs),
        "client_step_s": round(step, 6),
        "objective": r.choice(("time", "cost")),
        "noise": r.choice((0, 0.02, 0.05, 0.1, 0.2, 0.3)),
        "start_delay_s": r.choice((0, 0, 1, 5, 10, 30, 60, 120)),
        "max_workers": most,
    }
    if r.random() < 0.3:
        fields["price_per_h"] = {"client": round(log(0.5, 30), 3), "worker": round(log(0.05, 1), 3)}
    if r.random() < 0.5:
        if r.random() < 0.15:  # all is in the table
            del fields["client_step_s"]
        return workload(**fields, **random_table(r, step, need, most, fields["batches_per_epoch"]))
    return workload(**fields, model=random_model(r, log, step, need, epochs))


def random_table(r, step, need, most, batches):
    one = step * need * batches
    counts = sorted(
        {1, most}
        | {n for n in r.choice((POWERS, range(1, 33), (1, 2, 4, 8, 16, 32, 64, 128, 256, 512))) if n <= most}
    )
    kind = r.choice(("linear", "hinge", "amdahl", "power", "valley", "flat"))
    floor = 0.0 if kind == "linear" else one / need * r.uniform(0.3, 3)
    g = floor / most * r.uniform(0.1, 1) if kind == "valley" else 0
    p = {"hinge": 50, "amdahl": 1, "power": r.uniform(1, 6), "valley": 1}.get(kind, 1)
    curve = (
        {n: one for n in counts}
        if kind == "flat"
        else amdahl(one, min(floor, 0.9 * one), counts, g, min(p, 12))
    )
    if r.random() < 0.3:  # measured, so not smooth
        curve = {n: s * r.uniform(0.98, 1.02) for n, s in curve.items()}
    return {"table": {"remote": {str(n): max(s, 1e-6) for n, s in curve.items()}}}


def random_model(r, log, step, need, epochs):
    cpu, batch = step * need, 256 * 131072
    names = ["read", "decode", "augment", "batch"][: r.randint(2, 4)]
    parts = [r.random() + 0.05 for _ in names]
    stages = [{"name": name, "cpu_s": round(cpu * part / sum(parts), 9)} for name, part in zip(names, parts)]
    for stage in stages:
        if r.random() < 0.4:
            stage["size_factor"] = round(log(0.2, 8), 3)
        if r.random() < 0.2:
            stage["keep"] = round(r.uniform(0.1, 1), 3)
    model = {"stages": stages}
    if r.random() < 0.4:
        model["source_bytes_per_s"] = round(batch / step * log(0.2, 10))
    if r.random() < 0.6:
        read = batch / step * log(0.3, 30)
        model["store"] = {"read_bytes_per_s": round(read), "write_bytes_per_s": round(read * log(0.1, 1))}
        model["cache_markers"] = r.sample(names, r.randint(1, min(2, len(names))))
    return model


def random_job(seed):
    """What random_workload leaves out: a few batches or many, batches that take minutes on one worker,
    several cache points behind filters, prices of every kind.
    """
    r = random.Random(seed)

    def log(low, high):
        return low * (high / low) ** r.random()

    kind = r.choice(("compute", "client", "storage", "filter", "cache", "slow", "table"))
    most = int(log(2, 1000.9)) if kind != "slow" else r.choice((64, 200, 1000))
    step = log(0.02, 0.8)
    fields = {
        "seed": seed,
        "objective": r.choice(("time", "cost")),
        "noise": round(r.uniform(0, 0.3), 3),
        "start_delay_s": r.choice((0, 1, 5, 10, 30, 60, 120)),
        "max_workers": most,
        "epochs": r.choice((1, 1, 3, 5, 10, 30)),
        "batches_per_epoch": int(log(100, 3000)),
        "client_step_s": round(step, 4),
    }
    if r.random() < 0.3:
        fields["price_per_h"] = {"client": round(log(0.3, 40), 3), "worker": round(log(0.02, 2), 3)}
    if kind == "table":
        one = step * log(0.3, 3 * most) * fields["batches_per_epoch"]
        counts = r.choice((range(1, min(most, 40) + 1), [2**i for i in range(10) if 2**i <= most]))
        shape = r.choice(("linear", "amdahl", "hinge", "valley", "power"))
        floor, power = one * log(0.005, 0.5), r.uniform(0.5, 1)
        curve = {
            n: one / n**power if shape == "power" else v
            for n, v in amdahl(
                one,
                0 if shape == "linear" else floor,
                counts,
                floor / most if shape == "valley" else 0,
                30 if shape == "hinge" else 1,
            ).items()
        }
        return table(curve, fields.pop("batches_per_epoch"), **fields)
    cpu = step * {"compute": log(1, 3 * most), "client": r.uniform(0.05, 0.9), "slow": log(30, 1000)}.get(
        kind, log(0.2, 2 * most)
    )
    keep = r.choice((0.05, 0.1, 0.5)) if kind == "filter" else 1
    parts = {"read": 0.1 * keep, "filter": 0.05 * keep, "decode": 0.6, "augment": 0.25}
    stages = [{"name": name, "cpu_s": round(cpu * part, 6)} for name, part in parts.items()]
    stages[1]["keep"], stages[2]["size_factor"], stages[3]["size_factor"] = (
        keep,
        r.choice((1, 3, 8)),
        r.choice((0.25, 1)),
    )
    model = {
        "stages": stages,
        "source_bytes_per_s": round(
            33554432 / step / keep * (log(0.1, 1) if kind == "storage" else log(2, 100))
        ),
    }
    if kind == "cache" or r.random() < 0.4:
        model["store"] = {
            "read_bytes_per_s": r.choice((1e8, 5e8, 2e9, 8e9)),
            "write_bytes_per_s": r.choice((1e8, 5e8, 2e9)),
        }
        model["cache_markers"] = r.choice((["read"], ["decode"], ["decode", "augment"], list(parts)))
    return workload(**fields, model=model)


def random_curve(seed):
    """A table as somebody may have measured it: few points far apart or many, flat, with a knee, worse with
    more workers, or not smooth at all.
    """
    r = random.Random(f"curve {seed}")

    def log(low, high):
        return low * (high / low) ** r.random()

    most = int(log(2, 1000.9))
    spread = r.choice(("few", "few", "powers", "dense", "start"))
    if spread == "few":
        counts = {1, most} | {int(log(1, most + 0.9)) for _ in range(r.randint(0, 4))}
    elif spread == "powers":
        base = r.choice((2, 3, 4, 10))
        counts = {1, most} | {base**i for i in range(10) if base**i < most}
    elif spread == "dense":
        counts = set(range(1, min(most, 64) + 1)) | {most}
    else:  # the first ones one by one, then nothing up to the last
        counts = set(range(1, min(most, r.randint(2, 8)) + 1)) | {most}
    shape, batches, step = (
        r.choice(("linear", "linear", "amdahl", "knee", "flat", "worse", "worse from the start", "power")),
        int(log(200, 50000)),
        log(0.01, 0.8),
    )
    one = step * log(0.3, 3 * most)
    knee, share, g, p = log(1, most), r.uniform(0.005, 0.5), log(0.003, 0.3), r.uniform(0.5, 1)
    curves = {
        "linear": lambda n: one / n,
        "amdahl": lambda n: one * (share + (1 - share) / n),
        "knee": lambda n: one / min(n, knee),
        "flat": lambda n: one,
        "worse": lambda n: one / min(n, knee) * (1 + g * max(n / knee - 1, 0)),
        "worse from the start": lambda n: one * (1 + g * (n - 1)),
        "power": lambda n: one / n**p,
    }
    bumps = r.choice((0, 0, 0, 0.02, 0.05))
    seconds = {str(n): curves[shape](n) * r.uniform(1 - bumps, 1 + bumps) * batches for n in sorted(counts)}
    fields = {
        "seed": seed,
        "objective": r.choice(("time", "cost")),
        "noise": round(r.uniform(0, 0.3), 3),
        "start_delay_s": r.choice((0, 1, 5, 10, 30, 60, 120)),
        "max_workers": most,
        "epochs": r.choice((1, 1, 3, 5, 10, 30)),
        "batches_per_epoch": batches,
        "client_step_s": round(step, 4),
    }
    if r.random() < 0.3:
        fields["price_per_h"] = {"client": round(log(0.3, 40), 3), "worker": round(log(0.02, 2), 3)}
    return workload(**fields, table={"remote": {n: round(s, 6) for n, s in seconds.items()}})


def random_pools(seed):
    """Two or three pools that differ in price, number, start delay and speed: a model, or a table over
    both.
    """
    r = random.Random(f"pools {seed}")

    def log(low, high):
        return low * (high / low) ** r.random()

    step, n = log(0.02, 0.8), r.choice((2, 2, 3))
    need = log(1, r.choice((8, 40, 150)))  # workers of the first pool that serve the client
    names = r.sample(("remote", "training", "spot", "large"), n)
    pools = []
    for i, name in enumerate(names):
        most = max(1, int(need * log(0.15, 3))) if i else max(1, int(need * log(0.3, 3)))
        cpus = 1 if i == 0 else r.choice((0.25, 0.5, 1, 1, 2, 4))
        price = 0 if name == "training" else round(0.427319 * cpus * log(0.25, 3), 4)
        pools.append(
            {
                "name": name,
                "price_per_h": price,
                "max_workers": most,
                "start_delay_s": r.choice((0, 1, 5, 10, 30, 60, 120)),
                "worker_cpus": cpus,
                "slowdown": round(log(0.7, 1.4), 3) if r.random() < 0.3 else 1,
            }
        )
    batches, epochs = int(max(200, log(600, 20000) / step)), r.choice((1, 1, 3, 5, 10))
    fields = {
        "seed": seed,
        "objective": r.choice(("time", "cost")),
        "noise": r.choice((0, 0.02, 0.05, 0.1, 0.2, 0.3)),
        "epochs": epochs,
        "batches_per_epoch": max(10, batches // epochs),
        "client_step_s": round(step, 6),
        "pools": pools,
    }
    if n == 2 and r.random() < 0.25:
        return workload(**fields, **table_of_two(r, step * need * fields["batches_per_epoch"], need, pools))
    return workload(**fields, model=random_model(r, log, step, need, epochs))


def table_of_two(r, one, need, pools):
    """Seconds of an epoch over counts of both: what they do together, up to a limit."""
    floor, p = one / need * r.uniform(0.2, 1.2), r.choice((1, 3, 12))
    for pool in pools:
        pool["slowdown"] = 1
    counts = [
        sorted({0, 1, pool["max_workers"]} | {n for n in POWERS if n <= pool["max_workers"]})
        for pool in pools
    ]
    speed = pools[1]["worker_cpus"]

    def inner(n):
        return {
            str(m): round(((one / (n + m * speed)) ** p + floor**p) ** (1 / p), 6)
            for m in counts[1]
            if n + m > 0
        }

    return {"table": {pools[0]["name"]: {str(n): {pools[1]["name"]: inner(n)} for n in counts[0]}}}
