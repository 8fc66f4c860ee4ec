"""The delivery oracle: from the logs of all ranks of a job it decides whether what was delivered is what a
local run gives.

A job is a list of generations: the ranks that began together, from one state. A rank is a list of parts: one
process each, with the state that it began from and the lines that it logged. A part that was killed counts
up to the state of the part behind it, as does a generation: what comes behind that is done again. The local
run, with --log and --dump, is made once.

    local = Local(log, dump)
    job = Job("exact", "exactly-once", [Generation(2, None, [[Part(lines)], [Part(lines, result=...),
    Part(lines, start=(0, 12))]])]) for problem in check(job, local): print(problem)

Nothing here is taken from the engine or the service: semantics.md, sections 6 and 8, is what it knows."""

import collections
import json
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import digest as hashes  # noqa: E402

REPLACED, PADDING = 1, 2  # bits of flags
MASK128 = hashes.MASK128
# of order any: batches of so many rounds, from that of the first which did not come, may come
ROUNDS_AHEAD = 64
AT_MOST = 20  # problems of a kind: the first ones tell


@dataclass(frozen=True)
class Line:
    """A batch, as --log has it."""

    epoch: int
    g: int
    rank: int
    n: int
    flags: tuple
    records: tuple
    hash: int
    t: float = 0.0

    @property
    def at(self):
        return (self.epoch, self.g)

    @property
    def padding(self):
        return any(f & PADDING for f in self.flags)

    def __str__(self):
        more = ", ..." if self.n > 3 else ""
        return f"g {self.g} of epoch {self.epoch} ({self.n} records, {', '.join(self.records[:3])}{more})"


def parse_line(text):
    o = json.loads(text)
    return Line(
        o["epoch"],
        o["g"],
        o["rank"],
        o["n"],
        tuple(o["flags"]),
        tuple(o["records"]),
        int(o["hash"], 16),
        o["t"],
    )


def read_log(path):
    """The lines of a log. One write each: a half line is an error, and so is a log that can't be read."""
    path = Path(path)
    text = path.read_text() if path.exists() else ""
    if text and not text.endswith("\n"):
        raise ValueError(f"{path}: the last line is cut off")
    return [parse_line(line) for line in text.splitlines()]


class State(tuple):
    """(epoch, g), and in order any the batches of that epoch from g on that were handed out before their
    turn.
    """

    handed = frozenset()


def read_state(path):
    """The state in a file; None where there is none."""
    path = Path(path)
    if not path.exists():
        return None
    saved = json.loads(path.read_text())
    state = State((saved["epoch"], saved["g"]))
    bits = int(saved.get("handed_out", "0"), 16)
    state.handed = frozenset(
        (state[0], state[1] + saved["rank"] + i * saved["world_size"])
        for i in range(bits.bit_length())
        if bits >> i & 1
    )
    return state


@dataclass
class Part:
    """One process of a rank."""

    lines: list
    start: tuple = None  # (epoch, g) of the state that it went on from; None: from the beginning
    result: dict = None  # what --digest --json printed; None: it did not get so far
    dump: Path = None  # --dump


@dataclass
class Generation:
    """Ranks that began together."""

    world_size: int
    start: tuple
    ranks: list  # per rank its parts


@dataclass
class Job:
    order: str
    guarantee: str
    generations: list
    epochs: int = 1


class Local:
    """What the pipeline gives in one process."""

    def __init__(self, log, dump=None, result=None):
        self.lines = log if isinstance(log, list) else read_log(log)
        self.dump = Path(dump) if dump else None
        self.epochs = collections.defaultdict(list)
        for line in self.lines:
            if line.g != len(self.epochs[line.epoch]):
                raise ValueError(
                    f"the local log itself is not in order: g {line.g} of epoch {line.epoch} "
                    f"is line {len(self.epochs[line.epoch])}"
                )
            self.epochs[line.epoch].append(line)
        self.n_epochs = max(self.epochs, default=-1) + 1
        self.digest = sum(line.hash for line in self.lines) & MASK128
        if result and int(result["digest"], 16) != self.digest:
            raise ValueError("the local log has not the digest of the local run")
        self._elements = None

    def padding_hash(self, epoch, g, source):
        """Of a batch that is repeated under another g; None without a dump."""
        if self.dump is None:
            return None
        _, _, batch, _ = hashes.load(dump_file(self.dump, epoch, source.g))
        return hashes.batch_hash(epoch, g, source.n, batch)

    @property
    def elements(self):
        """Per (epoch, record id) the hashes of the elements it gave."""
        if self._elements is None:
            self._elements = collections.defaultdict(collections.Counter)
            for line in self.lines:
                for record, h in elements_of(self.dump, line):
                    self._elements[line.epoch, record][h] += 1
        return self._elements


