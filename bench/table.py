"""Medians, ranges and ratios of the measurements, as the one table that bench/run.py prints."""

from statistics import median

NAMES = {
    "cachew": "Cachew",
    "cachew_antialias": "Cachew, antialias",
    "raw_decode": "libjpeg-turbo alone",
    "tfdata": "tf.data",
    "torch": "DataLoader, Pillow",
    "grain": "Grain, OpenCV",
    "ffcv": "FFCV",
    "dali": "DALI on the CPU",
    "cachew_cheap": "Cachew",
    "tfdata_cheap": "tf.data, vectorised",
    "tfdata_cheap_natural": "tf.data, natural",
    "python": "Cachew from Python",
    "python_photographs": "Cachew, Pillow function",
    "raw_function": "the function alone",
    "python_numbers": "Cachew, function",
    "torch_numbers": "DataLoader, function",
    "grain_numbers": "Grain, function",
    "service_photos": "Cachew, one worker",
    "service_small": "batches of 4 KiB",
    "service_medium": "batches of 1 MiB",
    "service_large": "batches of 38 MB",
    "service_credits_4": "4 credits",
    "service_credits_6": "6 credits",
    "service_credits_8": "8 credits",
    "service_rewrite": "worker to client",
    "service_memset": "memset alone",
    "service_tcp": "worker to client",
    "service_iperf3": "iperf3",
    "service_two_halves": "two workers",
    "service_one_half": "one worker",
    "service_expanded_eight": "eight workers",
    "service_expanded_one": "one worker",
    "service_records_six": "six workers",
    "service_records_one": "one worker",
    "pause_worker": "a worker is killed",
    "pause_dispatcher": "the dispatcher, restarted",
    "pause_drain": "a worker is drained",
    "service_job": "first batch of a job",
    "service_start": "cachew up is ready",
    "python_import": "import cachew",
    "service_idle": "the busiest process",
    "overhead_auto": "policy auto",
    "overhead_all": "all serve a job",
    "overhead_page": "all, a page is open",
    "overhead_caches": "all, caches decided",
    "cache_read": "decoded photographs",
    "cache_write": "decoded photographs",
}
PEERS = ["tfdata", "torch", "grain", "ffcv", "dali"]


def rate(run):
    return run.get("images_per_s") or run.get("elements_per_s")


def cheap_rate(run):
    return run["elements_per_s"]


def numbers(run):
    return run["images_per_s"]


def first(run):
    return run["first_batch_s"]


def batches(run):
    return run["batches_per_s"]


def gigabytes(run):
    return run["bytes_per_s"] / 1e9


def seconds(run):
    return run["seconds"]


def ratio(run):
    return run["ratio"]


def ratio_stored(run):
    return run["ratio_stored"]


def percent(run):
    return run["percent"]


def peak(run):
    return run.get("peak_rss_bytes", 0) / 2**20


