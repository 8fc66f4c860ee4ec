"""The simulator's model written down naively, without noise: what a job takes with a fixed number of workers
and cache point. Shares no code with it.
"""

import itertools


def epoch_seconds(table, n):
    """Linear between points, constant beyond the last, proportional before the first."""
    points = sorted((int(k), v) for k, v in table.items())
    if n <= points[0][0]:
        return points[0][1] * points[0][0] / n
    for (a, x), (b, y) in zip(points, points[1:]):
        if n <= b:
            return x + (y - x) * (n - a) / (b - a)
    return points[-1][1]


def stage_costs(model):
    """CPU and source bytes per batch delivered; per cache point the CPU before it and the bytes at it."""
    passing = 1.0
    for stage in model["stages"]:
        passing /= stage.get("keep", 1)
    cpu, size, marked = 0.0, model.get("source_batch_bytes", 256 * 131072), {}
    source = size * passing
    for stage in model["stages"]:
        cpu += stage.get("cpu_s", 0) * passing
        passing *= stage.get("keep", 1)
        size *= stage.get("size_factor", 1)
        marked[stage["name"]] = (cpu, size * passing)
    return cpu, source, marked


def batch_seconds(w, n, cache_point=None, cached=0.0):
    step = w.get("client_step_s", 0)
    if "table" in w:
        return max(step, epoch_seconds(next(iter(w["table"].values())), n) / w["batches_per_epoch"])
    model = w["model"]
    cpu, source, marked = stage_costs(model)
    before, size = marked[cache_point] if cache_point else (0, 0)
    limits = [step, (cpu - cached * before) / n / w.get("worker_cpus", 1)]
    if "source_bytes_per_s" in model:
        limits.append((1 - cached) * source / model["source_bytes_per_s"])
    if cache_point and "store" in model:
        limits.append(cached * size / model["store"]["read_bytes_per_s"])
    return max(limits)


def play(w, n, cache_point=None):
    """(time, cost): one worker, the others after the start delay; what is written in an epoch is read from
    the next one on.
    """
    prices = {"client": 4.96, "worker": 0.427319, **w.get("price_per_h", {})}
    delay, batches = w.get("start_delay_s", 0) if n > 1 else 0, w["batches_per_epoch"]
    now = cached = 0.0
    for _ in range(w.get("epochs", 1)):
        left, written = float(batches), 0.0
        while left > 1e-9:
            running = 1 if now < delay else n
            s = batch_seconds(w, running, cache_point, cached)
            count = min(left, (delay - now) / s) if now < delay else left
            part = 1.0
            if cache_point and w["model"].get("store", {}).get("write_bytes_per_s") and cached < 1:
                part = min(
                    1.0,
                    w["model"]["store"]["write_bytes_per_s"]
                    * s
                    / ((1 - cached) * stage_costs(w["model"])[2][cache_point][1]),
                )
            written += count * (1 - cached) * part / batches
            now = delay if now < delay and count < left else now + count * s
            left -= count
        cached = min(1.0, cached + written) if cache_point else 0.0
    return now, now / 3600 * (prices["client"] + n * prices["worker"])


def best(w):
    """The best (time, cost) of all counts and cache points, by the objective."""
    cache_points = [None, *w.get("model", {}).get("cache_markers", [])]
    most = w.get("max_workers") or max(int(k) for k in next(iter(w["table"].values())))
    return min(
        (play(w, n, m) for n in range(1, most + 1) for m in cache_points),
        key=lambda tc: tc[0] if w["objective"] == "time" else tc[1],
    )


# ---- several pools: n is a count per pool ----


def worth(w, counts):
    """In workers of the first pool."""
    speed = [p.get("worker_cpus", 1) / p.get("slowdown", 1) for p in w["pools"]]
    return sum(n * s for n, s in zip(counts, speed)) / speed[0]


def nested_seconds(w, table, counts):
    """Linear between points of each axis, constant beyond the last; where nobody is at the one before,
    proportional.
    """
    if not isinstance(table, dict):
        return table
    ((name, axis),) = table.items()
    n = counts[[p["name"] for p in w["pools"]].index(name)]
    points = sorted((int(k), nested_seconds(w, v, counts)) for k, v in axis.items())
    if n >= points[-1][0]:
        return points[-1][1]
    low = max((p for p in points if p[0] <= n), default=(0, float("inf")))
    high = min(p for p in points if p[0] > n)
    if low[1] == float("inf"):
        return high[1] * high[0] / n if n else float("inf")
    return low[1] + (high[1] - low[1]) * (n - low[0]) / (high[0] - low[0])


