"""Workloads with local workers: surfaces of published figures, modelled jobs, and random ones."""

import random

from workloads import CLIENT, WORKER, random_model, workload

REMOTE_POWERS = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1000]


def surface(seconds, local, remote, batches, **fields):
    """seconds(remote, local): of an epoch; None: these workers can't run."""
    rows = [
        [None if not r + n or (s := seconds(r, n)) is None else round(s, 6) for n in local] for r in remote
    ]
    return workload(
        batches_per_epoch=batches,
        table={"surface": {"local": list(local), "remote": list(remote), "epoch_s": rows}},
        **fields,
    )


def seconds_of(one, floor, speed=1.0, p=12, free=1e9, slower=0.0, of="step"):
    """Seconds of an epoch: `one` with one remote worker, at least `floor`; a local worker is `speed` remote
    ones. Each local worker beyond `free` makes the step, or the whole, slower by the part `slower`."""

    def seconds(r, n):
        factor = 1 + slower * max(0, n - free)
        supply, least = one / (r + speed * n), floor * (factor if of == "step" else 1)
        together = (supply**p + least**p) ** (1 / p) if p < 50 else max(supply, least)
        return together * factor if of == "whole" else together

    return seconds


def resnet50(**fields):
    """Pecan's ResNet50 on a TPU v2-8 with its own order of operators: an epoch takes 392 s, for which 12.4
    remote workers are enough; 1 remote and 9 local ones serve it, too, so a local one is worth 1.27."""
    return surface(
        seconds_of(12.4 * 392, 392, speed=1.27, p=30, free=9, slower=0.02),
        range(11),
        range(21),
        1251,
        **{
            "epochs": 90,
            "client_step_s": round(392 / 1251, 6),
            "objective": "cost",
            "price_per_h": {"client": 4.96, "worker": 0.42},
            "noise": 0.1,
            "start_delay_s": 10,
            **fields,
        },
    )


def published():
    """Pecan's four jobs (its table 2: seconds of an epoch, remote workers of Cachew and of its own placement,
    local workers), for both objectives."""
    found = {}
    jobs = {
        # batches, seconds, remote workers without local ones, worth of a local one, local ones that are free
        "resnet50 v2-8 written": (1251, 410, 19, 1.4, 9),
        "simclr": (2502, 950, 12, 1.1, 6),
        "retinanet": (1848, 595, 2.6, 0.8, 4),
        "asr": (1000, 420, 4, 0.55, 8),
        "resnet50 v3-8": (1251, 260, 30, 1.4, 9),
    }
    for objective in ("time", "cost"):
        found[f"resnet50 v2-8 {objective}"] = resnet50(objective=objective)
        for name, (batches, epoch_s, remote, worth, free) in jobs.items():
            found[f"{name} {objective}"] = surface(
                seconds_of(remote * epoch_s, epoch_s, speed=worth, p=30, free=free, slower=0.02),
                range(11),
                range(41),
                batches,
                epochs=20,
                client_step_s=round(epoch_s / batches, 6),
                objective=objective,
                price_per_h={"client": 8.8 if "v3" in name else 4.96, "worker": 0.42},
                noise=0.1,
                start_delay_s=30,
            )
    return found


def host(cpu, step, host_cpus, busy, contention, remote, **fields):
    model = {
        "stages": [
            {"name": "read", "cpu_s": 0.1 * cpu},
            {"name": "decode", "cpu_s": 0.7 * cpu, "size_factor": 4},
            {"name": "augment", "cpu_s": 0.2 * cpu},
        ],
        "host_cpus": host_cpus,
        "host_busy_cpus": busy,
        "contention": contention,
        **fields.pop("model", {}),
    }
    return workload(
        client_step_s=step,
        max_workers=remote,
        model=model,
        **{"batches_per_epoch": 4000, "epochs": 5, "noise": 0.1, "start_delay_s": 10, **fields},
    )


