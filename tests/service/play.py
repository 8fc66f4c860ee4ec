"""Plays a schedule (schedules.py): starts the service and the job, does to them what stands there, and lets the oracle judge what was delivered."""

import heapq
import json
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
from cluster import SLOWER, Cluster, Deadline, Missed, local_run  # noqa: E402
from schedules import INSTANT  # noqa: E402

OVERALL_S = 60 * SLOWER      # a schedule that takes longer hangs
CLIENT_WAIT_S = 45 * SLOWER  # of a client for a batch: less, so that the client says what is missing
STOP_LOOK_S = 0.01           # a process that stops itself is seen so soon: a pidfd does not tell
AGAIN_S = 0.3                # a client that did not find the service is started again
RETRY_S, RETRIES = 0.05, 20  # of a fault whose target is not there at the moment
REGISTERED = re.compile(r"registered as worker (\d+)")
POINT = "CACHEW_CRASH"       # of test builds: NAME:NTH:stop


class Failed(AssertionError):
    """Something ended that should not, or otherwise than it should."""


def without_delay(chain):
    return [op for op in chain if op["op"] != "delay"]


def dropped_by_ranks(plan):
    """Whether other elements are dropped than locally, by each rank or behind what was lost: then none is dropped in the run that it is compared with."""
    chain = plan["pipeline"]["pipeline"]
    split_up = plan["world_size"] > 1 or plan["guarantee"] == "at-most-once"
    return plan["order"] == "any" and split_up and any(op["op"] == "filter" for op in chain) and any(op.get("drop_remainder") for op in chain)