def dump_file(directory, epoch, g):
    return Path(directory) / (f"E{epoch}-{g:08}.npz" if epoch else f"{g:08}.npz")


def elements_of(dump, line):
    """(record id, hash of the element), one per row; without a dump the hash is 0."""
    if dump is None:
        return [(record, 0) for record in line.records]
    _, rows, _, _ = hashes.load(dump_file(dump, line.epoch, line.g))
    assert len(rows) == len(line.records)
    return [(record, hashes.element_hash(row)) for record, row in zip(line.records, rows)]


# ---- what is expected ----


@dataclass(frozen=True)
class Expected:
    epoch: int
    g: int
    source: Line  # the local batch that it is
    padding: bool


def expected(local, start, rank, world_size, n_epochs):
    """What a rank gets that goes on from a state: in its epoch the rounds begin at the state's g, later at
    0. The last round is filled.
    """
    out = []
    begin_epoch, begin_g = start or (0, 0)
    for epoch in range(begin_epoch, n_epochs):
        batches = local.epochs.get(epoch, [])
        for first in range(begin_g if epoch == begin_epoch else 0, len(batches), world_size):
            g = first + rank
            if g < len(batches):
                out.append(Expected(epoch, g, batches[g], False))
            else:
                out.append(Expected(epoch, g, batches[(g - len(batches)) % len(batches)], True))
    return out


class Report:
    """Problems, not too many of a kind."""

    def __init__(self):
        self.problems = []
        self.counts = collections.Counter()

    def __call__(self, kind, text):
        self.counts[kind] += 1
        if self.counts[kind] <= AT_MOST:
            self.problems.append(f"{kind}: {text}")
        elif self.counts[kind] == AT_MOST + 1:
            self.problems.append(f"{kind}: ... and more")


# ---- exact order ----


def difference(line, want, local):
    """(kind, text) of what is wrong with the batch that stands where `want` should; None: nothing."""
    if line.at != (want.epoch, want.g):
        return None
    s = want.source
    if want.padding:
        if not line.padding or not all(f & PADDING for f in line.flags):
            if line.n:
                return (
                    "padding",
                    (
                        f"g {line.g} fills up the last round of epoch {line.epoch} and is not flagged so: "
                        f"flags {line.flags}"
                    ),
                )
        h = local.padding_hash(line.epoch, line.g, s)
        if line.records != s.records or (h is not None and h != line.hash):
            return (
                "padding",
                (
                    f"g {line.g} should repeat g {s.g} of epoch {line.epoch} (records {s.records[:4]}), got "
                    f"{line.records[:4]}"
                ),
            )
        return None
    if line.padding:
        return "padding", f"g {line.g} of epoch {line.epoch} is flagged as padding, and is none"
    if line.records != s.records:
        at = next((i for i, (a, b) in enumerate(zip(line.records, s.records)) if a != b), min(line.n, s.n))
        here, there = line.records[at : at + 1] or ("nothing",), s.records[at : at + 1] or ("nothing",)
        return (
            "records",
            (
                f"g {line.g} of epoch {line.epoch}: {line.n} records, {s.n} expected; row {at} is {here[0]}, "
                f"{there[0]} expected"
            ),
        )
    if line.flags != s.flags:
        return "flags", f"g {line.g} of epoch {line.epoch}: flags {line.flags}, {s.flags} expected"
    if line.hash != s.hash:
        return (
            "hash",
            (
                f"g {line.g} of epoch {line.epoch} has the right records and other contents: "
                f"{line.hash:032x}, {s.hash:032x} expected"
            ),
        )
    return None