# Title, unit, digits, what is taken of a run, whose row the ratios compare with, the rows.
SECTIONS = [
    ("Image pipeline, antialias off", "images/s", 0, rate, "cachew", ["cachew", *PEERS, "raw_decode"]),
    (
        "Image pipeline, antialias on",
        "images/s",
        0,
        rate,
        "cachew_antialias",
        ["cachew_antialias", "raw_decode"],
    ),
    (
        "range, assign, filter, shuffle, batch",
        "elements/s delivered, half of the range",
        0,
        cheap_rate,
        "cachew_cheap",
        ["cachew_cheap", "tfdata_cheap", "tfdata_cheap_natural"],
    ),
    (
        "First batch of 32 since process start",
        "s",
        3,
        first,
        "cachew_first",
        ["cachew_first", "python_first", "python_photographs_first", *[f"{p}_first" for p in PEERS]],
    ),
    ("The image pipeline from Python", "images/s", 0, rate, "python", ["python", "cachew"]),
    (
        "A Pillow function of each photograph",
        "images/s",
        0,
        rate,
        "python_photographs",
        ["python_photographs", "torch", "raw_function"],
    ),
    (
        "A Python function of each number, x + 1",
        "elements/s",
        0,
        numbers,
        "python_numbers",
        ["python_numbers", "torch_numbers", "grain_numbers"],
    ),
    (
        "Image pipeline through the service",
        "images/s",
        0,
        rate,
        "service_photos",
        ["service_photos", "cachew"],
    ),
    (
        "Hand-over on one host, batches whose memory is never written",
        "batches/s",
        0,
        batches,
        "service_small",
        ["service_small", "service_medium", "service_large"],
    ),
    (
        "Cost of a batch of 38 MB by that of one of 4 KiB, as many asked for ahead",
        "times",
        2,
        ratio,
        "service_credits_4",
        ["service_credits_4", "service_credits_6", "service_credits_8"],
    ),
    (
        "Hand-over on one host, each byte of 38 MB rewritten",
        "GB/s",
        2,
        gigabytes,
        "service_rewrite",
        ["service_rewrite", "service_memset"],
    ),
    (
        "TCP over loopback, batches of 4 MiB",
        "GB/s",
        2,
        gigabytes,
        "service_tcp",
        ["service_tcp", "service_iperf3"],
    ),
    (
        "Workers of half a core each, elements of 1 ms",
        "batches/s",
        0,
        batches,
        "service_two_halves",
        ["service_two_halves", "service_one_half"],
    ),
    (
        "Workers in order: 30 times the input, memory for two ranges",
        "batches/s",
        1,
        batches,
        "service_expanded_eight",
        ["service_expanded_eight", "service_expanded_one"],
    ),
    (
        "Workers in order: 3,000 records in ranges of one batch",
        "batches/s",
        1,
        batches,
        "service_records_six",
        ["service_records_six", "service_records_one"],
    ),
    (
        "The longest wait for a batch, beyond that without faults",
        "s",
        3,
        seconds,
        "pause_worker",
        ["pause_worker", "pause_dispatcher", "pause_drain"],
    ),
    (
        "First batch of 32 from a warm service, since process start",
        "s",
        3,
        first,
        "service_job",
        ["service_job"],
    ),
    ("Importing the package, beyond NumPy", "s", 4, seconds, "python_import", ["python_import"]),
    ("Start of a service", "s", 3, seconds, "service_start", ["service_start"]),
    ("CPU while a job is held", "% of a core", 3, percent, "service_idle", ["service_idle"]),
    (
        "CPU of a dispatcher, 1,000 workers of a job",
        "% of a core",
        1,
        percent,
        None,
        ["overhead_auto", "overhead_all", "overhead_page", "overhead_caches"],
    ),
    (
        "Reading kept elements, shuffled, by raw reads of the same bytes in such an order",
        "times",
        2,
        ratio,
        "cache_read",
        ["cache_read"],
    ),
    (
        "The same, not shuffled, by raw reads from front to back",
        "times",
        2,
        ratio_stored,
        "cache_read",
        ["cache_read"],
    ),
    ("What keeping all elements costs the first epoch", "%", 1, percent, "cache_write", ["cache_write"]),
    ("Peak memory, image pipeline", "MiB", 0, peak, "cachew", ["cachew", "cachew_antialias", *PEERS]),
]


def section(title, unit, digits, take, base, names, figures):
    """[(name, median, least, most, ratio of base to it or None)] of what was measured; [] if nothing was."""
    values = {name: [take(run) for run in figures.get(name, [])] for name in names}
    values = {name: v for name, v in values.items() if v}
    rows = []
    for name, v in values.items():
        ratio = (
            median(values[base]) / median(v)
            if base in values and name != base and median(v) and not name.startswith("pause_")
            else None
        )
        rows.append(
            {
                "section": title,
                "unit": unit,
                "name": NAMES.get(name.removesuffix("_first"), name),
                "key": name,
            }
        )
        rows[-1] |= {
            "median": median(v),
            "min": min(v),
            "max": max(v),
            "cachew_ratio": ratio,
            "digits": digits,
        }
    return rows


def render(figures, about):
    """The table as text, and its rows."""
    lines = [f"{about['cpu']}, {about['threads']} threads, load before {about['load']:.1f}"]
    lines.append(f"median (least - most) of {about['rounds']} rounds, {about['epochs']} epochs each")
    everything = []
    for title, unit, digits, take, base, names in SECTIONS:
        rows = section(title, unit, digits, take, base, names, figures)
        if not rows:
            continue
        everything += rows
        lines += ["", f"{title} ({unit})".ljust(80) + "Cachew is".rjust(12)]
        for row in rows:
            numbers = [f"{row[key]:,.{digits}f}" for key in ("median", "min", "max")]
            spread = f"({numbers[1]} - {numbers[2]})"
            ratio = f"{row['cachew_ratio']:.2f} x" if row["cachew_ratio"] else ""
            lines.append(f"  {row['name']:<24}{numbers[0]:>14} {spread:>28}{ratio:>22}")
    return "\n".join(lines), everything