def modelled():
    """20 kinds for both objectives."""
    found = {}
    for objective in ("time", "cost"):
        o = {"objective": objective}
        kinds = {
            "ample host": host(1.2, 0.2, 32, 4, 0.05, 40, **o),
            "small host": host(4, 0.2, 8, 4, 0.05, 60, **o),
            "busy host": host(4, 0.2, 16, 15, 0.1, 60, **o),
            "no contention": host(6, 0.2, 16, 0, 0, 60, **o),
            "harsh contention": host(6, 0.2, 16, 8, 0.5, 60, **o),
            "slight contention": host(6, 0.2, 32, 12, 0.004, 60, **o),
            "many": host(80, 0.2, 96, 20, 0.02, 600, start_delay_s=60, **o),
            "client": host(0.1, 0.5, 16, 4, 0.1, 20, **o),
            "large workers": host(12, 0.2, 32, 8, 0.05, 40, worker_cpus=4, **o),
            "network": host(3, 0.2, 16, 4, 0.02, 40, bytes_per_batch=4e7, price_per_gb=0.08, **o),
            "cache": host(
                3,
                0.2,
                12,
                4,
                0.05,
                40,
                epochs=20,
                model={
                    "store": {"read_bytes_per_s": 2e9, "write_bytes_per_s": 1e9},
                    "cache_markers": ["decode"],
                },
                **o,
            ),
            "source": host(2, 0.1, 16, 4, 0.05, 40, model={"source_bytes_per_s": 1.5e8}, **o),
            "stragglers": host(4, 0.2, 16, 4, 0.05, 60, stragglers={"part": 0.1, "slowdown": 3}, **o),
        }
        surfaces = {
            "flat": dict(one=900, floor=900),
            "one is enough": dict(one=300, floor=280, free=2, slower=0.05),
            "amdahl": dict(one=8000, floor=250, p=1, speed=0.7),
            "no step": dict(one=9000, floor=450, p=4, speed=1.5, free=5, slower=0.03, of="whole"),
            "slows all": dict(one=7000, floor=300, speed=0.8, free=3, slower=0.04, of="whole"),
            "linear": dict(one=9000, floor=1, speed=2),
            "weak local": dict(one=5000, floor=300, speed=0.3, free=4, slower=0.02),
        }
        for name, shape in surfaces.items():
            step = {} if name in ("no step", "amdahl", "linear") else {"client_step_s": shape["floor"] / 1000}
            kinds[name] = surface(
                seconds_of(**shape),
                range(9),
                range(33),
                1000,
                epochs=10,
                noise=0.1,
                start_delay_s=10,
                **step,
                **o,
            )
        found.update({f"{name} {objective}": w for name, w in kinds.items()})
    return found


def random_placement(seed):
    """A surface, or a model with a host, of every kind."""
    r = random.Random(f"placement {seed}")

    def log(low, high):
        return low * (high / low) ** r.random()

    step = log(0.02, 0.8)
    need = log(0.5, r.choice((8, 30, 100)))  # remote workers that serve the client
    most = max(1, int(need * log(0.4, 4)))
    hosted = max(1, int(need * log(0.1, 1.5)))
    epochs = r.choice((1, 3, 10, 30, 90))
    batches = int(max(100, log(1500, 40000) / step))
    fields = {
        "seed": seed,
        "objective": r.choice(("time", "cost", "cost")),
        "noise": r.choice((0, 0.02, 0.05, 0.1, 0.2, 0.3)),
        "epochs": epochs,
        "start_delay_s": r.choice((0, 1, 5, 10, 30, 60)),
        "client_step_s": round(step, 6),
        "price_per_h": {"client": CLIENT, "worker": WORKER},
    }
    batches = max(10, batches // epochs)
    if r.random() < 0.3:
        fields["price_per_h"] = {"client": round(log(0.5, 30), 3), "worker": round(log(0.05, 1), 3)}
    if r.random() < 0.25:
        fields |= {"bytes_per_batch": round(log(1e6, 2e8)), "price_per_gb": r.choice((0.01, 0.02, 0.08))}
    if r.random() < 0.1:
        fields["stragglers"] = {"part": 0.1, "slowdown": r.choice((1.5, 3))}
    if r.random() < 0.5:
        return random_host(r, log, step, need, most, hosted, batches, fields)
    return random_surface(r, log, step, need, most, hosted, batches, fields)


def random_host(r, log, step, need, most, hosted, batches, fields):
    cpus = r.choice((1, 1, 2, 4))
    model = random_model(r, log, step, need * cpus, fields["epochs"])
    host_cpus = max(1, hosted * cpus)
    model |= {
        "host_cpus": host_cpus,
        "host_busy_cpus": round(host_cpus * r.random() * r.choice((0.2, 0.6, 1)), 2),
        "contention": r.choice((0, round(log(0.002, 0.3), 4))),
    }
    return workload(**fields, batches_per_epoch=batches, max_workers=most, worker_cpus=cpus, model=model)


def random_surface(r, log, step, need, most, hosted, batches, fields):
    shape = {
        "one": step * need * batches,
        "floor": step * batches,
        "speed": log(0.3, 3),
        "p": r.choice((1, 2, 4, 12, 60)),
        "free": r.choice((0, r.randint(0, hosted), hosted)),
        "slower": r.choice((0, log(0.002, 0.2))),
        "of": r.choice(("step", "whole")),
    }
    kind = r.choice(("plain",) * 6 + ("flat", "row", "column", "linear"))
    if kind == "flat":
        shape |= {"one": step * batches, "slower": 0}
    if kind == "linear":
        shape["floor"] = 1e-3
    if r.random() < 0.3 or kind == "linear":  # all is in the table
        del fields["client_step_s"]
    seconds, bumps = seconds_of(**shape), r.choice((0, 0, 0.01, 0.03))
    together, limit = r.random() < 0.05, r.choice((1e9, 1e9, 1e9, r.randint(1, hosted)))

    def cell(remote, local):
        if (together and not remote) or local > limit:
            return None
        return seconds(remote, local) * r.uniform(1 - bumps, 1 + bumps)

    def counts(most):
        dense = range(most + 1) if most <= 40 or r.random() < 0.3 else REMOTE_POWERS
        return sorted({n for n in dense if n < most} | {0, most})

    local, remote = counts(hosted), counts(most)
    if kind == "row":
        remote, local = [0], local if limit > hosted else [0, 1]
    elif kind == "column":
        local = [0]
    return surface(cell if kind != "row" else lambda _, n: seconds(0, n), local, remote, batches, **fields)