class Player:
    def __init__(self, plan, command, directory, keep=None):
        self.plan, self.command, self.directory, self.keep = plan, command, Path(directory), keep
        self.draw = random.Random(f"play/{plan['seed']}")
        self.timers, self.awaited, self.count = [], [], 0
        self.happened, self.missing = [], []
        self.ranks, self.generations = [], []
        self.dead = set()         # workers that are to come back, by key; "dispatcher"
        self.armed = {}           # process: fault
        self.to_arm = [f for f in plan["faults"] if "point" in f["at"]]
        self.instants = [f for f in plan["faults"] if "point" not in f["at"]]
        self.cluster = None

    # ---- the job ----

    def words(self):
        p = self.plan
        return ["--seed", p["run_seed"], "--epochs", p["epochs"], "--order", p["order"], "--guarantee", p["guarantee"]]

    def local(self):
        plain = self.directory / "plain.json"
        chain = without_delay(self.plan["pipeline"]["pipeline"])
        if dropped_by_ranks(self.plan):
            chain = [{**op, "drop_remainder": False} if "drop_remainder" in op else op for op in chain]
        plain.write_text(json.dumps({**self.plan["pipeline"], "pipeline": chain}))
        return local_run(self.command, plain, self.directory / "local", ["--seed", self.plan["run_seed"], "--epochs", self.plan["epochs"],
                                                                          "--index-dir", self.directory / "index"])[0]

    def start_rank(self, rank, world, start=None):
        p = self.plan
        r = self.cluster.rank(self.pipeline, "job", rank=rank, world_size=world, start=start, state_every=p["state_every"], with_state=p["with_state"],
                              dump=p["order"] == "any", words=[*self.words(), "--transport", p["transport"], "--wait", CLIENT_WAIT_S])
        r.done, r.down = False, False
        self.run_rank(r)
        return r

    def run_rank(self, r):
        fault = self.arm("client", r.rank)
        r.start(env=self.arming(fault))
        r.down = False
        self.watch(r.process, fault)

    def begin(self, world, start=None, at=None):
        self.ranks = [self.start_rank(rank, world, start) for rank in range(world)]
        self.generations.append((world, at, self.ranks))

    def job(self):
        dropped = sum(op["size"] - 1 for op in self.plan["pipeline"]["pipeline"] if op.get("drop_remainder")) * self.plan["world_size"] if dropped_by_ranks(self.plan) else 0
        return oracle.Job(self.plan["order"], self.plan["guarantee"],
                          [oracle.Generation(world, at, [r.parts() for r in ranks]) for world, at, ranks in self.generations], self.plan["epochs"], dropped)

    # ---- named points ----

    def arm(self, role, target):
        """The next fault at a named point for who is starting."""
        for f in self.to_arm:
            if f["at"]["role"] == role and (f["target"] == target or role == "dispatcher"):
                self.to_arm.remove(f)
                return f
        return None

    def arming(self, fault):
        return {POINT: f"{fault['at']['point']}:{fault['at']['nth']}:stop"} if fault else {}

    def watch(self, process, fault):
        if fault:
            self.armed[process] = fault

    def look_for_stops(self):
        for process, fault in list(self.armed.items()):
            if not process.running:
                del self.armed[process]
                continue
            if os.waitid(os.P_PIDFD, process.pidfd, os.WSTOPPED | os.WNOHANG) is None or process.stopped:
                continue  # what we stopped has not stopped itself
            del self.armed[process]
            if any(process is ending for ending, *_ in self.awaited):  # it has other things to do, and a fault of its own
                self.missing.append(fault)
                process.cont()
                continue
            process.stopped = True
            self.apply(fault, fault["at"]["phase"], process)
            if process.running and process.stopped and fault["kind"] != "pause":
                process.cont()

    # ---- time ----

    def after(self, seconds, function, *arguments):
        self.count += 1
        heapq.heappush(self.timers, (time.monotonic() + seconds, self.count, function, arguments))

    def run_timers(self):
        while self.timers and self.timers[0][0] <= time.monotonic():
            _, _, function, arguments = heapq.heappop(self.timers)
            function(*arguments)

    def when_ended(self, process, codes, then):
        self.awaited.append((process, codes, then, Deadline(30 * SLOWER)))

    def look_for_ends(self):
        for entry in list(self.awaited):
            process, codes, then, deadline = entry
            if process.running:
                deadline.left(f"the end of {process.name} (pid {process.pid}) after SIGTERM; its stderr: {process.said()}")
                continue
            self.awaited.remove(entry)
            if process.code not in codes:
                raise Failed(f"{process.name} ended with {process.code} after SIGTERM, {codes[0]} expected: {process.said()}")
            then()

    # ---- daemons ----

    def start_worker(self, key):
        fault = self.arm("worker", int(key[1:]))
        w = self.cluster.start_worker(key, "--threads", self.plan["threads"], "--memory", self.plan["memory"], env=self.arming(fault), wait=False)
        self.dead.discard(key)
        self.watch(w, fault)

    def start_dispatcher(self):
        fault = self.arm("dispatcher", 0)
        d = self.cluster.start_dispatcher(state_dir=self.plan["state_dir"], env=self.arming(fault))
        self.dead.discard("dispatcher")
        self.watch(d, fault)

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
                elif r.process.code == 3 and r.runs[-1].lines() == 0 and "can't be reached" in r.process.said():
                    r.down = True  # a job that begins does not wait for a service that is not there: who runs it tries again
                    self.after(AGAIN_S, self.rank_again, r)
                elif not r.process.expected_end:
                    raise Failed(f"{r.name}, process {len(r.runs) - 1}, ended with {r.process.code}: {r.process.said()}")

    # ---- faults ----

    def find(self, role, target):
        """Who it happens to: the one named, or the next that is there. None: nobody is."""
        if role == "dispatcher":
            return None if "dispatcher" in self.dead else self.cluster.dispatcher
        if role == "worker":
            there = [w for key, w in sorted(self.cluster.workers.items()) if key not in self.dead and w.running and not w.expected_end]
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
            return "attach" if (r.runs[-1].lines() if r else sum(x.lines() for x in self.ranks)) == 0 else INSTANT
        if role in ("worker", "worker-dispatcher"):
            w = target if role == "worker" else None
            return "attach" if w is not None and w.ready is None else INSTANT
        return "attach" if sum(x.lines() for x in self.ranks) == 0 else INSTANT

    def apply(self, fault, phase=None, process=None, tries=0):
        """process: who has stopped itself at the fault's point."""
        role, kind, hold = fault["role"], fault["kind"], fault["hold_s"]
        if "-" in role:
            done = self.break_link(fault, process)
            phase = phase or self.phase(role, None)
        else:
            target = self.find(role, fault["target"]) if process is None else process
            if process is not None and role == "client":
                target = next((r for r in self.ranks if r.process is process), None)
            done = target is not None
            phase = phase or (self.phase(role, target) if done else None)
            if done:
                getattr(self, f"{role}_{kind.replace('9', '')}")(target, hold)
        if done:
            self.happened.append({"role": role, "kind": kind, "phase": phase, "t": round(time.monotonic() - self.began, 3),
                                  **({"point": fault["at"]["point"]} if "point" in fault["at"] else {})})
        elif tries < RETRIES:
            self.after(RETRY_S, self.apply, fault, phase, None, tries + 1)
        else:
            self.missing.append(fault)

    def break_link(self, fault, process):
        """False: there was nothing to break."""
        role, kind = fault["role"], fault["kind"]
        key = next((k for k, w in self.cluster.workers.items() if w is process), None) if process else None
        rank = next((r.rank for r in self.ranks if r.process is process), None) if process else None
        if role == "client-dispatcher":
            name = f"client-job-{rank if rank is not None else fault['target'] % len(self.ranks)}-dispatcher"
        else:
            key = key or sorted(self.cluster.workers)[fault["target"] % len(self.cluster.workers)]
            name = f"{key}-dispatcher" if role == "worker-dispatcher" else f"client-{key}"
        link = self.cluster.links.get(name)
        if link is None or link.n_connections == 0:
            return False
        on = {"drop": link.drop, "reset": link.reset, "half-close": lambda: link.half_close(fault["direction"]), "damage": lambda: link.damage(fault["direction"]),
              "delay": lambda: link.delay(fault.get("delay_s", 0.05)), "throttle": lambda: link.throttle(fault.get("rate", 50_000)), "stall": lambda: link.stall(True),
              "black-hole": lambda: link.black_hole(True), "refuse": lambda: (link.refuse(True), link.drop())}
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
            return self.worker_kill(w, hold)
        self.dead.add(key)
        w.terminate()
        self.when_ended(w, (0,), lambda: self.after(hold, self.start_worker, key))

    def worker_drain(self, w, hold):
        if w.ready is None:
            return self.worker_kill(w, hold)
        if w.stopped:
            w.cont()
        self.cluster.ask("workers", "--drain", w.ready["id"])  # the dispatcher may be away: then it is just restarted
        self.after(hold, lambda: self.worker_restart(w, 0.0) if w.running and not w.expected_end else None)

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
            return self.client_kill(r, hold)
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

    # ---- what was acknowledged ----

    def check_registered(self):
        """Where there is a journal, a worker's number is its own for ever: no other has it, and it has no other."""
        problems, owners = [], {}
        for p in self.cluster.processes if self.plan["state_dir"] else []:
            for number in dict.fromkeys(REGISTERED.findall(p.said(1 << 20))):
                if p.name in owners.values():
                    problems.append(f"worker number: {p.name} is worker {number}, and was worker {next(n for n, name in owners.items() if name == p.name)} before")
                if number in owners:
                    problems.append(f"worker number: {p.name} and {owners[number]} are both worker {number}")
                owners[number] = p.name
        return problems

    # ---- all of it ----

    def total(self, local):
        return sum(len(batches) for batches in local.epochs.values()) or 1

    def fire_instants(self, total):
        share = sum(r.lines() for r in self.ranks) / total
        t = time.monotonic() - self.began
        for f in list(self.instants):
            if f["at"].get("share", 2) <= share or f["at"].get("time_s", 1e9) <= t:
                self.instants.remove(f)
                self.apply(f)

    def step(self, deadline, total):
        self.run_timers()
        self.look_for_ready()
        self.look_for_stops()
        self.look_for_ends()
        self.check_deaths()
        self.fire_instants(total)
        left = deadline.left("the job: " + self.state_of_things() if deadline.at - time.monotonic() <= 0 else "the job")
        nearest = self.timers[0][0] - time.monotonic() if self.timers else 1.0
        wait = max(0.0, min(left, nearest, STOP_LOOK_S if self.armed else 0.05))
        select.select([self.cluster.growth.fd], [], [], wait)
        self.cluster.growth.seen()

    def state_of_things(self):
        c = self.cluster
        said = [f"rank {r.rank}: {r.lines()} batches, {'done' if r.done else 'down' if r.down else 'running' if r.process.running else 'ended'}: {r.process.said(400)}"
                for r in self.ranks]
        said += [f"jobs: {c.ask('jobs', seconds=10)}", f"workers: {c.ask('workers', seconds=10)}"] if "dispatcher" not in self.dead else ["no dispatcher"]
        said += [f"{p.name} (pid {p.pid}){' stopped' if p.stopped else ''}: {p.said(600)}" for p in [c.dispatcher, *c.workers.values()] if p]
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
            while (silent := [w.popen.stdout for w in c.workers.values() if w.ready is None]) and not self.armed:
                select.select(silent, [], [], deadline.left("the workers"))
                self.look_for_ready()
                self.check_deaths()
        self.began = time.monotonic()
        self.begin(p["world_size"])
        total = self.total(local)
        while not all(r.done for r in self.ranks) or any(r.down for r in self.ranks):
            self.step(deadline, total)
        self.seconds = time.monotonic() - self.began
        problems = oracle.check(self.job(), local) + self.check_registered()
        return problems + self.end()

    def end(self):
        """What was done is undone, and the daemons are ended."""
        c = self.cluster
        for link in c.links.values():
            link.heal()
        for process in self.armed:  # it could still stop itself, with nobody to see it
            process.kill9()
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

    def play(self):
        """{"seed", "ok", "problems", "faults", "seconds", ...}."""
        self.began, self.seconds = time.monotonic(), None
        self.directory.mkdir(parents=True, exist_ok=True)
        self.cluster = Cluster(self.command, seed=self.plan["seed"], proxies=True, tag=f"soak{self.plan['seed']}", env={"CACHEW_INDEX_DIR": str(self.directory / "index")})
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
            (self.cluster.keep / "problems.txt").write_text("\n".join(problems) + "\n" + json.dumps(self.happened, indent=1) + "\n")
            shutil.copytree(self.directory / "local", self.cluster.keep / "local", dirs_exist_ok=True)
        return {"seed": self.plan["seed"], "ok": not problems, "problems": problems, "faults": self.happened, "unreached": len(self.to_arm) + len(self.armed) + len(self.missing),
                "seconds": round(self.seconds if self.seconds is not None else time.monotonic() - self.began, 2)}