def check_run(name, lines, wanted, local, complete, report):
    """Lines are the first of what is wanted; all of it, if complete. One problem at most: what follows a
    wrong place is no news.
    """
    for i, line in enumerate(lines):
        if i >= len(wanted):
            kind = "repeated" if line.at in {w.at for w in lines[:i]} else "too many"
            return report(kind, f"{name}: {line} comes behind the end")
        want = wanted[i]
        if line.at == (want.epoch, want.g):
            wrong = difference(line, want, local)
            if wrong:
                return report(wrong[0], f"{name}: {wrong[1]}")
            continue
        if line.at in {w.at for w in lines[:i]}:
            return report("repeated", f"{name}: {line} was delivered twice")
        if (want.epoch, want.g) in {w.at for w in lines[i + 1 :]}:
            return report(
                "order", f"{name}: {line} comes before g {want.g} of epoch {want.epoch}, which is next"
            )
        if line.at not in {(w.epoch, w.g) for w in wanted}:
            return report(
                "not its own",
                f"{name}: {line} where g {want.g} of epoch {want.epoch} is next: it is not this rank's",
            )
        return report(
            "lost",
            f"{name}: g {want.g} of epoch {want.epoch} (records "
            f"{want.source.records[:3]}) is missing; {line} follows",
        )
    if complete and len(lines) < len(wanted):
        want = wanted[len(lines)]
        report(
            "lost",
            f"{name}: it ends before g {want.g} of epoch {want.epoch}: "
            f"{len(wanted) - len(lines)} batches are missing",
        )


def covers(at, line):
    """Whether a state says that a batch was handed out."""
    return line.at < at or line.at in getattr(at, "handed", ())


def cut(lines, at):
    return lines if at is None else [line for line in lines if covers(at, line)]


# ---- any order: the batches of exact order, in the order in which they were ready ----


def check_run_any(name, lines, wanted, local, complete, report, world_size, handed=frozenset()):
    """Each line is one of those that are wanted, once, and at most 63 rounds behind the first that did
    not come.
    """
    wanted = [w for w in wanted if (w.epoch, w.g) not in handed]
    by_place = {(w.epoch, w.g): w for w in wanted}
    came, first = set(), 0
    for line in lines:
        want = by_place.get(line.at)
        if line.at in came or want is None:
            kind = (
                "repeated"
                if line.at in came or line.at in handed
                else "too many"
                if line.epoch >= local.n_epochs
                else "not its own"
            )
            return report(kind, f"{name}: {line} was handed out before, or is not this rank's")
        wrong = difference(line, want, local)
        if wrong:
            return report(wrong[0], f"{name}: {wrong[1]}")
        if line.epoch != wanted[first].epoch or (line.g - wanted[first].g) // world_size >= ROUNDS_AHEAD:
            return report(
                "order",
                f"{name}: {line} comes before g {wanted[first].g} of epoch "
                f"{wanted[first].epoch}, which is too far before it",
            )
        came.add(line.at)
        while first < len(wanted) and (wanted[first].epoch, wanted[first].g) in came:
            first += 1
    if complete and first < len(wanted):
        report(
            "lost",
            f"{name}: it ends without g {wanted[first].g} of epoch {wanted[first].epoch}: "
            f"{len(wanted) - len(came)} batches are missing",
        )


def kept_of_rank(parts, end):
    """The lines that count: each part up to where the next one begins, the last one up to the next
    generation.
    """
    kept = []
    for i, part in enumerate(parts):
        if i + 1 < len(parts):
            kept = cut([*kept, *part.lines], parts[i + 1].start or (0, 0))
        else:
            kept = [*kept, *part.lines]
    return cut(kept, end)


def check_batches(job, local, report):
    for n, generation in enumerate(job.generations):
        end = job.generations[n + 1].start or (0, 0) if n + 1 < len(job.generations) else None
        for rank, parts in enumerate(generation.ranks):
            name = f"rank {rank} of {generation.world_size}" + (
                f" (generation {n})" if len(job.generations) > 1 else ""
            )
            for i, part in enumerate(parts):
                finished = i + 1 == len(parts) and part.result is not None and "error" not in part.result
                start = part.start if i else generation.start
                wanted = expected(local, start, rank, generation.world_size, job.epochs)
                if job.order == "any":
                    check_run_any(
                        f"{name}, process {i}",
                        part.lines,
                        wanted,
                        local,
                        finished,
                        report,
                        generation.world_size,
                        getattr(start, "handed", frozenset()),
                    )
                else:
                    check_run(f"{name}, process {i}", part.lines, wanted, local, finished, report)
            wanted = expected(local, generation.start, rank, generation.world_size, job.epochs)
            if end is not None:
                wanted = [w for w in wanted if (w.epoch, w.g) < end]
            kept = kept_of_rank(parts, end)
            if job.order == "any":  # what is kept of a part may have come behind what is not
                kept.sort(key=lambda line: line.at)
            check_run(f"{name}, all of it", kept, wanted, local, True, report)