def surface_seconds(surface, remote, local):
    """Linear between points, constant beyond them; infinite if a point that counts is null, or without a
    worker.
    """

    def between(points, n):  # [(index, weight)]
        n = min(max(n, points[0]), points[-1])
        high = next(i for i, p in enumerate(points) if p >= n)
        if points[high] == n:
            return [(high, 1)]
        part = (n - points[high - 1]) / (points[high] - points[high - 1])
        return [(high - 1, 1 - part), (high, part)]

    if not remote + local:
        return float("inf")
    total = 0.0
    for i, row in between(surface["remote"], remote):
        for k, column in between(surface["local"], local):
            s = surface["epoch_s"][i][k]
            total += row * column * (float("inf") if s is None else s)
    return total


def with_contention(w, cpus, compute, supply):
    """The interval if local workers use so many CPUs while they compute, `compute` s per batch: found by
    halving, since a longer interval means fewer CPUs in use, and so a shorter step.
    """
    model, low, high = w["model"], 0.0, 1e9
    free = max(model["host_cpus"] - model.get("host_busy_cpus", 0), 0)

    def step(interval):
        used = cpus * min(1, compute / interval)
        return w["client_step_s"] * (1 + model.get("contention", 0) * max(used - free, 0))

    for _ in range(200):
        middle = (low + high) / 2
        if middle >= max(supply, step(middle)):
            high = middle
        else:
            low = middle
    return high


def network_price(w, counts):
    """Of a batch: what is not computed by local workers is sent."""
    speeds = [n * p.get("worker_cpus", 1) / p.get("slowdown", 1) for n, p in zip(counts, w["pools"])]
    price = [
        0 if p["name"] == "local" else p.get("price_per_gb", w.get("price_per_gb", 0)) for p in w["pools"]
    ]
    return sum(s / sum(speeds) * p for s, p in zip(speeds, price)) * w.get("bytes_per_batch", 0) / 1e9


def batch_seconds_of_pools(w, counts, cache_point, cached):
    if "surface" in w.get("table", {}):
        s = surface_seconds(w["table"]["surface"], *counts)
        return max(w.get("client_step_s", 0), s / w["batches_per_epoch"])
    if "table" in w:
        return max(w.get("client_step_s", 0), nested_seconds(w, w["table"], counts) / w["batches_per_epoch"])
    first = w["pools"][0]
    like = {**w, "worker_cpus": first.get("worker_cpus", 1) / first.get("slowdown", 1)}
    s = batch_seconds(like, worth(w, counts), cache_point, cached)
    if "host_cpus" not in w["model"]:
        return s
    cpus = sum(n * p.get("worker_cpus", 1) for n, p in zip(counts, w["pools"]) if p["name"] == "local")
    compute = batch_seconds({**like, "client_step_s": 0}, worth(w, counts), cache_point, cached)
    return with_contention(w, cpus, compute, compute)


def play_pools(w, counts, cache_point=None):
    """(time, cost): a worker of the first pool is there, each other one after its pool's delay; who is to go
    stays until all are there.
    """
    pools, batches = w["pools"], w["batches_per_epoch"]
    first = [1] + [0] * (len(pools) - 1)
    delays = [p.get("start_delay_s", 0) if n > f else 0 for p, n, f in zip(pools, counts, first)]
    price = 4.96 if "price_per_h" not in w else w["price_per_h"].get("client", 4.96)
    now = cached = cost = 0.0
    for _ in range(w.get("epochs", 1)):
        left, written = float(batches), 0.0
        while left > 1e-9:
            there = [n if now >= d else f for n, f, d in zip(counts, first, delays)]
            if now < max(delays):
                there = [max(t, f) for t, f in zip(there, first)]
            until = min((d for d in delays if d > now), default=float("inf"))
            s = batch_seconds_of_pools(w, there, cache_point, cached)
            count = min(left, (until - now) / s)
            part = 1.0
            if cache_point and w["model"].get("store", {}).get("write_bytes_per_s") and cached < 1:
                part = min(
                    1.0,
                    w["model"]["store"]["write_bytes_per_s"]
                    * s
                    / ((1 - cached) * stage_costs(w["model"])[2][cache_point][1]),
                )
            written += count * (1 - cached) * part / batches
            to = until if count < left else now + count * s
            paid = [max(n, t) for n, t in zip(counts, there)]
            cost += (to - now) / 3600 * (price + sum(n * p["price_per_h"] for n, p in zip(paid, pools)))
            cost += count * network_price(w, there)
            now, left = to, left - count
        cached = min(1.0, cached + written) if cache_point else 0.0
    return now, cost


def best_of_pools(w):
    """The best (time, cost) of all vectors and cache points."""
    cache_points = [None, *w.get("model", {}).get("cache_markers", [])]
    vectors = itertools.product(*(range(p["max_workers"] + 1) for p in w["pools"]))
    return min(
        (play_pools(w, v, m) for v in vectors if sum(v) for m in cache_points),
        key=lambda tc: tc[0] if w["objective"] == "time" else tc[1],
    )
