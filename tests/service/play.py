"""Plays a schedule (schedules.py): starts the service and the job, does to them what stands there, and lets
the oracle judge what was delivered.
"""

import collections
import heapq
import json
import math
import os
import random
import re
import select
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import oracle  # noqa: E402
from cluster import Cluster, Deadline, Missed, local_run  # noqa: E402
from deadlines import HANG_S, SILENCE_S  # noqa: E402
from schedules import INSTANT, LINKS  # noqa: E402

# a schedule that takes longer hangs: more than a client waits for a batch, so that the client says what is
# missing
OVERALL_S = 2 * HANG_S
# a fault that is to happen at a time happens before this share of the batches was taken
TIMED_BY = 0.8
RETRIES = 400  # while a fault looks for a target, clients are held so often
STOP_LOOK_S = 0.01  # a process that stops itself is seen so soon: a pidfd does not tell
AGAIN_S = 0.3  # a client that did not find the service is started again
RETRY_S = 0.05  # of a fault whose target is not there at the moment
# who stands at a point until a drain was asked for goes on after this: the dispatcher may be away
ASKED_S = 1.0
REGISTERED = re.compile(r"registered as worker (\d+)")
POINTS = "CACHEW_CRASH"  # of test builds: NAME:NTH:stop,...
STOPPED_AT = re.compile(r"^crash point (\S+)$", re.MULTILINE)


class Failed(AssertionError):
    """Something ended that should not, or otherwise than it should."""


def without_delay(chain):
    return [op for op in chain if op["op"] != "delay"]


def drops_otherwise(plan):
    """Whether other elements may be dropped than locally, behind what was lost: then none is dropped in the
    run that it is compared with.
    """
    chain = plan["pipeline"]["pipeline"]
    return (
        plan["guarantee"] == "at-most-once"
        and any(op["op"] == "filter" for op in chain)
        and any(op.get("drop_remainder") for op in chain)
    )


def take_of_what_is_left(plan):
    """The count of a take that others than locally fill, behind what was lost; None: there is none. The run
    that it is compared with has no take.
    """
    counts = [op["count"] for op in plan["pipeline"]["pipeline"] if op["op"] == "take"]
    return counts[0] if counts and plan["guarantee"] == "at-most-once" else None