# ---- at most once ----


def check_sets(job, local, report):
    """What counts is which elements came, and what is in them."""
    seen = collections.Counter()
    for name, part, line in kept_lines(job):
        for record, h in elements_of(part.dump, line):
            key = (line.epoch, record)
            seen[key] += 1
            there = local.elements.get(key)
            if not there:
                report(
                    "foreign",
                    f"{name}: {line}: record {record} is not in epoch {line.epoch} of the local run",
                )
            elif part.dump is not None and local.dump is not None and h not in there:
                report("hash", f"{name}: {line}: record {record} has other contents")
            elif seen[key] > sum(there.values()):
                report("repeated", f"{name}: {line}: record {record} was delivered {seen[key]} times")


def check_numbers(job, report):
    """A process hands out only batches of its rank, from its state on, and each number once."""
    for n, generation in enumerate(job.generations):
        for rank, parts in enumerate(generation.ranks):
            for i, part in enumerate(parts):
                start = (part.start if i else generation.start) or (0, 0)
                came = set(getattr(start, "handed", ()))
                for line in part.lines:
                    begin = start[1] if line.epoch == start[0] else 0
                    if line.at in came or line.at < start or (line.g - begin) % generation.world_size != rank:
                        report(
                            "order",
                            f"rank {rank} (generation {n}, process {i}): {line} was handed out "
                            f"before, or is not this rank's",
                        )
                        break
                    came.add(line.at)


# ---- both ----


def kept_lines(job):
    """(name, part, line) of all lines that count, padding left out."""
    for n, generation in enumerate(job.generations):
        end = job.generations[n + 1].start or (0, 0) if n + 1 < len(job.generations) else None
        for rank, parts in enumerate(generation.ranks):
            starts = [part.start or (0, 0) for part in parts[1:]]
            for i, part in enumerate(parts):
                limits = [*starts[i:], *([end] if end else [])]
                for line in part.lines:
                    if not line.padding and all(covers(limit, line) for limit in limits):
                        yield f"rank {rank} (generation {n}, process {i})", part, line


def check_results(job, report):
    """What a process says at its end fits its log."""
    for n, generation in enumerate(job.generations):
        for rank, parts in enumerate(generation.ranks):
            for i, part in enumerate(parts):
                if part.result is None or "digest" not in part.result:
                    continue
                total = sum(line.hash for line in part.lines if not line.padding) & MASK128
                if total != int(part.result["digest"], 16):
                    report(
                        "digest",
                        f"rank {rank} (generation {n}, process {i}) says "
                        f"{part.result['digest']}, its log {total:032x}",
                    )


def check_ranks(job, report):
    for n, generation in enumerate(job.generations):
        if len(generation.ranks) != generation.world_size:
            report(
                "ranks", f"generation {n} has {len(generation.ranks)} ranks, {generation.world_size} expected"
            )
        for rank, parts in enumerate(generation.ranks):
            for part in parts:
                if any(line.rank != rank for line in part.lines):
                    report("ranks", f"rank {rank} (generation {n}) logged lines of another rank")


def check(job, local):
    """What is wrong, in words; nothing: [] ."""
    report = Report()
    check_ranks(job, report)
    check_results(job, report)
    if job.guarantee == "exactly-once":
        check_batches(job, local, report)
        total = sum(line.hash for _, _, line in kept_lines(job)) & MASK128
        if total != local.digest:
            report(
                "digest", f"all ranks and parts add up to {total:032x}, the local run to {local.digest:032x}"
            )
    else:
        check_numbers(job, report)
        check_sets(job, local, report)
    return report.problems