class Player:
    def __init__(self, plan, command, directory, keep=None):
        self.plan, self.command, self.directory, self.keep = plan, command, Path(directory), keep
        self.draw = random.Random(f"play/{plan['seed']}")
        self.timers, self.awaited, self.count = [], [], 0
        self.happened = []
        self.ranks, self.generations = [], []
        self.dead = set()  # workers that are to come back, by key; "dispatcher"
        self.armed = {}  # process: faults, at points that it has not passed
        self.n_stops = collections.Counter()  # by process
        self.n_starts = collections.Counter()  # by role and number
        self.asked = []  # drains: the command, who goes on when it has ended, until when
        self.to_arm = [f for f in plan["faults"] if "point" in f["at"]]
        self.instants = [f for f in plan["faults"] if "point" not in f["at"]]
        # a fault has no target yet: it has looked for one so often; 0: there is no such fault
        self.retried = 0
        self.cluster = None

    # ---- the job ----

    def words(self):
        p = self.plan
        return [
            "--seed",
            p["run_seed"],
            "--epochs",
            p["epochs"],
            "--order",
            p["order"],
            "--guarantee",
            p["guarantee"],
        ]

    def local(self):
        plain = self.directory / "plain.json"
        chain = without_delay(self.plan["pipeline"]["pipeline"])
        if drops_otherwise(self.plan):
            chain = [{**op, "drop_remainder": False} if "drop_remainder" in op else op for op in chain]
        if take_of_what_is_left(self.plan) is not None:
            chain = [op for op in chain if op["op"] != "take"]
        plain.write_text(json.dumps({**self.plan["pipeline"], "pipeline": chain}))
        return local_run(
            self.command,
            plain,
            self.directory / "local",
            [
                "--seed",
                self.plan["run_seed"],
                "--epochs",
                self.plan["epochs"],
                "--index-dir",
                self.directory / "index",
            ],
        )[0]

    def start_rank(self, rank, world, start=None):
        p = self.plan
        r = self.cluster.rank(
            self.pipeline,
            "job",
            rank=rank,
            world_size=world,
            start=start,
            state_every=p["state_every"],
            with_state=p["with_state"],
            dump=p["guarantee"] == "at-most-once",
            words=[*self.words(), "--transport", p["transport"]],
            held=0,
        )
        r.done, r.down = False, False
        self.run_rank(r)
        return r

    def run_rank(self, r):
        faults = self.arm("client", r.rank)
        r.start(env=self.arming(faults))
        r.down = False
        self.armed[r.process] = faults

    def begin(self, world, start=None, at=None):
        self.ranks = [self.start_rank(rank, world, start) for rank in range(world)]
        self.generations.append((world, at, self.ranks))

    def job(self):
        return oracle.Job(
            self.plan["order"],
            self.plan["guarantee"],
            [
                oracle.Generation(world, at, [r.parts() for r in ranks])
                for world, at, ranks in self.generations
            ],
            self.plan["epochs"],
        )

    # ---- how far it may go ----

    def taken(self):
        """Batches, of all ranks and their processes."""
        return sum(r.lines() for _, _, ranks in self.generations for r in ranks)

    def due_at(self, f, total):
        """The number of batches at which a fault happens, at the latest."""
        return math.ceil(f["at"].get("share", TIMED_BY) * total)

    def let_on(self, total):
        """Up to the next fault: no job is over before, on however slow a machine this runs."""
        looking = 0 < self.retried < RETRIES
        if not self.instants and not looking:
            for r in self.ranks:
                r.go()
            return
        left = 0 if looking else min(self.due_at(f, total) for f in self.instants) - self.taken()
        if left <= 0:
            return
        there = [r for r in self.ranks if not r.done and not r.down]
        # others may wait for these, whatever these took already
        waiting = [r for r in there if r.lines() >= r.held]
        left -= sum(r.held - r.lines() for r in there if r not in waiting)
        for r in waiting:
            r.hold(r.lines() + max(1, left // len(waiting)))

    # ---- named points ----

    def arm(self, role, number):
        """The faults at named points for who is starting."""
        starts = self.n_starts[role, number]
        self.n_starts[role, number] += 1
        faults = [
            f
            for f in self.to_arm
            if f["at"]["role"] == role
            and f["at"].get("target", f["target"]) == number
            and f["at"].get("start", 0) <= starts
        ]
        self.to_arm = [f for f in self.to_arm if f not in faults]
        return faults

    def arming(self, faults):
        return (
            {POINTS: ",".join(f"{f['at']['point']}:{f['at']['nth']}:stop" for f in faults)} if faults else {}
        )

    def passing(self, process):
        """The faults of the points at which it has stopped itself; they are its no more."""
        names = STOPPED_AT.findall(process.said(1 << 20))
        new = names[self.n_stops[process] :]
        self.n_stops[process] = len(names)
        out = []
        for name in new:
            f = min(
                (f for f in self.armed[process] if f["at"]["point"] == name and f not in out),
                key=lambda f: f["at"]["nth"],
                default=None,
            )
            out += [f] if f else []
        self.armed[process] = [f for f in self.armed[process] if f not in out]
        return out

    def look_for_stops(self):
        for process, faults in list(self.armed.items()):
            if not process.running:  # before it came so far; the next one may
                self.to_arm += faults
                del self.armed[process]
                continue
            if not process.has_stopped() or process.stopped:
                continue  # what we stopped has not stopped itself
            process.stopped = True
            held = False
            # that one has other things to do, and a fault of its own
            if not any(process is ending for ending, *_ in self.awaited):
                for f in self.passing(process):
                    held |= self.apply_at(f, process)
            if (
                process.running
                and process.stopped
                and not held
                and not any(process is stands for _, stands, _ in self.asked)
            ):
                process.cont()

    def look_for_asked(self):
        for entry in list(self.asked):
            command, stands, deadline = entry
            if command.poll() is not None or time.monotonic() >= deadline:
                self.asked.remove(entry)
                if stands is not None and stands.running and stands.stopped:
                    stands.cont()

    # ---- time ----

    def after(self, seconds, function, *arguments):
        self.count += 1
        heapq.heappush(self.timers, (time.monotonic() + seconds, self.count, function, arguments))

    def run_timers(self):
        while self.timers and self.timers[0][0] <= time.monotonic():
            _, _, function, arguments = heapq.heappop(self.timers)
            function(*arguments)

    def when_ended(self, process, codes, then):
        self.awaited.append((process, codes, then, Deadline(HANG_S)))

    def look_for_ends(self):
        for entry in list(self.awaited):
            process, codes, then, deadline = entry
            if process.running:
                deadline.left(
                    f"the end of {process.name} (pid {process.pid}) after SIGTERM; its stderr: "
                    f"{process.said()}"
                )
                continue
            self.awaited.remove(entry)
            if process.code not in codes:
                raise Failed(
                    f"{process.name} ended with {process.code} after SIGTERM, {codes[0]} "
                    f"expected: {process.said()}"
                )
            then()

    # ---- daemons ----

    def start_worker(self, key):
        faults = self.arm("worker", int(key[1:]))
        w = self.cluster.start_worker(
            key,
            "--threads",
            self.plan["threads"],
            "--memory",
            self.plan["memory"],
            env=self.arming(faults),
            wait=False,
        )
        self.dead.discard(key)
        self.armed[w] = faults

    def start_dispatcher(self):
        faults = self.arm("dispatcher", 0)
        d = self.cluster.start_dispatcher(state_dir=self.plan["state_dir"], env=self.arming(faults))
        self.dead.discard("dispatcher")
        self.armed[d] = faults

    def look_for_ready(self):
        for key, w in self.cluster.workers.items():
            if w.ready is None and w.running and select.select([w.popen.stdout], [], [], 0)[0]:
                self.cluster.worker_ready(key)

    def check_deaths(self):
        deaths = self.cluster.deaths()
        if deaths:
            raise Failed(deaths[0])
        for r in self.ranks:
            if not r.done and not r.down and not r.process.running:
                if r.process.code == 0:
                    r.done = True
                elif (
                    r.process.code == 3 and r.runs[-1].lines() == 0 and "can't be reached" in r.process.said()
                ):
                    # a job that begins does not wait for a service that is not there: who runs it tries again
                    r.down = True
                    self.after(AGAIN_S, self.rank_again, r)
                elif not r.process.expected_end:
                    raise Failed(
                        f"{r.name}, process {len(r.runs) - 1}, ended with {r.process.code}: "
                        f"{r.process.said()}"
                    )

    # ---- faults ----

    def find(self, role, target):
        """Who it happens to: the one named, or the next that is there. None: nobody is."""
        if role == "dispatcher":
            return None if "dispatcher" in self.dead else self.cluster.dispatcher
        if role == "worker":
            there = [
                w
                for key, w in sorted(self.cluster.workers.items())
                if key not in self.dead and w.running and not w.expected_end
            ]
            named = self.cluster.workers.get(f"w{target}")
        else:
            there = [r for r in self.ranks if not r.done and not r.down and r.process.running]
            named = self.ranks[target] if target < len(self.ranks) else None
        return named if named in there else there[target % len(there)] if there else None

    def key_of(self, worker):
        return next(key for key, w in self.cluster.workers.items() if w is worker)

    def phase(self, role, target):
        """Of an instant: before the first batch, it is the phase of attaching."""
        if role in ("client", "client-dispatcher", "client-worker"):
            r = target if role == "client" else None
            return (
                "attach"
                if (r.runs[-1].lines() if r else sum(x.lines() for x in self.ranks)) == 0
                else INSTANT
            )
        if role in ("worker", "worker-dispatcher"):
            w = target if role == "worker" else None
            return "attach" if w is not None and w.ready is None else INSTANT
        return "attach" if sum(x.lines() for x in self.ranks) == 0 else INSTANT

    def note(self, fault, kind, phase):
        self.happened.append(
            {
                "role": fault["role"],
                "kind": kind,
                "phase": phase,
                "t": round(time.monotonic() - self.began, 3),
                **({"point": fault["at"]["point"]} if "point" in fault["at"] else {}),
            }
        )

    def inflict(self, fault, target, stands=None):
        """What it turns out to be: a worker that has not registered, say, is killed instead of restarted.
        stands: who has stopped itself at the fault's point.
        """
        function = getattr(self, f"{fault['role']}_{fault['kind'].replace('9', '')}")
        return (
            function(target, fault["hold_s"], stands)
            if fault["kind"] == "drain"
            else function(target, fault["hold_s"])
        ) or fault["kind"]

    def apply_at(self, fault, process):
        """process has stopped itself at the fault's point: it happens to it, or to somebody else while it
        stands there. If there is nobody, it does not. True: it stays stopped.
        """
        role, own = fault["role"], fault["role"] == fault["at"]["role"]
        if role in LINKS:
            if self.break_link(fault, process):
                self.note(fault, fault["kind"], fault["at"]["phase"])
            return False
        if own and not process.running:  # another one at the same point ended it
            self.to_arm.append(fault)
            return False
        target = (
            process
            if own and role != "client"
            else next((r for r in self.ranks if r.process is process), None)
            if own
            else self.find(role, fault["target"])
        )
        if target is not None:
            self.note(fault, self.inflict(fault, target, process), fault["at"]["phase"])
        return own and target is not None and fault["kind"] == "pause"

    def apply(self, fault):
        """At an instant; where there is nobody to whom it could happen, in a moment."""
        role = fault["role"]
        if self.over():
            return
        target = None if role in LINKS else self.find(role, fault["target"])
        phase = self.phase(role, target)
        if role in LINKS and self.break_link(fault, None):
            self.note(fault, fault["kind"], phase)
        elif target is not None:
            self.note(fault, self.inflict(fault, target), phase)
        else:
            self.retried += 1
            self.after(RETRY_S, self.apply, fault)
            return
        self.retried = 0

    def links_of(self, role, number, process):
        """The connections between two roles: first the one that this process has, then the one of this
        number, then the others.
        """
        c = self.cluster
        if role == "client-dispatcher":
            names = {f"client-job-{r.rank}-dispatcher": r.process for r in self.ranks}
        else:
            names = {
                f"{key}-dispatcher" if role == "worker-dispatcher" else f"client-{key}": w
                for key, w in sorted(c.workers.items())
            }
        order = list(names)
        order = order[number % len(order) :] + order[: number % len(order)]
        return [
            c.links[name]
            for name in sorted(order, key=lambda name: names[name] is not process)
            if name in c.links
        ]

    def break_link(self, fault, process):
        """False: there was nothing to break."""
        kind = fault["kind"]
        link = next(
            (x for x in self.links_of(fault["role"], fault["target"], process) if x.n_connections > 0), None
        )
        if link is None:
            return False
        on = {
            "drop": link.drop,
            "reset": link.reset,
            "half-close": lambda: link.half_close(fault["direction"]),
            "damage": lambda: link.damage(fault["direction"]),
            "delay": lambda: link.delay(fault.get("delay_s", 0.05)),
            "throttle": lambda: link.throttle(fault.get("rate", 50_000)),
            "stall": lambda: link.stall(True),
            "black-hole": lambda: link.black_hole(True),
            "refuse": lambda: (link.refuse(True), link.drop()),
        }
        on[kind]()
        if kind not in ("drop", "reset", "half-close", "damage"):
            self.after(fault["hold_s"], link.heal)
        return True

    def pause(self, process, hold):
        process.stop()
        self.after(hold, lambda: process.cont() if process.running else None)

    worker_pause = dispatcher_pause = pause

    def client_pause(self, rank, hold):
        self.pause(rank.process, hold)

    def worker_kill(self, w, hold):
        key = self.key_of(w)
        self.dead.add(key)
        w.kill9()
        self.after(hold, self.start_worker, key)

    def worker_restart(self, w, hold):
        key = self.key_of(w)
        if w.ready is None:  # it has not registered, and SIGTERM ends it as it is
            self.worker_kill(w, hold)
            return "kill9"
        self.dead.add(key)
        w.terminate()
        self.when_ended(w, (0,), lambda: self.after(hold, self.start_worker, key))
        return None

    def worker_drain(self, w, hold, stands):
        """stands: who stays where it is until the drain was asked for; the dispatcher can't."""
        if w.ready is None:
            self.worker_kill(w, hold)
            return "kill9"
        if w.stopped and w is not stands:
            w.cont()
        # the dispatcher may be away: then it is just restarted
        command = self.cluster.asking("workers", "--drain", w.ready["id"])
        if stands is not self.cluster.dispatcher:
            self.asked.append((command, stands, time.monotonic() + ASKED_S))
        self.after(hold, lambda: self.worker_restart(w, 0.0) if w.running and not w.expected_end else None)
        return None

    def dispatcher_kill(self, d, hold):
        self.dead.add("dispatcher")
        d.kill9()
        self.after(hold, self.start_dispatcher)

    def dispatcher_restart(self, d, hold):
        self.dead.add("dispatcher")
        d.terminate()
        self.when_ended(d, (0,), lambda: self.after(hold, self.start_dispatcher))

    def client_kill(self, r, hold):
        r.down = True
        r.process.kill9()
        self.after(hold, self.rank_again, r)

    def client_restart(self, r, hold):
        r.down = True
        r.process.terminate()

        def then():
            if r.process.code == 0:
                r.done, r.down = True, False
            else:
                self.after(hold, self.rank_again, r)

        self.when_ended(r.process, (143, 0, -signal.SIGTERM), then)

    def rank_again(self, r):
        if r in self.ranks and r.down:
            self.run_rank(r)

    def client_regroup(self, r, hold):
        """All ranks die, and others, as many as it comes, go on from the state of the one that was behind."""
        if any(x.done or x.down for x in self.ranks):
            self.client_kill(r, hold)
            return "kill9"
        for x in self.ranks:
            x.down = True
            x.process.kill9()
        states = [(oracle.read_state(x.state) if x.with_state else None, x.state) for x in self.ranks]
        at, path = min(states, key=lambda s: s[0] or (0, 0))
        start = None
        if at is not None:  # the ranks' own files go on being theirs
            start = self.directory / f"generation{len(self.generations)}.state"
            shutil.copy(path, start)
        world = self.draw.randint(1, 4)
        self.after(max(hold, 0.2), self.begin, world, start, at)
        return None

    # ---- what was acknowledged ----

    def check_take(self):
        most = take_of_what_is_left(self.plan)
        records = collections.defaultdict(set)
        for line in (line for r in self.ranks for part in r.parts() for line in part.lines):
            records[line.epoch].update(line.records)
        return [
            f"{len(found)} elements of epoch {epoch} came: a take gives {most}"
            for epoch, found in records.items()
            if most is not None and len(found) > most
        ]

    def check_registered(self):
        """Where there is a journal, a worker's number is its own for ever: no other has it, and it has
        no other.
        """
        problems, owners = [], {}
        for p in self.cluster.processes if self.plan["state_dir"] else []:
            for number in dict.fromkeys(REGISTERED.findall(p.said(1 << 20))):
                if p.name in owners.values():
                    problems.append(
                        f"worker number: {p.name} is worker {number}, and was worker "
                        f"{next(n for n, name in owners.items() if name == p.name)} before"
                    )
                if number in owners:
                    problems.append(f"worker number: {p.name} and {owners[number]} are both worker {number}")
                owners[number] = p.name
        return problems

    # ---- all of it ----

    def total(self, local):
        return sum(len(batches) for batches in local.epochs.values()) or 1

    def over(self):
        return all(r.done for r in self.ranks)

    def fire_instants(self, total):
        if self.over():
            return
        taken = self.taken()
        t = time.monotonic() - self.began
        for f in list(self.instants):
            if self.due_at(f, total) <= taken or f["at"].get("time_s", 1e9) <= t:
                self.instants.remove(f)
                self.apply(f)

    def step(self, deadline, total):
        self.run_timers()
        self.look_for_ready()
        self.look_for_stops()
        self.look_for_asked()
        self.look_for_ends()
        self.check_deaths()
        self.fire_instants(total)
        self.let_on(total)
        left = deadline.left(
            "the job: " + self.state_of_things() if deadline.at - time.monotonic() <= 0 else "the job"
        )
        nearest = self.timers[0][0] - time.monotonic() if self.timers else 1.0
        wait = max(0.0, min(left, nearest, STOP_LOOK_S if self.asked or any(self.armed.values()) else 0.05))
        select.select([self.cluster.growth.fd], [], [], wait)
        self.cluster.growth.seen()

    def state_of_things(self):
        c = self.cluster
        said = [
            f"rank {r.rank}: {r.lines()} batches, "
            f"{'done' if r.done else 'down' if r.down else 'running' if r.process.running else 'ended'}: "
            f"{r.process.said(400)}"
            for r in self.ranks
        ]
        said += (
            [f"jobs: {c.ask('jobs', '--wait', 30)}", f"workers: {c.ask('workers', '--wait', 30)}"]
            if "dispatcher" not in self.dead
            else ["no dispatcher"]
        )
        said += [
            f"{p.name} (pid {p.pid}){' stopped' if p.stopped else ''}: {p.said(600)}"
            for p in [c.dispatcher, *c.workers.values()]
            if p
        ]
        return "\n".join(said)

    def run(self):
        p, c = self.plan, self.cluster
        local = self.local()
        self.pipeline = c.directory / "pipeline.json"
        self.pipeline.write_text(json.dumps(p["pipeline"]))
        self.start_dispatcher()
        for i in range(p["workers"]):
            self.start_worker(f"w{i}")
        self.began = time.monotonic()
        deadline = Deadline(OVERALL_S)
        if not p["clients_first"]:
            while silent := [w.popen.stdout for w in c.workers.values() if w.ready is None]:
                select.select(silent, [], [], min(deadline.left("the workers"), STOP_LOOK_S))
                self.look_for_ready()
                self.look_for_stops()
                self.check_deaths()
        self.began = time.monotonic()
        self.begin(p["world_size"])
        total = self.total(local)
        while not self.over() or any(r.down for r in self.ranks):
            self.step(deadline, total)
        self.seconds = time.monotonic() - self.began
        problems = oracle.check(self.job(), local) + self.check_registered() + self.check_take()
        return problems + self.end()

    def end(self):
        """What was done is undone, and the daemons are ended."""
        c = self.cluster
        for link in c.links.values():
            link.heal()
        for process, faults in self.armed.items():
            if faults:  # it could still stop itself, with nobody to see it
                process.kill9()
        for command, *_ in self.asked:
            command.wait(HANG_S)
        for process in c.processes:
            if process.running:
                process.cont()
        while self.awaited:
            self.look_for_ends()
            select.select([p.pidfd for p, *_ in self.awaited], [], [], 0.2)
        self.look_for_ready()
        for w in c.workers.values():  # one that came too late to serve
            if w.ready is None and w.running:
                w.kill9()
        return c.drain() + c.deaths()

    def cut(self):
        """A mutation that is being tested stays."""
        return {"CACHEW_MUTATE": "cut"} if self.plan.get("cut") and "CACHEW_MUTATE" not in os.environ else {}

    def play(self):
        """{"seed", "ok", "problems", "faults", "seconds", ...}."""
        self.began, self.seconds = time.monotonic(), None
        self.directory.mkdir(parents=True, exist_ok=True)
        self.cluster = Cluster(
            self.command,
            seed=self.plan["seed"],
            proxies=True,
            tag=f"soak{self.plan['seed']}",
            silence_s=SILENCE_S,
            env={"CACHEW_INDEX_DIR": str(self.directory / "index"), **self.cut()},
        )
        try:
            problems = self.run()
        except (Missed, Failed) as e:
            problems = [f"{type(e).__name__.lower()}: {e}"]
        except Exception:
            problems = [f"the test itself: {traceback.format_exc()}"]
        if problems and self.keep:
            self.cluster.keep = Path(self.keep) / f"seed-{self.plan['seed']}"
        self.cluster.close()
        if problems and self.keep:
            (self.cluster.keep / "plan.json").write_text(json.dumps(self.plan, indent=1))
            (self.cluster.keep / "problems.txt").write_text(
                "\n".join(problems) + "\n" + json.dumps(self.happened, indent=1) + "\n"
            )
            shutil.copytree(self.directory / "local", self.cluster.keep / "local", dirs_exist_ok=True)
        return {
            "seed": self.plan["seed"],
            "exact": self.plan["guarantee"] == "exactly-once",
            "ok": not problems,
            "problems": problems,
            "faults": self.happened,
            "unreached": len(self.plan["faults"]) - len(self.happened),
            "seconds": round(self.seconds if self.seconds is not None else time.monotonic() - self.began, 2),
        }
